"""One request over HTTP and its answer, bounded: in bytes, in time and in redirects; a login goes to its origin alone.

Proxies and certificate authorities are the environment's, as requests reads them. Nothing else is: no ``~/.netrc``, no
cookies. Redirects are followed here, as a library that follows them also decides who gets the login.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import Any, TypeAlias

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

from torchbake.errors import RegistryError
from torchbake.registry.origin import Origin, led_to, origin_of

_TIMEOUT = (10, 120)  # seconds to connect, and between two bytes
_LONGEST = 600  # seconds until an answer is there whole
_LONGEST_FILE = 3600  # the same for a layer
_HOPS = 10
_ALWAYS, _SAME_METHOD = {301, 302, 303, 307, 308}, {307, 308}
_WORDS = 2**16  # bytes of an answer that only says what went wrong
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
    """What passes by itself; ``after`` is how long the registry asked us to wait."""

    def __init__(self, error: RegistryError, after: float | None = None) -> None:
        super().__init__(error.message)
        self.error, self.after = error, after


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request. ``body`` makes its body anew for each try; ``most`` bytes of a good answer are taken.

    ``into`` opens the file for the body of a good answer, again for each try; without it the answer has the body.
    ``authorization`` is for ``home`` alone. With ``stay`` redirects to other origins are not followed: for tokens,
    whose requests may hold a secret in their body.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Callable[[], Any] | None = None
    most: int = 2**20
    into: Into | None = None
    authorization: str = field(default="", repr=False)
    home: Origin
    stay: bool = False


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer, read whole. ``url`` is where it came from, after redirects. Names of ``headers`` have no case."""

    url: str
    status: int
    reason: str
    headers: Mapping[str, str]
    data: bytes

    @property
    def origin(self) -> Origin:
        return origin_of(self.url)


class Exchange:
    """Speaks for one registry, ``name``, which errors name. Safe for many threads."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._idle: deque[requests.Session] = deque()  # whose connections wait for the next request of any thread

    def send(self, call: Call) -> Answer:
        """The answer, after redirects. Raises RegistryError, and PassingError for what is worth another try."""
        for _ in range(_HOPS):
            answer = self._once(call)
            followed = _ALWAYS if call.method in ("GET", "HEAD") else _SAME_METHOD
            if answer.status not in followed or "Location" not in answer.headers:
                return answer
            try:
                url = led_to(call.url, answer.headers["Location"])
            except ValueError as error:
                hint = f"Is {self._name} told its public address? A proxy passes that on by X-Forwarded-Proto."
                raise RegistryError(f"{self._who(call)} redirects, and {error}.", hint=hint) from None
            if call.stay and origin_of(url) != call.home:
                return answer
            call = replace(call, url=url)
        raise RegistryError(f"{self._name} redirects without end, the last time to {call.url[:200]}.")

    def speaks_tls(self, url: str) -> bool:
        """Whether an HTTPS server is there, whoever it is."""
        try:
            with self._session() as session:
                session.get(url, timeout=_TIMEOUT, stream=True).close()
        except requests.exceptions.SSLError as error:
            return "WRONG_VERSION_NUMBER" not in str(error) and "RECORD_LAYER" not in str(error)
        except requests.RequestException:
            return False
        return True

    def _once(self, call: Call) -> Answer:
        who = self._who(call)
        headers = dict(call.headers)
        if call.authorization and origin_of(call.url) == call.home:
            headers["Authorization"] = call.authorization
        try:
            with self._session() as session, session.request(
                call.method, call.url, headers=headers, data=call.body() if call.body else None, timeout=_TIMEOUT,
                stream=True, allow_redirects=False,
            ) as answer:  # fmt: skip
                return Answer(
                    url=call.url, status=answer.status_code, reason=answer.reason or "", headers=answer.headers,
                    data=_read(answer, call, who),
                )  # fmt: skip
        except requests.exceptions.SSLError as error:
            raise RegistryError(
                f"{who} has no certificate that is trusted: {_last(error)}",
                hint="Name its CA by REQUESTS_CA_BUNDLE=FILE, or say --plain-http if it speaks no TLS.",
            ) from None
        except _BROKEN as error:
            raise PassingError(RegistryError(f"{who} does not answer: {_last(error)}")) from None
        except (requests.RequestException, HTTPError, ValueError) as error:
            raise RegistryError(
                f"{who} answers {call.method} with something that is not HTTP: {_last(error)}"
            ) from None

    def _who(self, call: Call) -> str:
        """Who is to blame: the registry, or a host that it named."""
        origin = origin_of(call.url)
        own = str(origin) == self._name or (origin == call.home and not call.stay)
        return self._name if own else f"{origin}, to which {self._name} leads,"

    @contextmanager
    def _session(self) -> Iterator[requests.Session]:
        """For one request at a time, as requests does not say what threads may share."""
        try:
            session = self._idle.pop()
        except IndexError:
            session = _Session()
        try:
            yield session
        finally:
            self._idle.append(session)


class _Session(requests.Session):
    """Sends what it is given, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.auth = _AsItIs()
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
        self.headers["Accept-Encoding"] = "identity"  # a compressed answer could decompress to any size
        for scheme in ("http://", "https://"):
            self.mount(scheme, HTTPAdapter(pool_maxsize=4))

    def get_redirect_target(self, resp: requests.Response) -> None:
        """None: else requests reads the whole body of a redirect even where it is told not to follow."""


class _AsItIs(requests.auth.AuthBase):
    """Leaves a request as it is; without one, requests looks into ``~/.netrc``."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        return request


def _read(answer: requests.Response, call: Call, who: str) -> bytes:
    """The body of an answer, as it was sent. Of one that is not a success, its beginning."""
    good = answer.status_code // 100 == 2
    compressed = answer.headers.get("Content-Encoding", "").lower() not in ("", "identity")
    if compressed and good and call.method != "HEAD":
        raise RegistryError(
            f"{who} compresses its answer ({answer.headers['Content-Encoding']}), which nobody asked for."
        )
    pieces, length = list[bytes](), 0
    most, longest = (call.most, _LONGEST_FILE if call.into else _LONGEST) if good else (_WORDS, _LONGEST)
    with call.into() if good and call.into else nullcontext(pieces.append) as write:
        if not compressed:
            length = _copy(answer.raw, write, most, who, longest)
    if good and length > call.most:
        raise RegistryError(f"{who} answers {call.method} {call.url[:200]} with more than {call.most} bytes.")
    return b"".join(pieces)


def _copy(raw: Any, write: Callable[[bytes], object], most: int, who: str, longest: int) -> int:
    """Write all there is, or a little more than ``most`` bytes of it, and return how many bytes that is."""
    length, end = 0, time.monotonic() + longest
    try:
        # read1 returns what is there: a body that comes byte by byte must not keep us until it is whole.
        while length <= most and (piece := raw.read1(_AT_ONCE, decode_content=False)):
            write(piece)
            length += len(piece)
            if time.monotonic() > end:
                raise RegistryError(f"{who} has not ended its answer after {longest} s.")
    except HTTPError as error:
        raise PassingError(RegistryError(f"{who} does not answer: {_last(error)}")) from None
    return length


@contextmanager
def written_to(path: Path, go_on: Callable[[], object]) -> Iterator[Callable[[bytes], object]]:
    """Open a file for the body of an answer. ``go_on`` is called before each piece, and may raise."""
    with path.open("wb") as file:

        def write(piece: bytes) -> None:
            go_on()
            file.write(piece)

        yield write


class Sized:
    """A body of known length: else requests would send it in chunks, which registries refuse for a PUT."""

    def __init__(self, pieces: Iterator[bytes], length: int) -> None:
        self._pieces, self._length = pieces, length

    def __iter__(self) -> Iterator[bytes]:
        return self._pieces

    def __len__(self) -> int:
        return self._length


def _last(error: Exception) -> str:
    """The innermost of requests' wrappings, in a line."""
    return " ".join(str(error).split())[-200:]
