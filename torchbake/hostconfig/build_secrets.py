"""The host's settings, handed to a build as secrets: files that exist while a step runs and nowhere else."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from torchbake.core.files import in_memory
from torchbake.hostconfig.apt_config import AptConfig, apt_conf
from torchbake.hostconfig.apt_sources import archive_of
from torchbake.hostconfig.pip_config import PipConfig, is_remote
from torchbake.hostconfig.uv_config import uv_toml
from torchbake.matrix.spec import BaseSpec, ImageSpec, Spec

CA = "/run/secrets/ca"  # where BuildKit puts the secret `ca` inside a step


def secret_texts(pip: PipConfig, apt: AptConfig, spec: Spec) -> dict[str, str]:
    """The secrets of an image's build by id; only those the host has something to say in."""
    known = replace(reached(pip), cert=CA if pip.cert else "")
    texts = {
        "pip-conf": _pip_conf(known),
        "uv-toml": uv_toml(known),
        "indexes": "".join(f"{url}\n" for url in pip.instead(spec)) if isinstance(spec, ImageSpec) else "",
        **apt_secrets(pip, apt, spec.base),
    }
    return {name: text for name, text in texts.items() if text}


def apt_secrets(pip: PipConfig, apt: AptConfig, base: BaseSpec) -> dict[str, str]:
    """What a step with apt is told, by the secrets' ids; empty texts where the host has nothing to say."""
    named = apt.ubuntu_mirror if base.distribution == "ubuntu" else apt.mirror
    archive = archive_of(base.distribution, _reachable(apt))
    return {
        "apt-conf": apt_conf(apt, ca=CA if pip.cert else None),
        "apt-sources": archive.sources(base.suite) if is_remote(named) else "",
    }


@contextmanager
def secret_files(pip: PipConfig, apt: AptConfig, specs: Iterable[Spec]) -> Iterator[dict[str, dict[str, Path]]]:
    """Secret files by image and id, as `files_of` gives them."""
    with ExitStack() as opened:
        yield {spec.id: opened.enter_context(files_of(secret_texts(pip, apt, spec), pip)) for spec in specs}


@contextmanager
def files_of(texts: Mapping[str, str], pip: PipConfig) -> Iterator[dict[str, Path]]:
    """Files `in_memory` of secrets by id, and the file of the host's certificates. An empty text gets no file."""
    certificates = {"ca": Path(pip.cert)} if pip.cert and Path(pip.cert).is_file() else {}
    with ExitStack() as opened:
        yield certificates | {name: opened.enter_context(in_memory(text)) for name, text in texts.items() if text}


def reached(pip: PipConfig) -> PipConfig:
    """What of the host's settings means something inside a build, or on another machine: no folder, no file."""
    index, *extra = _indexes(pip)
    return replace(
        pip,
        index_url=index,
        extra_index_urls=tuple(extra),
        find_links=tuple(filter(is_remote, pip.find_links)),
        no_index=pip.no_index or (bool(pip.index_url) and not any((index, *extra))),
        cert="",
    )


def _pip_conf(pip: PipConfig) -> str:
    lines = {
        "index-url": pip.index_url,
        "extra-index-url": " ".join(pip.extra_index_urls),
        "find-links": " ".join(pip.find_links),
        "trusted-host": " ".join(pip.trusted_hosts),
        "cert": pip.cert,
        "no-index": "true" if pip.no_index else "",
    }
    body = "".join(f"{key} = {value}\n" for key, value in lines.items() if value)
    return f"[global]\n{body}" if body else ""


def _indexes(pip: PipConfig) -> list[str]:
    """The main index ("" is pip's default) and the others that a build can reach.

    In place of a folder of this host, whose wheels come as a context, the next index becomes the main one:
    a build never asks the public index where the host does not.
    """
    extra = list(filter(is_remote, pip.extra_index_urls))
    if not pip.index_url or is_remote(pip.index_url):
        return [pip.index_url, *extra]
    return extra or [""]


def _reachable(apt: AptConfig) -> AptConfig:
    """A mirror in a folder of this host is none for a build."""
    return apt if is_remote(apt.security_mirror) else replace(apt, security_mirror="")
