"""Readers of single variables: each returns a valid value, or raises a LaunchError with the next step.

An empty variable counts as not set, as compose files and charts write empty variables for absent values.
"""

import ipaddress
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from ..launch_error import Code, LaunchError
from .settings import Fact

T = TypeVar("T")

MOST = 999_999_999  # nine digits: far above any job
TWO_WEEKS = 14 * 24 * 3600


def text(env: Mapping[str, str], variable: str) -> str:
    """Return a variable's value without surrounding space; empty if it is not set, or the name is empty."""
    return env.get(variable, "").strip() if variable else ""


def first_set(env: Mapping[str, str], *variables: str) -> str:
    """Return the first of these variables that has a value; empty if none has one."""
    return next((variable for variable in variables if text(env, variable)), "")


def show(variable: str, value: object) -> str:
    """Format ``NAME=value`` for one line: long values are cut, odd ones quoted, and a range is MIN:MAX."""
    words = ":".join(map(str, value)) if isinstance(value, tuple) else str(value)
    if len(words) > 100:
        words = f"{words[:100]}..."
    return f"{variable}={words}" if re.fullmatch(r"[!-~]+", words) else f"{variable}={words!a}"


def bad(variable: str, value: object, why: str) -> LaunchError:
    """Return the error for one value; ``why`` ends the sentence with the reason and the next step."""
    return LaunchError(Code.BAD_VALUE, f"{show(variable, value)} {why}")


def agree(one: Fact[T] | None, other: Fact[T] | None, why: str = "both are read") -> Fact[T] | None:
    """Return the common value of two variables. Raises LaunchError if they differ."""
    if one and other and one.value != other.value:
        raise disagree(one, other, why)
    return one or other


def disagree(one: Fact[Any], other: Fact[Any], why: str = "both are read") -> LaunchError:
    """Return the error for two variables that cannot both be right."""
    pair = f"{show(one.variable, one.value)}, but {show(other.variable, other.value)}"
    return LaunchError(Code.CONFLICT, f"{pair} ({why}): correct one of them, or leave it unset.")


def check_below(rank: Fact[int], size: Fact[int]) -> None:
    """Raise LaunchError unless the rank is below the size."""
    if rank.value >= size.value:
        why = f"is out of range with {show(size.variable, size.value)}: ranks go from 0 to one less."
        raise bad(rank.variable, rank.value, why)


def whole(env: Mapping[str, str], variable: str, *, least: int = 0, most: int = MOST) -> Fact[int] | None:
    """Read a whole number within its range."""
    value = text(env, variable)
    return Fact(value=number(variable, value, least=least, most=most), variable=variable) if value else None


def number(variable: str, value: str, *, least: int = 0, most: int = MOST) -> int:
    """Convert a variable's text to a whole number within its range."""
    expected = f"{least} or more" if most == MOST else f"{least} to {most}"
    if not re.fullmatch(r"[+-]?[0-9]+", value):
        raise bad(variable, value, f"is not a whole number: set it to {expected}.")
    if len(value) > 10 or not least <= int(value) <= most:
        raise bad(variable, value, f"is out of range: set it to {expected}.")
    return int(value)


def port(env: Mapping[str, str], variable: str) -> Fact[int] | None:
    """Read a TCP port."""
    return whole(env, variable, least=1, most=65535)


def address(env: Mapping[str, str], variable: str) -> Fact[str] | None:
    """Read a host's name or IP address."""
    value = text(env, variable)
    return Fact(value=host(variable, value), variable=variable) if value else None


def host(variable: str, value: str) -> str:
    """Check a host's name or IP address, and return it without the brackets of IPv6 in URLs."""
    bare = value[1:-1] if value.startswith("[") and value.endswith("]") else value
    # Python accepts any text as the zone of an IPv6 address; accept only the name of an interface.
    name = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}"
    if re.fullmatch(name, bare) or (is_ip(bare) and re.fullmatch(rf"[0-9A-Fa-f:.]+(%{name})?", bare)):
        return bare
    raise bad(variable, value, "is not a host name or an IP address: give node 0's alone, without scheme or port.")


def endpoint(env: Mapping[str, str], variable: str) -> tuple[Fact[str], Fact[int] | None] | None:
    """Read ``host[:port]`` in torchrun's form; port 0 means any port, and counts as not given."""
    value = text(env, variable)
    if not value:
        return None
    name, colon, end = value.rpartition(":")
    if not colon or is_ip(value) or value.endswith("]"):
        name, end = value, ""
    if end and not (re.fullmatch(r"[0-9]{1,5}", end) and int(end) <= 65535):
        raise bad(variable, value, "does not end in a port: write it as HOST:PORT.")
    port = Fact(value=int(end), variable=variable) if end and int(end) else None
    return Fact(value=host(variable, name), variable=variable), port


def node_range(env: Mapping[str, str], variable: str) -> tuple[int, int] | None:
    """Read ``min:max`` or a single number of nodes."""
    value = text(env, variable)
    if not value:
        return None
    if not re.fullmatch(r"[0-9]{1,9}(:[0-9]{1,9})?", value):
        raise bad(variable, value, "is not a range of nodes: write it as MIN:MAX.")
    least, most = int(value.partition(":")[0]), int(value.rpartition(":")[2])
    if not 1 <= least <= most:
        raise bad(variable, value, "is impossible: MIN:MAX needs at least 1 node, and MAX no lower than MIN.")
    return least, most


def processes(env: Mapping[str, str], variable: str) -> Fact[int | str] | None:
    """Read the processes of each node: a number, or gpu, cpu or auto for a count on the node. ``auto`` is a guess."""
    value = text(env, variable)
    if value in ("auto", "gpu", "cpu"):
        return Fact(value=value, variable=variable, guess=value == "auto")
    if value and not re.fullmatch(r"[+-]?[0-9]+", value):
        raise bad(variable, value, "is not a number of processes: set it to 1 or more, or to auto.")
    return Fact(value=number(variable, value, least=1), variable=variable) if value else None


def seconds(env: Mapping[str, str], variable: str, default: float, *, zero: bool = False) -> float:
    """Read seconds above 0 (with ``zero`` from 0 on), at most two weeks, which every system call can wait."""
    value = text(env, variable)
    if not value:
        return default
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value):
        raise bad(variable, value, f"is not a number of seconds: set it to {default:g} or another.")
    if float(value) > TWO_WEEKS or (float(value) == 0 and not zero):
        least = "0" if zero else "above 0"
        raise bad(variable, value, f"is out of range: set it to {least} up to {TWO_WEEKS} seconds.")
    return float(value)


def is_ip(value: str) -> bool:
    """Return True for an IP address of version 4 or 6."""
    return _ip(value) is not None


def is_loopback(value: str) -> bool:
    """Return True for a name or address by which a host reaches itself."""
    ip_address = _ip(value)
    if ip_address is None:
        return value.lower().rstrip(".") in _SELF
    inner = getattr(ip_address, "ipv4_mapped", None) or ip_address
    return bool(inner.is_loopback or inner.is_unspecified)


_SELF = {"localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback"}


def _ip(value: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(value)
    except ValueError:
        return None
