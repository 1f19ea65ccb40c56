"""The docker SDK's client for this process's engine, over a socket, TCP, TLS or ssh."""

from typing import Any

import docker
from docker.tls import TLSConfig
from requests.utils import get_environ_proxies

from torchbake.engine.address import Address, engine_address
from torchbake.engine.ssh_relay import last_message, relay


def sdk_client(timeout: int, **options: Any) -> docker.DockerClient:
    """Connect to this process's engine. Raises EngineError, and errors of the SDK if no engine answers."""
    address = engine_address()
    host = relay(address.host) if address.host.startswith("ssh://") else address.host
    return docker.DockerClient(base_url=host, tls=_tls(address), timeout=timeout, **options)


def ssh_error(address: Address) -> str:
    """Return the last message of the ssh that connects to an address; empty for other addresses."""
    return last_message(relay(address.host)).rstrip(".") if address.host.startswith("ssh://") else ""


def _tls(address: Address) -> TLSConfig | bool:
    tls = address.tls
    if tls is None:
        return False
    pair = (str(tls.certificate), str(tls.key)) if tls.certificate and tls.key else None
    return _OwnAuthority(client_cert=pair, ca_cert=str(tls.ca) if tls.ca else None, verify=tls.verify)


class _OwnAuthority(TLSConfig):
    """TLS files that take precedence over REQUESTS_CA_BUNDLE, unlike the SDK's own."""

    def configure_client(self, client: docker.APIClient) -> None:
        super().configure_client(client)
        if self.ca_cert:
            address = str(client.base_url).replace("tcp://", "https://", 1)
            client.proxies.update(get_environ_proxies(address))
            client.trust_env = False
