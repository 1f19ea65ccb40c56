"""Find the logins of package indexes: uv's variables, pip's settings, netrc, a keyring; and check them."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import replace
from urllib.parse import quote, unquote, urlsplit

import requests
from requests.utils import get_netrc_auth

from torchbake.core.plain_text import last_line
from torchbake.core.tool_variables import inherited_variables
from torchbake.errors import HostConfigError
from torchbake.hostconfig.http_session import PATIENCE, REFUSED, index_session
from torchbake.hostconfig.pip_config import PipConfig, without_login
from torchbake.hostconfig.project_index import ProjectIndex

_KEYRINGS = ("UV_KEYRING_PROVIDER", "PIP_KEYRING_PROVIDER")
_TRACEBACK = "Traceback (most recent call last)"
_PROVIDER = "subprocess"  # the provider that both uv and pip know


def with_found_login(index: ProjectIndex, pip: PipConfig, environ: Mapping[str, str] = os.environ) -> ProjectIndex:
    """Return an index whose address has its login; without one if this host has none.

    uv's variables win over a login in the address, and that over pip's settings, netrc and a keyring. Raises
    HostConfigError if the keyring does not answer.
    """
    parts, url = urlsplit(index.url), without_login(index.url)
    by_variables = tuple(environ.get(name, "") for name in index.variables) or ("", "")
    user, password = (
        by_variables if any(by_variables) else (unquote(parts.username or ""), unquote(parts.password or ""))
    )
    if not user and not password and pip.with_login(url) != url:
        return replace(index, url=pip.with_login(url))
    if not password:
        netrc = get_netrc_auth(url) or ("", "")
        user, password = netrc if netrc[1] and user in ("", netrc[0]) else (user, _of_keyring(url, user, environ))
    login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    bare = urlsplit(url)
    return replace(index, url=bare._replace(netloc=f"{login}@{bare.netloc}").geturl() if login else url)


def check_logins(indexes: Iterable[ProjectIndex], name: str, pip: PipConfig) -> None:
    """Raise HostConfigError for an index that refuses to show the page of a package for want of a login.

    An index that does not answer is no error here: the wheels may be in a folder of this host. With pip's `no-index`
    none is asked.
    """
    if pip.no_index:
        return
    with index_session(pip) as session:
        for index in indexes:
            with contextlib.suppress(requests.RequestException, OSError):
                page = f"{index.url.rstrip('/')}/{name}/"
                with session.get(page, timeout=PATIENCE, stream=True) as answer:
                    _check(index, answer.status_code, answer.reason, pip)


def _check(index: ProjectIndex, status: int, reason: str, pip: PipConfig) -> None:
    has_login = "@" in urlsplit(index.url).netloc
    # For a missing page some public indexes answer 403.
    if status not in REFUSED[: 1 + has_login]:
        return
    name = f"the index {index.name} ({index.public_url})" if index.name else index.public_url
    problem = "refuses this host's login" if has_login else "needs a login, and this host has none"
    raise HostConfigError(f"{name} {problem}: {status} {reason}.", hint=pip.login_hint(index.url))


def _of_keyring(url: str, user: str, environ: Mapping[str, str]) -> str:
    """Return the password of a user from the program `keyring`, if uv or pip may ask it; "" if it has none.

    Raises HostConfigError with the program's message. For a missing password it ends with 1, maybe after warnings.
    """
    program = shutil.which("keyring", path=environ.get("PATH"))
    if not user or not program or not any(environ.get(name) == _PROVIDER for name in _KEYRINGS):
        return ""
    failures = list[str]()
    for service in (url, urlsplit(url).netloc):  # uv's order
        try:
            process = subprocess.run(
                [program, "get", service, user],
                env=inherited_variables("uv", environ),
                stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            )  # fmt: skip
        except OSError as error:  # the Python of a script is gone
            failures.append(str(error))
            continue
        if process.returncode == 0 and process.stdout.strip():
            return process.stdout.strip()
        if process.returncode not in (0, 1) or _TRACEBACK in process.stderr:
            failures.append(last_line(process.stderr))
    if failures:
        raise HostConfigError(
            f"{program} does not answer for {user} at {url}: {failures[0]}",
            hint=f"Repair it; or unset {' and '.join(name for name in _KEYRINGS if environ.get(name))}.",
        )
    return ""
