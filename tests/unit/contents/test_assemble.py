"""The inventory of an image: what it says of each layer."""

from tests.unit.contents.layers import image_of
from tests.unit.layouts import file


def test_steps_have_no_secrets() -> None:
    step = "RUN |1 HF_TOKEN=hunter2 pip install --index-url https://u:pw@example.com/simple x"
    (layer,) = image_of([file("a", b"1")], steps=[step]).layers
    assert layer.step == "RUN |1 HF_TOKEN=*** pip install --index-url ***example.com/simple x"
