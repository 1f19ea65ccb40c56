"""Records of measurements: a file of JSON lines, and CSV tables for spreadsheets."""

import contextlib
import csv
import io
import json
import os
import shlex
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from torchbake.benchmark.expand import Experiment
from torchbake.benchmark.outcome import BenchResult, ResultPart, Series
from torchbake.core.file_format import UPGRADE, why_too_new
from torchbake.core.files import write_text
from torchbake.core.foreign_folder import open_file
from torchbake.core.json_text import NotJsonError, read_object
from torchbake.errors import BenchmarkError


class Where(ResultPart):
    """The place of a measurement. ``digest`` is the image's (empty: a host), ``host`` names all machines that ran it.

    ``bench`` is the digest of this toolkit's `bench`, if it was used in place of the image's.
    """

    kind: str
    name: str
    digest: str = ""
    host: str
    bench: str = ""

    @property
    def machines(self) -> frozenset[str]:
        """The machines of the place; each of them runs one experiment at a time."""
        return frozenset(self.host.split(", "))


class RunRecord(ResultPart):
    """A measurement, or the ``reason`` and the kind of its ``failure``.

    ``command`` is a shell command, ``started`` an ISO time in UTC.
    """

    experiment: Experiment
    where: Where
    command: str
    started: str
    seconds: float
    reason: str = ""
    failure: Literal["", "out-of-memory", "not-run"] = ""
    result: BenchResult | None = None
    monitor: Series | None = None

    @property
    def status(self) -> str:
        return "success" if self.result else self.failure or "failure"

    @property
    def key(self) -> str:
        return key_of(self.experiment, self.where)


def key_of(experiment: Experiment, where: Where) -> str:
    """Return the identity of a measurement: the experiment, the image or host, and the machine.

    Images, the files of models, and a mounted `bench` are identified by their digests, not by their names.
    """
    place = where.digest or where.name
    return json.dumps([experiment.model_dump(), place, where.host, where.bench], sort_keys=True)


@dataclass(frozen=True, kw_only=True)
class Records:
    """A file with a record on each line, which is only appended to. An incomplete line of a killed run is ignored."""

    path: Path

    def add(self, record: RunRecord) -> None:
        """Append a record. Raise OSError."""
        line = record.model_dump_json() + "\n"
        handle = open_file(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        with os.fdopen(handle, "rb+") as file:
            torn = file.seek(0, os.SEEK_END) > 0 and os.pread(handle, 1, file.tell() - 1) != b"\n"
            file.write(("\n" if torn else "").encode() + line.encode())
            file.flush()
            os.fsync(handle)

    def all(self) -> list[RunRecord]:
        """Return all records, oldest first, without lines that are not valid records.

        Raise OSError, and BenchmarkError for a record of a newer format.
        """
        records = []
        lines = self.path.read_bytes().splitlines() if self.path.exists() else []
        for number, line in enumerate(lines, 1):
            if b'"format"' in line:
                self._check_format(number, line)
            with contextlib.suppress(ValidationError):
                records.append(RunRecord.model_validate_json(line))
        return records

    def _check_format(self, number: int, line: bytes) -> None:
        with contextlib.suppress(NotJsonError):
            if newer := why_too_new("benchmark results", read_object(line).get("format")):
                raise BenchmarkError(f"{self.path}:{number}: {newer}.", hint=UPGRADE)

    def results(self) -> dict[str, RunRecord]:
        """Return the newest successful record of each key."""
        return {record.key: record for record in self.all() if record.result}


def write_csv(path: Path, records: Iterable[RunRecord]) -> None:
    """Write the records as a table, times in seconds. Raise OSError."""
    _write_table(path, COLUMNS, [row_of(record) for record in records])


def _write_table(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=columns, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    write_text(path, text.getvalue())


def _cell(value: object) -> object:
    """Put an apostrophe before a text that a spreadsheet would run as a formula.

    Names, reasons and notes come from plans, hosts and images.
    Source: https://owasp.org/www-community/attacks/CSV_Injection
    """
    if not isinstance(value, str):
        return value
    text = value.replace("\r", " ")  # ends a row; csv of Python 3.12 and earlier does not quote it
    return f"'{text}" if value.startswith(_FORMULA) else text


_FORMULA = ("=", "+", "-", "@", "\t", "\r")
COLUMNS = (
    "model", "phase", "dtype", "batch_size", "gpus", "on", "kind", "place", "digest", "host", "started", "status",
    "reason", "throughput", "time_mean", "time_median", "time_std", "time_min", "time_max", "time_p5", "time_p95",
    "time_p99", "time_data", "num_batches", "num_warmup_batches", "data_backend", "env", "nodes", "world",
    "effective_batch", "device", "peak_rss_bytes", "peak_gpu_bytes", "torch", "cuda", "cpu", "notes",
)  # fmt: skip
_AXES = ("model", "phase", "dtype", "batch_size", "gpus", "nodes")
MONITORED = (*_AXES, "place", "started", "status", *Series.model_fields)


def write_monitor(path: Path, records: Iterable[RunRecord]) -> None:
    """Write the time series of all records, a row for each moment. Raise OSError."""
    rows = list[dict[str, object]]()
    for record in records:
        case = record.experiment.model_dump(include={*_AXES})
        case |= {"place": record.where.name, "started": record.started, "status": record.status}
        figures = {name: values for name, values in dict(record.monitor or ()).items() if values}
        rows += (case | dict(zip(figures, moment, strict=True)) for moment in zip(*figures.values(), strict=True))
    _write_table(path, MONITORED, rows)


def row_of(record: RunRecord) -> dict[str, object]:
    """Return a record as a row of the table."""
    case, where, result, settings = record.experiment, record.where, record.result, record.experiment.settings
    row: dict[str, object] = case.model_dump(include={*_AXES})
    row |= where.model_dump(include={"kind", "digest", "host"}) | {"place": where.name}
    row |= settings.model_dump(include={"num_batches", "num_warmup_batches"})
    row |= {"data_backend": settings.data_backend if settings.data_dir else "synthetic"}
    row |= {"on": "gpu" if case.on_gpu else "cpu"}
    row |= {"env": " ".join(f"{name}={shlex.quote(value)}" for name, value in settings.env.items())}
    row |= {"started": record.started, "status": record.status, "reason": record.reason}
    if result is None:
        return row
    row |= {f"time_{name}": value for name, value in result.time.model_dump().items()}
    row |= result.model_dump(include={"throughput", "world", "nodes", "effective_batch"})
    row["time_data"] = statistics.fmean(result.data_times) if result.data_times else ""
    row |= result.memory.model_dump() | {"device": " + ".join(result.devices) or result.device}
    row |= {name: result.versions.get(name) or "" for name in ("torch", "cuda")}
    return row | {"cpu": result.host.cpu, "notes": " ".join(result.notes)}
