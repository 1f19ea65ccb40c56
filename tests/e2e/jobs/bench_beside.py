"""Compares `bench` with torch.utils.benchmark, and the samples of `bench` with the original pixels.

Prints as JSON the median seconds of both for the same steps of the same model. The measurements alternate, so that
other load on the machine affects both equally.
"""

# ruff: noqa: PLC0415 - the packages of `bench` can be imported when it has been loaded

import json
import sys
from importlib.machinery import SourceFileLoader
from itertools import repeat
from pathlib import Path
from statistics import fmean, median

import torch
from torch.utils.benchmark import Timer

TOOLBOX, DATA = Path("/opt/torchbake"), Path(sys.argv[1])
ROUNDS, STEPS, WARM = 15, 8, 2


def main() -> None:
    SourceFileLoader("bench", str(TOOLBOX / "bench")).load_module()  # lets its packages be imported as it does
    look_at_samples()
    print(json.dumps(beside()))


def beside() -> dict[str, float]:
    """Measure the step of `bench` in its loop, and the same training written by hand in torch's timer."""
    from toolbox.throughput import loop, work, zoo
    from toolbox.throughput.ranks import RankInfo

    torch.set_num_threads(1)
    entry = zoo.load(f"{Path(__file__).parent}/net.py:Net")
    ranks = RankInfo(rank=0, size=1, local=1, device=torch.device("cpu"))
    batch = zoo.batch(entry, 16, "cpu", torch.float32)
    own = work.make_model(entry, ranks, torch.float32)
    step = work.make_step(entry, own, ranks, forward_only=False)
    model = entry.make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    timer = Timer(
        "optimizer.zero_grad(); cross_entropy(model(x), y).backward(); optimizer.step()",
        globals={
            "x": batch[0], "y": batch[1], "model": model, "optimizer": optimizer,
            "cross_entropy": torch.nn.functional.cross_entropy,
        },
    )  # fmt: skip
    ours, theirs = [], []
    for _ in range(ROUNDS):
        loop.run(loop.HostClock(), repeat(batch), step, WARM)  # as many as timeit() runs before it looks at the clock
        ours.append(fmean(loop.run(loop.HostClock(), repeat(batch), step, STEPS).times))
        theirs.append(timer.timeit(STEPS).mean)
    return {"bench": median(ours), "torch": median(theirs)}


def look_at_samples() -> None:
    """Check that a decoded image has the original pixels, also if it is stored as a Caffe datum."""
    from make_images import datum  # type: ignore[import-not-found]
    from PIL import Image
    from toolbox.throughput.data.caffe_lmdb import pixels_of
    from toolbox.throughput.data.datum import parse
    from toolbox.throughput.data.pixels import decode, sample

    image = Image.new("RGB", (6, 4), (200, 100, 50))
    image.putpixel((5, 0), (1, 2, 3))
    image.save(DATA / "one.png")
    plain = decode(DATA / "one.png", "one.png")
    assert plain.shape == (3, 4, 6)
    assert plain[:, 0, 5].tolist() == [1, 2, 3]
    assert torch.equal(pixels_of(parse(datum(image, 0, encoded=False)), "a datum"), plain)
    grey = torch.full((3, 40, 60), 128, dtype=torch.uint8)
    for training in (True, False):
        values = sample(grey, (32, 24), training=training)
        assert values.shape == (3, 32, 24)
        expected = [(128 / 255 - mean) / std for mean, std in ((0.485, 0.229), (0.456, 0.224), (0.406, 0.225))]
        assert torch.allclose(values.mean(dim=(1, 2)), torch.tensor(expected), atol=1e-4)


main()
