"""Selectors: words on a command line that choose images.

Selectors of the same facet are combined with OR (``cuda12 cpu``), different facets with AND (``cuda12 debian12``), and
``!devel`` excludes. Facets describe PyTorch images; an init image is chosen by its name, by a glob, or by ``all``.
An image for another platform than amd64 is chosen only if a word names the platform or the image, or by ``all``: few
machines build it, and those slowly.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType

from torchbake.core.suggest import nearest
from torchbake.errors import SelectorError
from torchbake.matrix.spec import AMD64, ImageSpec, InitSpec, Spec
from torchbake.ui.command import Command

ALL = "all"
_SYNONYMS = {"gpu": "cuda", "nvidia": "cuda", "everything": ALL}
_MOST_NAMED = 3  # words in a reason, if there are two more


@dataclass(frozen=True, kw_only=True)
class Facet:
    """A property of an image, and its selectors, widest first."""

    name: str
    words: Callable[[ImageSpec], tuple[str, ...]]


def _torch_words(spec: ImageSpec) -> tuple[str, ...]:
    major, minor, *_ = spec.version.release
    versions = (f"{major}.{minor}", spec.torch)
    return (f"torch{major}", *(f"torch{version}" for version in versions), *versions)


FACETS = (
    Facet(name="accelerator", words=lambda spec: spec.accelerator.names),
    Facet(name="torch", words=_torch_words),
    Facet(name="python", words=lambda spec: (f"py{spec.base.python}",)),
    Facet(name="base", words=lambda spec: (spec.base.name,)),
    Facet(name="flavor", words=lambda spec: (spec.flavor,)),
    Facet(name="platform", words=lambda spec: (spec.base.architecture, spec.platform)),
    Facet(name="id", words=lambda spec: (spec.id,)),
)


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """An image that is not selected, and the reason."""

    id: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The selected images, in the matrix's order, and the other ones."""

    specs: tuple[Spec, ...]
    left_out: tuple[LeftOut, ...]


class _Vocabulary:
    """Every selector of the images of one matrix."""

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
        """Return the facet of a selector. Raises SelectorError if it matches no image."""
        if word == ALL or word in self.inits:
            return "id"
        if word in self.facet_of:
            return self.facet_of[word]
        if _is_glob(word) and any(fnmatchcase(name, word) for name in self.ids):
            return "id"
        raise SelectorError(f"{word!r} selects nothing.", hint=self._suggestion(word))

    def _knows(self, word: str) -> bool:
        return word == ALL or word in self.facet_of or word in self.inits

    def _suggestion(self, word: str) -> str:
        lower = word.lower()
        plain = _SYNONYMS.get(lower, lower)
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
        return f"Nearest: {', '.join(near)}." if near else f"`{Command('list', 'all')}` shows all images."

    def names(self, spec: Spec) -> AbstractSet[str]:
        """Return the words that select an image."""
        return {ALL, spec.id}.union(*self.words.get(spec.id, {}).values())

    def matches_only_inits(self, word: str) -> bool:
        return word in self.inits or (_is_glob(word) and not any(fnmatchcase(name, word) for name in self.words))


def select(
    specs: Sequence[Spec], words: Sequence[str], tags: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> Selection:
    """Return the images that ``words`` choose. Negations alone exclude from all images.

    ``tags`` by id are for the hint of an error. Raises SelectorError for a word that matches no image, and for words
    that match none together.
    """
    vocabulary = _Vocabulary(specs, tags)
    included = [word for word in words if not word.startswith("!")]
    unwanted = [word[1:] for word in words if word.startswith("!")]
    for word in (*included, *unwanted):
        vocabulary.facet(word)
    question = _Question.of(included or [ALL], unwanted, vocabulary)
    choices, left_out = [], []
    for spec in specs:
        reason = question.mismatch(spec)
        if reason:
            left_out.append(LeftOut(id=spec.id, reason=reason))
        else:
            choices.append(spec)
    if not choices:
        raise SelectorError(
            f"No image matches {' '.join(words)!r} together.",
            hint=f"Selectors of different facets are combined with AND; `{Command('list', 'all')}` shows all images.",
        )
    return Selection(specs=tuple(choices), left_out=tuple(left_out))


@dataclass(frozen=True, kw_only=True)
class _Words:
    """Selectors in their order. Words are looked up and globs compared, so that a file may have thousands of words."""

    every: tuple[str, ...] = ()
    words: frozenset[str] = frozenset()
    globs: tuple[str, ...] = ()

    @classmethod
    def of(cls, every: Iterable[str]) -> "_Words":
        words = tuple(every)
        return cls(every=words, words=frozenset(words), globs=tuple(filter(_is_glob, words)))

    def match(self, name: str, names: AbstractSet[str]) -> bool:
        """Return whether a word is one of the names of an image, or a glob is that of its id ``name``."""
        return not self.words.isdisjoint(names) or any(fnmatchcase(name, glob) for glob in self.globs)

    def first(self, name: str, names: AbstractSet[str]) -> str:
        """Return the first word that matches an image; "" if none does."""
        globs = (glob for glob in self.globs if fnmatchcase(name, glob))
        return min((*(self.words & names), *globs), key=self.every.index, default="")

    @property
    def text(self) -> str:
        """The words of a message; if they are many, the first of them."""
        more = len(self.every) - _MOST_NAMED
        return " or ".join((*self.every[:_MOST_NAMED], f"{more} others") if more > 1 else self.every)


@dataclass(frozen=True, kw_only=True)
class _Question:
    """The selectors of a command, and the groups of them that an image must match, by facet."""

    vocabulary: _Vocabulary
    included: _Words
    unwanted: _Words
    groups: Mapping[str, _Words]

    @classmethod
    def of(cls, included: Sequence[str], unwanted: Sequence[str], vocabulary: _Vocabulary) -> "_Question":
        groups: dict[str, list[str]] = {}
        for word in included:
            if not vocabulary.matches_only_inits(word):
                groups.setdefault(vocabulary.facet(word), []).append(word)
        return cls(
            vocabulary=vocabulary, included=_Words.of(included), unwanted=_Words.of(unwanted),
            groups={facet: _Words.of(words) for facet, words in groups.items()},
        )  # fmt: skip

    def mismatch(self, spec: Spec) -> str | None:
        """Return why an image is not selected; None if it is."""
        name, names = spec.id, self.vocabulary.names(spec)
        if word := self.unwanted.first(name, names):
            return f"excluded by !{word}"
        if isinstance(spec, InitSpec):
            return None if self.included.match(name, names) else "an init image, not named"
        if not self.groups:
            return "only init images are named"
        platform = {ALL, name, spec.platform, spec.base.architecture}
        if spec.platform != AMD64 and not self.included.match(name, platform):
            return f"for {spec.platform}, which no word names: {spec.base.architecture}"
        for facet, words in self.groups.items():
            if not words.match(name, names):
                exact = {each.name: each.words(spec)[-1] for each in FACETS}
                return f"{facet} is {exact[facet]}, not {words.text}"
        return None


def _is_glob(word: str) -> bool:
    return any(mark in word for mark in "*?[")
