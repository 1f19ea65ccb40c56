"""Rows to images: every combination of a row's axes, less the exclusions."""

import itertools
from dataclasses import dataclass
from fnmatch import fnmatchcase

from torchbake.core.suggest import nearest
from torchbake.matrix.accelerator import parse_accelerator
from torchbake.matrix.field_types import Packages
from torchbake.matrix.model import Base, Exclude, ImageAddition, Matrix, Row
from torchbake.matrix.own import add, clashes_in, of_init, secrets_in
from torchbake.matrix.problems import problems
from torchbake.matrix.spec import BaseSpec, ImageSpec, InitSpec, Own, Spec
from torchbake.matrix.wheel_indexes import most_exact
from torchbake.matrix.yaml_source import Document, Location

_FIRST_CUDA_TORCH = (2, 0)  # older wheels carry CUDA inside torch, which this layout cannot share


@dataclass(frozen=True, kw_only=True)
class Excluded:
    """A combination that a row names and an exclusion takes away."""

    id: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Expansion:
    """All images of a matrix in the file's order, and what was excluded."""

    specs: tuple[Spec, ...]
    excluded: tuple[Excluded, ...]


class _Expander:
    """Collects images and problems in one pass over the rows."""

    def __init__(self, matrix: Matrix, document: Document) -> None:
        self.matrix = matrix
        self.document = document
        self.bases = {name: _base(name, base) for name, base in matrix.bases.items()}
        self.additions = _Additions(matrix.images)
        self.problems: list[tuple[Location, str]] = []
        self.specs: dict[str, Spec] = {}
        self.excluded: list[Excluded] = []
        self.used: set[int] = set()

    def run(self) -> Expansion:
        self._check_names()
        self._check_pythons()
        self.problems += secrets_in(self.matrix)
        if not self.problems:
            for number, row in enumerate(self.matrix.rows):
                self._expand(("rows", number), row)
            for name in self.matrix.init:
                self._add(("init", name), self._init(name))
            self._check_use()
        if self.problems:
            raise problems(self.document, self.problems)
        return Expansion(specs=tuple(self.specs.values()), excluded=tuple(self.excluded))

    def _expand(self, at: Location, row: Row) -> None:
        kept = 0
        for axes in itertools.product(row.torch, row.accelerator, row.base, row.flavor):
            spec = self._spec(at, row, axes)
            exclusion = self._exclusion(spec)
            if exclusion:
                self.excluded.append(Excluded(id=spec.id, reason=exclusion.reason))
            else:
                kept += 1
                self._add(at, spec)
        if not kept:
            self.problems.append((at, "every combination of this row is excluded"))

    def _spec(self, at: Location, row: Row, axes: tuple[str, str, str, str]) -> ImageSpec:
        torch, accelerator, base, flavor = axes
        acc = parse_accelerator(accelerator)
        defaults, kind = self.matrix.defaults, self.matrix.flavors[flavor]
        packages = defaults.packages + kind.packages + row.packages
        if acc.family in kind.cuda_packages:
            packages += kind.cuda_packages[acc.family]
        spec = ImageSpec(
            torch=torch,
            accelerator=acc,
            cudnn=None if acc.kind == "cpu" else row.cudnn or defaults.cudnn,
            base=self.bases[base],
            flavor=flavor,
            headers=kind.headers,
            trim=defaults.trim if row.trim is None else row.trim,
            constraints=defaults.constraints if row.constraints is None else row.constraints,
            apt=packages.apt,
            apt_of_all=defaults.packages.apt,
            pip=packages.pip,
            # What has a placeholder is another in each row.
            pip_of_all=tuple(text for text in defaults.packages.pip if "{" not in text),
            indexes=most_exact(acc, row.indexes if {*acc.names} & row.indexes.keys() else self.matrix.indexes),
            waivers=tuple({**kind.waive, **row.waive}.items()),
            own=add(Own(), (defaults, kind, row)),
            repository=self.matrix.repository,
            source=self.matrix.source,
            licenses=self.matrix.licenses,
            line=self.document.line(at),
        )
        self._check_combination(at, row, spec)
        spec = self.additions.apply(spec)
        self.problems += [((*at, key), text) for key, text in clashes_in(spec)]
        return spec

    def _check_combination(self, at: Location, row: Row, spec: ImageSpec) -> None:
        if spec.accelerator.kind == "cpu" and row.cudnn:
            self.problems.append(((*at, "cudnn"), "cuDNN belongs to CUDA; a cpu row has none"))
        if spec.accelerator.kind == "cuda" and spec.version.release < _FIRST_CUDA_TORCH:
            self.problems.append(
                (
                    (*at, "torch"),
                    f"torch {spec.torch} for CUDA is one wheel with CUDA inside; 2.0 and later are split",
                )
            )

    def _init(self, name: str) -> InitSpec:
        init, owner = self.matrix.init[name], self.matrix.repository.rpartition("/")[0]
        if init.user.name:
            self.problems.append((("init", name, "user", "name"), "an init image has no account; give its uid alone"))
        return InitSpec(
            id=name,
            release=init.version,
            base=self.bases[init.base],
            repository=f"{owner}/{name}" if owner else name,
            source=self.matrix.source,
            licenses="Apache-2.0",  # its one file is this project's own
            line=self.document.line(("init", name)),
            waivers=tuple(init.waive.items()),
            own=of_init(self.matrix.defaults, init),
        )

    def _add(self, at: Location, spec: Spec) -> None:
        if spec.id in self.specs:
            first = self.specs[spec.id].line
            self.problems.append((at, f"duplicate image {spec.id!r}, first made on line {first}"))
        self.specs.setdefault(spec.id, spec)

    def _exclusion(self, spec: ImageSpec) -> Exclude | None:
        for number, exclude in enumerate(self.matrix.exclude):
            if _matches(exclude, spec):
                self.used.add(number)
                return exclude
        return None

    def _check_names(self) -> None:
        for number, row in enumerate(self.matrix.rows):
            self._known(("rows", number, "base"), row.base, self.matrix.bases, "base")
            self._known(("rows", number, "flavor"), row.flavor, self.matrix.flavors, "flavor")
        for number, exclude in enumerate(self.matrix.exclude):
            self._known(("exclude", number, "base"), exclude.base or (), self.matrix.bases, "base")
            self._known(("exclude", number, "flavor"), exclude.flavor or (), self.matrix.flavors, "flavor")
        for name, init in self.matrix.init.items():
            self._known(("init", name, "base"), (init.base,), self.matrix.bases, "base")
        defaults = self.matrix.tags.defaults
        self._known(("tags", "defaults", "base"), (defaults.base,), self.matrix.bases, "base")
        self._known(("tags", "defaults", "flavor"), (defaults.flavor,), self.matrix.flavors, "flavor")

    def _check_pythons(self) -> None:
        for name, base in self.bases.items():
            if base.interpreter and base.python_package not in ("", f"python{base.python}"):
                text = f"{base.interpreter!r} is not Python {base.python}; `python` and it must be of one version"
                self.problems.append((("bases", name, "interpreter"), text))

    def _known(self, at: Location, names: tuple[str, ...], known: object, what: str) -> None:
        choices = list(known)  # type: ignore[call-overload]
        for name in names:
            if name not in choices:
                near = nearest(name, choices, count=1)
                guess = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(choices)}"
                self.problems.append((at, f"unknown {what} {name!r}; {guess}"))

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
        """The spec with what is added to it, and {torch} and {cuda} filled in."""
        patterns = [spec.id] if spec.id in self.images else []
        patterns += [pattern for pattern in self.globs if fnmatchcase(spec.id, pattern)]
        packages, waivers = Packages(apt=spec.apt, pip=spec.pip), dict(spec.waivers)
        switches = {"trim": spec.trim, "constraints": spec.constraints}
        for pattern in patterns:
            self.unused.pop(pattern, None)
        additions = [self.images[pattern] for pattern in patterns]
        for addition in additions:
            packages += addition.packages
            switches |= {name: said for name in switches if (said := getattr(addition, name)) is not None}
            waivers |= addition.waive
        fields = dict(vars(spec), apt=packages.apt, pip=_fill(packages.pip, spec))
        fields |= switches | {"waivers": tuple(waivers.items()), "own": add(spec.own, additions)}
        return ImageSpec(**fields)


def expand(matrix: Matrix, document: Document) -> Expansion:
    """All images of the matrix. Raises MatrixError for unknown names, duplicates and impossible combinations."""
    return _Expander(matrix, document).run()


def _base(name: str, base: Base) -> BaseSpec:
    return BaseSpec(name=name, **base.model_dump())


def _fill(pip: tuple[str, ...], spec: ImageSpec) -> tuple[str, ...]:
    return tuple(
        requirement.replace("{torch}", spec.torch).replace("{cuda}", spec.accelerator.cuda or "") for requirement in pip
    )


def _matches(exclude: Exclude, spec: ImageSpec) -> bool:
    axes = (
        (exclude.torch, spec.torch),
        (exclude.accelerator, str(spec.accelerator)),
        (exclude.base, spec.base.name),
        (exclude.flavor, spec.flavor),
    )
    return all(wanted is None or value in wanted for wanted, value in axes)
