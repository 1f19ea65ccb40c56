"""`base`: find, fetch, bootstrap or push the bases of the selected images."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

from torchbake.build.base_image import BaseImage, Source, find_base, make_base
from torchbake.build.base_push import push_base, pushed_name
from torchbake.build.buildx import Builder
from torchbake.commands import _options as opt
from torchbake.commands._selection import load_selection
from torchbake.core.files import write_texts
from torchbake.core.sizes import human
from torchbake.debian.lockfile import debian_lock_path, find_debian_lock, format_debian_lock
from torchbake.errors import UsageError
from torchbake.hostconfig.apt_config import AptConfig, read_apt_config
from torchbake.matrix.base_lock import base_lock_path, format_base_lock, pushed_base, read_base_lock
from torchbake.matrix.platforms import bases_of
from torchbake.matrix.project import Project
from torchbake.matrix.spec import BaseSpec
from torchbake.oci.reference import Reference, Repository, parse_registry
from torchbake.registry.client import Registry
from torchbake.registry.transport import RegistryTransport
from torchbake.ui import console

EXAMPLES = (
    "all",
    "debian12 --source bootstrap --refresh",
    "all --push ghcr.io/acme",
    "debian12 --push ghcr.io/acme/bases --source bootstrap --dry-run",
)


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.WithSelectors):
    source: Source = opt.option("default: auto, registry then bootstrap", default="auto")
    refresh: bool = opt.option("get it again, also when one is recorded")
    push: str = opt.option(
        "push bootstrapped bases to HOST/NAMESPACE/<base>, and lock them in images/bases.lock for all builds",
        metavar="HOST[:PORT][/NAMESPACE]",
    )
    plain_http: bool = opt.plain_http()
    dry_run: bool = opt.option("only show what is recorded, and what --push would do")
    format: opt.Format = opt.result_format()


def run(args: Arguments) -> int:
    if args.plain_http and not args.push:
        raise UsageError("--plain-http needs --push: docker decides how bases are read.", hint="Leave it out.")
    namespace = parse_registry(args.push) if args.push else None
    project, selection = load_selection(args.matrix, args.selectors, locked_bases=namespace is None)
    if namespace:
        read_base_lock(project.root)  # a damaged one is an error before a base is made and sent
    apt, bases = cache(read_apt_config), dict[str, dict[str, str]]()  # apt is read once, and only if a base is made
    for spec in bases_of(selection.specs):
        base = _base(args, project, spec, apt)
        pushed = _push(args, project, spec, base, namespace) if namespace else None
        if base:
            bases[spec.id] = {"source": base.source, "digest": base.digest, "image": str(pushed or base.image)}
    if args.format == "json":
        console.show_json({"bases": bases})
    return 0


def _base(args: Arguments, project: Project, spec: BaseSpec, apt: Callable[[], AptConfig]) -> BaseImage | None:
    """Return a base, and make it if it has to be made; None in a dry run that would make it."""
    lock = find_debian_lock(project.root, spec)
    locked = ("bootstrap" if lock.base and not spec.digest else "registry") if lock else args.source
    if args.source not in ("auto", locked):
        raise UsageError(
            f"{spec.id}: the source in its lock of Debian packages is {locked}, not {args.source}.",
            hint=f"Leave --source out, or remove {debian_lock_path(project.root, spec)}.",
        )
    base = find_base(spec, project.state, lock, hashed=bool(args.push))
    fits = base is not None and args.source in ("auto", base.source)
    if base and fits and not args.refresh:
        console.say(f"{spec.id}: {base.source}, {base.digest}, since {base.created}")
        return base
    if args.dry_run:
        console.say(f"{spec.id}: would be made ({args.source})")
        return None
    return make_base(
        spec, project.state, apt(), source=args.source, say=console.say, start=partial(Builder, None), lock=lock
    )


def _push(
    args: Arguments, project: Project, spec: BaseSpec, base: BaseImage | None, namespace: Repository
) -> Reference | None:
    """Push a base and lock it; return its reference. In a dry run only say so."""
    if base is None:
        console.say(f"{spec.id}: would be pushed to {namespace / spec.id}")
        return None
    reference = pushed_name(spec, base, namespace)
    registry = Registry(RegistryTransport(namespace.host, plain=args.plain_http), reference.repository)
    if args.dry_run:
        there = registry.digest(reference.tag) == reference.digest
        console.say(f"{spec.id}: {'is there already' if there else 'would be pushed'}: {reference}")
        return reference
    size = push_base(base, reference, project.state, registry)
    console.say(f"{spec.id}: pushed {reference} ({human(size)} sent)")
    _write_locks(project, spec, base, reference)
    return reference


def _write_locks(project: Project, spec: BaseSpec, base: BaseImage, reference: Reference) -> None:
    """Lock a pushed base, with the lock of its Debian packages: both name its digest."""
    lock = find_debian_lock(project.root, spec)
    entries = read_base_lock(project.root)
    names = {one.id for one in bases_of(project.expansion.specs)}
    entries = {name: entry for name, entry in entries.items() if name in names}
    entries[spec.id] = pushed_base(spec, reference)
    texts = {base_lock_path(project.root): format_base_lock(entries)}
    if lock and lock.digest != base.digest:
        # Another version of mmdebstrap made other bytes of the same packages.
        texts[debian_lock_path(project.root, spec)] = format_debian_lock(spec, replace(lock, digest=base.digest))
    write_texts(texts)
    console.say(f"{spec.id}: locked in {base_lock_path(project.root)}; commit it", style="dim")
