"""Variables, labels and accounts that a matrix may set in an image.

A validator returns its argument, and raises ValueError with the mistake and its correction.
"""

from torchbake.core.job_variables import without_job
from torchbake.core.suggest import nearest
from torchbake.oci.labels import LABEL

VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
ACCOUNT = r"^[a-z_][a-z0-9_-]{0,30}$"  # the rule of useradd
LABEL_KEY = r"^[a-z0-9]+([._/-][a-z0-9]+)*$"  # https://docs.docker.com/engine/manage-resources/labels/

# Variables that a matrix cannot set, each with the reason.
FIXED = {
    "BASH_ENV": "bash reads the entrypoint's settings by it when `docker exec` starts a shell",
    "CUDA_HOME": "it is the folder of CUDA's links in the image",
    "HOME": "the entrypoint sets it to a folder that any uid can write; `user` names another one",
    "LOGNAME": "the entrypoint sets it to the container's user",
    "NVIDIA_REQUIRE_CUDA": "it is the driver that the row's CUDA needs",
    "NVIDIA_VISIBLE_DEVICES": "it selects the GPUs of a container at its start",
    "PATH": "it leads to the image's own Python; put a program into /usr/local/bin",
    "PYTHON_VERSION": "it is the version of the base's Python",
    "TORCHBAKE_ID": "it is the image's id",
    "TORCH_DISABLE_ADDR2LINE": "without it torch loses the messages of errors if the image has no addr2line",
    "USER": "the entrypoint sets it to the container's user",
    "VIRTUAL_ENV": "it is the folder of the image's packages",
}
# Variables of the image that a matrix may change: language, bytecode and output of Python, use of the driver, uv.
HARMLESS = (
    *("LANG", "NVIDIA_DRIVER_CAPABILITIES", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"),
    *("UV_PROJECT_ENVIRONMENT", "UV_PYTHON_DOWNLOADS"),
)

# Variables by which Python's libraries find the system's certificates in place of their own.
CA_VARIABLES = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")

# Variables by which pip and uv keep torch. uv searches only the virtual environment's own folder, so it would install
# torch a second time. It assumes that an excluded package is installed.
CONSTRAINT_VARIABLES = ("PIP_CONSTRAINT", "UV_CONSTRAINT", "UV_EXCLUDE")

# Accounts in Debian's /etc/passwd, of base-passwd and apt.
_ACCOUNTS = (
    *("root", "daemon", "bin", "sys", "sync", "games", "man", "lp", "mail", "news", "uucp", "proxy", "www-data"),
    *("backup", "list", "irc", "gnats", "_apt", "nobody"),
)

_OCI = "org.opencontainers.image"
# https://github.com/opencontainers/image-spec/blob/main/annotations.md
_OWN_LABELS = ("base.digest", "base.name", "created", "licenses", "revision", "source", "title", "version")
_OPEN = ("authors", "description", "documentation", "ref.name", "url", "vendor")
_RESERVED = (f"{LABEL}.", "com.docker.", "io.docker.", "org.dockerproject.")


def variable(name: str) -> str:
    if name in FIXED:
        raise ValueError(f"{name} is the toolkit's own: {FIXED[name]}")
    if not without_job({name: ""}):
        raise ValueError(
            f"{name} describes a job to `run`, so each container of the image would be a part of one; set it where "
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


def label(key: str) -> str:
    owner = next((prefix for prefix in _RESERVED if key.startswith(prefix)), None)
    if owner:
        whose = "the toolkit's" if owner.startswith(LABEL) else "Docker's"
        raise ValueError(f"labels of {owner}* are {whose} own; take a name of your own domain")
    if not key.startswith("org.opencontainers."):
        return key
    name = key.removeprefix(f"{_OCI}.")
    if name in ("licenses", "source"):
        raise ValueError(f"{key} has the value of `{name}:` on top of the matrix; set that key")
    if name in _OWN_LABELS:
        raise ValueError(f"{key} is the toolkit's own: each build fills it in")
    if name not in _OPEN:
        near = nearest(key, [f"{_OCI}.{known_value}" for known_value in _OPEN], count=1)
        guess = f"; did you mean {near[0]!r}?" if near else f"; there are: {', '.join(_OPEN)}"
        raise ValueError(f"{key} is not an annotation of the OCI image specification{guess}")
    return key
