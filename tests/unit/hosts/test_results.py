"""Results of hosts, read from the lines of the callback, with the counts of Ansible."""

import json
from typing import Any

from torchbake.core.paths import PACKAGE
from torchbake.hosts.callback_plugins import FILE
from torchbake.hosts.results import HostState, as_json, read_results


def stats(host: str, **counts: int) -> dict[str, Any]:
    return {"event": "stats", "host": host, "stats": {"ok": 3, "failures": 0, **counts}}


def failed(host: str, **lines: Any) -> dict[str, Any]:
    return {"event": "failed", "host": host, "task": "role : Install", **lines}


def text(*lines: dict[str, Any]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


def test_each_host_has_the_state_that_the_counts_give_it() -> None:
    output = text(
        {"event": "changed", "host": "b", "task": "role : Switch"},
        failed("c", msg="the driver is too old"),
        {"event": "unreachable", "host": "d", "task": "Gather", "msg": "no route"},
        stats("a"), stats("b", changed=1), stats("c", failures=1), stats("d", unreachable=1),
    )  # fmt: skip
    results = read_results(output, ["a", "b", "c", "d", "e"])
    states = [HostState.OK, HostState.CHANGED, HostState.FAILED, HostState.UNREACHABLE, HostState.NOT_REACHED]
    assert [result.state for result in results] == states
    assert results[1].changed == ("role : Switch",)
    assert results[2].remark == "Install: the driver is too old"
    assert [entry["state"] for entry in as_json(results)] == ["ok", "changed", "failed", "unreachable", "not-reached"]


def test_a_task_that_was_rescued_is_none_that_failed() -> None:
    (result,) = read_results(text(failed("a", msg="x"), stats("a", rescued=1)), ["a"])
    assert (result.state, result.reason) == (HostState.OK, "")


def test_of_a_command_its_own_words_are_the_reason() -> None:
    lines = failed("a", msg="non-zero return code", stderr="error: no wheel\n  cause: one\n  cause: two\n  cause: dns")
    (result,) = read_results(text(lines, stats("a", failures=1)), ["a"])
    assert result.remark == "Install: error: no wheel … cause: dns"


def test_a_run_that_was_cut_off_leaves_no_host_that_is_well() -> None:
    cut = text({"event": "changed", "host": "a", "task": "t"}) + '{"event": "fai'
    (result,) = read_results(cut, ["a"])
    assert (result.state, result.reason, result.good) == (HostState.FAILED, "it was interrupted", False)


def test_the_callback_writes_to_the_file_that_is_read() -> None:
    """It runs in Ansible's own process, where nothing of the toolkit can be imported."""
    plugin = (PACKAGE / "hosts/callback_plugins/torchbake_results.py").read_text()
    assert f'FILE = "{FILE}"' in plugin
    assert "import torchbake" not in plugin
    assert "from torchbake" not in plugin
