"""The variables that a tool inherits when torchbake starts it. The standard library alone is imported here.

A list of allowed names, because each release of a tool has new variables. A name may contain ``*``.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

ToolName: TypeAlias = Literal[
    "uv", "pip", "git", "docker", "buildah", "cosign", "ansible", "mmdebstrap", "apt", "pytest", "python"
]  # fmt: skip

# Folders of programs, homes and temporary files; terminal and language; proxies, certificates, agents and keyrings.
_HOST = """
    PATH HOME USER LOGNAME SHELL PWD TMPDIR TMP TEMP XDG_* WSL_* LD_LIBRARY_PATH
    TERM COLORTERM NO_COLOR FORCE_COLOR CLICOLOR CLICOLOR_FORCE COLUMNS LINES TZ LANG LANGUAGE LC_* LOCALE_ARCHIVE
    HTTP_PROXY HTTPS_PROXY FTP_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy ftp_proxy all_proxy no_proxy
    SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NIX_SSL_CERT_FILE OPENSSL_* NETRC KRB5*
    SSH_AUTH_SOCK SSH_AGENT_PID DBUS_SESSION_BUS_ADDRESS DISPLAY WAYLAND_DISPLAY XAUTHORITY GNUPGHOME GPG_TTY
    TORCHBAKE_*
"""
# Credentials, for helpers and keyrings of registries and indexes, and for keys in a KMS; identities of CI jobs.
_CREDENTIALS = """
    AWS_* AZURE_* ARM_* IDENTITY_* MSI_* GOOGLE_* CLOUDSDK_* OCI_CLI_* ALIBABA_CLOUD_* VAULT_* SPIFFE_*
    KUBECONFIG KUBERNETES_* CI CI_* ACTIONS_* GITHUB_* GH_TOKEN GITLAB_* BUILDKITE BUILDKITE_*
    REGISTRY_AUTH_FILE DOCKER_*_USR DOCKER_*_PSW PYTHON_KEYRING_BACKEND
"""
# Folders of Python's packages, the same as for torchbake's own process, and how Python writes text.
_PYTHON = """
    VIRTUAL_ENV PYTHONPATH PYTHONHOME PYTHONUSERBASE PYTHONNOUSERSITE PYTHONSAFEPATH PYTHONPYCACHEPREFIX
    PYTHONDONTWRITEBYTECODE PYTHONUTF8 PYTHONIOENCODING PYTHONUNBUFFERED PYTHONFAULTHANDLER
"""
# The engine and its builder. Source: https://docs.docker.com/reference/cli/docker/#environment-variables
_DOCKER = """
    DOCKER_HOST DOCKER_CONTEXT DOCKER_CONFIG DOCKER_CERT_PATH DOCKER_TLS DOCKER_TLS_VERIFY DOCKER_API_VERSION
    DOCKER_AUTH_CONFIG DOCKER_CUSTOM_HEADERS DOCKER_BUILDKIT DOCKER_CLI_* BUILDX_BUILDER BUILDX_CONFIG
    BUILDKIT_PROGRESS BUILDKIT_COLORS BUILDKIT_TTY_LOG_LINES CONTAINER_HOST CONTAINERS_CONF CONTAINERS_STORAGE_CONF
"""
# Variables that change the work of each program, of each program in Python, and of each program in Go.
_CHANGES_ALL, _CHANGES_PYTHON, _CHANGES_GO = "LD_PRELOAD LD_AUDIT", "PYTHON*", "GODEBUG GOFLAGS"


@dataclass(frozen=True, kw_only=True)
class _Tool:
    """Patterns of a tool's variables: ``allowed`` are inherited, others of ``reported`` are named in a message.

    With ``all_others`` every variable outside of ``reported`` is inherited, because the user's files may read it.
    """

    allowed: str
    reported: str
    all_others: bool = False


_TOOLS: Mapping[ToolName, _Tool] = {
    # Cache, network, credentials and indexes. Source: https://docs.astral.sh/uv/reference/environment/
    # UV_INDEX_* has UV_INDEX_STRATEGY, which belongs to the indexes, and UV_INDEX_<NAME>_PASSWORD.
    "uv": _Tool(
        allowed=_HOST
        + _CREDENTIALS
        + """
            UV_CACHE_DIR UV_NO_CACHE UV_LOCK_TIMEOUT UV_HTTP_* UV_CONCURRENT_* UV_REQUEST_TIMEOUT
            UV_DEFAULT_INDEX UV_INDEX UV_INDEX_* UV_EXTRA_INDEX_URL UV_FIND_LINKS UV_NO_INDEX
            UV_OFFLINE UV_INSECURE_HOST UV_NATIVE_TLS UV_SYSTEM_CERTS UV_KEYRING_PROVIDER UV_CREDENTIALS_DIR""",
        reported="UV_*",
    ),
    # The same. Source: https://pip.pypa.io/en/stable/cli/pip/#general-options
    "pip": _Tool(
        allowed=_HOST
        + _CREDENTIALS
        + _PYTHON
        + """
            PIP_CONFIG_FILE PIP_CACHE_DIR PIP_NO_CACHE_DIR PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_FIND_LINKS PIP_NO_INDEX
            PIP_TRUSTED_HOST PIP_CERT PIP_CLIENT_CERT PIP_PROXY PIP_TIMEOUT PIP_DEFAULT_TIMEOUT PIP_RETRIES
            PIP_RESUME_RETRIES PIP_KEYRING_PROVIDER PIP_USE_FEATURE PIP_USE_DEPRECATED PIP_NO_INPUT PIP_NO_COLOR
            PIP_QUIET PIP_VERBOSE PIP_LOG PIP_PROGRESS_BAR PIP_DISABLE_PIP_VERSION_CHECK PIP_ROOT_USER_ACTION""",
        reported="PIP_* VIRTUALENV_* " + _CHANGES_ALL + " " + _CHANGES_PYTHON,
    ),
    # Settings, such as safe.directory of a CI job, and the network. Credential helpers read any others, such as $TOKEN,
    # and Jenkins' GIT_ASKPASS reads GIT_PASSWORD. GIT_DIR of a hook names another repository, and
    # GIT_CEILING_DIRECTORIES hides the folder's own. Source: https://git-scm.com/docs/git#_environment_variables
    "git": _Tool(
        allowed="""
            GIT_CONFIG_* GIT_EXEC_PATH GIT_DISCOVERY_ACROSS_FILESYSTEM GIT_LFS_*
            GIT_*USER* GIT_*USR GIT_*PASS* GIT_*PSW GIT_*TOKEN* GIT_*CRED* GIT_PAT
            GIT_SSH GIT_SSH_COMMAND GIT_SSH_VARIANT GIT_SSL_* GIT_HTTP_* GIT_PROXY_* GIT_ALLOW_PROTOCOL""",
        reported="GIT_* " + _CHANGES_ALL,
        all_others=True,
    ),
    "docker": _Tool(
        allowed=_HOST + _CREDENTIALS + _DOCKER,
        reported=f"DOCKER_* BUILDX_* BUILDKIT_* EXPERIMENTAL_BUILDKIT_* {_CHANGES_ALL} {_CHANGES_GO}",
    ),
    # Logins, storage, isolation. Podman takes the same. Source: https://github.com/containers/buildah/tree/main/docs
    "buildah": _Tool(
        allowed=_HOST
        + _CREDENTIALS
        + """
            DOCKER_CONFIG CONTAINERS_CONF CONTAINERS_REGISTRIES_CONF CONTAINERS_STORAGE_CONF
            BUILDAH_ISOLATION BUILDAH_RUNTIME STORAGE_DRIVER STORAGE_OPTS""",
        reported=f"BUILDAH_* CONTAINER_HOST CONTAINERS_* {_CHANGES_ALL} {_CHANGES_GO}",
    ),
    # Passwords, tokens, and a private Sigstore's folder of keys, which `cosign initialize` makes.
    # Source: `cosign env`
    "cosign": _Tool(
        allowed=_HOST
        + _CREDENTIALS
        + """
            DOCKER_CONFIG COSIGN_PASSWORD COSIGN_PKCS11_* COSIGN_MAX_ATTACHMENT_SIZE SIGSTORE_ID_TOKEN
            TUF_ROOT TUF_MIRROR TRANSIT_SECRET_ENGINE_PATH""",
        reported=f"COSIGN_* SIGSTORE_* TUF_* {_CHANGES_ALL} {_CHANGES_GO}",
    ),
    # Connections, privileges, output and caches. Inventories and variables read others by `lookup('env', …)`.
    # Source: https://docs.ansible.com/ansible/latest/reference_appendices/config.html
    "ansible": _Tool(
        allowed=_PYTHON
        + """
            ANSIBLE_CONFIG ANSIBLE_HOME ANSIBLE_LOCAL_TEMP ANSIBLE_REMOTE_* ANSIBLE_FORKS ANSIBLE_TIMEOUT
            ANSIBLE_TASK_TIMEOUT ANSIBLE_PIPELINING ANSIBLE_SSH_* ANSIBLE_SFTP_* ANSIBLE_SCP_* ANSIBLE_PARAMIKO_*
            ANSIBLE_PERSISTENT_* ANSIBLE_CONNECTION_PATH ANSIBLE_PRIVATE_KEY_FILE ANSIBLE_HOST_KEY_* ANSIBLE_TRANSPORT
            ANSIBLE_BECOME ANSIBLE_BECOME_* ANSIBLE_ASK_PASS ANSIBLE_ASK_VAULT_PASS ANSIBLE_VAULT_*
            ANSIBLE_COLLECTIONS_PATH ANSIBLE_INVENTORY_* ANSIBLE_CACHE_* ANSIBLE_PYTHON_INTERPRETER
            ANSIBLE_LOG_PATH ANSIBLE_NOCOLOR ANSIBLE_FORCE_COLOR ANSIBLE_COLOR_* ANSIBLE_NOCOWS ANSIBLE_VERBOSITY
            ANSIBLE_DEBUG ANSIBLE_DISPLAY_* ANSIBLE_SHOW_* ANSIBLE_STDOUT_CALLBACK ANSIBLE_CALLBACK_*
            ANSIBLE_CALLBACKS_ENABLED ANSIBLE_DEPRECATION_WARNINGS ANSIBLE_SYSTEM_WARNINGS""",
        reported=f"ANSIBLE_* {_CHANGES_ALL} {_CHANGES_PYTHON}",
        all_others=True,
    ),
    "mmdebstrap": _Tool(
        allowed=_HOST,
        reported=f"APT_CONFIG DEBOOTSTRAP_* DPKG_* DEB_* DEBCONF_* TAR_OPTIONS PERL5* {_CHANGES_ALL}",
    ),
    # The host's mirrors and proxies are read by apt, so its configuration counts.
    "apt": _Tool(allowed=_HOST + "APT_CONFIG", reported=f"DPKG_* {_CHANGES_ALL}"),
    # Checks of images. By PYTHONOPTIMIZE no assertion of theirs would fail.
    "pytest": _Tool(
        allowed=_HOST + _CREDENTIALS + _PYTHON + _DOCKER,
        reported=f"PYTEST_* DOCKER_* {_CHANGES_ALL} {_CHANGES_PYTHON}",
    ),
    "python": _Tool(allowed=_HOST + _PYTHON, reported=f"{_CHANGES_ALL} {_CHANGES_PYTHON}"),
}


def inherited_variables(tool: ToolName, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a tool inherits."""
    allowance = _TOOLS[tool]
    allowed, reported = _matching(allowance.allowed), _matching(allowance.reported)
    return {
        name: value
        for name, value in environ.items()
        if allowed(name) or (allowance.all_others and not reported(name))
    }  # fmt: skip


def note_of_ignored(environ: Mapping[str, str], *tools: ToolName) -> str:
    """Return a sentence that names ignored variables that would change what the tools do; empty if there are none."""
    names = sorted({name for tool in tools for name in _ignore(tool, environ)})
    return f"ignored for {' and '.join(tools)}, as they could change its answer: {', '.join(names)}" if names else ""


def _ignore(tool: ToolName, environ: Mapping[str, str]) -> Iterable[str]:
    kept_items, reported = inherited_variables(tool, environ), _matching(_TOOLS[tool].reported)
    return (name for name, value in environ.items() if value and name not in kept_items and reported(name))


@cache
def _matching(words: str) -> Callable[[str], re.Match[str] | None]:
    return re.compile("|".join(re.escape(word).replace(r"\*", ".*") for word in words.split())).fullmatch
