"""The numbers of the releases of Debian and Ubuntu, by their codenames. Pure.

apt and Debian's tracker name a release by its codename, and an image by the number in its /etc/os-release.
"""

DEBIAN = {"buster": "10", "bullseye": "11", "bookworm": "12", "trixie": "13", "forky": "14", "duke": "15"}
UBUNTU = {"focal": "20.04", "jammy": "22.04", "noble": "24.04", "resolute": "26.04"}


def distribution_of_suite(distribution: str, suite: str) -> str:
    """Return the distribution with its release, as advisories name it: ``debian:12``; empty for an unknown suite."""
    version = {"debian": DEBIAN, "ubuntu": UBUNTU}.get(distribution, {}).get(suite, "")
    return f"{distribution}:{version}" if version else ""
