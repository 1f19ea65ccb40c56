"""Print the certificates added to the system's, and the certificates that Python trusts, as one JSON document."""

# Probes look at thousands of paths, and as text they are several times as fast.
# ruff: noqa: PTH118, PTH123

import hashlib
import json
import os
import ssl
import sys

FOLDER = "/usr/local/share/ca-certificates"


def digest(pem: str) -> str:
    """Return a certificate's fingerprint as `openssl x509 -fingerprint -sha256` prints it; empty for other text."""
    begin = pem.find("-----BEGIN CERTIFICATE-----")
    try:
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem[begin:].strip())).hexdigest() if begin >= 0 else ""
    except ValueError:
        return ""


def added() -> dict[str, str]:
    """The certificates of the system's folder for others, by name."""
    matches = {}
    for folder, _, names in os.walk(FOLDER):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, errors="replace") as file:
                matches[os.path.relpath(path, FOLDER)] = digest(file.read())
    return matches


if __name__ == "__main__":
    trusted = ssl.create_default_context().get_ca_certs(binary_form=True)
    json.dump({"added": added(), "python": [hashlib.sha256(one).hexdigest() for one in trusted]}, sys.stdout)
