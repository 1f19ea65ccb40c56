"""A callback of Ansible, which runs in Ansible's own process: what became of each host, as lines of JSON in a file.

A playbook's folder that has it in `callback_plugins/` loads it by itself. `torchbake/hosts/results.py` reads the file.
"""

import json
import os
from typing import Any

from ansible.plugins.callback import CallbackBase

FILE = "TORCHBAKE_HOST_RESULTS"


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "torchbake_results"
    CALLBACK_NEEDS_ENABLED = False

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            self._tell(result, "failed")

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._tell(result, "unreachable")

    def v2_runner_on_ok(self, result: Any) -> None:
        if result.result.get("changed"):
            self._tell(result, "changed")

    def v2_playbook_on_stats(self, stats: Any) -> None:
        for host in stats.processed:
            _write({"event": "stats", "host": host, "stats": stats.summarize(host)})

    def _tell(self, result: Any, event: str) -> None:
        """``result.result`` is without what a task with no_log says. Of a loop, the item that failed says more."""
        said = result.result
        item = next((each for each in said.get("results") or () if each.get("failed")), said)
        told = {key: item.get(key) or "" for key in ("msg", "stderr", "stdout", "censored")}
        _write({"event": event, "host": result.host.get_name(), "task": result.task.get_name(), **told})


def _write(line: dict[str, Any]) -> None:
    path = os.environ.get(FILE)
    if path:
        with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123 - as Ansible's own plugins
            file.write(json.dumps(line, default=str) + "\n")
