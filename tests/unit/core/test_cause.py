"""Why a tool failed: what apt, pip, uv, mmdebstrap and compilers really wrote, and the one line that tells."""

import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchbake.build.buildkit_progress import Progress, events
from torchbake.core.cause import cause_of, cause_of_request

# BuildKit's reports of real failed builds (docker 26.1, buildx 0.13), without the successful steps.
FAILURES = Path(__file__).parents[1] / "failures"


@pytest.mark.parametrize(
    ("name", "causes"),
    [
        ("apt", ["E: Unable to locate package no-such-package"]),
        (
            "offline",
            [
                "W: Failed to fetch http://deb.debian.org/debian/dists/bookworm/InRelease Temporary failure resolving"
                " 'deb.debian.org'; E: Unable to locate package hello"
            ],
        ),
        ("full", ["dd: error writing '/x/a': No space left on device"]),
        ("both", ["E: Unable to locate package no-such-package"]),
        ("silent", ['process "/bin/sh -c false" did not complete successfully: exit code: 1']),
    ],
)
def test_a_failed_build_is_told_in_its_tools_own_words(name: str, causes: list[str]) -> None:
    progress = Progress()
    with (FAILURES / f"{name}.jsonl").open() as lines:
        for event in events(lines):
            assert isinstance(event, dict)
            progress.feed(event)
    assert progress.causes == causes


def test_a_step_that_is_no_command_is_told_in_buildkits_words() -> None:
    progress = Progress()
    with (FAILURES / "copy.jsonl").open() as lines:
        for event in events(lines):
            assert isinstance(event, dict)
            progress.feed(event)
    (cause,) = progress.causes
    assert cause.endswith('"/nothing-here": not found')


UV_MISSING = """\
Using Python 3.11.2 environment at: /opt/pytorch
error: No solution found when resolving dependencies
  cause: Because there is no version of filelock==99.0 and you require filelock==99.0, we can conclude that your \
requirements are unsatisfiable.
"""
UV_HASH = """\
Resolved 1 package in 233ms
error: Failed to download `filelock==3.16.0`
  cause: Hash mismatch for `filelock==3.16.0`

         Expected:
           sha256:0000

         Computed:
           sha256:f6ed
Traceback (most recent call last):
  File "/run/wheels.py", line 324, in main
subprocess.CalledProcessError: Command '['/opt/uv/bin/uv', 'pip']' returned non-zero exit status 1.
"""
UV_OFFLINE = """\
error: Request failed after 3 retries in 11.1s
  cause: Failed to fetch: http://127.0.0.1:9/simple/no-such-package-zz9/
  cause: error sending request for url (http://127.0.0.1:9/simple/no-such-package-zz9/)
  cause: client error (Connect)
  cause: tcp connect error
  cause: Connection refused (os error 111)
"""
PIP_MISSING = """\
Looking in links: /run/wheels
ERROR: Could not find a version that satisfies the requirement uv==0.9.99 (from versions: 0.0.5, 0.1.0, 0.13.9)
ERROR: No matching distribution found for uv==0.9.99
"""
PIP_HASH = """\
Collecting uv==0.9.5 (from -r u.txt (line 1))
ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated the package versions.
    uv==0.9.5 from https://files.pythonhosted.org/packages/9b/uv-0.9.5.whl (from -r u.txt (line 1)):
        Expected sha256 0000
             Got        6507

"""
MIRROR = """\
I: running apt-get update...
Ign:1 http://127.0.0.1:9/debian bookworm InRelease
Err:1 http://127.0.0.1:9/debian bookworm InRelease
  Could not connect to 127.0.0.1:9 (127.0.0.1). - connect (111: Connection refused)
Reading package lists...
E: Failed to fetch http://127.0.0.1:9/debian/dists/bookworm/InRelease  Could not connect to 127.0.0.1:9
E: Some index files failed to download. They have been ignored, or old ones used instead.
E: apt-get update --error-on=any -oAPT::Status-Fd=<$fd> -oDpkg::Use-Pty=false failed
I: main() received signal PIPE: waiting for setup...
E: mmdebstrap failed to run
"""
SUITE = """\
Err:2 http://deb.debian.org/debian nosuchsuite Release
  404  Not Found [IP: 203.0.113.80 80]
E: The repository 'http://deb.debian.org/debian nosuchsuite Release' does not have a Release file.
E: apt-get update --error-on=any -oAPT::Status-Fd=<$fd> -oDpkg::Use-Pty=false failed
E: mmdebstrap failed to run
"""
KEYRING = """\
Get:1 http://deb.debian.org/debian bookworm InRelease [151 kB]
Err:1 http://deb.debian.org/debian bookworm InRelease
  The following signatures couldn't be verified because the public key is not available: NO_PUBKEY 6ED0E7B82643E131
W: GPG error: http://deb.debian.org/debian bookworm InRelease: The public key is not available: NO_PUBKEY 6ED0E7B8
E: The repository 'http://deb.debian.org/debian bookworm InRelease' is not signed.
E: mmdebstrap failed to run
"""
DPKG = """\
Unpacking g++ (4:12.2.0-3) ...
dpkg: error processing archive /var/cache/apt/archives/g++.deb (--unpack):
 cannot copy extracted data for './usr/bin/g++' to '/usr/bin/g++.dpkg-new': failed to write (No space left on device)
Errors were encountered while processing:
 /var/cache/apt/archives/g++.deb
E: Sub-process /usr/bin/dpkg returned an error code (1)
"""
GCC = """\
/run/entrypoints/volume-permissions.c: In function 'main':
/run/entrypoints/volume-permissions.c:7:5: error: unknown type name 'itn'; did you mean 'int'?
    7 |     itn x;
      |     ^~~
      |     int
cc1: all warnings being treated as errors
"""


def test_the_first_line_that_says_why() -> None:
    for output, cause in (
        (
            UV_MISSING,
            "error: No solution found when resolving dependencies cause: Because there is no version of "
            "filelock==99.0 and you require filelock==99.0, we can conclude that your requirements are "
            "unsatisfiable.",
        ),
        (
            UV_HASH,
            "error: Failed to download `filelock==3.16.0` cause: Hash mismatch for `filelock==3.16.0` Expected: "
            "sha256:0000 Computed: sha256:f6ed",
        ),
        (
            UV_OFFLINE,
            "error: Request failed after 3 retries in 11.1s cause: Failed to fetch: http://127.0.0.1:9/simple/"
            "no-such-package-zz9/ cause: error sending request for url (http://127.0.0.1:9/simple/"
            "no-such-package-zz9/) cause: client error (Connect) cause: tcp connect error cause: Connection "
            "refused (os error 111)",
        ),
        (PIP_MISSING, "ERROR: Could not find a version that satisfies the requirement uv==0.9.99"),
        (
            PIP_HASH,
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated the "
            "package versions. uv==0.9.5 from https://files.pythonhosted.org/packages/9b/uv-0.9.5.whl (from -r "
            "u.txt (line 1)): Expected sha256 0000 Got 6507",
        ),
        (
            MIRROR,
            "E: Failed to fetch http://127.0.0.1:9/debian/dists/bookworm/InRelease Could not connect to 127.0.0.1:9",
        ),
        (SUITE, "E: The repository 'http://deb.debian.org/debian nosuchsuite Release' does not have a Release file."),
        (
            KEYRING,
            "W: GPG error: http://deb.debian.org/debian bookworm InRelease: The public key is not available: "
            "NO_PUBKEY 6ED0E7B8; E: The repository 'http://deb.debian.org/debian bookworm InRelease' is not "
            "signed.",
        ),
        (
            DPKG,
            "dpkg: error processing archive /var/cache/apt/archives/g++.deb (--unpack): cannot copy extracted data "
            "for './usr/bin/g++' to '/usr/bin/g++.dpkg-new': failed to write (No space left on device)",
        ),
        ("ValueError: a lock holds no such line: 'x'\n", "ValueError: a lock holds no such line: 'x'"),
        ("Reading package lists...\nno errors here\n", ""),
        ("", ""),
    ):
        assert cause_of(textwrap.dedent(output).splitlines()) == cause, (output, cause)


def test_a_compilers_error_is_found_below_its_file() -> None:
    assert cause_of(GCC.splitlines()).startswith("/run/entrypoints/volume-permissions.c:7:5: error: unknown type name")


@given(st.lists(st.text() | st.sampled_from(["E: ", "error: x", "  y", "W: GPG error", "ERROR: "])))
def test_any_lines_have_one_line_as_their_cause(lines: list[str]) -> None:
    cause = cause_of(lines)
    assert len(cause) <= 600
    assert "\n" not in cause


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ('ERROR: failed to do request: Head "https://a/v2/x": dial tcp 127.0.0.1:1: connect: connection refused',
         "connection refused"),
        ('ERROR: failed to do request: Head "https://a/v2/x": EOF', "the connection was closed"),
        ('ERROR: failed to do request: Head "https://a/v2/x": context deadline exceeded (Client.Timeout exceeded)',
         "no answer in time"),
        ("ERROR: unexpected status from HEAD request to https://a/v2/x: 403 Forbidden", "403 Forbidden"),
        ("ERROR: docker.io/library/debian:x: not found", "not found"),
        ("docker is not installed", "docker is not installed"),
        ("", ""),
    ],
)  # fmt: skip
def test_the_cause_of_a_request_is_its_last_step(line: str, cause: str) -> None:
    assert cause_of_request(line) == cause
