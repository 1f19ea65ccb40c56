"""GPUs by name, and which code runs on them."""

import pytest

from torchbake.contents.gpus import CAPABILITIES, needless, parse_gpus, runs
from torchbake.errors import UsageError


def test_gpus_are_capabilities_and_names() -> None:
    assert parse_gpus("9.0,8.0, L4,A100") == ((8, 0), (8, 9), (9, 0))
    assert parse_gpus("sm_90a,rtx 4090,NVIDIA H100,RTX-PRO-6000,10.3") == ((8, 9), (9, 0), (10, 3), (12, 0))


def test_an_unknown_gpu_is_refused_with_the_nearest_names() -> None:
    for text, hint in (("H10", "H100"), ("9", "8.0,9.0"), ("", "8.0,9.0"), ("8.0,,9.0", "8.0"), ("L400", "L40")):
        with pytest.raises(UsageError) as caught:
            parse_gpus(text)
        assert hint in (caught.value.hint or "")


def test_every_name_is_one_that_the_option_takes() -> None:
    for name, capability in CAPABILITIES.items():
        assert parse_gpus(name.lower()) == (capability,)


def test_code_runs_by_the_rules_of_compatibility() -> None:
    for architecture, gpu, expected in (
        ("sm_80", (8, 0), True),
        ("sm_80", (8, 9), True),
        ("sm_89", (8, 0), False),
        ("sm_80", (9, 0), False),
        ("sm_90", (9, 0), True),
        ("sm_90a", (9, 0), True),
        ("sm_100a", (10, 3), False),
        ("sm_100", (10, 3), True),
        ("sm_87", (8, 9), False),
        ("sm_87", (8, 7), True),
        ("compute_80", (8, 0), True),
        ("compute_80", (12, 0), True),
        ("compute_90", (8, 9), False),
        ("compute_120", (9, 0), False),
        ("lto_50", (9, 0), True),
        ("lto_100", (9, 0), False),
        ("amdgcn", (9, 0), True),
    ):
        assert runs(architecture, gpu) == expected, (architecture, gpu)


def test_code_is_needless_if_no_gpu_runs_it() -> None:
    names = ["sm_70", "sm_80", "sm_90", "compute_90"]
    assert needless(names, [(8, 9)]) == ["sm_70", "sm_90", "compute_90"]
    assert needless(names, [(8, 9), (9, 0)]) == ["sm_70"]
