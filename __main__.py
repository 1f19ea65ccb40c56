"""``python FOLDER VERB``, with this folder: the toolkit from wherever one stands, as the noxfile starts it."""

import sys

from torchbake.__main__ import main

sys.exit(main())
