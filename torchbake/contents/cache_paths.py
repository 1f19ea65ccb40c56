"""Caches of tools, at their own places and where variables of the image put them. Pure."""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator

from torchbake.contents.model import Inventory, LayerFile
from torchbake.contents.overlay import FolderLinks
from torchbake.oci.tree import parents

PathRule = Callable[[str], str | None]  # the kind of waste that a path without a leading slash is, if any

# The caches of tools by their documentation; ~ is any folder. The first match counts.
_CACHES = {
    "pip": r"~/\.cache/pip/",  # https://pip.pypa.io/en/stable/topics/caching/
    "uv": r"~/\.cache/uv/",  # https://docs.astral.sh/uv/concepts/cache/
    "conda": r"~/\.conda/pkgs/",
    # https://python-poetry.org/docs/configuration/#cache-dir; its environments hold installed packages
    "poetry": r"~/\.cache/(pypoetry/(?!virtualenvs/)|pdm/|pipenv/)",
    "npm": r"~/(\.npm|\.cache/(yarn|pnpm|node)|\.pnpm-store|\.yarn/cache)/|usr/local/share/\.cache/",
    "apt": r"var/lib/apt/lists/|var/cache/(apt|dnf|yum|apk|libdnf5)/|var/cache/debconf/[^/]+-old\Z|"
    r"var/lib/dpkg/[^/]+-old\Z",
    "ccache": r"~/(\.ccache|\.cache/(ccache|sccache|go-build|bazel)|\.cargo/registry)/",
    "hugging-face": r"~/\.cache/(huggingface|torch)/",  # https://huggingface.co/docs/huggingface_hub/guides/manage-cache
    "git": r"~/\.git/",
}
_CACHE = re.compile(
    "|".join(f"(?P<{name.replace('-', '_')}>{text})" for name, text in _CACHES.items()).replace("~/", "(?:.*/)?")
)
_CONDA = r"cache/|urls(\.txt)?\Z|[^/]+\.(conda|tar\.bz2)\Z|[^/]+-[^/]+-[^/]+/"  # packages: NAME-VERSION-BUILD
# Variables that name a folder, and the paths of a cache in it: people also name a folder that has other files.
_VARIABLES = {
    "PIP_CACHE_DIR": ("pip", r"(http(-v\d+)?|wheels|selfcheck)/"),
    "UV_CACHE_DIR": ("uv", r"[a-z-]+-v\d+/"),
    "CONDA_PKGS_DIRS": ("conda", _CONDA),
    "POETRY_CACHE_DIR": ("poetry", r"(cache|artifacts)/"),
    "NPM_CONFIG_CACHE": ("npm", r"_(cacache|npx|logs|prebuilds)/"),
    "CCACHE_DIR": ("ccache", r"([0-9a-f]|tmp|lock)/"),
    # https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables
    "HF_HOME": ("hugging-face", r"(hub|xet|datasets|assets)/"),
    "HF_HUB_CACHE": ("hugging-face", r"((models|datasets|spaces)--[^/]+|\.locks)/"),
    "TORCH_HOME": ("hugging-face", r"hub/"),  # https://docs.pytorch.org/docs/stable/hub.html
}
_MOST_ROUNDS = 10  # of links to files of a cache that lead to further ones


def cache_rule(inventory: Inventory) -> PathRule:
    """Return the rule for files of caches."""
    places = list(_places(inventory))

    def kind_of(path: str) -> str | None:
        for folder, kind, content in places:
            if path.startswith(folder) and content.match(path, len(folder)):
                return kind
        match = _CACHE.match(path)
        return match.lastgroup.replace("_", "-") if match and match.lastgroup else None

    return kind_of


def except_link_targets(inventory: Inventory, rule: PathRule) -> PathRule:
    """Return a rule for files that no link from other files leads to.

    uv links a whole environment to its cache if UV_LINK_MODE is ``symlink``.
    """
    targets = _link_targets(inventory.visible.values(), rule)

    def kind_of(path: str) -> str | None:
        return None if path in targets or not targets.isdisjoint(parents(path)) else rule(path)

    return kind_of if targets else rule


def _places(inventory: Inventory) -> Iterator[tuple[str, str, re.Pattern[str]]]:
    """Find caches at places of the image's own: by its variables, and the packages of conda's installations."""
    for variable, (kind, content) in _VARIABLES.items():
        for text in inventory.variables.get(variable, "").split("," if kind == "conda" else "\0"):
            folder = posixpath.normpath(text).strip("/")
            if text.startswith("/") and folder:
                yield f"{folder}/", kind, re.compile(content)
    roots = {path.partition("/conda-meta/")[0] for path in inventory.visible if "/conda-meta/" in path}
    yield from ((f"{root}/pkgs/", "conda", re.compile("")) for root in sorted(roots))


def _link_targets(files: Iterable[LayerFile], rule: PathRule) -> set[str]:
    """Return the files and folders of a rule that symbolic links elsewhere lead to, also over further links."""
    links = {file.path: file.content for file in files if file.kind == "symlink"}
    folders = FolderLinks(links=links)
    inner = {path: rule(path) for path in links}
    targets, sources = set[str](), [path for path, kind in inner.items() if not kind]
    for _ in range(_MOST_ROUNDS):
        ends = {end for end in map(folders.followed, sources) if rule(end) or rule(f"{end}/")}
        if ends <= targets:
            break
        targets |= ends
        # A target that is a folder may have links itself, as the snapshots of Hugging Face.
        sources = [path for path, kind in inner.items() if kind and not targets.isdisjoint(parents(path))]
    return targets
