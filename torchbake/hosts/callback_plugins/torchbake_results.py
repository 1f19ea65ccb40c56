"""A callback in Ansible's process that writes the events of each host as lines of JSON to a file.

Ansible loads it from `callback_plugins/` in a playbook's folder. `torchbake/hosts/results.py` reads the file.
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
            self._report(result, "failed")

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._report(result, "unreachable")

    def v2_runner_on_ok(self, result: Any) -> None:
        if result.result.get("changed"):
            self._report(result, "changed")

    def v2_playbook_on_stats(self, stats: Any) -> None:
        for host in stats.processed:
            _write({"event": "stats", "host": host, "stats": stats.summarize(host)})

    def _report(self, result: Any, event: str) -> None:
        """Write an event; for a loop its failed item. Ansible has removed the output of tasks with no_log."""
        values = result.result
        item = next((each for each in values.get("results") or () if each.get("failed")), values)
        output = {key: item.get(key) or "" for key in ("msg", "stderr", "stdout", "censored")}
        _write({"event": event, "host": result.host.get_name(), "task": result.task.get_name(), **output})


def _write(line: dict[str, Any]) -> None:
    path = os.environ.get(FILE)
    if path:
        with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123 - as Ansible's own plugins
            file.write(json.dumps(line, default=str) + "\n")
