"""Targets that a builder gets for one image, and the image that its export becomes."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from tests.unit.build.packing import CUDA, job_of
from tests.unit.layouts import archive, file, put
from torchbake.build.bakefile import BuildOptions, export_spec, target_name
from torchbake.build.bakery import Bakery
from torchbake.build.buildkit_progress import BuildStep, Progress
from torchbake.build.buildx import Builder, BuildOutcome
from torchbake.build.podman_file import steps_of
from torchbake.core.files import write_text
from torchbake.errors import BuildError
from torchbake.matrix.project import Project
from torchbake.store.layers import LayerStore
from torchbake.store.layout import Layout
from torchbake.store.own_layers import OwnLayers

OPTIONS = BuildOptions(output=export_spec(), created="2026-01-01T00:00:00+00:00", revision="c0ffee")


@dataclass
class AtOnce(Builder):
    """A builder that reads no bake file before all have been written."""

    barrier: Barrier
    logs: list[Path] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)

    @property
    def stopped(self) -> bool:
        return False

    def build(
        self, bake_file: Path, target: str, log: Path, on_step: Callable[[Progress, list[BuildStep]], None]
    ) -> BuildOutcome:
        self.barrier.wait(60)
        plan = json.loads(bake_file.read_text())["target"][target]
        self.outputs.append(f"{plan['contexts']['sources']}: {plan['output'][0]}")
        self.logs.append(log)
        write_text(log, "done\n")
        return BuildOutcome(seconds=1.0, digests=(), errors=(), tail=())


def test_two_wheels_that_are_compiled_at_once_are_each_their_own(packing: Project, tmp_path: Path) -> None:
    builder = AtOnce(Barrier(2))
    bakery = bakery_of(builder, packing, tmp_path)
    names = ("torch", "triton")
    compile_ = partial(bakery.bytecode, job_of(packing, CUDA))
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda name: compile_(tmp_path / "of" / name, "/pytorch", tmp_path / "to" / name), names))
    assert sorted(builder.outputs) == [
        f"{tmp_path}/of/{name}: type=local,dest={tmp_path}/to/{name}" for name in names
    ]  # fmt: skip
    assert sorted(path.name for path in builder.logs) == [f"image-{name}-bytecode.log" for name in names]


@dataclass
class Says(Builder):
    """A builder whose images' Python says this, or that fails."""

    words: str

    @property
    def stopped(self) -> bool:
        return False

    def build(
        self, bake_file: Path, target: str, log: Path, on_step: Callable[[Progress, list[BuildStep]], None]
    ) -> BuildOutcome:
        plan = json.loads(bake_file.read_text())["target"][target]
        folder = Path(plan["output"][0].removeprefix("type=local,dest="))
        if self.words:
            (folder / "python").write_text(self.words)
        errors = () if self.words else ("no space left on device",)
        return BuildOutcome(seconds=1.0, digests=(), errors=errors, tail=())


def bakery_of(builder: Builder, packing: Project, folder: Path) -> Bakery:
    return Bakery(
        builder=builder, root=packing.root, options=OPTIONS, secrets={}, log=folder / "image.log",
        on_step=lambda progress, steps: None, again=lambda why: None,
        own=OwnLayers(store=LayerStore(folder=folder / "layers"), epoch=0),
    )  # fmt: skip


def test_an_images_python_says_what_it_is(packing: Project, tmp_path: Path) -> None:
    output = "cpython-311 3.11.2 (main, Apr 28 2025, 14:11:48) [GCC 12.2.0]\n"
    assert bakery_of(Says(words=output), packing, tmp_path).python(job_of(packing, CUDA)) == output


def test_a_python_that_cannot_be_asked_is_told(packing: Project, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="the version of its Python cannot be read: no space left"):
        bakery_of(Says(words=""), packing, tmp_path).python(job_of(packing, CUDA))


@dataclass
class Exports(Builder):
    """A builder that exports an image of one layer above others, made by the last of so many ``steps``."""

    steps: int
    below: tuple[bytes, ...] = ()
    plans: list[dict[str, Any]] = field(default_factory=list)

    @property
    def stopped(self) -> bool:
        return False

    def build(
        self, bake_file: Path, target: str, log: Path, on_step: Callable[[Progress, list[BuildStep]], None]
    ) -> BuildOutcome:
        self.plans.append(json.loads(bake_file.read_text())["target"][target])
        (output,) = self.plans[-1]["output"]
        write_text(log, "built\n")
        history = [{"created_by": "", "empty_layer": number > 0} for number in range(self.steps)][::-1]
        layout = Layout(folder=Path(output.partition("dest=")[2]))
        lower = [{"created_by": "below"} for _ in self.below]
        content = (*self.below, archive(file("a")))
        digest = put(layout, *content, packing="tar", config={"history": [*lower, *history]})
        return BuildOutcome(seconds=1.0, digests=(digest,), errors=(), tail=())


def test_an_export_becomes_an_image_or_an_error(packing: Project, tmp_path: Path) -> None:
    job = job_of(packing, CUDA)
    for steps, words in ((1000, ""), (1, "recorded 1 of")):
        bakery = bakery_of(Exports(steps=steps), packing, tmp_path)
        options = replace(OPTIONS, exports=tmp_path / str(steps))
        outcome = replace(bakery, options=options).image(job)
        assert outcome.ok == (not words)
        assert words in "".join(outcome.errors)
        if outcome.ok:
            layout = Layout(folder=tmp_path / str(steps) / target_name(job.spec))
            manifest = layout.get(outcome.digests[0])
            config = json.loads(layout.path(manifest.config.digest).read_text())
            assert [blob.media_type.rpartition("+")[2] for blob in manifest.layers] == ["zstd"]
            assert (config["created"], "LABEL" in str(config["history"])) == (OPTIONS.created, True)


def test_steps_of_a_template_are_built_on_an_image(packing: Project, tmp_path: Path) -> None:
    """Its layers stay as they are, and only the template's own steps are written."""
    write_text(
        packing.root / "templates/pytorch.Dockerfile.j2",
        '{% extends "pytorch.Dockerfile.j2" %}{% block end %}\nRUN echo a > /a\n{% endblock %}',
    )
    job, wheel, whole = job_of(packing, CUDA), archive(file("wheel")), Layout(folder=tmp_path / "whole")
    digest = put(Layout(folder=tmp_path / "rest"), wheel)
    whole.take(tmp_path / "rest", digest)
    options = replace(OPTIONS, exports=tmp_path / "out", pull=True, cache_to=("type=inline",), cache_from=("mine",))
    steps = len([*steps_of(job.dockerfile, replaced=[*job.contexts, "whole"], arguments={})])
    builder = Exports(steps=steps, below=(wheel,))
    bakery = replace(bakery_of(builder, packing, tmp_path), options=options)
    write_text(bakery.log, "the other steps\n")
    outcome = bakery.above(job, whole, digest)
    assert outcome.ok, outcome.errors
    layout = Layout(folder=tmp_path / "out" / target_name(job.spec))
    manifest = layout.get(outcome.digests[0])
    assert manifest.layers[0] == whole.get(digest).layers[0], "the wheel is neither packed nor compressed again"
    assert len(manifest.layers) == 2
    config = json.loads(layout.path(manifest.config.digest).read_text())
    assert [step["created_by"] for step in config["history"]][-1] == "RUN /bin/sh -c echo a > /a # buildkit"
    (plan,) = builder.plans
    assert plan["contexts"]["whole"] == f"oci-layout://{whole.folder}@{digest}"
    assert plan.keys() & {"pull", "cache-to", "cache-from"} == {"cache-from"}
    assert (tmp_path / "image-rest.log").read_text() == "the other steps\n"
