"""The host's settings, handed to a build as secrets: files that exist while a step runs and nowhere else."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from torchbake.base import apt_conf, debian_sources
from torchbake.mirrors import AptConfig, PipConfig, is_remote

CA = "/run/secrets/ca"  # where BuildKit puts the secret `ca` inside a step


def secret_texts(pip: PipConfig, apt: AptConfig, suite: str) -> dict[str, str]:
    """The secrets of a build by id; only those the host has something to say in."""
    texts = {
        "pip-conf": _pip_conf(pip),
        "uv-toml": _uv_toml(pip),
        "apt-conf": apt_conf(apt, ca=CA if pip.cert else None),
        "apt-sources": debian_sources(suite, _reachable(apt)) if is_remote(apt.mirror) else "",
    }
    return {name: text for name, text in texts.items() if text}


@contextmanager
def secret_files(pip: PipConfig, apt: AptConfig, suites: set[str]) -> Iterator[dict[str, dict[str, Path]]]:
    """Secret files by suite and id, in a folder that only this user can read and that goes afterwards."""
    with TemporaryDirectory(prefix="torchbake-secrets-") as folder:
        files: dict[str, dict[str, Path]] = {}
        for suite in suites:
            files[suite] = {"ca": Path(pip.cert)} if pip.cert and Path(pip.cert).is_file() else {}
            for name, text in secret_texts(pip, apt, suite).items():
                path = Path(folder, f"{suite}-{name}")
                path.write_text(text)
                files[suite][name] = path
        yield files


def _pip_conf(pip: PipConfig) -> str:
    index, *extra = _indexes(pip)
    lines = {
        "index-url": index,
        "extra-index-url": " ".join(extra),
        "find-links": " ".join(filter(is_remote, pip.find_links)),
        "trusted-host": " ".join(pip.trusted_hosts),
        "cert": CA if pip.cert else "",
        "no-index": "true" if _nothing_remote(pip) else "",
    }
    body = "".join(f"{key} = {value}\n" for key, value in lines.items() if value)
    return f"[global]\n{body}" if body else ""


def _uv_toml(pip: PipConfig) -> str:
    # A JSON string or list of strings is the same in TOML.
    index, *extra = _indexes(pip)
    lines: dict[str, object] = {
        "index-url": index,
        "extra-index-url": extra,
        "find-links": list(filter(is_remote, pip.find_links)),
        "allow-insecure-host": list(pip.trusted_hosts),
        "no-index": _nothing_remote(pip),
    }
    written = {key: value for key, value in lines.items() if value}
    if "extra-index-url" in written:
        written["index-strategy"] = "unsafe-best-match"
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in written.items())


def _indexes(pip: PipConfig) -> list[str]:
    """The main index ("" is pip's default) and the others that a build can reach.

    In place of a folder of this host, whose wheels come as a context, the next index becomes the main one:
    a build never asks the public index where the host does not.
    """
    extra = list(filter(is_remote, pip.extra_index_urls))
    if not pip.index_url or is_remote(pip.index_url):
        return [pip.index_url, *extra]
    return extra or [""]


def _nothing_remote(pip: PipConfig) -> bool:
    return pip.no_index or (bool(pip.index_url) and not any(_indexes(pip)))


def _reachable(apt: AptConfig) -> AptConfig:
    """A mirror in a folder of this host is none for a build."""
    return apt if is_remote(apt.security_mirror) else replace(apt, security_mirror="")
