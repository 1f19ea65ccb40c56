"""Requests over HTTP with limits of bytes, time and redirects. A login is sent only to its own origin.

The library requests reads proxies and certificate authorities from the environment, but no ``~/.netrc`` and no cookies.
Redirects are followed here, because a library that follows them also decides who gets the login.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import Any, TypeAlias

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError, InsecureRequestWarning, NewConnectionError

from torchbake.errors import RegistryError
from torchbake.registry.origin import Origin, led_to, origin_of

_TIMEOUT = (10, 120)  # seconds to connect, and between two bytes
_LONGEST = 600  # seconds until an answer is complete
_LONGEST_FILE = 3600  # seconds until a layer is complete
_HOPS = 10
_ALWAYS, _SAME_METHOD = {301, 302, 303, 307, 308}, {307, 308}
_WORDS = 2**16  # bytes of an error's text
_LONGEST_CAUSE = 200  # characters
_AT_ONCE = 2**16
MISCALLED = "Does it know its public address? A proxy in front of it passes that on by X-Forwarded-Proto and Host."
_BROKEN = (
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,
    requests.exceptions.ContentDecodingError,
)

Into: TypeAlias = Callable[[], AbstractContextManager[Callable[[bytes], object]]]


class PassingError(Exception):
    """A temporary error. ``after`` are the seconds that the registry asks its clients to wait."""

    def __init__(self, error: RegistryError, after: float | None = None) -> None:
        super().__init__(error.message)
        self.error, self.after = error, after


@dataclass(frozen=True, kw_only=True)
class HttpRequest:
    """One request to ``url``, which may be relative to a registry's ``/v2/``. Other codes than ``good`` are errors.

    Each attempt calls ``body`` for the body, and ``into`` to open the file of a good answer's body. Without ``into``
    the answer has the body, of at most ``most`` bytes. The ``authorization`` is sent only to ``home``. With ``stay`` no
    redirect to another origin is followed: the body of a request for a token may hold a secret.
    """

    method: str
    url: str
    good: tuple[int, ...] = (200,)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Callable[[], Any] | None = None
    most: int = 2**20
    into: Into | None = None
    authorization: str = field(default="", repr=False)
    home: Origin | None = None
    stay: bool = False


@dataclass(frozen=True, kw_only=True)
class HttpResponse:
    """A complete answer from ``url``, the address after redirects. Names of ``headers`` ignore case."""

    url: str
    status: int
    reason: str
    headers: Mapping[str, str]
    data: bytes

    @property
    def origin(self) -> Origin:
        return origin_of(self.url)


class Exchange:
    """Sends requests to one registry, whose ``name`` is in errors. Safe for many threads.

    Without ``verify`` no certificate is checked.
    """

    def __init__(self, name: str, *, verify: bool = True) -> None:
        self._name = name
        # A False for the session would give way to REQUESTS_CA_BUNDLE.
        self._verify = None if verify else False
        if not verify:
            urllib3.disable_warnings(InsecureRequestWarning)
        self._idle: deque[requests.Session] = deque()  # sessions whose open connections any thread can use

    def send(self, request: HttpRequest) -> HttpResponse:
        """Return the answer after redirects. Raises RegistryError, or PassingError if another attempt may succeed."""
        for _ in range(_HOPS):
            answer = self._once(request)
            followed = _ALWAYS if request.method in ("GET", "HEAD") else _SAME_METHOD
            if answer.status not in followed or "Location" not in answer.headers:
                return answer
            try:
                url = led_to(request.url, answer.headers["Location"])
            except ValueError as error:
                raise RegistryError(f"{self._who(request)} redirects, and {error}.", hint=MISCALLED) from None
            if request.stay and origin_of(url) != request.home:
                return answer
            request = replace(request, url=url)
        raise RegistryError(f"{self._name} redirects without end, the last time to {request.url[:200]}.")

    def speaks_tls(self, url: str) -> bool:
        """Check if any HTTPS server answers."""
        try:
            with self._session() as session:
                session.get(url, timeout=_TIMEOUT, stream=True, verify=self._verify).close()
        except requests.exceptions.SSLError as error:
            return "WRONG_VERSION_NUMBER" not in str(error) and "RECORD_LAYER" not in str(error)
        except requests.RequestException:
            return False
        return True

    def _once(self, request: HttpRequest) -> HttpResponse:
        who = self._who(request)
        headers, body = dict(request.headers), request.body() if request.body else None
        if request.authorization and origin_of(request.url) == request.home:
            headers["Authorization"] = request.authorization
        try:
            with self._session() as session, session.request(
                request.method, request.url, headers=headers, data=body, timeout=_TIMEOUT, stream=True,
                allow_redirects=False, verify=self._verify,
            ) as answer:  # fmt: skip
                return HttpResponse(
                    url=request.url, status=answer.status_code, reason=answer.reason or "", headers=answer.headers,
                    data=_read(answer, request, who),
                )  # fmt: skip
        except requests.exceptions.SSLError as error:
            raise RegistryError(
                f"{who} has no certificate that is trusted: {_cause(error, who)}",
                hint="Name its CA by REQUESTS_CA_BUNDLE=FILE, or say --plain-http if it speaks no TLS.",
            ) from None
        except _BROKEN as error:
            raise _silence(error, who) from None
        except (requests.RequestException, HTTPError, ValueError) as error:
            raise RegistryError(f"{who} answers {request.method}, but not by HTTP: {_cause(error, who)}") from None

    def _who(self, request: HttpRequest) -> str:
        """Name the server of a request for errors: the registry, or a host that it named."""
        origin = origin_of(request.url)
        own = str(origin) == self._name or (origin == request.home and not request.stay)
        return self._name if own else f"{origin}, to which {self._name} leads,"

    @contextmanager
    def _session(self) -> Iterator[requests.Session]:
        """Take an idle session for one request: requests does not promise that threads may share one."""
        try:
            session = self._idle.pop()
        except IndexError:
            session = _Session()
        try:
            yield session
        finally:
            self._idle.append(session)


class _Session(requests.Session):
    """A session that adds no login, no cookies and no compression to its requests."""

    def __init__(self) -> None:
        super().__init__()
        self.auth = lambda request: request  # without this, requests reads ``~/.netrc``
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
        self.headers["Accept-Encoding"] = "identity"  # a compressed answer could decompress to any size
        for scheme in ("http://", "https://"):
            self.mount(scheme, HTTPAdapter(pool_maxsize=4))

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Return None: otherwise requests reads the whole body of a redirect, also if it must not follow it."""


def _read(answer: requests.Response, request: HttpRequest, who: str) -> bytes:
    """Read the body of an answer; of an error only its beginning."""
    good = answer.status_code // 100 == 2
    compressed = answer.headers.get("Content-Encoding", "").lower() not in ("", "identity")
    if compressed and good and request.method != "HEAD":
        kind = answer.headers["Content-Encoding"]
        raise RegistryError(f"{who} compresses its answer ({kind}), although the request refused that.")
    pieces, length = list[bytes](), 0
    most, longest = (request.most, _LONGEST_FILE if request.into else _LONGEST) if good else (_WORDS, _LONGEST)
    with request.into() if good and request.into else nullcontext(pieces.append) as write:
        if not compressed:
            length = _copy(answer.raw, write, most, who, longest)
    if good and length > request.most:
        raise RegistryError(f"{who} answers {request.method} {request.url[:200]} with more than {request.most} bytes.")
    return b"".join(pieces)


def _copy(raw: Any, write: Callable[[bytes], object], most: int, who: str, longest: int) -> int:
    """Write the body, or a little more than ``most`` bytes of it, and return the number of written bytes."""
    length, end = 0, time.monotonic() + longest
    try:
        # read1 returns all received bytes at once, so the time limit also holds if a body comes byte by byte.
        while length <= most and (piece := raw.read1(_AT_ONCE, decode_content=False)):
            write(piece)
            length += len(piece)
            if time.monotonic() > end:
                raise RegistryError(f"{who} has not ended its answer after {longest} s.")
    except HTTPError as error:
        raise _silence(error, who) from None
    return length


@contextmanager
def written_to(path: Path, go_on: Callable[[], object]) -> Iterator[Callable[[bytes], object]]:
    """Open a file for the body of an answer. Each piece calls ``go_on`` first, which may raise."""
    with path.open("wb") as file:

        def write(piece: bytes) -> None:
            go_on()
            file.write(piece)

        yield write


class SizedBody:
    """A body of known length. Without a length, requests sends chunks, which registries refuse for a PUT."""

    def __init__(self, pieces: Iterator[bytes], length: int) -> None:
        self._pieces, self._length = pieces, length

    def __iter__(self) -> Iterator[bytes]:
        return self._pieces

    def __len__(self) -> int:
        return self._length


def _silence(error: Exception, who: str) -> PassingError:
    message = f"{who} does not answer: {_cause(error, who)}"
    return PassingError(RegistryError(message, hint="Check the name, the network or the proxy."))


def _cause(error: BaseException, who: str) -> str:
    """Return the innermost of requests' wrapped errors in one line, after the host if ``who`` does not name it.

    The host may be a proxy.
    """
    host = ""
    inner: BaseException | None = error
    while inner is not None:
        error = inner
        host = error.conn.host if isinstance(error, NewConnectionError) else host
        inner = next((part for part in (*error.args, error.__cause__) if isinstance(part, BaseException)), None)
    is_http = isinstance(error, HTTPException) and not isinstance(error, OSError)
    text = repr(error) if is_http else getattr(error, "strerror", None) or str(error)
    return " ".join((f"{host}: {text}" if host not in who else text).split())[:_LONGEST_CAUSE]
