"""`host`: bare machines that get what an image has, by Ansible over ssh; and smoke tests on all of them together."""

import argparse
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
from torchbake.commands._options import Format, OfActions, Words, add_format, positive, refuse_unused
from torchbake.commands._selection import load_selection
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
from torchbake.matrix.spec import ImageSpec, pytorch_of
from torchbake.ui import console

EXAMPLES = (
    "apply inventory",
    "apply inventory cuda12.8 runtime debian12 --limit gpus --serial 2",
    "check inventory",
    "smoke inventory --limit gpus --gpu require",
    "rollback inventory --limit foo_bar",
    "remove inventory --limit foo_bar -e pytorch_remove_user=true",
)


@dataclass(frozen=True, kw_only=True)
class Arguments:
    matrix: Path
    words: tuple[str, ...]
    limit: str
    extra_vars: tuple[str, ...]
    serial: str
    wheelhouse: tuple[Path, ...]
    offline: bool
    ask_become_pass: bool
    vault_password_file: str
    user: str
    master: str
    gpu: str
    nproc: int
    payload: tuple[str, ...]
    timeout: int
    dry_run: bool
    format: Format


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="*", action=Words, metavar="WORD",
        help=f"{', '.join(_ACTIONS)}; an inventory; and an image, where all hosts get the same: cpu runtime",
    )  # fmt: skip
    parser.add_argument(
        "--limit", default="", metavar="GROUP", help="only these hosts, as Ansible's --limit takes them"
    )
    parser.add_argument(
        "-e", "--extra-vars", action="append", default=[], metavar="KEY=VALUE",
        help="a variable that wins over those of the inventory, or @FILE with some; repeat for more",
    )  # fmt: skip
    parser.add_argument("-K", "--ask-become-pass", action="store_true", help="ask for the password of sudo")
    parser.add_argument("--vault-password-file", default="", metavar="FILE", help="what opens Ansible's vaults")
    parser.add_argument(
        "--serial",
        default="",
        metavar="N",
        help="so many hosts at a time, or 25%%; a failure stops the rest",
    )
    parser.add_argument(
        "--wheelhouse", action="append", default=[], type=Path, metavar="FOLDER",
        help="apply, check: a folder with wheels that are sent along, besides those of pip's settings; repeat for more",
    )  # fmt: skip
    parser.add_argument(
        "--offline", action="store_true",
        help="apply, check: the hosts reach no index: send every wheel, and first download here those that are missing",
    )  # fmt: skip
    _add_smoke(parser)
    parser.add_argument("--dry-run", action="store_true", help="show the commands; run none of them on a host")
    add_format(parser)


def _add_smoke(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--user", default="", metavar="NAME", help="smoke: who logs in (default: pytorch_user, pytorch)"
    )
    parser.add_argument(
        "--master", default="", metavar="ADDRESS",
        help="smoke: where the others find the first host (default: where ssh finds it, as it sees that itself)",
    )  # fmt: skip
    parser.add_argument("--gpu", choices=MODES, default="auto", help="smoke: as for `nox -s smoke` (default: auto)")
    parser.add_argument("--nproc", type=positive("--nproc"), default=2, metavar="N",
                        help="smoke: processes on each host, where it has no GPU (default: 2)")  # fmt: skip
    parser.add_argument("--payload", action="append", default=[], choices=PAYLOADS, metavar="NAME",
                        help=f"smoke: only this one; repeat for more: {', '.join(PAYLOADS)}")  # fmt: skip
    parser.add_argument("--timeout", type=positive("--timeout"), default=300, metavar="S",
                        help="smoke: seconds for each payload (default: 300)")  # fmt: skip


def run(args: Arguments) -> int:
    action, inventory, *selectors = (*args.words, "", "")[: max(2, len(args.words))]
    if action not in _ACTIONS:
        near = nearest(action, _ACTIONS, count=1)
        meant = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(_ACTIONS)}."
        raise UsageError(f"`host` does not know {action!r}." if action else "What is to be done?", hint=meant)
    if not inventory:
        raise UsageError("Which hosts? Name an inventory of Ansible.", hint=f"As in: nox -s host -- {action} inventory")
    refuse_unused(args, "host", action, _OPTIONS)
    with interruptible():
        ansible = find_ansible()
        project, named = _project(args, selectors)
        # As -e does, the words win over the inventory; as it comes later, -e wins over them.
        extra = (*((f"{IMAGE}={named.id}",) if named else ()), *args.extra_vars)
        hosts = ansible.inventory(inventory, args.limit, extra, _vault(args))
        return _ACTIONS[action](args, Group(action, inventory, ansible, project, named, extra, hosts))


@dataclass(frozen=True)
class Group:
    """What an action is for: hosts of an inventory, and the image that the command line names for all of them.

    ``extra``: values of Ansible's ``-e``, of which that image is one.
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


_OPTIONS: OfActions = {  # those that not every action has, with their defaults
    "serial": (("apply", "check", "rollback", "remove"), ""),
    "wheelhouse": (("apply", "check"), ()),
    "offline": (("apply", "check"), False),
    "ask_become_pass": (("apply", "check", "rollback", "remove"), False),
    "user": (("smoke",), ""),
    "master": (("smoke",), ""),
    "gpu": (("smoke",), "auto"),
    "nproc": (("smoke",), 2),
    "payload": (("smoke",), ()),
    "timeout": (("smoke",), 300),
}


def _project(args: Arguments, selectors: Sequence[str]) -> tuple[Project, ImageSpec | None]:
    if not selectors:
        return load_project(args.matrix), None
    project, selection = load_selection(args.matrix, selectors)
    specs = pytorch_of(selection.specs)
    if len(specs) != 1:
        names = ", ".join(spec.id for spec in specs[:3]) + (", …" if len(specs) > 3 else "")
        raise UsageError(
            f"A host gets one image, but this selects {len(specs)}{f' ({names})' if names else ''}.",
            hint="Name one; or none, and set pytorch_image or pytorch_install_type for each host in the inventory.",
        )
    return project, specs[0]


def _vault(args: Arguments) -> tuple[str, ...]:
    return ("--vault-password-file", args.vault_password_file) if args.vault_password_file else ()


def _install(args: Arguments, group: Group) -> int:
    """`apply` and `check`."""
    preparation = Preparation(
        project=group.project, pip=read_pip_config(), folders=args.wheelhouse, offline=args.offline, dry=args.dry_run
    )
    variables = preparation.variables(choose(group.project, group.hosts))
    asked = asked_for(variables, offline=args.offline, wheelhouse=bool(args.wheelhouse))
    return _play(args, group, "apply", variables, asked)


def _take_back(args: Arguments, group: Group) -> int:
    """`rollback` and `remove`."""
    if group.named:
        raise UsageError(f"`host {group.action}` takes no image.", hint="Leave it out.")
    return _play(args, group, group.action, {}, {})


def _play(args: Arguments, group: Group, playbook: str, variables: Mapping[str, Any], asked: Mapping[str, Any]) -> int:
    """``variables``: what the inventory wins over; ``asked``: what wins over it, but not over ``-e``."""
    asked = {**asked, **({"pytorch_serial": args.serial} if args.serial else {})}
    request = Request(
        playbook=playbook, inventory=group.inventory, limit=args.limit, check=group.action == "check",
        extra=(*((json.dumps(asked),) if asked else ()), *group.extra),
        words=(*(("--ask-become-pass",) if args.ask_become_pass else ()), *_vault(args)),
    )  # fmt: skip
    if args.dry_run:
        _show_commands([group.ansible.shown(request)], args.format, variables=shown(variables))
        return 0
    played = group.ansible.play(request, variables, group.names)
    _show(played, args.format)
    _judge(group, played)
    return 0


def _judge(group: Group, played: Sequence[HostResult]) -> None:
    """Raises HostError where not every host is as it should be."""
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
            hint=f"Change them: nox -s host -- apply {group.inventory}",
        )


def _show(played: Sequence[HostResult], form: str) -> None:
    if form == "json":
        console.show_json({"hosts": results.as_json(played)})
        return
    rows = [(each.host, str(each.state), str(each.stats.ok), str(each.stats.changed), each.remark) for each in played]
    console.show_table(("host", "state", "ok", "changed", "remark"), rows)


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
