"""Draws the steps of a build over time: builds an image, or reads the record of a build."""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.plans import TARGET, Plans, make_plan
from benchmarks.trace_page import KIND_HEAD, STEP_HEAD, kind_rows, render_page, step_rows
from benchmarks.trace_steps import last_stage, layers_event, steps_of, totals, whole
from torchbake.build.buildkit_progress import events
from torchbake.core.files import write_text
from torchbake.core.paths import TOOLKIT
from torchbake.engine.client import Engine, answering
from torchbake.ui import console

_REPORTS = TOOLKIT / "reports/traces"


def trace(args: argparse.Namespace) -> None:
    """Print the steps and the kinds of one build, and write its page; the record stays."""
    path = Path(args.selectors[0])
    record = path if path.suffix == ".jsonl" else _record(args.selectors[0], no_cache=args.no_cache)
    steps = steps_of(_recorded(record))
    if not steps:
        sys.exit(f"{record} has no finished step: name an output of `docker buildx --progress rawjson`.")
    page = _REPORTS / f"{record.stem}.html"
    write_text(page, render_page(steps, title=record.stem))
    if args.json:
        kinds = [asdict(one) for one in totals(steps)]
        console.show_json({"seconds": whole(steps), "kinds": kinds, "steps": [asdict(step) for step in steps]})
    else:
        short = [(*row[:1], row[1][:80], *row[2:]) for row in step_rows(steps)]
        console.show_table(STEP_HEAD, short, title=f"{record.stem}: {whole(steps):.1f} s")
        console.show_table(KIND_HEAD, kind_rows(steps), title="by kind")
    console.say(f"the picture: {page}; its record: {record}")


def _recorded(record: Path) -> Iterator[dict[str, Any]]:
    try:
        with record.open(encoding="utf-8", errors="replace") as lines:
            yield from (event for event in events(lines) if not isinstance(event, str))
    except OSError as error:
        sys.exit(f"{record} cannot be read: {error.strerror}. Name an image, or a record that a trace wrote.")


def _record(name: str, *, no_cache: bool) -> Path:
    """Build the image's plan in the engine's present builder, record BuildKit's events, and remove the image."""
    record, image = _REPORTS / f"{name}.jsonl", make_plan("trace")
    with tempfile.TemporaryDirectory() as folder:
        plans = Plans(name, Path(folder))
        target = plans.target(plans.project) | ({"no-cache": True} if no_cache else {})
        console.say(f"building {name} …")
        with plans.write_plan(target, image) as file:
            lines = events_of("docker", "buildx", "bake", "--file", str(file), "--progress", "rawjson", TARGET)
        try:
            lines.append(layers_event(_layers(plans.engine, image)))
        finally:
            plans.engine.remove([image])
    write_text(record, "".join(f"{json.dumps(line)}\n" for line in lines))
    return record


def events_of(*words: str) -> list[dict[str, Any]]:
    """Run a build, and return its events; a failure ends the benchmark with the last lines of output."""
    matches, output = list[dict[str, Any]](), list[str]()
    with subprocess.Popen(
        words, cwd=TOOLKIT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", close_fds=False,  # secrets are inherited
    ) as process:  # fmt: skip
        for event in events(process.stdout or ()):
            if isinstance(event, str):
                output.append(event)
            else:
                matches.append(event)
    if process.returncode:
        sys.exit(f"{' '.join(words)} ended with {process.returncode}:\n" + "\n".join(output[-15:]))
    return matches


def _layers(engine: Engine, image: str) -> list[int]:
    with answering():
        history = engine.client.images.get(image).history()
    return last_stage((entry["CreatedBy"], entry["Size"]) for entry in history)
