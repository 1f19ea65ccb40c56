"""Waste that its path shows: caches, .git, leftovers, logs; files for compilers; bytecode. Pure."""

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from torchbake.contents.model import Inventory

PathRule = Callable[[str], str | None]  # the kind of waste that a path without a leading slash is, if any

# The caches of tools by their documentation; ~ is any folder. The first match counts.
_CACHES = {
    "pip": r"~/\.cache/pip/",  # https://pip.pypa.io/en/stable/topics/caching/
    "uv": r"~/\.cache/uv/",  # https://docs.astral.sh/uv/concepts/cache/
    "conda": r"~/\.conda/pkgs/",
    "poetry": r"~/\.cache/(pypoetry|pdm|pipenv)/",
    "npm": r"~/(\.npm|\.cache/(yarn|pnpm|node)|\.pnpm-store|\.yarn/cache)/|usr/local/share/\.cache/",
    "apt": r"var/lib/apt/lists/|var/cache/(apt|dnf|yum|apk|libdnf5)/|var/cache/debconf/[^/]+-old\Z|"
    r"var/lib/dpkg/[^/]+-old\Z",
    "ccache": r"~/(\.ccache|\.cache/(ccache|sccache|go-build|bazel)|\.cargo/registry)/",
    "hugging-face": r"~/\.cache/(huggingface|torch)/",  # https://huggingface.co/docs/huggingface_hub/guides/manage-cache
    "git": r"~/\.git/",
}
# Environment variables of the image's configuration that name a cache.
_VARIABLES = {
    "PIP_CACHE_DIR": "pip",
    "UV_CACHE_DIR": "uv",
    "CONDA_PKGS_DIRS": "conda",
    "POETRY_CACHE_DIR": "poetry",
    "NPM_CONFIG_CACHE": "npm",
    "CCACHE_DIR": "ccache",
    "HF_HOME": "hugging-face",
    "HF_HUB_CACHE": "hugging-face",
    "TORCH_HOME": "hugging-face",
}
_SYSTEM = {"bin", "boot", "etc", "home", "lib", "opt", "root", "sbin", "srv", "usr", "var"}  # no caches
_OFFLINE = {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}  # the image is meant to have its models
_CACHE = re.compile(
    "|".join(f"(?P<{name.replace('-', '_')}>{text})" for name, text in _CACHES.items()).replace("~/", "(?:.*/)?")
)
_LOGS = re.compile(r"var/log/")
# Compiled kernels in a cache make the start faster, and are no leftovers.
_LEFTOVERS = re.compile(
    r"(?:var/)?tmp/|(?:.*/)?\.cache/(?!(?:flashinfer|torch_extensions|torchinductor|triton|vllm)/)|.*/CMakeFiles/|(?:.*/)?build/(?:temp|bdist)\.[^/]+/"
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
    """Return the rule for caches, logs and leftovers in an image. Files of a package are no leftovers of a build."""
    places = dict(_places(inventory))
    owned = inventory.owned
    offline = _environment(inventory).keys() & _OFFLINE

    def kind_of(path: str) -> str | None:
        place = next((kind for folder, kind in places.items() if path.startswith(folder)), None)
        match = _CACHE.match(path)
        kind = place or (match and match.lastgroup and match.lastgroup.replace("_", "-"))
        if kind:
            return None if kind == "hugging-face" and offline else kind
        if path in owned:
            return None
        if _LOGS.match(path):
            return "logs"
        if _LEFTOVERS.match(path) or (_BUILD_FILES.search(path) and not _EXEMPT.match(path)):
            return "leftovers"
        return None

    return kind_of


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


def bytecode_rule(paths: Iterable[str], *, optimised: bool) -> PathRule:
    """Return the rule for files of __pycache__: orphaned, doubled, or, as information, of use.

    Of several files of one source, the bytecode counts as needed that is of the image's most frequent Python, and
    ``optimised`` if the image sets PYTHONOPTIMIZE.
    """
    every = set(paths)
    matches = {path: match for path in every if (match := _BYTECODE.match(path))}
    tags = Counter(match["tag"] for match in matches.values())
    best: dict[str, str] = {}
    for path in sorted(matches, key=lambda path: _worth(matches[path], tags, optimised), reverse=True):
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


def optimised(inventory: Inventory) -> bool:
    """Return whether Python runs optimised bytecode in the image."""
    return bool(_environment(inventory).get("PYTHONOPTIMIZE"))


def _source(match: re.Match[str]) -> str:
    return f"{match['folder']}{match['name']}.py"


def _worth(match: re.Match[str], tags: Mapping[str, int], optimised: bool) -> tuple[int, str, bool]:
    return tags[match["tag"]], match["tag"], bool(match["level"]) == optimised


def _places(inventory: Inventory) -> Iterator[tuple[str, str]]:
    """Find caches at places of the image's own: by its variables, and the packages of conda's installations."""
    environment = _environment(inventory)
    for variable, kind in _VARIABLES.items():
        folder = posixpath.normpath(environment.get(variable, "/")).strip("/")
        if folder and folder not in _SYSTEM:
            yield f"{folder}/", kind
    for path in inventory.visible:
        root, marker, _ = path.partition("/conda-meta/")
        if marker:
            yield f"{root}/pkgs/", "conda"


def _environment(inventory: Inventory) -> dict[str, str]:
    """Return the variables of the image's configuration; it is a stranger's, and may have any form."""
    config = inventory.config.get("config")
    lines = config.get("Env") if isinstance(config, Mapping) else None
    pairs = [line.partition("=") for line in lines if isinstance(line, str)] if isinstance(lines, list) else []
    return {name: value for name, _, value in pairs}
