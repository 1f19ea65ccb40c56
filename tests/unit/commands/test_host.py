"""`host`: checks of the command line against the inventory and the matrix, the table of hosts, and exit codes."""

import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.conftest import SMALL
from torchbake import cli
from torchbake.commands import host as module
from torchbake.errors import InstallError
from torchbake.hosts.ansible import Ansible, find_ansible
from torchbake.hosts.inventory import InventoryHost
from torchbake.hosts.play import PlayRequest
from torchbake.hosts.prepare import HostPreparation
from torchbake.hosts.results import HostResult, HostState

Streams = pytest.CaptureFixture[str]


class Control(Ansible):
    """An Ansible whose inventory has two hosts, and whose plays end as they are told to."""

    def inventory(
        self, source: str, limit: str = "", extra: Sequence[str] = (), words: Sequence[str] = ()
    ) -> tuple[InventoryHost, ...]:
        LISTED[:] = [(tuple(extra), tuple(words))]
        variables = dict(value.split("=", 1) for value in extra)  # the last one wins, as for Ansible
        return tuple(InventoryHost(name=name, variables=variables) for name in "ab")

    def play(self, request: PlayRequest, variables: Mapping[str, Any], hosts: Sequence[str]) -> tuple[HostResult, ...]:
        PLAYS.append((request, variables))
        return tuple(HostResult(host=name, state=state) for name, state in zip(hosts, ENDS, strict=True))


LISTED: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
PLAYS: list[tuple[PlayRequest, Mapping[str, Any]]] = []
ENDS = [HostState.OK, HostState.OK]


@pytest.fixture(autouse=True)
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "matrix.yaml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "find_ansible", lambda: Control(module=False))
    monkeypatch.setattr(HostPreparation, "variables", lambda self, choice: {"offline": self.offline})
    monkeypatch.setattr(module, "expected_of", lambda project, spec: {})
    PLAYS.clear()
    ENDS[:] = [HostState.OK, HostState.OK]


def report(capsys: Streams, *words: str, code: int = 0) -> tuple[str, str]:
    assert cli.main(["host", *words]) == code
    streams = capsys.readouterr()
    return streams.out, streams.err


def test_a_playbook_gets_the_limit_the_variables_and_the_wave(capsys: Streams) -> None:
    out, _ = report(capsys, "apply", "inv", "--limit", "g", "-e", "x=1", "--serial", "1", "--offline", "-K")
    ((request, variables),) = PLAYS
    assert json.loads(request.extra[0]) == {
        "pytorch_offline": True, "pytorch_python_downloads": False, "pytorch_serial": "1",
    }  # fmt: skip
    assert request == PlayRequest(
        playbook="apply", inventory="inv", limit="g", extra=(request.extra[0], "x=1"), words=("--ask-become-pass",)
    )
    assert variables == {"offline": True}
    assert out.splitlines()[0].split() == ["host", "state", "ok", "changed", "remark"]


def test_inventories_are_listed_with_the_plays_vault_and_values(capsys: Streams) -> None:
    image = "2.13.0-cpu-runtime-debian12"
    report(capsys, "apply", "inv", "cpu", "runtime", "-e", f"pytorch_image={image}", "--vault-password-file", "pw")
    ((request, _),), ((extra, words),) = PLAYS, LISTED
    assert (request.extra, request.words) == (extra, words)
    assert words == ("--vault-password-file", "pw")
    assert (extra[0].split("=")[0], extra[-1]) == ("pytorch_image", f"pytorch_image={image}")


def test_smoke_goes_where_the_variables_of_the_command_line_lead(capsys: Streams) -> None:
    words = ("-e", "ansible_port=2222", "-e", "pytorch_user=ml", "--dry-run")
    assert "-p 2222 -l ml -- a 'exec /home/ml/" in report(capsys, "smoke", "inv", *words)[0]


def test_each_host_has_a_result_for_programs(capsys: Streams) -> None:
    ENDS[:] = [HostState.CHANGED, HostState.OK]
    value = json.loads(report(capsys, "rollback", "inv", "--format", "json")[0])["hosts"]
    assert [(each["host"], each["state"]) for each in value] == [("a", "changed"), ("b", "ok")]
    assert PLAYS[0][0].playbook == "rollback"


@pytest.mark.parametrize("end", [HostState.FAILED, HostState.UNREACHABLE, HostState.NOT_REACHED])
def test_a_host_that_did_not_end_well_is_named(capsys: Streams, end: HostState) -> None:
    ENDS[:] = [HostState.CHANGED, end]
    out, err = report(capsys, "apply", "inv", code=22)
    assert "1 of 2 hosts did not end well:" in err
    assert f"\n  b ({end}): " in err, "the reason is on stderr"
    assert str(end) in out


def test_a_check_that_finds_a_change_is_no_success(capsys: Streams) -> None:
    report(capsys, "check", "inv")
    ENDS[:] = [HostState.OK, HostState.CHANGED]
    assert "1 of 2 hosts would be changed: b" in report(capsys, "check", "inv", code=22)[1]
    assert [request.check for request, _ in PLAYS] == [True, True]
    report(capsys, "apply", "inv")


def test_a_dry_run_shows_the_command_and_plays_nothing(capsys: Streams) -> None:
    out, err = report(capsys, "apply", "inv", "--dry-run")
    assert out.startswith("ansible-playbook --inventory ")
    assert "offline" in err
    assert json.loads(report(capsys, "smoke", "inv", "--dry-run", "--format", "json")[0])["commands"][1].startswith(
        "ssh "
    )
    assert PLAYS == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "What is to be done?"),
        (("aply", "inv"), "Did you mean 'apply'?"),
        (("apply",), "Name an inventory"),
        (("apply", "inv", "cuda12.8"), "A host gets one image"),
        (("remove", "inv", "cpu", "runtime"), "takes no image"),
        (("smoke", "inv", "--offline"), "is an option of `host apply`"),
        (("apply", "inv", "--master", "a"), "is an option of `host smoke`"),
    ],
)
def test_a_wrong_command_line_is_told_before_any_host_is_touched(
    capsys: Streams, words: tuple[str, ...], says: str
) -> None:
    assert says in report(capsys, *words, code=2)[1]
    assert PLAYS == []


def test_without_ansible_the_command_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: str) -> str:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "version", none)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InstallError) as report:
        find_ansible()
    assert "pip install 'torchbake[host]'" in (report.value.hint or "")
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "2.14.3")
    with pytest.raises(InstallError, match=r"2\.14\.3 is too old"):
        find_ansible()
