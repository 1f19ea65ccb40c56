"""The network interface that leads to the master. Without it gloo would take the address of the host's name."""

import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

_SIOCGIFADDR = 0x8915  # linux/sockios.h
_SOMEWHERE = "192.0.2.1"  # TEST-NET-1 (RFC 5737): no packet is sent, only the default route is looked up


def interface_to(address: str) -> str | None:
    """Return the interface whose address the kernel uses as source towards ``address``; None if unknown.

    For an address of this machine (the master's own), return the interface of the default route.
    """
    source = _source_towards(address)
    if source and ipaddress.ip_address(source).is_loopback:
        source = _source_towards(_SOMEWHERE)
    return _interface_with(source) if source else None


def _source_towards(address: str) -> str | None:
    """Return the source address of a datagram to ``address``: connect() of UDP looks up a route and sends nothing."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return None


def _interface_with(source: str) -> str | None:
    if ":" in source:
        return _interface_with_ipv6(source)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name[:15].encode())
            try:
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue  # it has no IPv4 address
            if socket.inet_ntoa(answer[20:24]) == source:
                return name
    return None


def _interface_with_ipv6(source: str) -> str | None:
    expected = ipaddress.ip_address(source.partition("%")[0]).packed.hex()
    try:
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
    except OSError:
        return None
    return next((line.split()[-1] for line in lines if line.startswith(expected)), None)
