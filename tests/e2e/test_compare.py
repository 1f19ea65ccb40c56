"""The commands of docs/explanation/compare.md that measure an image agree with the page, on one of our images."""

import re
import subprocess

import pytest

from tests.e2e.conftest import CPU, ROOT, ref_of
from tests.unit.test_compare import NEAR, ROWS, bytes_of

pytestmark = pytest.mark.proof

_SIZES = (ROOT / "docs/explanation/compare.md").read_text().partition("\n## Sizes\n")[2].partition("\n## ")[0]
PULL, INSPECT, HISTORY = re.findall(r"^    (docker .*)$", _SIZES, re.MULTILINE)


def read_output(line: str, ref: str) -> str:
    line = line.replace("pytorch/pytorch:latest", ref)
    return subprocess.run(["bash", "-euc", line], capture_output=True, text=True, check=True).stdout.strip()


def test_the_commands_measure_what_the_page_says_of_ours() -> None:
    assert PULL == "docker pull pytorch/pytorch:latest"
    ((_, packed, unpacked, layers),) = (row for row in ROWS if row[0] == CPU)
    ref = ref_of(CPU)
    match = re.fullmatch(r"(\d+) bytes packed, (\d+) layers", read_output(INSPECT, ref))
    assert match
    assert int(match[1]) == pytest.approx(bytes_of(packed), rel=NEAR)
    assert match[2] == layers
    assert int(read_output(HISTORY, ref)) == pytest.approx(bytes_of(unpacked), rel=NEAR)
