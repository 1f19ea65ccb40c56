"""Rules for files that must be in no layer, by their paths and by their content. Each finding belongs to one check."""

import hashlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from torchbake.core.secret_names import looks_secret
from torchbake.core.secret_values import ADDRESS, TOKEN, secret_text

BIGGEST = 1 << 20  # bytes of a file that is read; keys and settings are smaller

# A check and the paths that it is about. Paths start with a slash.
_PATHS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("files.git", re.compile(r"/\.(git|hg|svn)(/|$)")),
    (
        "files.credentials",
        re.compile(
            r"/(\.netrc|_netrc|\.pypirc|\.git-credentials|\.dockercfg|\.docker/config\.json|\.kube/config"
            r"|\.aws/[^/]+|\.azure/[^/]+|\.config/gcloud/.+|\.huggingface/token|huggingface/token|\.vault-token"
            r"|\.my\.cnf|\.pgpass|\.htpasswd|\.bash_history|\.python_history"
            r"|run/secrets/[^/]+|etc/apt/auth\.conf|etc/apt/auth\.conf\.d/[^/]+)$"
        ),
    ),
    (
        "files.keys",
        re.compile(r"/(id_(rsa|dsa|ecdsa|ed25519)(_sk)?|ssh_host_\w+_key|[^/]+\.(p12|pfx|jks|ppk|kdbx)|secring\.gpg)$"),
    ),
    ("files.apt-lists", re.compile(r"^/var/lib/apt/lists/(?!partial$|lock$|auxfiles$).+")),
    (
        "files.caches",
        re.compile(
            r"^/var/cache/apt/(archives/.+\.deb|.+\.bin)$"
            r"|^/var/cache/(man|fontconfig|ldconfig)/.+"
            r"|^/(root|home/[^/]+)/\.(cache|npm|cargo|conda|local/share/uv)/.+|/\.cache/(pip|uv|yarn)/.+"
            r"|^/(app|root|home|tmp)/(.*/)?__pycache__(/|$)|/\.(pytest|mypy|ruff)_cache(/|$)"
        ),
    ),
)
# Files of settings, in which an address with a password is a password, not an example.
_SETTINGS = re.compile(
    r"/(\.?pip\.conf|uv\.toml|\.gitconfig|\.git/config|\.npmrc|\.yarnrc|\.condarc|\.curlrc|\.wgetrc|\.env|environment"
    r"|settings\.xml|[^/]+\.sources|[^/]+\.list|apt\.conf|apt\.conf\.d/[^/]+)$"
)
_KEY = re.compile(
    rb"-----BEGIN (?:RSA |DSA |EC |OPENSSH |ENCRYPTED |PGP )?PRIVATE KEY(?: BLOCK)?-----\s+(?:[\w-]+: [^\n]*\n\s*)*"
    rb"[A-Za-z0-9+/=]{32}"
)
# Keys that everybody has: they came with a public package, and open nothing. By the sha256 of their text, without
# spaces, so that any other key in the same file is found.
PUBLISHED = {key["sha256"] for key in tomllib.loads(Path(__file__).with_name("published_keys.toml").read_text())["key"]}
# In every token; looking for a fixed text is many times as fast as looking for a pattern.
_HINTS = (
    *(b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"github_pat_", b"glpat-", b"hf_", b"xox", b"AKIA", b"ASIA"),
    *(b"AIza", b"npm_", b"pypi-AgE", b"sk-", b"dckr_pat_"),
)
_ASSIGNMENT = re.compile(r"(?<![\w.-])([A-Za-z]\w*)=(\"[^\"]+\"|'[^']+'|[^\s\"';&|]+)")


def of_path(path: str) -> Iterator[str]:
    """The checks that a path alone fails."""
    for name, pattern in _PATHS:
        if pattern.search(path):
            yield name


def of_content(path: str, data: bytes) -> Iterator[str]:
    """The checks that what a file says fails."""
    if data.startswith(b"\x7fELF") or path.endswith(".pyc"):
        return
    if b"PRIVATE KEY" in data and any(key not in PUBLISHED for key in private_keys(data)):
        yield "files.keys"
    if any(hint in data for hint in _HINTS) and TOKEN.search(data):
        yield "files.tokens"
    if _SETTINGS.search(path) and (ADDRESS.search(data) or b"_authToken=" in data):
        yield "files.credentials"


def private_keys(data: bytes) -> Iterator[str]:
    """The sha256 of each private key in a text, as `published_keys.toml` has them."""
    for match in _KEY.finditer(data):
        key = data[match.start() :].partition(b"-----END")[0]
        yield hashlib.sha256(b"".join(key.split())).hexdigest()


def secret_variable(name: str, value: str) -> bool:
    """Return True if the name or the value of a variable looks like a secret."""
    if not value:
        return False
    return looks_secret(name) or secret_text(value)


def secrets_in_command(command: str) -> list[str]:
    """Return the names of apparent secrets in one line of an image's history."""
    names = [name for name, value in _ASSIGNMENT.findall(command) if secret_variable(name, value.strip("\"'"))]
    return names or (["a token or a password in an address"] if secret_text(command) else [])
