"""Additions of the matrix to images besides packages: merged from several places, and checked. Pure."""

import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from torchbake.core.secret_names import looks_secret
from torchbake.core.secret_values import secret_text
from torchbake.matrix.added_paths import certificate_name, standard_folder
from torchbake.matrix.model import Defaults, Flavor, ImageAddition, InitImage, Matrix, Row
from torchbake.matrix.settings import CA_VARIABLES, CONSTRAINT_VARIABLES
from torchbake.matrix.spec import Additions, ImageSpec, OwnFile, User
from torchbake.matrix.yaml_source import Location

_SECRETS = "metadata.env-secrets"  # the image check of secrets in variables
_READABLE = (
    "looks like a secret, and everybody who pulls the image can read it; pass it when a container starts. If it is no "
    f"secret: `waive: {{{_SECRETS}: REASON}}` next to it, in a flavor, a row or `images:`"
)
MatrixMapping = Defaults | Flavor | Row | ImageAddition  # mappings that add to images


def add(own: Additions, places: Iterable[MatrixMapping]) -> Additions:
    """Merge additions. For a name or a file that several places set, the last place counts."""
    for place in places:
        files = {
            file.target: OwnFile(source=file.source, target=file.target, owner=file.owner or "", mode=file.mode or "")
            for file in place.files
        }
        own = replace(
            own,
            env=tuple({**dict(own.env), **place.env}.items()),
            labels=tuple({**dict(own.labels), **place.labels}.items()),
            certificates=tuple(dict.fromkeys((*own.certificates, *place.certificates))),
            files=(*(file for file in own.files if file.target not in files), *files.values()),
            user=replace(own.user, **place.user.model_dump(exclude_none=True)),
        )
    return own


def of_init(defaults: Defaults, init: InitImage) -> Additions:
    """Return the additions of an init image: its labels, and the uid that can write to volumes afterwards."""
    uid = init.user.uid or defaults.user.uid
    return Additions(labels=tuple(init.labels.items()), user=User(uid=uid) if uid else User())


def places_of(matrix: Matrix) -> Iterator[tuple[Location, Any]]:
    """Yield every mapping that adds to images but init containers, with its location."""
    yield ("defaults",), matrix.defaults
    yield from ((("flavors", name), flavor) for name, flavor in matrix.flavors.items())
    yield from ((("rows", number), row) for number, row in enumerate(matrix.rows))
    yield from ((("images", pattern), addition) for pattern, addition in matrix.images.items())


def clashes_in(spec: ImageSpec) -> Iterator[tuple[str, str]]:
    """Yield the contradictions between additions of one image: the key, and the reason."""
    own = spec.own
    if spec.constraints:
        used_names = (name for name, _ in own.env if name in CONSTRAINT_VARIABLES)
        yield from (("env", f"{name} is set by `constraints: true`: remove one of them") for name in used_names)
    if own.certificates:
        used_names = (name for name, _ in own.env if name in CA_VARIABLES)
        yield from (("env", f"{name} is set by `certificates`: remove one of them") for name in used_names)
    names: dict[str, str] = {}
    for source in own.certificates:
        name = certificate_name(source)
        if name in names:
            yield "certificates", f"{names[name]} and {source} would both be {name} in the image; rename one"
        names[name] = source
    for file in (file for file in own.files if not file.source.endswith("/")):
        path, source = file.target, file.source
        if path in (own.user.home, own.user.workdir) or standard_folder(path):
            name = posixpath.basename(source)
            yield "files", f"{path} is a folder; write the name of {source} in it too: {path}/{name}"
        for other in own.files:
            if other.target.startswith(f"{path}/"):
                yield "files", f"{other.target} is impossible, as {path} is a file, {source}; rename one of them"


def secrets_in(matrix: Matrix) -> Iterator[tuple[Location, str]]:
    """Yield variables and labels that look like a secret, unless the same place has a waiver."""
    inits = ((("init", name), init) for name, init in matrix.init.items())
    for at, place in (*places_of(matrix), *inits):
        if _SECRETS not in getattr(place, "waive", {}):
            env = getattr(place, "env", {})
            names = [name for name, value in env.items() if value and looks_secret(name)]
            yield from (((*at, "env", name), f"{name} {_READABLE}") for name in names)
            for key, pairs in (("env", env), ("labels", place.labels)):
                secrets = (name for name, value in pairs.items() if name not in names and secret_text(value))
                yield from (((*at, key, name), f"the value of {name} {_READABLE}") for name in secrets)
