"""`host`: install the software of an image on bare hosts, by Ansible over ssh, and run smoke tests on them."""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchbake.checks.smoke_jobs import PAYLOADS, Options
from torchbake.checks.smoke_run import Session
from torchbake.checks.tables import show_each
from torchbake.checks.verdict import Outcome
from torchbake.commands import _options as opt
from torchbake.commands._selection import load_image
from torchbake.core.signals import interruptible
from torchbake.core.suggest import nearest
from torchbake.engine.gpu import MODES
from torchbake.errors import CheckError, HostError, UsageError
from torchbake.hostconfig.pip_config import read_pip_config
from torchbake.hosts import results
from torchbake.hosts.ansible import Ansible, find_ansible
from torchbake.hosts.chosen import IMAGE, Chosen, choose
from torchbake.hosts.inventory import InventoryHost
from torchbake.hosts.play import Request
from torchbake.hosts.prepare import Preparation, expected_of
from torchbake.hosts.results import HostResult, State
from torchbake.hosts.smoke import SmokeOfHosts, options_for
from torchbake.hosts.ssh import SshHost, ssh_host
from torchbake.hosts.variables import asked_for, shown
from torchbake.matrix.project import Project, load_project
from torchbake.matrix.spec import ImageSpec
from torchbake.ui import console
from torchbake.ui.command import Command

EXAMPLES = (
    "apply inventory",
    "apply inventory cuda12.8 runtime debian12 --limit gpus --serial 2",
    "check inventory",
    "smoke inventory --limit gpus --gpu require",
    "rollback inventory --limit foo_bar",
    "remove inventory --limit foo_bar -e pytorch_remove_user=true",
)
_INSTALLS = ("apply", "check")
_PLAYED = (*_INSTALLS, "rollback", "remove")  # the actions that are playbooks


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.Common):
    words: tuple[str, ...] = opt.argument(
        f"{', '.join(_PLAYED)}, smoke; an inventory; and an image, where all hosts get the same: cpu runtime",
        nargs="*", action=opt.Words, metavar="WORD",
    )  # fmt: skip
    limit: str = opt.option("only these hosts, as Ansible's --limit takes them", metavar="GROUP")
    extra_vars: tuple[str, ...] = opt.option(
        "a variable that wins over those of the inventory, or @FILE with some; repeat for more", "-e", "--extra-vars",
        metavar="KEY=VALUE",
    )  # fmt: skip
    ask_become_pass: bool = opt.option("ask for the password of sudo", "-K", "--ask-become-pass", of=_PLAYED)
    vault_password_file: str = opt.option("what opens Ansible's vaults", metavar="FILE")
    serial: str = opt.option("so many hosts at a time, or 25%%; a failure stops the rest", of=_PLAYED, metavar="N")
    wheelhouse: tuple[Path, ...] = opt.option(
        "apply, check: a folder with wheels that are sent along, besides those of pip's settings; repeat for more",
        of=_INSTALLS, metavar="FOLDER",
    )  # fmt: skip
    offline: bool = opt.option(
        "apply, check: the hosts reach no index: send every wheel, and first download here those that are missing",
        of=_INSTALLS,
    )
    user: str = opt.option("smoke: who logs in (default: pytorch_user, pytorch)", of=("smoke",), metavar="NAME")
    master: str = opt.option(
        "smoke: where the others find the first host (default: where ssh finds it, as it sees that itself)",
        of=("smoke",), metavar="ADDRESS",
    )  # fmt: skip
    gpu: str = opt.option(
        f"smoke: as for `{Command('smoke')}` (default: auto)", of=("smoke",), choices=MODES, default="auto"
    )
    nproc: int = opt.option(
        "smoke: processes on each host, where it has no GPU (default: 2)", of=("smoke",), type=opt.positive, default=2,
        metavar="N",
    )  # fmt: skip
    payload: tuple[str, ...] = opt.option(
        f"smoke: only this one; repeat for more: {', '.join(PAYLOADS)}", of=("smoke",), choices=PAYLOADS, metavar="NAME"
    )
    timeout: int = opt.timeout(300, "smoke: seconds for each payload", of=("smoke",))
    dry_run: bool = opt.option("show the commands; run none of them on a host")
    format: opt.Format = opt.result_format()


def run(args: Arguments) -> int:
    action, inventory, *selectors = (*args.words, "", "")[: max(2, len(args.words))]
    if action not in _ACTIONS:
        near = nearest(action, _ACTIONS, count=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(_ACTIONS)}."
        raise UsageError(f"`host` does not know {action!r}." if action else "What is to be done?", hint=hint)
    if not inventory:
        raise UsageError(
            "Which hosts? Name an inventory of Ansible.", hint=f"As in: {Command('host', f'{action} inventory')}"
        )
    opt.refuse_unused(args, "host", action)
    with interruptible():
        ansible = find_ansible()
        project, named = _project(args, selectors)
        # The image of the command line wins over the inventory, and a later -e wins over both.
        extra = (*((f"{IMAGE}={named.id}",) if named else ()), *args.extra_vars)
        hosts = ansible.inventory(inventory, args.limit, extra, _vault(args))
        return _ACTIONS[action](args, Group(action, inventory, ansible, project, named, extra, hosts))


@dataclass(frozen=True)
class Group:
    """The hosts of an action, and the image that the command line names for all of them.

    ``extra`` are values of Ansible's ``-e``, among them this image.
    """

    action: str
    inventory: str
    ansible: Ansible
    project: Project
    named: ImageSpec | None
    extra: tuple[str, ...]
    hosts: tuple[InventoryHost, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(host.name for host in self.hosts)


def _project(args: Arguments, selectors: Sequence[str]) -> tuple[Project, ImageSpec | None]:
    if not selectors:
        return load_project(args.matrix), None
    hint = "Name one; or none, and set pytorch_image or pytorch_install_type for each host in the inventory."
    return load_image(args.matrix, selectors, "A host", hint)


def _vault(args: Arguments) -> tuple[str, ...]:
    return ("--vault-password-file", args.vault_password_file) if args.vault_password_file else ()


def _install(args: Arguments, group: Group) -> int:
    """`apply` and `check`."""
    preparation = Preparation(
        project=group.project, pip=read_pip_config(), folders=args.wheelhouse, offline=args.offline, dry=args.dry_run
    )
    variables = preparation.variables(choose(group.project, group.hosts))
    overrides = asked_for(variables, offline=args.offline, wheelhouse=bool(args.wheelhouse))
    return _play(args, group, "apply", variables, overrides)


def _take_back(args: Arguments, group: Group) -> int:
    """`rollback` and `remove`."""
    if group.named:
        raise UsageError(f"`host {group.action}` takes no image.", hint="Leave it out.")
    return _play(args, group, group.action, {}, {})


def _play(
    args: Arguments, group: Group, playbook: str, variables: Mapping[str, Any], overrides: Mapping[str, Any]
) -> int:
    """Run a playbook. The inventory wins over ``variables``, ``overrides`` over the inventory, and ``-e`` over both."""
    if args.serial:
        overrides = {**overrides, "pytorch_serial": args.serial}
    request = Request(
        playbook=playbook, inventory=group.inventory, limit=args.limit, check=group.action == "check",
        extra=(*((json.dumps(overrides),) if overrides else ()), *group.extra),
        words=(*(("--ask-become-pass",) if args.ask_become_pass else ()), *_vault(args)),
    )  # fmt: skip
    if args.dry_run:
        _show_commands([group.ansible.shown(request)], args.format, variables=shown(variables))
        return 0
    found = group.ansible.play(request, variables, group.names)
    rows = [(each.host, str(each.state), str(each.stats.ok), str(each.stats.changed), each.remark) for each in found]
    head = ("host", "state", "ok", "changed", "remark")
    console.show_result(args.format, {"hosts": results.as_json(found)}, head, rows)
    _judge(group, found)
    return 0


def _judge(group: Group, played: Sequence[HostResult]) -> None:
    """Raise HostError if a host failed, or if `check` found differences."""
    bad = [result for result in played if not result.good]
    if bad:
        names = ", ".join(f"{result.host} ({result.state})" for result in bad)
        raise HostError(
            f"{len(bad)} of {len(played)} hosts did not end well: {names}.",
            hint="Correct what the table says, then run the same command again: it continues where it stopped.",
        )
    different = [result.host for result in played if result.state is State.CHANGED]
    if group.action == "check" and different:
        raise HostError(
            f"{len(different)} of {len(played)} hosts would be changed: {', '.join(different)}.",
            hint=f"Change them: {Command('host', f'apply {group.inventory}')}",
        )


def _show_commands(commands: Sequence[str], form: str, **more: Any) -> None:
    if form == "json":
        console.show_json({"commands": list(commands), **more})
        return
    for command in commands:
        print(command)
    for name, value in more.get("variables", {}).items():
        console.say(f"    {name}: {value}", style="dim")


def _smoke(args: Arguments, group: Group) -> int:
    chosen = choose(group.project, group.hosts)
    hosts = tuple(ssh_host(host, user=args.user) for host in group.hosts)
    if args.dry_run:
        _show_commands([shlex.join(host.words) for host in hosts], args.format)
        return 0
    tested = _smoke_run(args, group, hosts, chosen).run()
    show_each(tested, args.format)
    bad = [each.name for each in tested if each.outcome is not Outcome.PASSED]
    if bad:
        raise CheckError(f"{len(bad)} of {len(tested)} did not pass: {', '.join(bad)}.", hint="Read the table above.")
    return 0


def _smoke_run(args: Arguments, group: Group, hosts: tuple[SshHost, ...], chosen: Chosen) -> SmokeOfHosts:
    payloads = tuple(name for name in PAYLOADS if name in args.payload) or PAYLOADS
    options = Options(gpu=args.gpu, nproc=args.nproc, payloads=payloads, timeout=args.timeout)
    promised = {spec.id: expected_of(group.project, spec) for spec in chosen.images}
    return SmokeOfHosts(
        hosts=hosts, expected={name: promised[spec.id] for name, spec in chosen.of_host.items()},
        options=options_for(options, len(hosts)), session=Session(), master=args.master,
    )  # fmt: skip


_ACTIONS: Mapping[str, Callable[[Arguments, Group], int]] = {
    "apply": _install,
    "check": _install,
    "smoke": _smoke,
    "rollback": _take_back,
    "remove": _take_back,
}
