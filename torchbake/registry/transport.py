"""Asking a registry: its scheme, its logins, and what is worth another try.

The protocol is the OCI distribution specification 1.1; tokens are the Docker registry token specification.
"""

import base64
import ipaddress
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_random_exponential

from torchbake.core.json_text import read_object
from torchbake.errors import RegistryError
from torchbake.registry.auth_challenge import Challenge, Token, parse_challenge, read_token
from torchbake.registry.credentials import Login, find_login
from torchbake.registry.http import Answer, Call, Exchange, Into, PassingError
from torchbake.registry.origin import Origin, may_log_in, origin_of

ATTEMPTS = 6
_LONGEST_WAIT = 60.0  # seconds, whatever a Retry-After says
_LONGEST_WORDS = 300  # characters of a registry's own explanation
_AGAIN = {408, 425, 429, 500, 502, 503, 504}
_HUB = ("docker.io", "registry-1.docker.io")


class StatusError(RegistryError):
    """The registry answered, and said no. ``status`` is its code, ``codes`` its own words for it."""

    def __init__(self, message: str, *, status: int, codes: tuple[str, ...] = (), hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status, self.codes = status, codes

    @property
    def passing(self) -> bool:
        """Whether it may say something else another time."""
        return self.status in _AGAIN

    @property
    def is_about_content(self) -> bool:
        """Check that the kind of content may be the reason of a refusal; registries use many codes."""
        return "MANIFEST_INVALID" in self.codes or not (self.passing or self.status in (401, 403, 413))


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request; ``body`` makes its body anew for each try, ``good`` are the codes that are no error.

    ``path`` is below ``/v2/``, or a whole address that the registry itself named. ``most``: bytes that are taken.

    ``into`` opens the file for the body of the answer, again for each try; without it the answer has the body.
    """

    method: str
    path: str
    good: tuple[int, ...] = (200,)
    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    body: Callable[[], Any] | None = None
    most: int = 2**20
    into: Into | None = None


@dataclass(frozen=True, kw_only=True)
class Grant:
    """An authorization that a challenge asked for, and the seconds for which it holds; a login holds for ever."""

    authorization: str = field(repr=False)
    challenge: Challenge | None
    life: float = math.inf
    since: float = field(default_factory=time.monotonic)


class Transport:
    """One registry. Safe for many threads. ``plain`` is HTTP even where the host is not this machine.

    ``sleep`` is called before each request too, for no time: it may raise, to end a run that is to stop.
    """

    def __init__(
        self, host: str, *, plain: bool = False, login: Login | None = None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.host = host
        self._login = login
        self._asked = login is not None
        self._plain = plain
        self._sleep = sleep
        self._lock = threading.Lock()
        self._grants: dict[str, Grant] = {}  # by scope
        self._base = ""
        self._exchange = Exchange(host)

    def send(self, request: Request, scope: str = "") -> Answer:
        """The answer, whose code is one of ``request.good``. ``scope`` is what a token must allow.

        Server errors, too many requests and broken connections are tried again, ATTEMPTS times in all. Raises
        StatusError for any other code, RegistryError where nothing answers.
        """
        retrying = Retrying(
            stop=stop_after_attempt(ATTEMPTS), wait=_wait, sleep=self._sleep, reraise=True,
            retry=retry_if_exception_type(PassingError),
        )  # fmt: skip
        self._sleep(0)
        try:
            return retrying(self._once, request, scope)
        except PassingError as passing:
            raise passing.error from None

    def _once(self, request: Request, scope: str) -> Answer:
        answer = self._ask(request, self._authorization(scope))
        for _ in range(ATTEMPTS):
            if not self._wants_login(answer):
                break
            grant = self._log_in(parse_challenge(answer.headers.get("WWW-Authenticate", "")), scope)
            begun = time.monotonic()
            answer = self._ask(request, grant.authorization)
            if self._wants_login(answer) and time.monotonic() - begun < grant.life:
                break  # the token was still good: the registry refuses this login
        else:
            if self._wants_login(answer):
                raise RegistryError(
                    f"{self.host} gives tokens for {grant.life:.0f} s, and the same request took longer each time.",
                    hint="Ask whoever runs it for tokens that hold longer, or publish from a faster network.",
                )
        if answer.status in request.good:
            return answer
        error = self._refusal(request, answer)
        if answer.status in _AGAIN:
            raise PassingError(error, _retry_after(answer))
        raise error

    def _wants_login(self, answer: Answer) -> bool:
        """Nobody else may ask for our login."""
        return answer.status == 401 and answer.origin == self._home

    def _ask(self, request: Request, authorization: str) -> Answer:
        home, url = self._home, urljoin(self.base, request.path)
        if request.params:
            url += ("&" if urlsplit(url).query else "?") + urlencode(request.params)
        return self._exchange.send(
            Call(
                method=request.method, url=url, headers=request.headers, body=request.body, most=request.most,
                into=request.into, authorization=authorization, home=home,
            )
        )  # fmt: skip

    @property
    def base(self) -> str:
        """``https://HOST/v2/``, or HTTP where it is asked for, or where this machine's own registry has no TLS."""
        with self._lock:
            if not self._base:
                name = _HUB[1] if self.host == _HUB[0] else self.host
                tls = not self._plain and (
                    not _is_loopback(self.host) or self._exchange.speaks_tls(f"https://{name}/v2/")
                )
                self._base = f"{'https' if tls else 'http'}://{name}/v2/"
        return self._base

    @property
    def _home(self) -> Origin:
        """What our login is bound to."""
        try:
            return origin_of(self.base)
        except ValueError as error:
            raise RegistryError(f"{self.host} is not a registry: {error}.") from None

    def _authorization(self, scope: str) -> str:
        """Return the authorization of a scope. A token is renewed after half of its life, before a request begins."""
        with self._lock:
            grant = self._grants.get(scope)
        if grant and time.monotonic() > grant.since + grant.life / 2:
            grant = self._log_in(grant.challenge, scope)
        return grant.authorization if grant else ""

    def _log_in(self, challenge: Challenge | None, scope: str) -> Grant:
        """What the challenge of a 401 asks for. Raises StatusError where we have no login, or a wrong one."""
        login = self._find_login()
        if challenge and challenge.way == "bearer":
            token = self._token(challenge, login, scope)
            grant = Grant(authorization=f"Bearer {token.text}", challenge=challenge, life=token.life)
        elif login and login.password:
            grant = Grant(authorization=_basic(login), challenge=challenge)
        else:
            raise self._no_login()
        with self._lock:
            self._grants[scope] = grant
        return grant

    def _token(self, challenge: Challenge, login: Login | None, scope: str) -> Token:
        answer = self._exchange.send(_token_call(challenge, self._realm(challenge), login, scope))
        if answer.status in _AGAIN:
            error = RegistryError(f"{challenge.realm} gives {self.host} no token: {answer.status}")
            raise PassingError(error, _retry_after(answer))
        if answer.status in (401, 403):
            raise self._no_login()
        if answer.status != 200:
            words = f"{challenge.realm} gives no token for {self.host}: it answers {answer.status} {answer.reason}."
            raise StatusError(words, status=answer.status)
        try:
            return read_token(answer.data)
        except ValueError as error:
            raise RegistryError(f"{challenge.realm} gives no token for {self.host}: {error}.") from None

    def _realm(self, challenge: Challenge) -> Origin:
        """Where a token is had. Raises RegistryError where the login would be read on its way there."""
        try:
            realm = origin_of(challenge.realm)
        except ValueError as error:
            raise RegistryError(f"{self.host} wants a token, but names no usable address for it: {error}.") from None
        if not may_log_in(self._home, realm):
            raise RegistryError(
                f"{self.host} wants the login to go to {challenge.realm} in clear; nothing was sent.",
                hint="Whoever runs it must name an https address for tokens.",
            )
        return realm

    def _find_login(self) -> Login | None:
        if not self._asked:
            self._login, self._asked = find_login(self.host), True
        return self._login

    def _no_login(self) -> StatusError:
        who = f"not to {self._login.username}" if self._login and self._login.username else "nobody is logged in"
        return StatusError(
            f"{self.host} refuses: {who}.", status=401, codes=("UNAUTHORIZED",), hint=f"Run: docker login {self.host}"
        )

    def _refusal(self, request: Request, answer: Answer) -> StatusError:
        if self._wants_login(answer):
            return self._no_login()
        codes, words = _errors(answer)
        who = self.host if answer.origin == self._home else f"{answer.origin}, to which {self.host} leads,"
        hint = f"Is {self.host} the right registry, and may this login write there?" if answer.status == 403 else None
        reply = f"{answer.status} {words or answer.reason}"
        message = f"{who} answers {reply} to {request.method} {request.path[:200]}."
        return StatusError(message, status=answer.status, codes=codes, hint=hint)


def _token_call(challenge: Challenge, realm: Origin, login: Login | None, scope: str) -> Call:
    """The request for a token; neither password nor identity token leaves the realm's own origin."""
    asked = {"service": challenge.service, "scope": scope or challenge.scope}
    if login and login.token:
        form = {**asked, "grant_type": "refresh_token", "refresh_token": login.token, "client_id": "torchbake"}
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        return Call(
            method="POST", url=challenge.realm, headers=headers, body=lambda: urlencode(form), home=realm, stay=True
        )
    url = f"{challenge.realm}{'&' if '?' in challenge.realm else '?'}{urlencode(asked)}"
    return Call(method="GET", url=url, authorization=_basic(login) if login else "", home=realm, stay=True)


def _basic(login: Login) -> str:
    return "Basic " + base64.b64encode(f"{login.username}:{login.password}".encode()).decode()


def _wait(state: RetryCallState) -> float:
    asked = getattr(state.outcome.exception(), "after", None) if state.outcome else None
    return asked if asked is not None else wait_random_exponential(multiplier=0.5, max=10)(state)


def _retry_after(answer: Answer) -> float | None:
    """Seconds of a Retry-After; one that is a date is left to our own pace."""
    text = answer.headers.get("Retry-After", "")
    return min(float(text), _LONGEST_WAIT) if text.isascii() and text.isdigit() else None


def _errors(answer: Answer) -> tuple[tuple[str, ...], str]:
    """The registry's own codes and words for an error."""
    try:
        errors = read_object(answer.data).get("errors")
    except ValueError:
        return (), ""
    known = [entry for entry in errors if isinstance(entry, dict)] if isinstance(errors, list) else []
    pairs = [(str(entry.get("code") or ""), str(entry.get("message") or "")) for entry in known]
    words = "; ".join(" ".join(filter(None, pair)) for pair in pairs)
    return tuple(code for code, _ in pairs), words[:_LONGEST_WORDS]


def _is_loopback(host: str) -> bool:
    name = urlsplit(f"//{host}").hostname or ""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
