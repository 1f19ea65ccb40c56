"""The matrix's promises for an image, which the image in a registry must keep. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from torchbake.core.problem import Problem, unknown
from torchbake.lock.lockfile import Lock
from torchbake.matrix.platforms import id_of_tag
from torchbake.matrix.spec import AMD64, ImageSpec, Spec
from torchbake.oci.labels import ID, LABEL, VERSION_LABEL
from torchbake.release.record import Record
from torchbake.render.dockerfile import promised_labels
from torchbake.validate.expect import Versions
from torchbake.validate.facts import ServedTag, Shelf

_NO_ROLLING = unknown("an index has its rolling tags")


@dataclass(frozen=True, kw_only=True)
class Promise:
    """The matrix's promises for an image. ``tags``: its own tag, then the rolling tags.

    Every revision has the ``versions`` and the ``fixed_labels`` labels, which follow from the id. The newest revision
    has the ``labels``, too, which follow from the current row and lock. With a ``lock_problem``, the lock cannot be
    read. ``waivers`` are image checks that may fail, with the reasons.

    Of an image with several platforms, there are two promises. One is of the releases of its ``platform``, which begin
    with ``own`` and have no rolling tags. The other is of the image for the platform in the index of the id ``index``.
    """

    id: str
    tags: tuple[str, ...]
    fixed_labels: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)
    versions: Versions = field(default_factory=dict)
    release: str = ""  # an init image's
    lock_problem: Problem | None = None
    waivers: Mapping[str, str] = field(default_factory=dict)
    platform: str = AMD64
    own: str = ""
    index: str = ""

    @property
    def name(self) -> str:
        """The beginning of its immutable tags."""
        return self.own or self.tags[0]


def promise_of(spec: Spec, tags: tuple[str, ...], lock: Lock | None, lock_problem: Problem | None = None) -> Promise:
    """Return the promises of a row. ``lock`` is None for init images, or if there is a ``lock_problem``."""
    fixed = {ID: spec.id, VERSION_LABEL: spec.own_tag}
    labels = {} if lock_problem else promised_labels(spec, lock)
    promise = Promise(
        id=spec.id, tags=tags, fixed_labels=fixed, labels=labels, waivers=dict(spec.waivers), platform=spec.platform
    )  # fmt: skip
    if not isinstance(spec, ImageSpec):
        return replace(promise, release=spec.release)
    versions = spec.versions
    return replace(
        promise, fixed_labels=fixed | {f"{LABEL}.flavor": spec.flavor},
        versions=versions if spec.family == "cuda" else {**versions, "nccl": None}, lock_problem=lock_problem,
    )  # fmt: skip


def own_answer(promise: Promise, shelf: Shelf) -> ServedTag:
    """Return the answer for the image's own tag, if it is a rolling tag."""
    return shelf.tags[promise.tags[0]] if promise.tags else ServedTag(tag="", answer_problem=_NO_ROLLING)


def concerns(promise: Promise, record: Record | None) -> bool:
    """Return whether a promise is about a release.

    A row may get or lose a platform. Then its earlier releases may be images of another platform, or indexes of others.
    """
    if record is None:
        return True
    if record.platforms:
        return promise.platform in record.platforms
    return record.id == promise.id or id_of_tag(record.id) != id_of_tag(promise.id)
