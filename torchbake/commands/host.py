"""`host`: install the software of an image on bare hosts, by Ansible over ssh, and run smoke tests on them."""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchbake.checks.smoke_jobs import PAYLOADS, SmokeOptions
from torchbake.checks.smoke_run import Session
from torchbake.checks.tables import show_each
from torchbake.checks.verdict import Outcome
from torchbake.commands import _options as opt
from torchbake.commands._selection import load_image
from torchbake.commands._subcommands import Subcommand, SubcommandWord, image_words
from torchbake.core.plain_text import with_reasons
from torchbake.core.signals import interruptible
from torchbake.core.suggest import nearest
from torchbake.engine.gpu import MODES
from torchbake.errors import CheckError, HostError, UsageError
from torchbake.hosts import results
from torchbake.hosts.ansible import Ansible, find_ansible
from torchbake.hosts.host_images import IMAGE, HostImages, choose
from torchbake.hosts.inventory import InventoryHost
from torchbake.hosts.play import PlayRequest
from torchbake.hosts.prepare import HostPreparation, expected_of
from torchbake.hosts.results import HostResult, HostState
from torchbake.hosts.smoke import SmokeOfHosts, options_for
from torchbake.hosts.ssh import SshHost, ssh_host
from torchbake.hosts.variables import options_of, printable
from torchbake.matrix.project import Project, load_project
from torchbake.matrix.spec import ImageSpec
from torchbake.projects.package_sources import read_package_sources
from torchbake.ui import console
from torchbake.ui.command import Command
from torchbake.ui.steps import step

EXAMPLES = (
    "apply inventory",
    "apply inventory cuda12.8 runtime debian12 --limit gpus --serial 2",
    "check inventory",
    "smoke inventory --limit gpus --gpu require",
    "rollback inventory --limit foo_bar",
    "remove inventory --limit foo_bar -e pytorch_remove_user=true",
)
_INVENTORY = SubcommandWord(name="INVENTORY", help="the hosts, an inventory of Ansible")
_WORDS = (_INVENTORY, image_words("an image, where all hosts get the same: cpu runtime"))
SUBCOMMANDS = {
    "apply": Subcommand(
        summary="install the software of an image on hosts; a second run changes nothing", words=_WORDS
    ),
    "check": Subcommand(summary="show what `apply` would change, and fail if it would change anything", words=_WORDS),
    "smoke": Subcommand(summary="train on all hosts together", words=_WORDS),
    "rollback": Subcommand(summary="go back to the installation before the current one", words=(_INVENTORY,)),
    "remove": Subcommand(summary="remove the installation", words=(_INVENTORY,)),
}
_INSTALLS = ("apply", "check")
_PLAYBOOKS = (*_INSTALLS, "rollback", "remove")  # the actions that are playbooks


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.Common):
    words: tuple[str, ...] = opt.argument(
        f"{', '.join(_PLAYBOOKS)}, smoke; an inventory; and an image, where all hosts get the same: cpu runtime",
        nargs="*", action=opt.Words, metavar="WORD",
    )  # fmt: skip
    limit: str = opt.option("only these hosts, as Ansible's --limit takes them", metavar="GROUP")
    extra_vars: tuple[str, ...] = opt.option(
        "a variable that wins over those of the inventory, or @FILE with some; repeat for more", "-e", "--extra-vars",
        metavar="KEY=VALUE",
    )  # fmt: skip
    ask_become_pass: bool = opt.option("ask for the password of sudo", "-K", "--ask-become-pass", of=_PLAYBOOKS)
    vault_password_file: str = opt.option("what opens Ansible's vaults", metavar="FILE")
    serial: str = opt.option("so many hosts at a time, or 25%%; a failure stops the rest", of=_PLAYBOOKS, metavar="N")
    wheelhouse: tuple[Path, ...] = opt.option(
        "apply, check: a folder with wheels that are sent along, besides those of pip's settings; repeat for more",
        of=_INSTALLS, metavar="FOLDER",
    )  # fmt: skip
    offline: bool = opt.option(
        "apply, check: the hosts reach no index: send every wheel, and download missing wheels here first",
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
        f"smoke: run only this payload; repeat for more: {', '.join(PAYLOADS)}",
        of=("smoke",),
        choices=PAYLOADS,
        metavar="NAME",
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
        project, spec = _project(args, selectors)
        # The image of the command line wins over the inventory, and a later -e wins over both.
        extra = (*((f"{IMAGE}={spec.id}",) if spec else ()), *args.extra_vars)
        with step(f"reading {inventory}"):
            hosts = ansible.inventory(inventory, args.limit, extra, _vault(args))
        return _ACTIONS[action](args, HostGroup(action, inventory, ansible, project, spec, extra, hosts))


@dataclass(frozen=True)
class HostGroup:
    """The hosts of an action, and the image that the command line names for all of them.

    ``extra`` are values of Ansible's ``-e``, among them this image.
    """

    action: str
    inventory: str
    ansible: Ansible
    project: Project
    image: ImageSpec | None
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


def _install(args: Arguments, group: HostGroup) -> int:
    """`apply` and `check`."""
    preparation = HostPreparation(
        project=group.project,
        pip=read_package_sources(group.project),
        folders=args.wheelhouse,
        offline=args.offline,
        dry=args.dry_run,
    )
    variables = preparation.variables(choose(group.project, group.hosts))
    overrides = options_of(variables, offline=args.offline, wheelhouse=bool(args.wheelhouse))
    return _play(args, group, "apply", variables, overrides)


def _take_back(args: Arguments, group: HostGroup) -> int:
    """`rollback` and `remove`."""
    if group.image:
        raise UsageError(f"`host {group.action}` takes no image.", hint="Leave it out.")
    return _play(args, group, group.action, {}, {})


def _play(
    args: Arguments, group: HostGroup, playbook: str, variables: Mapping[str, Any], overrides: Mapping[str, Any]
) -> int:
    """Run a playbook. The inventory wins over ``variables``, ``overrides`` over the inventory, and ``-e`` over both."""
    if args.serial:
        overrides = {**overrides, "pytorch_serial": args.serial}
    request = PlayRequest(
        playbook=playbook, inventory=group.inventory, limit=args.limit, check=group.action == "check",
        extra=(*((json.dumps(overrides),) if overrides else ()), *group.extra),
        words=(*(("--ask-become-pass",) if args.ask_become_pass else ()), *_vault(args)),
    )  # fmt: skip
    if args.dry_run:
        _show_commands([group.ansible.command_line(request)], args.format, variables=printable(variables))
        return 0
    host_results = group.ansible.play(request, variables, group.names)
    rows = [
        (each.host, str(each.state), str(each.stats.ok), str(each.stats.changed), each.remark) for each in host_results
    ]
    head = ("host", "state", "ok", "changed", "remark")
    console.show_result(args.format, {"hosts": results.as_json(host_results)}, head, rows)
    _judge(group, host_results)
    return 0


def _judge(group: HostGroup, host_results: Sequence[HostResult]) -> None:
    """Raise HostError if a host failed, or if `check` found differences."""
    bad = [result for result in host_results if not result.good]
    if bad:
        reasons = [(f"{result.host} ({result.state})", result.remark) for result in bad]
        raise HostError(
            with_reasons(f"{len(bad)} of {len(host_results)} hosts did not end well:", reasons),
            hint="Correct it, then run the same command again: it continues where it stopped.",
        )
    different = [result.host for result in host_results if result.state is HostState.CHANGED]
    if group.action == "check" and different:
        raise HostError(
            f"{len(different)} of {len(host_results)} hosts would be changed: {', '.join(different)}.",
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


def _smoke(args: Arguments, group: HostGroup) -> int:
    images = choose(group.project, group.hosts)
    hosts = tuple(ssh_host(host, user=args.user) for host in group.hosts)
    if args.dry_run:
        _show_commands([shlex.join(host.words) for host in hosts], args.format)
        return 0
    tested = _smoke_run(args, group, hosts, images).run()
    show_each(tested, args.format)
    bad = [(each.name, each.reason) for each in tested if each.outcome is not Outcome.PASSED]
    if bad:
        raise CheckError(with_reasons(f"{len(bad)} of {len(tested)} did not pass:", bad), hint="Correct it, run again.")
    return 0


def _smoke_run(args: Arguments, group: HostGroup, hosts: tuple[SshHost, ...], images: HostImages) -> SmokeOfHosts:
    payloads = tuple(name for name in PAYLOADS if name in args.payload) or PAYLOADS
    options = SmokeOptions(gpu=args.gpu, nproc=args.nproc, payloads=payloads, timeout=args.timeout)
    promises = {spec.id: expected_of(group.project, spec) for spec in images.images}
    return SmokeOfHosts(
        hosts=hosts, expected={name: promises[spec.id] for name, spec in images.of_host.items()},
        options=options_for(options, len(hosts)), session=Session(), master=args.master,
    )  # fmt: skip


_ACTIONS: Mapping[str, Callable[[Arguments, HostGroup], int]] = {
    "apply": _install,
    "check": _install,
    "smoke": _smoke,
    "rollback": _take_back,
    "remove": _take_back,
}
