"""`schema`: write the keys of matrix.yaml as JSON Schema for editors.

In the toolkit's own checkout it also writes the schemas of job.yaml, of benchmark plans and of gates. There it also
updates the generated parts of documents: pages in docs/, and the table of values in the chart's README.
"""

from dataclasses import dataclass
from pathlib import Path

from torchbake.benchmark import manual as plans
from torchbake.charts.manual import with_parameters
from torchbake.commands import _cli_pages as cli_pages
from torchbake.commands import _options as opt
from torchbake.core.files import write_text
from torchbake.core.paths import TOOLKIT
from torchbake.errors import RenderError, UsageError
from torchbake.gate import manual as gates
from torchbake.gate.model import GateFile
from torchbake.jobs import manual as jobs
from torchbake.jobs.model import Job
from torchbake.matrix.manual import with_reference
from torchbake.matrix.model import Matrix
from torchbake.matrix.schema import editor_schema
from torchbake.ui import console
from torchbake.ui.command import Command

EXAMPLES = ("", "--check")
PAGE = TOOLKIT / "docs/reference/matrix.md"  # this toolkit's own
JOB_PAGE, JOB_SCHEMA = TOOLKIT / "docs/reference/job.md", TOOLKIT / "job.schema.json"  # likewise
PLAN_PAGE, PLAN_SCHEMA = TOOLKIT / "docs/reference/benchmark-plans.md", TOOLKIT / "benchmark.schema.json"  # likewise
GATE_PAGE, GATE_SCHEMA = TOOLKIT / "docs/reference/gate.md", TOOLKIT / "gate.schema.json"  # likewise
CLI_PAGE = TOOLKIT / "docs/reference/cli.md"
CHART_PAGE, CHART_VALUES = TOOLKIT / "charts/pytorch/README.md", TOOLKIT / "charts/pytorch/values.yaml"


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.Common):
    check: bool = opt.option("only say whether the files are up to date")


def run(args: Arguments) -> int:
    root = args.matrix.absolute().parent
    if not root.is_dir():
        raise UsageError(f"{root}: there is no such folder.", hint="The schema is written beside the matrix.")
    texts = {root / "matrix.schema.json": editor_schema(Matrix)}
    if root == TOOLKIT:
        texts[PAGE] = with_reference(_text(PAGE))
        texts |= {JOB_SCHEMA: editor_schema(Job), JOB_PAGE: jobs.with_reference(_text(JOB_PAGE))}
        texts |= {PLAN_SCHEMA: plans.plan_schema(), PLAN_PAGE: plans.with_reference(_text(PLAN_PAGE))}
        texts |= {GATE_SCHEMA: editor_schema(GateFile), GATE_PAGE: gates.with_reference(_text(GATE_PAGE))}
        texts[CHART_PAGE] = with_parameters(_text(CHART_PAGE), _text(CHART_VALUES))
        texts |= {CLI_PAGE: cli_pages.with_overview(_text(CLI_PAGE)), **_cli_pages()}
    current = {path: _text(path) for path in texts}
    old = [path for path in texts if current[path] != texts[path]]
    if args.check and old:
        raise RenderError(f"{' and '.join(path.name for path in old)}: out of date.", hint=f"Run: {Command('schema')}")
    for path, text in texts.items():
        if path in old:
            write_text(path, text)
        console.say(f"{path.name} {'written' if path in old else 'is up to date'}")
    return 0


def _cli_pages() -> dict[Path, str]:
    return {CLI_PAGE.with_name(f"{name}.md"): cli_pages.page_of(group) for name, group in cli_pages.GROUPS.items()}


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
