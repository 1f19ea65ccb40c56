"""HTTP to a registry: its scheme, its logins, and what is worth another try.

The protocol is the OCI distribution specification 1.1; tokens are the Docker registry token specification.
"""

import ipaddress
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_random_exponential

from torchbake.credentials import Login, find_login
from torchbake.errors import RegistryError

ATTEMPTS = 6
_TIMEOUT = (10, 120)  # seconds to connect, and between two bytes
_LONGEST_WAIT = 60.0  # seconds, whatever a Retry-After says
_AGAIN = {408, 425, 429, 500, 502, 503, 504}
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_HUB = ("docker.io", "registry-1.docker.io")
_BROKEN = (
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,
    requests.exceptions.ContentDecodingError,
)


class StatusError(RegistryError):
    """The registry answered, and said no. ``status`` is its code, ``codes`` its own words for it."""

    def __init__(self, message: str, *, status: int, codes: tuple[str, ...] = (), hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status, self.codes = status, codes


class _TryAgainError(Exception):
    """What passes by itself; ``after`` is how long the registry asked us to wait."""

    def __init__(self, error: RegistryError, after: float | None = None) -> None:
        super().__init__(error.message)
        self.error, self.after = error, after


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request; ``body`` makes its body anew for each try, ``good`` are the codes that are no error."""

    method: str
    path: str
    good: tuple[int, ...] = (200,)
    headers: Mapping[str, str] | None = None
    params: Mapping[str, str] | None = None
    body: Callable[[], Any] | None = None
    stream: bool = False


class Transport:
    """One registry. Safe for many threads. ``plain`` is HTTP even where the host is not this machine."""

    def __init__(
        self, host: str, *, plain: bool = False, login: Login | None = None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        # nox shows every library's debug lines; a line for each request would bury ours.
        logging.getLogger("urllib3").setLevel(logging.WARNING)
        logging.getLogger("docker").setLevel(logging.WARNING)
        self.host = host
        self._login = login
        self._asked = login is not None
        self._plain = plain
        self._sleep = sleep
        self._lock = threading.Lock()
        self._tokens: dict[str, str] = {}
        self._base = ""
        self._local = threading.local()

    def send(self, request: Request, scope: str = "") -> requests.Response:
        """The answer, whose code is one of ``request.good``. ``scope`` is what a token must allow.

        Server errors, too many requests and broken connections are tried again, ATTEMPTS times in all. Raises
        StatusError for any other code, RegistryError where nothing answers.
        """
        retrying = Retrying(
            stop=stop_after_attempt(ATTEMPTS), wait=_wait, sleep=self._sleep, reraise=True,
            retry=retry_if_exception_type(_TryAgainError),
        )  # fmt: skip
        try:
            return retrying(self._once, request, scope)
        except _TryAgainError as again:
            raise again.error from None

    def _once(self, request: Request, scope: str) -> requests.Response:
        answer = self._ask(request, self._authorization(scope))
        if answer.status_code == 401:
            # A token may have ended meanwhile: get another, once.
            answer = self._ask(request, self._log_in(answer, scope))
        if answer.status_code in request.good:
            return answer
        error = self._refusal(request, answer)
        if answer.status_code in _AGAIN:
            raise _TryAgainError(error, _retry_after(answer))
        raise error

    def _ask(self, request: Request, authorization: str) -> requests.Response:
        headers = {**(request.headers or {}), **({"Authorization": authorization} if authorization else {})}
        url = urljoin(self.base, request.path)
        if urlsplit(url).netloc != urlsplit(self.base).netloc:
            headers.pop("Authorization", None)  # a redirect to a store of blobs: our login is none of its business
        try:
            return self._session.request(
                request.method, url, headers=headers, params=request.params, stream=request.stream,
                data=request.body() if request.body else None, timeout=_TIMEOUT,
            )  # fmt: skip
        except requests.exceptions.SSLError as error:
            raise RegistryError(
                f"{self.host} does not prove who it is: {_last(error)}",
                hint="Name its CA by REQUESTS_CA_BUNDLE=FILE, or say --plain-http if it speaks no TLS.",
            ) from None
        except _BROKEN as error:
            raise _TryAgainError(RegistryError(f"{self.host} does not answer: {_last(error)}")) from None

    @property
    def base(self) -> str:
        """``https://HOST/v2/``, or HTTP where it is asked for, or where this machine's own registry has no TLS."""
        with self._lock:
            if not self._base:
                name = _HUB[1] if self.host == _HUB[0] else self.host
                scheme = "http" if self._plain or (_is_loopback(self.host) and not self._speaks_tls(name)) else "https"
                self._base = f"{scheme}://{name}/v2/"
        return self._base

    def _speaks_tls(self, name: str) -> bool:
        try:
            self._session.get(f"https://{name}/v2/", timeout=_TIMEOUT)
        except requests.exceptions.SSLError as error:
            return "WRONG_VERSION_NUMBER" not in str(error) and "RECORD_LAYER" not in str(error)
        except requests.RequestException:
            return False
        return True

    @property
    def _session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = requests.Session()
            session.auth = _NoNetrc()  # logins are docker's, not those of ~/.netrc
            for scheme in ("http://", "https://"):
                session.mount(scheme, HTTPAdapter(pool_maxsize=4))
        return session

    def _authorization(self, scope: str) -> str:
        with self._lock:
            return self._tokens.get(scope, "")

    def _log_in(self, refused: requests.Response, scope: str) -> str:
        """What the challenge of a 401 asks for. Raises StatusError where we have no login, or a wrong one."""
        refused.close()
        kind, _, rest = refused.headers.get("WWW-Authenticate", "").partition(" ")
        challenge = dict(_CHALLENGE.findall(rest))
        if kind.lower() == "bearer":
            found = f"Bearer {self._token(challenge, scope)}"
        else:
            login = self._find_login()
            if login is None:
                raise self._no_login()
            found = requests.auth._basic_auth_str(login.username, login.password)
        with self._lock:
            self._tokens[scope] = found
        return found

    def _token(self, challenge: Mapping[str, str], scope: str) -> str:
        realm, login = challenge.get("realm", ""), self._find_login()
        asked = {"service": challenge.get("service", ""), "scope": scope or challenge.get("scope", "")}
        try:
            if login and login.token:
                form = {**asked, "grant_type": "refresh_token", "refresh_token": login.token, "client_id": "torchbake"}
                answer = self._session.post(realm, data=form, timeout=_TIMEOUT)
            else:
                basic = requests.auth.HTTPBasicAuth(login.username, login.password) if login else None
                answer = self._session.get(realm, params=asked, auth=basic, timeout=_TIMEOUT)
        except requests.RequestException as error:
            raise _TryAgainError(RegistryError(f"{realm} gives no token: {_last(error)}")) from None
        if answer.status_code in _AGAIN:
            raise _TryAgainError(RegistryError(f"{realm} gives no token: {answer.status_code}"), _retry_after(answer))
        try:
            values = answer.json() if answer.ok else {}
            found = values.get("token") or values.get("access_token")
        except (ValueError, AttributeError):
            found = None
        if not found:
            raise self._no_login()
        return str(found)

    def _find_login(self) -> Login | None:
        if not self._asked:
            self._login, self._asked = find_login(self.host), True
        return self._login

    def _no_login(self) -> StatusError:
        who = f"not to {self._login.username}" if self._login and self._login.username else "nobody is logged in"
        return StatusError(
            f"{self.host} refuses: {who}.", status=401, codes=("UNAUTHORIZED",), hint=f"Run: docker login {self.host}"
        )

    def _refusal(self, request: Request, answer: requests.Response) -> StatusError:
        codes, words = _errors(answer)
        if answer.status_code == 401:
            return self._no_login()
        what = f"{request.method} {request.path}"
        hint = (
            f"Is {self.host} the right registry, and may this login write there?" if answer.status_code == 403 else None
        )
        said = f"{answer.status_code} {words or answer.reason}"
        return StatusError(f"{self.host} answers {said} to {what}.", status=answer.status_code, codes=codes, hint=hint)


class _NoNetrc(requests.auth.AuthBase):
    """Leaves a request as it is."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        return request


def _wait(state: RetryCallState) -> float:
    asked = getattr(state.outcome.exception(), "after", None) if state.outcome else None
    return asked if asked is not None else wait_random_exponential(multiplier=0.5, max=10)(state)


def _retry_after(answer: requests.Response) -> float | None:
    """Seconds of a Retry-After; one that is a date is left to our own pace."""
    text = answer.headers.get("Retry-After", "")
    return min(float(text), _LONGEST_WAIT) if text.isdigit() else None


def _errors(answer: requests.Response) -> tuple[tuple[str, ...], str]:
    """The registry's own codes and words for an error."""
    try:
        errors = answer.json()["errors"]
        return tuple(str(one.get("code", "")) for one in errors), "; ".join(
            " ".join(filter(None, (str(one.get("code", "")), str(one.get("message", ""))))) for one in errors
        )
    except (ValueError, LookupError, TypeError, AttributeError, *_BROKEN):
        return (), ""


def _is_loopback(host: str) -> bool:
    name = urlsplit(f"//{host}").hostname or ""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _last(error: Exception) -> str:
    """The innermost of requests' wrappings, in a line."""
    words = " ".join(str(error).split())
    return words[-200:]
