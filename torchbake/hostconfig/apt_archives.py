"""The package archives of a distribution, at the public mirrors or the host's, in apt's formats."""

from dataclasses import dataclass, replace

from torchbake.hostconfig.apt_config import AptConfig

DEBIAN_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
UBUNTU_KEYS = "/usr/share/keyrings/ubuntu-archive-keyring.gpg"


@dataclass(frozen=True, kw_only=True)
class AptArchive:
    """The mirrors of a distribution. ``keys`` is the path of the signing keys on a system of that distribution."""

    mirror: str
    security: str
    components: str
    keys: str

    def sources(self, suite: str) -> str:
        """Return a suite with its updates in the format of ``debian.sources`` and ``ubuntu.sources``."""
        return "".join(
            f"Types: deb\nURIs: {uri}\nSuites: {suites}\nComponents: {self.components}\nSigned-By: {self.keys}\n\n"
            for uri, suites in ((self.mirror, f"{suite} {suite}-updates"), (self.security, f"{suite}-security"))
        )

    def one_line(self, suite: str) -> list[str]:
        """Return a suite with its updates in the older format, which names no keys."""
        pairs = ((self.mirror, suite), (self.mirror, f"{suite}-updates"), (self.security, f"{suite}-security"))
        return [f"deb {uri} {name} {self.components}" for uri, name in pairs]


def debian(apt: AptConfig) -> AptArchive:
    public = "http://deb.debian.org/debian"
    security = apt.security_mirror or f"{public}-security"
    return AptArchive(mirror=apt.mirror or public, security=security, components="main", keys=DEBIAN_KEYS)


def archive_of(distribution: str, apt: AptConfig | None = None) -> AptArchive:
    """Return the archive of ``debian`` or ``ubuntu``; without a host's settings, the public one."""
    apt = apt or AptConfig()
    if distribution != "ubuntu":
        return debian(apt)
    return AptArchive(  # a mirror of Ubuntu has the security updates too
        mirror=apt.ubuntu_mirror or "http://archive.ubuntu.com/ubuntu",
        security=apt.ubuntu_mirror or "http://security.ubuntu.com/ubuntu",
        components="main universe",  # tini, git's helpers and other Pythons are in universe
        keys=UBUNTU_KEYS,
    )


def known_archives(distribution: str, apt: AptConfig) -> list[AptArchive]:
    """Return the archives from which a base's packages may come: the host's mirrors, and the public ones."""
    public = archive_of(distribution)
    archives = [archive_of(distribution, apt), public]
    if distribution == "debian":  # the older name of its security updates
        archives.append(replace(public, security="http://security.debian.org/debian-security"))
    return archives
