"""What was measured, kept: a line of JSON each, and the same as a CSV for spreadsheets."""

import csv
import io
import json
import os
import shlex
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from torchbake.benchmark.expand import Experiment
from torchbake.benchmark.outcome import Result, Series
from torchbake.core.files import write_text
from torchbake.core.ownership import check_links


class Where(BaseModel):
    """Where it was measured. ``digest`` is the image's, empty for a host; ``host`` names all machines that ran it.

    ``bench`` is the digest of this toolkit's `bench`, where the place has none of its own.
    """

    model_config = ConfigDict(frozen=True)

    kind: str
    name: str
    digest: str = ""
    host: str
    bench: str = ""

    @property
    def machines(self) -> frozenset[str]:
        """Each of them works on one experiment at a time."""
        return frozenset(self.host.split(", "))


class Record(BaseModel):
    """One measurement, or in ``reason`` why there is none, of which kind ``failure`` is.

    ``command`` is as a shell takes it, ``started`` an ISO time in UTC.
    """

    model_config = ConfigDict(frozen=True)

    experiment: Experiment
    where: Where
    command: str
    started: str
    seconds: float
    reason: str = ""
    failure: Literal["", "out-of-memory", "not-run"] = ""
    result: Result | None = None
    monitor: Series | None = None

    @property
    def status(self) -> str:
        return "success" if self.result else self.failure or "failure"

    @property
    def key(self) -> str:
        return key_of(self.experiment, self.where)


def key_of(experiment: Experiment, where: Where) -> str:
    """Equal for what need not be measured again: the same experiment, on the same image or place, on the same machine.

    An image is known by its digest, whatever its tags are; a model's own file and a mounted `bench` by theirs.
    """
    place = where.digest or where.name
    return json.dumps([experiment.model_dump(), place, where.host, where.bench], sort_keys=True)


@dataclass(frozen=True, kw_only=True)
class Records:
    """A file with a record a line. It only grows: what a run was killed over is one torn line, which nobody counts."""

    path: Path

    def add(self, record: Record) -> None:
        """Raises OSError."""
        check_links(self.path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = record.model_dump_json() + "\n"
        handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        with os.fdopen(handle, "rb+") as file:
            torn = file.seek(0, os.SEEK_END) > 0 and os.pread(handle, 1, file.tell() - 1) != b"\n"
            file.write(("\n" if torn else "").encode() + line.encode())
            file.flush()
            os.fsync(handle)

    def all(self) -> list[Record]:
        """Oldest first; lines that are not records of ours are left out. Raises OSError."""
        return list(_read(self.path.read_bytes().splitlines())) if self.path.exists() else []

    def measured(self) -> dict[str, Record]:
        """The newest success of each, by its key."""
        return {record.key: record for record in self.all() if record.result}


def _read(lines: Iterable[bytes]) -> Iterator[Record]:
    for line in lines:
        try:
            yield Record.model_validate_json(line)
        except ValidationError:
            continue


def write_csv(path: Path, records: Iterable[Record]) -> None:
    """The same as a table, times in seconds. Raises OSError."""
    _write_table(path, COLUMNS, [row_of(record) for record in records])


def _write_table(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=columns, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    write_text(path, text.getvalue())


def _cell(value: object) -> object:
    """A value as a spreadsheet shows it: a text that begins like a formula gets an apostrophe before it.

    Names, reasons and notes come from plans, hosts and images.
    Source: https://owasp.org/www-community/attacks/CSV_Injection
    """
    if not isinstance(value, str):
        return value
    text = value.replace("\r", " ")  # ends a row, and csv of Python 3.12 and earlier puts no quotes around it
    return f"'{text}" if value.startswith(_FORMULA) else text


_FORMULA = ("=", "+", "-", "@", "\t", "\r")
COLUMNS = (
    "model", "phase", "dtype", "batch_size", "gpus", "on", "kind", "place", "digest", "host", "started", "status",
    "reason", "throughput", "time_mean", "time_median", "time_std", "time_min", "time_max", "time_p5", "time_p95",
    "time_p99", "time_data", "num_batches", "num_warmup_batches", "data_backend", "env", "nodes", "world",
    "effective_batch", "device", "peak_rss_bytes", "peak_gpu_bytes", "torch", "cuda", "cpu", "notes",
)  # fmt: skip


MONITORED = (
    "model", "phase", "dtype", "batch_size", "gpus", "nodes", "place", "started", "status", *Series.model_fields
)  # fmt: skip


def write_monitor(path: Path, records: Iterable[Record]) -> None:
    """The time series of all records that have one, a row for each moment. Raises OSError."""
    rows = list[dict[str, object]]()
    for record in records:
        case = record.experiment.model_dump(include={"model", "phase", "dtype", "batch_size", "gpus", "nodes"})
        case |= {"place": record.where.name, "started": record.started, "status": record.status}
        rows += (case | moment for moment in _moments(record.monitor))
    _write_table(path, MONITORED, rows)


def _moments(series: Series | None) -> Iterator[dict[str, object]]:
    figures = {name: values for name, values in dict(series or ()).items() if values}
    for moment in zip(*figures.values(), strict=True):
        yield {name: "" if value is None else value for name, value in zip(figures, moment, strict=True)}


def row_of(record: Record) -> dict[str, object]:
    """One record as a row of the table."""
    case, where, result = record.experiment, record.where, record.result
    row: dict[str, object] = dict.fromkeys(COLUMNS, "")
    row |= case.model_dump(include={"model", "phase", "dtype", "batch_size", "gpus", "nodes"})
    row |= {"kind": where.kind, "place": where.name, "digest": where.digest, "host": where.host}
    row |= case.settings.model_dump(include={"num_batches", "num_warmup_batches"})
    row["data_backend"] = case.settings.data_backend if case.settings.data_dir else "synthetic"
    row["on"] = "gpu" if case.on_gpu else "cpu"
    row["env"] = " ".join(f"{name}={shlex.quote(value)}" for name, value in case.settings.env.items())
    row |= {"started": record.started, "status": record.status, "reason": record.reason}
    if result is None:
        return row
    row |= {f"time_{name}": value for name, value in result.time.model_dump().items()}
    row |= result.model_dump(include={"throughput", "world", "nodes", "effective_batch"})
    row["time_data"] = statistics.fmean(result.data_times) if result.data_times else ""
    row |= result.memory.model_dump() | {"device": " + ".join(result.devices) or result.device}
    row |= {name: result.versions.get(name) or "" for name in ("torch", "cuda")}
    return row | {"cpu": result.host.cpu, "notes": " ".join(result.notes)}
