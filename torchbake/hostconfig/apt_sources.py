"""Where a distribution's packages are, and apt's words for it: the public mirrors, or the host's."""

from dataclasses import dataclass

from torchbake.hostconfig.apt_config import AptConfig

DEBIAN_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
UBUNTU_KEYS = "/usr/share/keyrings/ubuntu-archive-keyring.gpg"


@dataclass(frozen=True, kw_only=True)
class Archive:
    """A distribution's mirrors; ``keys`` is where its systems have the keys that sign them."""

    mirror: str
    security: str
    components: str
    keys: str

    def sources(self, suite: str) -> str:
        """A suite with its updates, as ``debian.sources`` and ``ubuntu.sources`` have it."""
        return "".join(
            f"Types: deb\nURIs: {uri}\nSuites: {suites}\nComponents: {self.components}\nSigned-By: {self.keys}\n\n"
            for uri, suites in ((self.mirror, f"{suite} {suite}-updates"), (self.security, f"{suite}-security"))
        )

    def one_line(self, suite: str) -> list[str]:
        """The same in the older form, which names no keys."""
        pairs = ((self.mirror, suite), (self.mirror, f"{suite}-updates"), (self.security, f"{suite}-security"))
        return [f"deb {uri} {name} {self.components}" for uri, name in pairs]


def debian(apt: AptConfig) -> Archive:
    return Archive(
        mirror=apt.mirror or "http://deb.debian.org/debian",
        security=apt.security_mirror or "http://deb.debian.org/debian-security",
        components="main",
        keys=DEBIAN_KEYS,
    )


def ubuntu(apt: AptConfig) -> Archive:
    """A mirror of Ubuntu has the security updates too. tini, git's helpers and other Pythons are in universe."""
    return Archive(
        mirror=apt.ubuntu_mirror or "http://archive.ubuntu.com/ubuntu",
        security=apt.ubuntu_mirror or "http://security.ubuntu.com/ubuntu",
        components="main universe",
        keys=UBUNTU_KEYS,
    )


def archive_of(distribution: str, apt: AptConfig | None = None) -> Archive:
    """That of ``debian`` or ``ubuntu``; without settings of a host, as the public has it."""
    return (ubuntu if distribution == "ubuntu" else debian)(apt or AptConfig())
