"""Small reports of scanners on one image, as values, in the forms that the scanners write."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CONFIG, MANIFEST, LAYER, OTHER = (f"sha256:{letter * 64}" for letter in "abcd")
NAME = "acme/pytorch:cpu"
SSL = {"id": "CVE-2026-1001", "package": "libssl3", "version": "3.0.17-1", "fixed": "3.0.18-1", "severity": "High"}
JINJA = {"id": "CVE-2026-1002", "package": "Jinja2", "version": "3.1.5", "fixed": "", "severity": "Medium"}


def trivy(**changes: Any) -> dict[str, Any]:
    """The JSON of `trivy image`: a Debian package with a fix, and a Python package without."""
    os_found = {
        "VulnerabilityID": SSL["id"],
        "VendorIDs": ["DSA-9001-1"],
        "PkgID": "libssl3@3.0.17-1",
        "PkgName": SSL["package"],
        "InstalledVersion": SSL["version"],
        "FixedVersion": SSL["fixed"],
        "Status": "fixed",
        "Severity": "HIGH",
        "PublishedDate": "2026-10-01T12:15:00.123456789Z",
    }
    python_found = {
        "VulnerabilityID": JINJA["id"],
        "PkgName": JINJA["package"],
        "InstalledVersion": JINJA["version"],
        "Severity": "MEDIUM",
        "PublishedDate": "0001-01-01T00:00:00Z",
    }
    return {
        "SchemaVersion": 2,
        "ArtifactName": NAME,
        "ArtifactType": "container_image",
        "Metadata": {
            "OS": {"Family": "debian", "Name": "12.12"},
            "ImageID": CONFIG,
            "DiffIDs": [LAYER],
            "RepoTags": [NAME],
            "RepoDigests": [f"acme/pytorch@{MANIFEST}"],
        },
        "Results": [
            {"Target": f"{NAME} (debian 12.12)", "Class": "os-pkgs", "Type": "debian", "Vulnerabilities": [os_found]},
            {"Target": "Python", "Class": "lang-pkgs", "Type": "python-pkg", "Vulnerabilities": [python_found]},
            {"Target": "usr/bin/tool", "Class": "lang-pkgs", "Type": "gobinary"},
            {"Target": "key.pem", "Class": "secret", "Secrets": []},
        ],
        **changes,
    }


def grype(**changes: Any) -> dict[str, Any]:
    """The JSON of `grype`, with a GHSA that has a CVE number, and a match that a setting of Grype ignores."""
    return {
        "matches": [
            {
                "vulnerability": {
                    "id": SSL["id"],
                    "severity": "High",
                    "fix": {
                        "versions": [SSL["fixed"]],
                        "state": "fixed",
                        "available": [{"version": SSL["fixed"], "date": "2026-10-20", "kind": "advisory"}],
                    },
                    "advisories": [{"id": "DSA-9001-1", "link": "https://example.com"}],
                },
                "relatedVulnerabilities": [{"id": SSL["id"], "namespace": "nvd:cpe"}],
                "artifact": {"name": SSL["package"], "version": SSL["version"], "type": "deb"},
            },
        ],
        "ignoredMatches": [
            {
                "vulnerability": {"id": "GHSA-aaaa-bbbb-cccc", "severity": "Unknown", "fix": {"state": "not-fixed"}},
                "relatedVulnerabilities": [{"id": JINJA["id"]}],
                "artifact": {"name": JINJA["package"], "version": JINJA["version"], "type": "python"},
                "appliedIgnoreRules": [{"fix-state": "not-fixed"}],
            }
        ],
        "source": {
            "type": "image",
            "target": {
                "userInput": NAME,
                "imageID": CONFIG,
                "manifestDigest": MANIFEST,
                "tags": [NAME],
                "layers": [{"digest": LAYER}],
                "repoDigests": [],
            },
        },
        "descriptor": {"name": "grype", "version": "0.104.0"},
        **changes,
    }


def trivy_sarif(*, properties: Mapping[str, Any] | None = None, rule: str = "OsPackageVulnerability") -> dict[str, Any]:
    """The SARIF of `trivy image`, with a finding of a package and a secret."""
    text = (
        f"Package: libssl3\nInstalled Version: 3.0.17-1\nVulnerability {SSL['id']}\nSeverity: HIGH\n"
        f"Fixed Version: 3.0.18-1\nLink: [{SSL['id']}](https://example.com)"
    )
    place = "opt/venv/lib/python3.11/site-packages/a-1.dist-info/METADATA: a@1"
    return {
        "version": "2.1.0",
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "Trivy",
                        "rules": [
                            {"id": SSL["id"], "name": rule, "properties": {"security-severity": "7.5"}},
                            {"id": "aws-key", "name": "Secret"},
                        ],
                    }
                },
                "results": [
                    {"ruleId": SSL["id"], "message": {"text": text}, "locations": [{"message": {"text": place}}]},
                    {"ruleId": "aws-key", "message": {"text": "Artifact: key.pem\nSecret key\nSeverity: HIGH"}},
                ],
                "properties": {"imageName": NAME, "repoTags": [NAME], "repoDigests": None, "imageID": CONFIG}
                if properties is None
                else properties,
            }
        ],
    }


def grype_sarif(
    *, image: str = f"acme/pytorch@{MANIFEST}", severity: str = "high", score: Any = "7.0"
) -> dict[str, Any]:
    """The SARIF of `grype`, whose places have the digests of layers."""
    help_text = (
        f"Vulnerability {SSL['id']}\nSeverity: {severity}\nPackage: libssl3\nVersion: 3.0.17-1\nFix Version: 3.0.18-1\n"
        f"Type: deb\nLocation: var/lib/dpkg/status\nData Namespace: debian:distro:debian:12\nLink: {SSL['id']}"
    )
    message = f"A {severity} vulnerability in deb package: libssl3, version 3.0.17-1 was found in image {image} at: var"
    rule = {"id": f"{SSL['id']}-libssl3", "help": {"text": help_text}, "properties": {"security-severity": score}}
    place = {"logicalLocations": [{"fullyQualifiedName": f"{image}@{LAYER}:/var/lib/dpkg/status"}]}
    result = {"ruleId": rule["id"], "message": {"text": message}, "locations": [place]}
    return {
        "version": "2.1.0",
        "$schema": "https://json.schemastore.org/sarif-2.1.0-rtm.5.json",
        "runs": [{"tool": {"driver": {"name": "grype", "rules": [rule]}}, "results": [result]}],
    }


def cyclonedx(**changes: Any) -> dict[str, Any]:
    """The CycloneDX of `trivy image --scanners vuln`: sources differ about the severity."""
    ssl, jinja = "pkg:deb/debian/libssl3@3.0.17-1?arch=amd64&distro=debian-12", "pkg:pypi/jinja2@3.1.5"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "metadata": {
            "tools": {"components": [{"type": "application", "name": "trivy", "version": "0.65.0"}]},
            "component": {
                "bom-ref": f"pkg:oci/pytorch@sha256%3A{MANIFEST[7:]}",
                "type": "container",
                "name": NAME,
                "purl": f"pkg:oci/pytorch@sha256%3A{MANIFEST[7:]}?arch=amd64",
                "properties": [
                    {"name": "aquasecurity:trivy:ImageID", "value": CONFIG},
                    {"name": "aquasecurity:trivy:DiffID", "value": LAYER},
                ],
            },
        },
        "components": [
            {"bom-ref": ssl, "type": "library", "name": "libssl3", "version": "3.0.17-1", "purl": ssl},
            {"bom-ref": "a1", "type": "library", "name": "jinja2", "version": "3.1.5", "purl": jinja},
        ],
        "vulnerabilities": [
            {
                "id": SSL["id"],
                "source": {"name": "debian", "url": "https://example.com"},
                "ratings": [
                    {"source": {"name": "nvd"}, "score": 9.8, "severity": "critical", "method": "CVSSv31"},
                    {"source": {"name": "debian"}, "severity": "high"},
                ],
                "published": "2026-10-01T12:15:00+00:00",
                "recommendation": "Upgrade libssl3 to version 3.0.18-1",
                "affects": [{"ref": ssl, "versions": [{"version": "3.0.17-1", "status": "affected"}]}],
            },
            {
                "id": JINJA["id"],
                "ratings": [
                    {"score": 0.9, "method": "other"},
                    {"score": 5.3, "method": "CVSSv3"},
                ],
                "affects": [{"ref": "a1"}],
            },
        ],
        **changes,
    }


def vex(state: str = "not_affected", *, ref: str = "") -> dict[str, Any]:
    """A VEX document about the image, or about a package of it."""
    image = f"pkg:oci/pytorch@{MANIFEST}"
    analysis = {"state": state, "justification": "code_not_reachable", "detail": "no server runs"}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "metadata": {"component": {"bom-ref": image, "type": "container", "name": "acme/pytorch", "version": MANIFEST}},
        "vulnerabilities": [{"id": SSL["id"], "analysis": analysis, "affects": [{"ref": ref or image}]}],
    }


def write(folder: Path, name: str, report: Mapping[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(json.dumps(report))
    return path
