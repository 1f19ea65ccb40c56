"""The lock of an image follows from its project's lock: what it has, when it is out of date, and what is refused."""

from pathlib import Path

import pytest

from tests.unit.projects.broken import ALL
from tests.unit.projects.projects import copy_trainer, make_index, trainer_image
from torchbake.errors import LockError
from torchbake.projects.lock import lock_image

pytestmark = pytest.mark.usefixtures("own_processes")


def test_each_broken_project_is_one_sentence_with_a_place_and_a_step(tmp_path: Path) -> None:
    config, faults = make_index(tmp_path / "simple"), list[str]()
    for number, case in enumerate(ALL):
        root = tmp_path / str(number)
        copy_trainer(root)
        case.edit(root)
        torch_and_more = dict(case.spec)
        accelerator = torch_and_more.pop("spec_accelerator", "cuda12.8")
        spec = trainer_image(case.lock, accelerator=accelerator, **torch_and_more)
        try:
            lock_image(root, spec, config)
        except LockError as error:
            if case.place not in error.message or not error.hint or str(tmp_path) in error.message:
                faults.append(f"{case.name}: {error.message} NEXT {error.hint}")
        except Exception as error:
            faults.append(f"{case.name}: {error!r}")
        else:
            faults.append(f"{case.name}: no error")
    assert not faults, "\n".join(faults)
    assert len(ALL) >= 40
