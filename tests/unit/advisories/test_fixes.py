"""Vulnerabilities that end with a newer Debian package."""

import json
from dataclasses import replace
from pathlib import Path

from tests.unit.advisories.feeds import OSV, TRACKER
from tests.unit.debian.packages import package
from torchbake.advisories.feeds import read_feeds
from torchbake.advisories.finding import Severity
from torchbake.advisories.fixes import fixed_by, with_numbers
from torchbake.advisories.match import Feeds
from torchbake.debian.lockfile import DebianChange

POOL = "pool/updates/main/s/sealwax/libseal3_3.0_amd64.deb"
OLD = package("libseal3", "3.0.17-1~deb12u2+b1", path=POOL)
NEW = replace(OLD, version="3.0.18-1~deb12u1", archive="security")


def test_the_versions_between_two_packages_are_compared() -> None:
    feeds, change = read_feeds([str(TRACKER)]), DebianChange(old=OLD, new=NEW)
    assert fixed_by(change, "debian:12", feeds) == {"CVE-2026-1001": Severity.HIGH}
    assert fixed_by(change, "debian:13", feeds) == {}
    assert fixed_by(replace(change, new=replace(OLD, version="3.0.17-2")), "debian:12", feeds) == {}
    assert fixed_by(replace(change, old=NEW), "debian:12", feeds) == {}


def test_a_new_package_fixes_nothing() -> None:
    feeds = read_feeds([str(TRACKER)])
    assert fixed_by(DebianChange(old=None, new=NEW), "debian:12", feeds) == {}
    assert fixed_by(DebianChange(old=OLD, new=None), "debian:12", feeds) == {}
    assert fixed_by(DebianChange(old=OLD, new=NEW), "debian:12", Feeds()) == {}


def test_what_another_file_has_as_open_is_not_fixed(tmp_path: Path) -> None:
    content = json.loads(TRACKER.read_text())
    content["sealwax"]["CVE-2026-1001"]["releases"]["bookworm"] = {"status": "open", "urgency": "high"}
    (tmp_path / "tracker.json").write_text(json.dumps(content))
    feeds = read_feeds([str(tmp_path), str(OSV)])
    assert list(fixed_by(DebianChange(old=OLD, new=NEW), "debian:12", feeds)) == ["CVE-2026-1004"]


def test_the_most_severe_vulnerability_comes_first() -> None:
    fixed = fixed_by(DebianChange(old=OLD, new=NEW), "debian:12", read_feeds([str(TRACKER), str(OSV)]))
    assert list(fixed.items()) == [("CVE-2026-1001", Severity.CRITICAL), ("CVE-2026-1004", Severity.UNKNOWN)]


def test_a_line_names_five_vulnerabilities_and_counts_the_rest() -> None:
    assert with_numbers("a 1 -> 2", {}) == "a 1 -> 2"
    assert with_numbers("a 1 -> 2", {"CVE-1": Severity.HIGH}) == "a 1 -> 2: CVE-1 high"
    many = {f"CVE-{number}": Severity.LOW for number in range(7)}
    assert with_numbers("a 1 -> 2", many).endswith("CVE-4 low, and 2 more")
