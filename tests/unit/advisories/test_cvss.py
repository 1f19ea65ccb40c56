"""Severities of CVSS vectors, with the scores of FIRST's examples."""

import pytest

from torchbake.advisories.cvss import severity_of_vectors
from torchbake.advisories.finding import Severity

V2 = "AV:N/AC:L/Au:N/C:C/I:C/A:C"  # 10.0
V3 = "CVSS:3.1/AV:L/AC:L/PR:L/UI:N/S:U/C:L/I:N/A:N"  # 3.3
V4 = "CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:H/SI:H/SA:H"  # 10.0
LOCAL = "CVSS:3.1/AV:P/AC:L/PR:L/UI:N/S:U/C:L/I:N/A:N"  # later in the alphabet than HIGHEST
HIGHEST = "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"  # 9.8
NONE = "CVSS:3.1/AV:L/AC:L/PR:L/UI:N/S:U/C:N/I:N/A:N"  # 0.0


@pytest.mark.parametrize(
    ("vectors", "severity"),
    [
        ([V2], Severity.HIGH),
        ([V3], Severity.LOW),
        ([V4], Severity.CRITICAL),
        ([V2, V3, V4], Severity.CRITICAL),
        ([V2, V3], Severity.LOW),
        ([HIGHEST, LOCAL], Severity.CRITICAL),
        ([LOCAL, HIGHEST, V2], Severity.CRITICAL),
        ([NONE], Severity.NEGLIGIBLE),
        (["CVSS:3.1/AV:N"], Severity.UNKNOWN),
        (["CVSS:5.0/AV:N", V3], Severity.LOW),
        (["high"], Severity.UNKNOWN),
        ([], Severity.UNKNOWN),
    ],
)
def test_the_newest_vector_decides(vectors: list[str], severity: Severity) -> None:
    assert severity_of_vectors(vectors) is severity
