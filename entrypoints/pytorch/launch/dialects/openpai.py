"""OpenPAI: nodes are the tasks of all task roles.

Nodes are numbered by role in the order of PAI_TASK_ROLE_LIST, which is that of the job's configuration, then by task
index. With `master` (1 task) and `worker` (2 tasks), master 0 is node 0, worker 0 node 1, worker 1 node 2. The master
is task 0 of the first role: PAI_HOST_IP_<role>_0. Tasks share their host's network, so the port must be one that PAI
has reserved for that role. It is the port whose label is neither ssh nor http, or of several `master`. Without such a
label it is the http port. The job sets NPROC_PER_NODE.

In PAI_HOST_IP and PAI_PORT_LIST a role's name is in lower case and holds only letters and digits. In
PAI_TASK_ROLE_TASK_COUNT it is as the user wrote it.

Sources:
- microsoft/pai: docs/manual/cluster-user/how-to-use-advanced-job-settings.md ("Environmental Variables"),
  src/rest-server/src/models/v2/job/runtime-env.js, job/k8s.js and utils/name.js
- microsoft/openpai-runtime: src/init.d/framework_parser.py
"""

import re
from collections.abc import Mapping

from ..launch_error import Code, LaunchError
from . import values
from .settings import Fact, JobSettings

NAME = "openpai"
VARIABLES: tuple[str, ...] = (
    "PAI_CURRENT_TASK_ROLE_NAME",
    "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX",
    "PAI_TASK_ROLE_LIST",
    "PAI_TASK_ROLE_TASK_COUNT_<role>",
    "PAI_HOST_IP_<role>_0",
    "PAI_PORT_LIST_<role>_0_<label>",
)
_INDEX = "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX"


def read(env: Mapping[str, str]) -> JobSettings | None:
    """Return None outside of an OpenPAI task."""
    role, index = values.text(env, "PAI_CURRENT_TASK_ROLE_NAME"), values.whole(env, _INDEX)
    if not role or index is None:
        return None
    roles = [name.strip() for name in (values.text(env, "PAI_TASK_ROLE_LIST") or role).split(",")]
    if role not in roles:
        raise values.bad("PAI_TASK_ROLE_LIST", ",".join(roles), f"does not hold this task's role {role!a}: add it.")
    counts = [_count(env, name) for name in roles]
    here = roles.index(role)
    if index.value >= counts[here]:
        raise values.bad(_INDEX, index.value, f"is out of range: this role has {counts[here]} tasks; correct either.")
    return JobSettings(
        dialect=NAME,
        nnodes=Fact(value=sum(counts), variable="PAI_TASK_ROLE_TASK_COUNT_*"),
        node_rank=Fact(value=sum(counts[:here]) + index.value, variable=_INDEX),
        master_addr=_host(env, roles[0]),
        master_port=_port(env, roles[0]),
    )


def _count(env: Mapping[str, str], role: str) -> int:
    if not re.fullmatch(r"[A-Za-z0-9._~-]+", role):
        raise values.bad("PAI_TASK_ROLE_LIST", role, "is not the name of a task role: separate names with commas.")
    fact = values.whole(env, f"PAI_TASK_ROLE_TASK_COUNT_{role}", least=1)
    if fact is None:
        raise LaunchError(
            Code.BAD_VALUE, f"PAI_TASK_ROLE_TASK_COUNT_{role} is not set: give the role's number of tasks."
        )
    return fact.value


def _host(env: Mapping[str, str], role: str) -> Fact[str] | None:
    names = [f"PAI_HOST_IP_{name}_0" for name in (_plain(role), role)]
    return values.address(env, values.first_set(env, *names))


def _port(env: Mapping[str, str], role: str) -> Fact[int] | None:
    """Return the port of the first role's task 0; a guess, so that MASTER_PORT can name another port."""
    labels = _labels(env, _plain(role)) or _labels(env, role)
    own = sorted(set(labels) - {"ssh", "http"})
    label = next((name for name in own if name.lower() == "master"), own[0] if len(own) == 1 else "")
    if len(own) > 1 and not label:
        if values.text(env, "MASTER_PORT"):
            return None
        why = f"the role {role} reserves the ports {', '.join(own)}: label one of them master, or set MASTER_PORT."
        raise LaunchError(Code.BAD_VALUE, f"PAI_PORT_LIST_{_plain(role)}_0_* name no single port, as {why}")
    variable = labels.get(label or "http")
    if variable is None:
        return None
    first = values.text(env, variable).partition(",")[0].strip()
    return Fact(value=values.number(variable, first, least=1, most=65535), variable=variable, guess=True)


def _labels(env: Mapping[str, str], role: str) -> dict[str, str]:
    """Return the port labels of a role's task 0, each with its variable."""
    prefix = f"PAI_PORT_LIST_{role}_0_"
    return {name[len(prefix) :]: name for name in env if _LABELLED.fullmatch(name) and name.startswith(prefix)}


_LABELLED = re.compile(r"PAI_PORT_LIST_[A-Za-z0-9._~-]+")


def _plain(role: str) -> str:
    """Return a role's name as OpenPAI's framework controller writes it (convertName)."""
    return re.sub(r"[^a-z0-9]", "", role.lower())
