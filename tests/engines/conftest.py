"""The switch, a registry for all engines, and one running engine after the other."""

import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import ROOT, declare_marks
from tests.e2e.registries import registry
from tests.engines.kinds import KINDS, Kind
from tests.engines.running import Running, running
from tests.engines.system import NotRunError, without_engine

TOOLS = ROOT / ".torchbake/tools"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--engines", choices=("auto", "require"), default="auto",
        help="require: an engine that cannot be had on this machine is a failure, and not `not-run`",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks of end-to-end tests, whose modules are imported here."""
    declare_marks(config)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an empty registry. Rootless Docker cannot reach this machine's 127.0.0.1."""
    with registry(TOOLS, tmp_path_factory.mktemp("registry"), address=_own_address()) as value:
        yield value.host


def _own_address() -> str:
    """Return an address of this machine that its containers reach, without sending anything."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address that documents use
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.name)
def engine(request: pytest.FixtureRequest, served: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """An empty engine of one kind; one that cannot be had is `not-run`, with its reason."""
    kind: Kind = request.param
    folder: Path = tmp_path_factory.mktemp(kind.name)
    if kind.by_user:  # who enters no folder of pytest's
        folder = Path(tempfile.mkdtemp(prefix="torchbake-engine-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        with running(kind, folder, TOOLS, served) as value:
            yield value
    except NotRunError as error:
        without_engine(request.config, f"{kind.name}: {error}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
