"""Variables and labels that a matrix may set in an image, and those that are the toolkit's own.

A function gives back the text, and raises ValueError with what is wrong.
"""

from torchbake.core.job_variables import without_job
from torchbake.core.suggest import nearest
from torchbake.matrix.validators import one_line
from torchbake.oci.labels import LABEL

VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
ACCOUNT = r"^[a-z_][a-z0-9_-]{0,30}$"  # as useradd takes it
LABEL_KEY = r"^[a-z0-9]+([._/-][a-z0-9]+)*$"  # https://docs.docker.com/engine/manage-resources/labels/

# What an image promises by these would not be true with another value.
FIXED = {
    "BASH_ENV": "by it bash finds what the entrypoint sets, where `docker exec` starts it",
    "CUDA_HOME": "it is where the image has CUDA's links",
    "HOME": "the entrypoint makes it a folder that any uid can write; `user` names another one",
    "LOGNAME": "the entrypoint sets it to who runs",
    "NVIDIA_REQUIRE_CUDA": "it is what the row's CUDA needs of a driver",
    "NVIDIA_VISIBLE_DEVICES": "who starts a container says which GPUs it gets",
    "PATH": "it leads to the image's own Python; put a program into /usr/local/bin",
    "PYTHON_VERSION": "it is the version of the base's Python",
    "TORCHBAKE_ID": "it is the image's id",
    "TORCH_DISABLE_ADDR2LINE": "without it torch loses the messages of errors where there is no addr2line",
    "USER": "the entrypoint sets it to who runs",
    "VIRTUAL_ENV": "it is where the image has its packages",
}
# Choices that break no promise: the language, when Python writes bytecode and output, what a driver is used for.
HARMLESS = ("LANG", "NVIDIA_DRIVER_CAPABILITIES", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")

# By these Python's libraries find the system's certificates in place of their own: OpenSSL's name, requests', pip's.
CA_VARIABLES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")

# By these pip and uv find what they keep. uv looks into the virtual environment's own folder alone, so it takes torch
# for missing and would install it a second time; what it excludes it takes for there.
CONSTRAINT_VARIABLES = ("PIP_CONSTRAINT", "UV_CONSTRAINT", "UV_EXCLUDE")

# Debian's own, of base-passwd and apt: an account is in /etc/passwd once.
_ACCOUNTS = (
    *("root", "daemon", "bin", "sys", "sync", "games", "man", "lp", "mail", "news", "uucp", "proxy", "www-data"),
    *("backup", "list", "irc", "gnats", "_apt", "nobody"),
)

_OCI = "org.opencontainers.image"
# https://github.com/opencontainers/image-spec/blob/main/annotations.md
_WRITTEN = ("base.digest", "base.name", "created", "licenses", "revision", "source", "title", "version")
_OPEN = ("authors", "description", "documentation", "ref.name", "url", "vendor")
_RESERVED = (f"{LABEL}.", "com.docker.", "io.docker.", "org.dockerproject.")


def variable(name: str) -> str:
    if name in FIXED:
        raise ValueError(f"{name} is the toolkit's own: {FIXED[name]}")
    if not without_job({name: ""}):
        raise ValueError(
            f"{name} tells `run` of a job, and each container of the image would be part of one; set it where "
            "containers are started"
        )
    return name


def uid(number: int) -> int:
    if number == 65534:
        raise ValueError("65534 is nobody's, an account of Debian's own; take another number")
    return number


def account(name: str) -> str:
    if name in _ACCOUNTS:
        raise ValueError(f"{name} is an account of Debian's own; take another name")
    return name


def value(text: str) -> str:
    """What stands in a variable or a label: one line, any characters that can be seen."""
    return one_line(text)


def label(key: str) -> str:
    owner = next((prefix for prefix in _RESERVED if key.startswith(prefix)), None)
    if owner:
        whose = "the toolkit's" if owner.startswith(LABEL) else "Docker's"
        raise ValueError(f"labels of {owner}* are {whose} own; take a name of your own domain")
    if key.startswith("org.opencontainers."):
        return _annotation(key)
    return key


def _annotation(key: str) -> str:
    name = key.removeprefix(f"{_OCI}.")
    if name in ("licenses", "source"):
        raise ValueError(f"{key} is what `{name}:` on top of the matrix says; set that")
    if name in _WRITTEN:
        raise ValueError(f"{key} is the toolkit's own: each build fills it in")
    if name not in _OPEN:
        near = nearest(key, [f"{_OCI}.{known}" for known in _OPEN], count=1)
        guess = f"; did you mean {near[0]!r}?" if near else f"; there are: {', '.join(_OPEN)}"
        raise ValueError(f"{key} is not an annotation of the OCI image specification{guess}")
    return key
