"""Requests to a registry: the choice of the scheme, logins, and repeated attempts.

The protocol is the OCI distribution specification 1.1; tokens are the Docker registry token specification.
"""

import base64
import ipaddress
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from urllib.parse import urlencode, urljoin, urlsplit

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_random_exponential

from torchbake.core.json_text import read_object
from torchbake.errors import RegistryError
from torchbake.registry.auth_challenge import Challenge, Token, parse_challenge, read_token
from torchbake.registry.credentials import Login, find_login
from torchbake.registry.http import Exchange, HttpRequest, HttpResponse, PassingError
from torchbake.registry.origin import Origin, may_log_in, origin_of

ATTEMPTS = 6
_LONGEST_WAIT = 60.0  # seconds, also if a Retry-After asks for more
_LONGEST_WORDS = 300  # characters of a registry's explanation
_AGAIN = {408, 425, 429, 500, 502, 503, 504}
_HUB = ("docker.io", "registry-1.docker.io")


class StatusError(RegistryError):
    """A refusal of the registry. ``status`` is the code of HTTP, ``codes`` are those of the distribution API."""

    def __init__(self, message: str, *, status: int, codes: tuple[str, ...] = (), hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status, self.codes = status, codes

    @property
    def passing(self) -> bool:
        """Check if another attempt may succeed."""
        return self.status in _AGAIN

    @property
    def is_about_content(self) -> bool:
        """Check if the kind of content may be the reason of a refusal. Registries use many codes."""
        return "MANIFEST_INVALID" in self.codes or not (self.passing or self.status in (401, 403, 413))


@dataclass(frozen=True, kw_only=True)
class Grant:
    """The authorization for a challenge, and its life in seconds, which has no end for a login."""

    authorization: str = field(repr=False)
    challenge: Challenge | None
    life: float = math.inf
    since: float = field(default_factory=time.monotonic)


class RegistryTransport:
    """The connection to one registry. Safe for many threads. With ``plain`` HTTP is used for any host.

    An ``insecure`` registry is asked by TLS without a check of its certificate, and by HTTP if it speaks no TLS.

    Each request calls ``sleep`` first, with 0 seconds: it may raise to end a run.
    """

    def __init__(
        self, host: str, *, plain: bool = False, insecure: bool = False, login: Login | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self.host = host
        self._login, self._login_known = login, login is not None
        self._plain, self._sleep = plain, sleep
        self._may_be_plain = insecure or _is_loopback(host)
        self._lock = threading.Lock()
        self._grants: dict[str, Grant] = {}  # by scope
        self._base = ""
        self._exchange = Exchange(host, verify=not insecure)

    def send(self, request: HttpRequest, scope: str = "") -> HttpResponse:
        """Return an answer with one of the codes ``request.good``. A token must allow ``scope``.

        After server errors, too many requests and broken connections the request is repeated, up to ATTEMPTS times in
        all. Raises StatusError for any other code, and RegistryError if nothing answers.
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

    def _once(self, request: HttpRequest, scope: str) -> HttpResponse:
        answer = self._ask(request, self._authorization(scope))
        for _ in range(ATTEMPTS):
            if not self._wants_login(answer):
                break
            grant = self._log_in(parse_challenge(answer.headers.get("WWW-Authenticate", "")), scope)
            start = time.monotonic()
            answer = self._ask(request, grant.authorization)
            if self._wants_login(answer) and time.monotonic() - start < grant.life:
                break  # the registry refuses a token that has not expired, so it refuses this login
        else:
            if self._wants_login(answer):
                raise RegistryError(
                    f"{self.host} gives tokens for {grant.life:.0f} s, and the same request took longer each time.",
                    hint="Ask the registry's administrator for tokens that live longer, or use a faster network.",
                )
        if answer.status in request.good:
            return answer
        error = self._refusal(request, answer)
        if answer.status in _AGAIN:
            raise PassingError(error, _retry_after(answer))
        raise error

    def _wants_login(self, answer: HttpResponse) -> bool:
        """Check if the registry's own origin asks for a login. No other origin may ask for it."""
        return answer.status == 401 and answer.origin == self._home

    def _ask(self, request: HttpRequest, authorization: str) -> HttpResponse:
        url = urljoin(self.base, request.url)
        return self._exchange.send(replace(request, url=url, authorization=authorization, home=self._home))

    @property
    def base(self) -> str:
        """``https://HOST/v2/``; HTTP if ``plain`` asks for it, or if a registry on this machine has no TLS."""
        with self._lock:
            if not self._base:
                name = _HUB[1] if self.host == _HUB[0] else self.host
                tls = not self._plain and (not self._may_be_plain or self._exchange.speaks_tls(f"https://{name}/v2/"))
                self._base = f"{'https' if tls else 'http'}://{name}/v2/"
        return self._base

    @property
    def _home(self) -> Origin:
        """The origin to which the login is bound."""
        try:
            return origin_of(self.base)
        except ValueError as error:
            raise RegistryError(f"{self.host} is not a registry: {error}.") from None

    def _authorization(self, scope: str) -> str:
        """Return the authorization of a scope. After half of its life a token is renewed first."""
        with self._lock:
            grant = self._grants.get(scope)
        if grant and time.monotonic() > grant.since + grant.life / 2:
            grant = self._log_in(grant.challenge, scope)
        return grant.authorization if grant else ""

    def _log_in(self, challenge: Challenge | None, scope: str) -> Grant:
        """Get the authorization for the challenge of a 401. Raises StatusError without a login, or with a wrong one."""
        if not self._login_known:
            self._login, self._login_known = find_login(self.host), True
        login = self._login
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
        """Return the origin that gives tokens. Raises RegistryError if others could read the login on its way there."""
        try:
            realm = origin_of(challenge.realm)
        except ValueError as error:
            raise RegistryError(f"{self.host} wants a token, but names no usable address for it: {error}.") from None
        if not may_log_in(self._home, realm):
            raise RegistryError(
                f"{self.host} wants the login to go to {challenge.realm} in clear; nothing was sent.",
                hint="Ask the registry's administrator to name an https address for tokens.",
            )
        return realm

    def _no_login(self) -> StatusError:
        who = f"not to {self._login.username}" if self._login and self._login.username else "nobody is logged in"
        return StatusError(
            f"{self.host} refuses: {who}.", status=401, codes=("UNAUTHORIZED",), hint=f"Run: docker login {self.host}"
        )

    def _refusal(self, request: HttpRequest, answer: HttpResponse) -> StatusError:
        if self._wants_login(answer):
            return self._no_login()
        codes, words = _errors(answer)
        who = self.host if answer.origin == self._home else f"{answer.origin}, to which {self.host} leads,"
        hint = {
            403: f"Is {self.host} the right registry, and may this login write there?",
            413: "Raise the limit of a body in the registry's proxy; of nginx: client_max_body_size 0;",
        }.get(answer.status)
        message = f"{who} answers {answer.status} {words or answer.reason} to {request.method} {request.url[:200]}."
        return StatusError(message, status=answer.status, codes=codes, hint=hint)


def _token_call(challenge: Challenge, realm: Origin, login: Login | None, scope: str) -> HttpRequest:
    """Return the request for a token. Neither password nor identity token leaves the realm's origin."""
    query = {"service": challenge.service, "scope": scope or challenge.scope}
    if login and login.token:
        form = urlencode(
            {**query, "grant_type": "refresh_token", "refresh_token": login.token, "client_id": "torchbake"}
        )
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        return HttpRequest(
            method="POST", url=challenge.realm, headers=headers, body=lambda: form, home=realm, stay=True
        )
    url = f"{challenge.realm}{'&' if '?' in challenge.realm else '?'}{urlencode(query)}"
    return HttpRequest(method="GET", url=url, authorization=_basic(login) if login else "", home=realm, stay=True)


def _basic(login: Login) -> str:
    return "Basic " + base64.b64encode(f"{login.username}:{login.password}".encode()).decode()


def _wait(state: RetryCallState) -> float:
    seconds = getattr(state.outcome.exception(), "after", None) if state.outcome else None
    return seconds if seconds is not None else wait_random_exponential(multiplier=0.5, max=10)(state)


def _retry_after(answer: HttpResponse) -> float | None:
    """Return the seconds until the time of a Retry-After, by this machine's clock; None if it has neither form.

    The forms are a number of seconds and a date: RFC 9110, section 10.2.3.
    """
    text = answer.headers.get("Retry-After", "")
    if text.isascii() and text.isdigit():
        return min(float(text), _LONGEST_WAIT)
    try:
        seconds = parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, TypeError, IndexError, OverflowError, OSError):
        return None
    return min(max(seconds, 0.0), _LONGEST_WAIT)


def _errors(answer: HttpResponse) -> tuple[tuple[str, ...], str]:
    """Return the registry's codes and message of an error."""
    try:
        errors = read_object(answer.data).get("errors")
    except ValueError:
        return (), ""
    known_names = [entry for entry in errors if isinstance(entry, dict)] if isinstance(errors, list) else []
    pairs = [(str(entry.get("code") or ""), str(entry.get("message") or "")) for entry in known_names]
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
