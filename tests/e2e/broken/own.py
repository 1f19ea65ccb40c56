"""Images that lack what their row adds, or have what it does not."""

from tests.e2e.broken import Broken

BROKEN = {
    "own.certificates": Broken(
        what="somebody's certificate is among those that the system trusts",
        commands=("install -D -m 0644 /etc/ssl/certs/ISRG_Root_X1.pem /usr/local/share/ca-certificates/x.crt",),
    ),
    "own.files": Broken(
        what="a file of the matrix is there, but not as it is now",
        row="files: [{source: job.yaml, target: /etc/acme/job.yaml}]",
        beside={"job.yaml": "steps: 2\n"},
        copies={"/etc/acme/job.yaml": "steps: 1\n"},
    ),
}
