"""``python FOLDER COMMAND``, with this folder: the toolkit from wherever one stands, as the noxfile starts it."""

from torchbake.__main__ import run

run()
