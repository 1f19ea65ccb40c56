"""Waste that its path shows: caches, .git, leftovers, logs; files for compilers; bytecode. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from torchbake.contents.cache_paths import PathRule, cache_rule, except_link_targets
from torchbake.contents.model import Inventory

_OFFLINE = {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}  # the image is meant to have its models
_LOGS = re.compile(r"var/log/")
# Compiled kernels in a cache make the start faster, and are no leftovers.
_LEFTOVERS = re.compile(
    r"(?:var/)?tmp/|(?:.*/)?\.cache/(?!(?:flashinfer|torch_extensions|torchinductor|triton|vllm|pypoetry/virtualenvs)/)|.*/CMakeFiles/|(?:.*/)?build/(?:temp|bdist)\.[^/]+/"
)
_BUILD_FILES = re.compile(r"\.(?:o|deb|rpm|whl|run)\Z")
# Object files that linkers and Python's own configuration read, and the wheels of ensurepip.
_EXEMPT = re.compile(
    r"(?:.*/)?(?:[^/]*crt[^/]*\.o|config-[^/]+/[^/]+\.o|rustlib/.*|ensurepip/_bundled/[^/]+|.*python-wheels/[^/]+)\Z"
)

_FOR_COMPILERS = re.compile(r"usr/local/cuda[^/]*/|(?:.*/)?(?:site|dist)-packages/(?:nvidia|torch|triton|cuda)/")
_STATIC = re.compile(r".*\.a\Z")
_SYSTEM_STATIC = re.compile(r"usr/(?:local/)?lib(?:64)?/(?:.*/)?lib(?:cu|nv|nccl|npp)[^/]*\.a\Z")
_HEADER = re.compile(r".*/include/|.*\.(?:h|hpp|cuh|inl|inc)\Z")
_DEBUG = re.compile(r"usr/lib/debug/|.*\.debug\Z")
_COMPILER = re.compile(r"(?:.*/)?bin/(?:[\w.]+-)*(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+)(?:-[\d.]+)?\Z")

_BYTECODE = re.compile(r"(?P<folder>(?:.*/)?)__pycache__/(?P<name>[^/]+?)\.(?P<tag>[^./]+)(?P<level>\.opt-\d)?\.pyc\Z")
_TESTS = re.compile(r"(?:.*/)?(?:site|dist)-packages/(?:.*/)?tests?/")
_NVIDIA = re.compile(
    r"usr/local/cuda[^/]*/|(?:.*/)?(?:site|dist)-packages/nvidia/|"
    r"(?:.*/)?lib(?:cu(?:blas|dart|dnn|fft|file|pti|rand|solver|sparse|tensor)|nccl|npp|nv)[^/]*\.so[^/]*\Z"
)


def path_rule(inventory: Inventory) -> PathRule:
    """Return the rule for caches, logs and leftovers in an image.

    Files of a package are no leftovers of a build, and files that links elsewhere lead to are needed.
    """
    in_cache, owned = cache_rule(inventory), inventory.owned
    offline = inventory.variables.keys() & _OFFLINE

    def kind_of(path: str) -> str | None:
        if kind := in_cache(path):
            return None if kind == "hugging-face" and offline else kind
        if path in owned:
            return None
        if _LOGS.match(path):
            return "logs"
        if _LEFTOVERS.match(path) or (_BUILD_FILES.search(path) and not _EXEMPT.match(path)):
            return "leftovers"
        return None

    return except_link_targets(inventory, kind_of)


def compiler_rule(inventory: Inventory) -> PathRule:
    """Return the rule for files that only compilers read; there is no such waste if the image has a compiler."""
    if any(_COMPILER.match(path) for path in inventory.visible):
        return lambda path: None

    def kind_of(path: str) -> str | None:
        if _DEBUG.match(path):
            return "debug-symbols"
        own = _FOR_COMPILERS.match(path)
        if _SYSTEM_STATIC.match(path) or (own and _STATIC.match(path)):
            return "static-libraries"
        return "headers" if own and _HEADER.match(path) else None

    return kind_of


def bytecode_rule(paths: Iterable[str], *, level: str) -> PathRule:
    """Return the rule for files of __pycache__: orphaned, doubled, or, as information, of use.

    Of several files of one source, the bytecode of the image's most frequent Python counts as needed. Of its levels of
    optimisation, ``level`` is needed, a part of the file's name: ``.opt-1``, or "" without optimisation.
    """
    every = set(paths)
    matches = {path: match for path in every if (match := _BYTECODE.match(path))}
    tags = Counter(match["tag"] for match in matches.values())
    best: dict[str, str] = {}
    for path in sorted(matches, key=lambda path: (*_worth(matches[path], tags, level), path), reverse=True):
        best.setdefault(_source(matches[path]), path)

    def kind_of(path: str) -> str | None:
        match = matches.get(path)
        if not match:
            return None
        source = _source(match)
        if source not in every:
            return "orphan-bytecode"
        return "bytecode" if best[source] == path else "double-bytecode"

    return kind_of


def is_test(path: str) -> bool:
    """Return whether a file is a test of a Python package."""
    return _TESTS.match(path) is not None


def is_of_nvidia(path: str) -> bool:
    """Return whether a library is NVIDIA's own, by its folder or its name."""
    return _NVIDIA.match(path) is not None


def optimisation(inventory: Inventory) -> str:
    """Return the level of the bytecode that Python reads in the image, as in its names: ``.opt-2``, or "" for none.

    https://docs.python.org/3/using/cmdline.html#envvar-PYTHONOPTIMIZE: a number, and any other text is 1.
    """
    text = inventory.variables.get("PYTHONOPTIMIZE", "")
    level = min(int(text), 2) if text.isascii() and text.isdigit() else 1 if text else 0
    return f".opt-{level}" if level else ""


def _source(match: re.Match[str]) -> str:
    return f"{match['folder']}{match['name']}.py"


def _worth(match: re.Match[str], tags: Mapping[str, int], level: str) -> tuple[int, str, bool]:
    return tags[match["tag"]], match["tag"], (match["level"] or "") == level
