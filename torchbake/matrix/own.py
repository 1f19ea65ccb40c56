"""What a user adds to images beside packages: put together from the places that say it, and judged. Pure."""

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

from torchbake.core.secret_names import looks_secret
from torchbake.core.secret_values import secret_text
from torchbake.matrix.added_paths import certificate_name, standard_folder
from torchbake.matrix.field_types import Account, File
from torchbake.matrix.model import Defaults, InitImage, Matrix
from torchbake.matrix.settings import CA_VARIABLES, CONSTRAINT_VARIABLES
from torchbake.matrix.spec import ImageSpec, Own, OwnFile, User
from torchbake.matrix.yaml_source import Location

_SECRETS = "metadata.env-secrets"  # the image check of secrets in variables
_READABLE = (
    "looks like a secret, and whoever pulls the image reads it; hand it over when a container starts. If it is none: "
    f"`waive: {{{_SECRETS}: REASON}}` beside it, in a flavor, a row or `images:`"
)


class Place(Protocol):
    """A mapping of the matrix that adds to images: `defaults:`, a flavor, a row, an entry of `images:`."""

    @property
    def env(self) -> Mapping[str, str]: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def certificates(self) -> tuple[str, ...]: ...
    @property
    def files(self) -> tuple[File, ...]: ...
    @property
    def user(self) -> Account: ...


def add(own: Own, places: Iterable[Place]) -> Own:
    """``own`` with what places add, the last of which has the last word on a name."""
    for place in places:
        own = replace(
            own,
            env=tuple({**dict(own.env), **place.env}.items()),
            labels=tuple({**dict(own.labels), **place.labels}.items()),
            certificates=tuple(dict.fromkeys((*own.certificates, *place.certificates))),
            files=_with_files(own.files, map(_own_file, place.files)),
            user=replace(own.user, **place.user.model_dump(exclude_none=True)),
        )
    return own


def of_init(defaults: Defaults, init: InitImage) -> Own:
    """What an init image has of the user's: its own labels, and the uid of the images that it serves."""
    uid = init.user.uid or defaults.user.uid
    return Own(labels=tuple(init.labels.items()), user=User(uid=uid) if uid else User())


def _own_file(file: File) -> OwnFile:
    return OwnFile(source=file.source, target=file.target, owner=file.owner or "", mode=file.mode or "")


def _with_files(files: Iterable[OwnFile], more: Iterable[OwnFile]) -> tuple[OwnFile, ...]:
    """Files in the order in which they are put into the image; of two at one target the later."""
    last = {file.target: file for file in more}
    return (*(file for file in files if file.target not in last), *last.values())


def places_of(matrix: Matrix) -> Iterator[tuple[Location, Any]]:
    """Every mapping that adds to images but init containers, and where it stands."""
    yield ("defaults",), matrix.defaults
    yield from ((("flavors", name), flavor) for name, flavor in matrix.flavors.items())
    yield from ((("rows", number), row) for number, row in enumerate(matrix.rows))
    yield from ((("images", pattern), addition) for pattern, addition in matrix.images.items())


def clashes_in(spec: ImageSpec) -> Iterator[tuple[str, str]]:
    """What of one image does not go together: the key, and why."""
    own = spec.own
    if spec.constraints:
        taken = (name for name, _ in own.env if name in CONSTRAINT_VARIABLES)
        yield from (("env", f"{name} is set where there is `constraints: true`, to that file") for name in taken)
    if own.certificates:
        taken = (name for name, _ in own.env if name in CA_VARIABLES)
        yield from (("env", f"{name} is set where there are `certificates`, to the system's bundle") for name in taken)
    names: dict[str, str] = {}
    for source in own.certificates:
        name = certificate_name(source)
        if name in names:
            yield "certificates", f"{names[name]} and {source} would both be {name} in the image; rename one"
        names[name] = source
    yield from (("files", text) for text in _file_clashes(own))


def _file_clashes(own: Own) -> Iterator[str]:
    """Files that could only fail in the build: where a folder is, or where others have one of them as their folder."""
    for file in (file for file in own.files if not file.source.endswith("/")):
        if file.target in (own.user.home, own.user.workdir) or standard_folder(file.target):
            name = posixpath.basename(file.source)
            yield f"{file.target} is a folder; write the name of {file.source} in it too: {file.target}/{name}"
        for other in own.files:
            if other.target.startswith(f"{file.target}/"):
                yield f"{other.target} is impossible, as {file.target} is a file, {file.source}; rename one of them"


def secrets_in(matrix: Matrix) -> Iterator[tuple[Location, str]]:
    """Variables and labels that look like a secret, unless the same place says by a waiver that they are none."""
    inits = ((("init", name), init) for name, init in matrix.init.items())
    for at, place in (*places_of(matrix), *inits):
        if _SECRETS not in getattr(place, "waive", {}):
            env = getattr(place, "env", {})
            names = [name for name, value in env.items() if value and looks_secret(name)]
            yield from (((*at, "env", name), f"{name} {_READABLE}") for name in names)
            for key, pairs in (("env", env), ("labels", place.labels)):
                held = (name for name, value in pairs.items() if name not in names and secret_text(value))
                yield from (((*at, key, name), f"what {name} holds {_READABLE}") for name in held)
