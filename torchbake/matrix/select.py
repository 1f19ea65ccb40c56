"""Selectors: words on a command line to images.

Words of one facet are alternatives, different facets must all hold, and ``!word`` takes away. Facets
describe PyTorch images; an init image is chosen by its own name, by a glob, or by ``all``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType

from torchbake.core.suggest import nearest
from torchbake.errors import SelectorError
from torchbake.matrix.spec import ImageSpec, InitSpec, Spec

ALL = "all"
_MEANT = {"gpu": "cuda", "nvidia": "cuda", "everything": ALL}  # what people write for a word of ours


@dataclass(frozen=True, kw_only=True)
class Facet:
    """One side of an image: every word that names it, widest first."""

    name: str
    words: Callable[[ImageSpec], tuple[str, ...]]


def _torch_words(spec: ImageSpec) -> tuple[str, ...]:
    release = spec.version.release
    minor = ".".join(map(str, release[:2]))
    plain = (minor, spec.torch)
    return (f"torch{release[0]}", *(f"torch{version}" for version in plain), *plain)


FACETS = (
    Facet(name="accelerator", words=lambda spec: spec.accelerator.names),
    Facet(name="torch", words=_torch_words),
    Facet(name="python", words=lambda spec: (f"py{spec.base.python}",)),
    Facet(name="base", words=lambda spec: (spec.base.name,)),
    Facet(name="flavor", words=lambda spec: (spec.flavor,)),
    Facet(name="id", words=lambda spec: (spec.id,)),
)


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """An image that a selection does not hold, and why."""

    id: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What the words choose, in the matrix's order, and why not the rest."""

    specs: tuple[Spec, ...]
    left_out: tuple[LeftOut, ...]


class _Vocabulary:
    """Every word that the images of one matrix answer to."""

    def __init__(self, specs: Iterable[Spec], tags: Mapping[str, Sequence[str]]) -> None:
        self.tags = tags
        self.facet_of: dict[str, str] = {}
        self.inits: set[str] = set()
        self.ids: list[str] = []
        self.words: dict[str, dict[str, frozenset[str]]] = {}
        for spec in specs:
            self.ids.append(spec.id)
            if isinstance(spec, InitSpec):
                self.inits.add(spec.id)
                continue
            self.words[spec.id] = {facet.name: frozenset(facet.words(spec)) for facet in FACETS}
            for facet in FACETS:
                for word in self.words[spec.id][facet.name]:
                    self.facet_of.setdefault(word, facet.name)

    def facet(self, word: str) -> str:
        """The facet that ``word`` speaks of. Raises SelectorError when no image answers to it."""
        if word == ALL or word in self.inits:
            return "id"
        if word in self.facet_of:
            return self.facet_of[word]
        if _is_glob(word) and any(fnmatchcase(name, word) for name in self.ids):
            return "id"
        raise SelectorError(f"{word!r} selects nothing.", hint=self._meant(word))

    def _knows(self, word: str) -> bool:
        return word == ALL or word in self.facet_of or word in self.inits

    def _meant(self, word: str) -> str:
        """What somebody who writes ``word`` may want."""
        lower = word.lower()
        plain = _MEANT.get(lower, lower)
        if plain != word and self._knows(plain):
            return f"Write: {plain}"
        holder = next((name for name, tags in self.tags.items() if lower in tags), None)
        parts = lower.split("-")
        words = f", or its words: {' '.join(parts)}" if len(parts) > 1 and all(map(self._knows, parts)) else ""
        if holder:
            return f"It is a tag of {holder}: write that id{words}."
        if words:
            return f"Write its words: {' '.join(parts)}"
        near = nearest(lower, [ALL, *self.facet_of, *self.inits])
        return f"Nearest: {', '.join(near)}." if near else "`nox -s list -- all` shows what there is."

    def speaks_of_inits_alone(self, word: str) -> bool:
        """Whether ``word`` is an init image's name, or a glob that fits no other: it narrows nothing down."""
        return word in self.inits or (_is_glob(word) and not any(fnmatchcase(name, word) for name in self.words))


def select(
    specs: Sequence[Spec], words: Sequence[str], tags: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> Selection:
    """The images that ``words`` choose; ``tags`` of each image, by id, explain words that choose none.

    Only negations mean "all but". Raises SelectorError for a word that nothing answers to, and for
    words that no image fulfils together.
    """
    vocabulary = _Vocabulary(specs, tags)
    wanted = [word for word in words if not word.startswith("!")]
    unwanted = [word[1:] for word in words if word.startswith("!")]
    for word in (*wanted, *unwanted):
        vocabulary.facet(word)
    chosen, left_out = [], []
    for spec in specs:
        reason = _against(spec, wanted or [ALL], unwanted, vocabulary)
        if reason:
            left_out.append(LeftOut(id=spec.id, reason=reason))
        else:
            chosen.append(spec)
    if not chosen:
        raise SelectorError(
            f"No image matches {' '.join(words)!r} together.",
            hint="Words of different facets must all hold; `nox -s list -- all` shows what there is.",
        )
    return Selection(specs=tuple(chosen), left_out=tuple(left_out))


def _against(spec: Spec, wanted: list[str], unwanted: list[str], vocabulary: _Vocabulary) -> str | None:
    """Why ``spec`` is not chosen; None when it is."""
    for word in unwanted:
        if _answers(spec, word, vocabulary):
            return f"excluded by !{word}"
    if isinstance(spec, InitSpec):
        named = any(_answers(spec, word, vocabulary) for word in wanted)
        return None if named else "an init image, not named"
    groups: dict[str, list[str]] = {}
    for word in wanted:
        if not vocabulary.speaks_of_inits_alone(word):
            groups.setdefault(vocabulary.facet(word), []).append(word)
    if not groups:
        return "only init images are named"
    for facet, words in groups.items():
        if not any(_answers(spec, word, vocabulary) for word in words):
            return f"{facet} is {_shown(spec, facet)}, not {' or '.join(words)}"
    return None


def _answers(spec: Spec, word: str, vocabulary: _Vocabulary) -> bool:
    if word in (ALL, spec.id) or (_is_glob(word) and fnmatchcase(spec.id, word)):
        return True
    return isinstance(spec, ImageSpec) and any(word in names for names in vocabulary.words[spec.id].values())


def _shown(spec: ImageSpec, facet: str) -> str:
    values = {
        "accelerator": str(spec.accelerator),
        "torch": spec.torch,
        "python": f"py{spec.base.python}",
        "base": spec.base.name,
        "flavor": spec.flavor,
    }
    return values.get(facet, spec.id)


def _is_glob(word: str) -> bool:
    return any(mark in word for mark in "*?[")
