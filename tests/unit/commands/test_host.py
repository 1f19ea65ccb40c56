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
from torchbake.hosts.play import Request
from torchbake.hosts.prepare import Preparation
from torchbake.hosts.results import HostResult, State

Streams = pytest.CaptureFixture[str]


class Control(Ansible):
    """An Ansible whose inventory has two hosts, and whose plays end as they are told to."""

    def inventory(
        self, source: str, limit: str = "", extra: Sequence[str] = (), words: Sequence[str] = ()
    ) -> tuple[InventoryHost, ...]:
        LISTED[:] = [(tuple(extra), tuple(words))]
        variables = dict(value.split("=", 1) for value in extra)  # the last one wins, as for Ansible
        return tuple(InventoryHost(name=name, variables=variables) for name in "ab")

    def play(self, request: Request, variables: Mapping[str, Any], hosts: Sequence[str]) -> tuple[HostResult, ...]:
        PLAYED.append((request, variables))
        return tuple(HostResult(host=name, state=state) for name, state in zip(hosts, ENDS, strict=True))


LISTED: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
PLAYED: list[tuple[Request, Mapping[str, Any]]] = []
ENDS = [State.OK, State.OK]


@pytest.fixture(autouse=True)
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "matrix.yaml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "find_ansible", lambda: Control(module=False))
    monkeypatch.setattr(Preparation, "variables", lambda self, chosen: {"offline": self.offline})
    monkeypatch.setattr(module, "expected_of", lambda project, spec: {})
    PLAYED.clear()
    ENDS[:] = [State.OK, State.OK]


def told(capsys: Streams, *words: str, code: int = 0) -> tuple[str, str]:
    assert cli.main(["host", *words]) == code
    seen = capsys.readouterr()
    return seen.out, seen.err


def test_a_playbook_gets_the_limit_the_variables_and_the_wave(capsys: Streams) -> None:
    out, _ = told(capsys, "apply", "inv", "--limit", "g", "-e", "x=1", "--serial", "1", "--offline", "-K")
    ((request, variables),) = PLAYED
    assert json.loads(request.extra[0]) == {
        "pytorch_offline": True, "pytorch_python_downloads": False, "pytorch_serial": "1",
    }  # fmt: skip
    assert request == Request(
        playbook="apply", inventory="inv", limit="g", extra=(request.extra[0], "x=1"), words=("--ask-become-pass",)
    )
    assert variables == {"offline": True}
    assert out.splitlines()[0].split() == ["host", "state", "ok", "changed", "remark"]


def test_the_inventory_is_listed_with_the_variables_and_the_vault_of_the_play(capsys: Streams) -> None:
    image = "2.13.0-cpu-runtime-debian12"
    told(capsys, "apply", "inv", "cpu", "runtime", "-e", f"pytorch_image={image}", "--vault-password-file", "pw")
    ((request, _),), ((extra, words),) = PLAYED, LISTED
    assert (request.extra, request.words) == (extra, words)
    assert words == ("--vault-password-file", "pw")
    assert (extra[0].split("=")[0], extra[-1]) == ("pytorch_image", f"pytorch_image={image}")


def test_smoke_goes_where_the_variables_of_the_command_line_lead(capsys: Streams) -> None:
    words = ("-e", "ansible_port=2222", "-e", "pytorch_user=ml", "--dry-run")
    assert "-p 2222 -l ml -- a 'exec /home/ml/" in told(capsys, "smoke", "inv", *words)[0]


def test_each_host_has_a_result_for_programs(capsys: Streams) -> None:
    ENDS[:] = [State.CHANGED, State.OK]
    found = json.loads(told(capsys, "rollback", "inv", "--format", "json")[0])["hosts"]
    assert [(each["host"], each["state"]) for each in found] == [("a", "changed"), ("b", "ok")]
    assert PLAYED[0][0].playbook == "rollback"


@pytest.mark.parametrize("end", [State.FAILED, State.UNREACHABLE, State.NOT_REACHED])
def test_a_host_that_did_not_end_well_is_named(capsys: Streams, end: State) -> None:
    ENDS[:] = [State.CHANGED, end]
    out, err = told(capsys, "apply", "inv", code=22)
    assert f"1 of 2 hosts did not end well: b ({end})" in err
    assert str(end) in out


def test_a_check_that_finds_a_change_is_no_success(capsys: Streams) -> None:
    told(capsys, "check", "inv")
    ENDS[:] = [State.OK, State.CHANGED]
    assert "1 of 2 hosts would be changed: b" in told(capsys, "check", "inv", code=22)[1]
    assert [request.check for request, _ in PLAYED] == [True, True]
    told(capsys, "apply", "inv")


def test_a_dry_run_shows_the_command_and_plays_nothing(capsys: Streams) -> None:
    out, err = told(capsys, "apply", "inv", "--dry-run")
    assert out.startswith("ansible-playbook --inventory ")
    assert "offline" in err
    assert json.loads(told(capsys, "smoke", "inv", "--dry-run", "--format", "json")[0])["commands"][1].startswith(
        "ssh "
    )
    assert PLAYED == []


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
    assert says in told(capsys, *words, code=2)[1]
    assert PLAYED == []


def test_without_ansible_the_command_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: str) -> str:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "version", none)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InstallError) as told:
        find_ansible()
    assert "pip install 'torchbake[host]'" in (told.value.hint or "")
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "2.14.3")
    with pytest.raises(InstallError, match=r"2\.14\.3 is too old"):
        find_ansible()
