"""Expansion of rows to images: every combination of a row's axes, without the excluded ones."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from torchbake.core.suggest import nearest
from torchbake.matrix.accelerator import parse_accelerator
from torchbake.matrix.additions import add, clashes_in, of_init, secrets_in
from torchbake.matrix.field_types import Packages
from torchbake.matrix.model import Exclude, ImageAddition, InitImage, Matrix, Row
from torchbake.matrix.platforms import PlatformGroups
from torchbake.matrix.problems import problems
from torchbake.matrix.spec import AMD64, PLATFORMS, Additions, BaseSpec, ImageSpec, InitSpec, ProjectSpec, Spec
from torchbake.matrix.wheel_indexes import most_exact
from torchbake.matrix.yaml_source import Document, Location
from torchbake.oci.reference import names_host

_LOCKS = ("bases", "builder")  # names of files in `images` that are no locks of Debian packages
_FIRST_CUDA_TORCH = (2, 0)  # older wheels contain CUDA, which images cannot share


@dataclass(frozen=True, kw_only=True)
class ExcludedImage:
    """An excluded combination of a row."""

    id: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Expansion:
    """All images of a matrix in the file's order, the reasons of their rows by id, and the excluded combinations."""

    specs: tuple[Spec, ...]
    excluded: tuple[ExcludedImage, ...]
    reasons: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def groups(self) -> PlatformGroups:
        """The images that share their tags."""
        return PlatformGroups(specs=self.specs)


class _Expander:
    """Collects images and problems in one pass over the rows."""

    def __init__(self, matrix: Matrix, document: Document) -> None:
        self.matrix = matrix
        self.document = document
        self.bases = {
            platform: {
                name: BaseSpec(name=name, platform=platform, **base.model_dump()) for name, base in matrix.bases.items()
            }
            for platform in PLATFORMS
        }
        self.additions = _Additions(matrix.images)
        self.problems: list[tuple[Location, str]] = []
        self.specs: dict[str, Spec] = {}
        self.excluded: list[ExcludedImage] = []
        self.reasons: dict[str, str] = {}
        self.used: set[int] = set()

    def run(self) -> Expansion:
        self._check_names()
        for name, base in self.bases[AMD64].items():
            if name in _LOCKS:
                self.problems.append((("bases", name), f"images/{name}.lock is another lock; choose another name"))
            if base.interpreter and base.python_package not in ("", f"python{base.python}"):
                text = f"{base.interpreter!r} is not Python {base.python}; `python` and it must be of one version"
                self.problems.append((("bases", name, "interpreter"), text))
        self.problems += [*secrets_in(self.matrix), *_other_hosts(self.matrix.registry, self.matrix.repository)]
        if not self.problems:
            for number, row in enumerate(self.matrix.rows):
                self._expand(("rows", number), row)
            for name, init in self.matrix.init.items():
                for platform in self._platforms(init):
                    self._add(("init", name), self._init(name, platform))
            self._check_use()
        if self.problems:
            raise problems(self.document, self.problems)
        return Expansion(specs=tuple(self.specs.values()), excluded=tuple(self.excluded), reasons=self.reasons)

    def _expand(self, at: Location, row: Row) -> None:
        count = 0
        for axes in itertools.product(row.torch, row.accelerator, row.base, row.flavor, self._platforms(row)):
            spec = self._spec(at, row, axes)
            matching = (number for number, exclude in enumerate(self.matrix.exclude) if _matches(exclude, spec))
            number = next(matching, None)
            if number is None:
                count += 1
                self._add(at, spec)
                if row.reason:
                    self.reasons[spec.id] = row.reason
            else:
                self.used.add(number)
                self.excluded.append(ExcludedImage(id=spec.id, reason=self.matrix.exclude[number].reason))
        if not count:
            self.problems.append((at, "every combination of this row is excluded"))

    def _platforms(self, place: Row | InitImage) -> list[str]:
        """Return the platforms of a row or an init image, amd64 first: commands take the first holder of a tag."""
        platforms = place.platforms or self.matrix.defaults.platforms
        return [platform for platform in PLATFORMS if platform in platforms]

    def _spec(self, at: Location, row: Row, axes: tuple[str, str, str, str, str]) -> ImageSpec:
        torch, accelerator, base, flavor, platform = axes
        acc = parse_accelerator(accelerator)
        defaults, kind = self.matrix.defaults, self.matrix.flavors[flavor]
        packages = defaults.packages + kind.packages + row.packages
        if acc.family in kind.cuda_packages:
            packages += kind.cuda_packages[acc.family]
        spec = ImageSpec(
            torch=torch,
            accelerator=acc,
            cudnn=None if acc.kind == "cpu" else row.cudnn or defaults.cudnn,
            base=self.bases[platform][base],
            flavor=flavor,
            headers=kind.headers,
            trim=defaults.trim if row.trim is None else row.trim,
            constraints=defaults.constraints if row.constraints is None else row.constraints,
            compiler=defaults.compiler if row.compiler is None else row.compiler,
            apt=packages.apt,
            apt_of_all=defaults.packages.apt,
            pip=packages.pip,
            # A requirement with a placeholder differs between rows.
            pip_of_all=tuple(text for text in defaults.packages.pip if "{" not in text),
            indexes=most_exact(acc, row.indexes if {*acc.names} & row.indexes.keys() else self.matrix.indexes),
            waivers=tuple({**kind.waive, **row.waive}.items()),
            own=add(Additions(), (defaults, kind, row)),
            project=ProjectSpec(**row.project.model_dump()) if row.project else None,
            repository=self.matrix.repository[0],
            source=self.matrix.source,
            licenses=self.matrix.licenses,
            line=self.document.line(at),
            platform=platform,
        )
        spec = self.additions.apply(spec)
        self.problems += [((*at, key), text) for key, text in (*_contradictions(row, spec), *clashes_in(spec))]
        return spec

    def _init(self, name: str, platform: str) -> InitSpec:
        init, owner = self.matrix.init[name], self.matrix.repository[0].rpartition("/")[0]
        if init.user.name:
            self.problems.append((("init", name, "user", "name"), "an init image has no account; give its uid alone"))
        base = self.bases[platform][init.base]
        self.problems += [(("init", name, key), text) for key, text in _no_packages(base)]
        return InitSpec(
            name=name,
            release=init.version,
            base=base,
            repository=f"{owner}/{name}" if owner else name,
            source=self.matrix.source,
            licenses="Apache-2.0",  # of its only file, which belongs to this project
            line=self.document.line(("init", name)),
            waivers=tuple(init.waive.items()),
            own=of_init(self.matrix.defaults, init),
            platform=platform,
        )

    def _add(self, at: Location, spec: Spec) -> None:
        if spec.id in self.specs:
            first = self.specs[spec.id].line
            self.problems.append((at, f"duplicate image {spec.id!r}, first made on line {first}"))
        self.specs.setdefault(spec.id, spec)

    def _check_names(self) -> None:
        places: list[tuple[Location, Any]] = [(("tags", "defaults"), self.matrix.tags.defaults)]
        places += [(("rows", number), row) for number, row in enumerate(self.matrix.rows)]
        places += [(("exclude", number), exclude) for number, exclude in enumerate(self.matrix.exclude)]
        places += [(("init", name), init) for name, init in self.matrix.init.items()]
        for at, place in places:
            for key, known_names in (("base", self.matrix.bases), ("flavor", self.matrix.flavors)):
                names = getattr(place, key, None) or ()
                for name in (names,) if isinstance(names, str) else names:
                    if name not in known_names:
                        near = nearest(name, known_names, count=1)
                        guess = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known_names)}"
                        self.problems.append(((*at, key), f"unknown {key} {name!r}; {guess}"))

    def _check_use(self) -> None:
        for number in range(len(self.matrix.exclude)):
            if number not in self.used:
                self.problems.append((("exclude", number), "excludes nothing; remove it, or correct its axes"))
        for pattern in self.additions.unused:
            near = nearest(pattern, self.specs, count=1)
            guess = f"; did you mean {near[0]!r}?" if near else ""
            self.problems.append((("images", pattern), f"matches no image{guess}"))


class _Additions:
    """The per-image additions of `images:`, by id or glob. Exact ids are looked up, not searched."""

    def __init__(self, images: dict[str, ImageAddition]) -> None:
        self.images = images
        self.globs = [pattern for pattern in images if any(mark in pattern for mark in "*?[")]
        self.unused = dict.fromkeys(images)

    def apply(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec with its additions, and with {torch} and {cuda} replaced by their versions."""
        patterns = [spec.id] if spec.id in self.images else []
        patterns += [pattern for pattern in self.globs if fnmatchcase(spec.id, pattern)]
        packages, waivers = Packages(apt=spec.apt, pip=spec.pip), dict(spec.waivers)
        switches = {"trim": spec.trim, "constraints": spec.constraints, "compiler": spec.compiler}
        for pattern in patterns:
            self.unused.pop(pattern, None)
        additions = [self.images[pattern] for pattern in patterns]
        for addition in additions:
            packages += addition.packages
            switches |= {name: value for name in switches if (value := getattr(addition, name)) is not None}
            waivers |= addition.waive
        cuda = spec.accelerator.cuda or ""
        pip = tuple(text.replace("{torch}", spec.torch).replace("{cuda}", cuda) for text in packages.pip)
        fields = dict(vars(spec), apt=packages.apt, pip=pip, own=add(spec.own, additions))
        return ImageSpec(**fields | switches | {"waivers": tuple(waivers.items())})


def _contradictions(row: Row, spec: ImageSpec) -> Iterator[tuple[str, str]]:
    """Yield the values of a row that contradict each other: the key, and the reason."""
    kind = spec.accelerator.kind
    if kind == "cpu" and row.cudnn:
        yield "cudnn", "cuDNN belongs to CUDA; a cpu row has none"
    if kind == "cuda" and spec.version.release < _FIRST_CUDA_TORCH:
        yield "torch", f"torch {spec.torch} for CUDA is one wheel with CUDA inside; 2.0 and later are split"
    if spec.platform != AMD64 and row.project:
        yield "platforms", f"a project's lock is read for {AMD64} alone; write `platforms: [{AMD64}]` in this row"
    yield from _no_packages(spec.base)


def _no_packages(base: BaseSpec) -> Iterator[tuple[str, str]]:
    if base.platform != AMD64 and base.distribution == "ubuntu":
        yield (
            "platforms",
            f"{base.name} is Ubuntu, whose mirrors have packages for {AMD64} alone; name a base of Debian",
        )


def expand(matrix: Matrix, document: Document) -> Expansion:
    """Return all images of the matrix. Raises MatrixError for unknown names, duplicates and wrong combinations."""
    return _Expander(matrix, document).run()


def _other_hosts(registries: Sequence[str], repositories: Sequence[str]) -> list[tuple[Location, str]]:
    """Return a problem for each host of a repository that is no host of the registries, if there are registries."""
    used = {registry.partition("/")[0] for registry in registries if registry}
    hosts = {repository.partition("/")[0] for repository in repositories if names_host(repository)}
    text = f"is {' and '.join(registries)}, and `repository` names the host {{}}; remove one of the hosts"
    return [(("registry",), text.format(host)) for host in sorted(hosts - used)] if used else []


def _matches(exclude: Exclude, spec: ImageSpec) -> bool:
    axes = (
        (exclude.torch, spec.torch),
        (exclude.accelerator, str(spec.accelerator)),
        (exclude.base, spec.base.name),
        (exclude.flavor, spec.flavor),
        (exclude.platform, spec.platform),
    )
    return all(expected_values is None or value in expected_values for expected_values, value in axes)
