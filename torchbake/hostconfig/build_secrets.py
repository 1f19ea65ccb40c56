"""The host's settings as secrets of a build: files that exist only while a step runs."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from torchbake.core.files import in_memory
from torchbake.hostconfig.apt_archives import archive_of
from torchbake.hostconfig.apt_config import AptConfig, apt_conf
from torchbake.hostconfig.pip_config import PipConfig, is_remote
from torchbake.hostconfig.uv_config import uv_toml
from torchbake.matrix.spec import BaseSpec, ImageSpec, Spec

CA = "/run/secrets/ca"  # where BuildKit puts the secret `ca` inside a step


def secret_texts(pip: PipConfig, apt: AptConfig, spec: Spec) -> dict[str, str]:
    """Return the secrets of an image's build by their ids; a setting that the host does not make has no secret."""
    usable = replace(reached(pip.for_image(spec)), cert=CA if pip.cert else "")
    texts = {
        "pip-conf": _pip_conf(usable),
        "uv-toml": uv_toml(usable),
        "indexes": "".join(f"{url}\n" for url in pip.instead(spec)) if isinstance(spec, ImageSpec) else "",
        **apt_secrets(pip, apt, spec.base),
    }
    return {name: text for name, text in texts.items() if text}


def apt_secrets(pip: PipConfig, apt: AptConfig, base: BaseSpec) -> dict[str, str]:
    """Return the secrets of a step that calls apt, by their ids; "" for a setting that the host does not make."""
    mirror = apt.ubuntu_mirror if base.distribution == "ubuntu" else apt.mirror
    # A build cannot reach a mirror in a folder of this host.
    reachable = apt if is_remote(apt.security_mirror) else replace(apt, security_mirror="")
    sources = archive_of(base.distribution, reachable).sources(base.suite) if is_remote(mirror) else ""
    return {"apt-conf": apt_conf(apt, ca=CA if pip.cert else None), "apt-sources": sources}


@contextmanager
def secret_files(pip: PipConfig, apt: AptConfig, specs: Iterable[Spec]) -> Iterator[dict[str, dict[str, Path]]]:
    """Yield the paths of secret files by image and id, as `files_of` makes them."""
    with ExitStack() as opened:
        yield {spec.id: opened.enter_context(files_of(secret_texts(pip, apt, spec), pip)) for spec in specs}


@contextmanager
def files_of(texts: Mapping[str, str], pip: PipConfig) -> Iterator[dict[str, Path]]:
    """Yield the paths of `in_memory` files of secrets by id, and of the host's certificates. "" gets no file."""
    certificates = {"ca": Path(pip.cert)} if pip.cert and Path(pip.cert).is_file() else {}
    with ExitStack() as opened:
        yield certificates | {name: opened.enter_context(in_memory(text)) for name, text in texts.items() if text}


def reached(pip: PipConfig) -> PipConfig:
    """Return pip's settings without folders and files of this host, for a build or another machine.

    If the host's main index is a folder, the next index takes its place: a build never asks the public index when the
    host does not. Wheels of folders reach a build as a named context.
    """
    extra = list(filter(is_remote, pip.extra_index_urls))
    remote = not pip.index_url or is_remote(pip.index_url)
    index, *others = [pip.index_url, *extra] if remote else (extra or [""])
    return replace(
        pip,
        index_url=index,
        extra_index_urls=tuple(others),
        find_links=tuple(filter(is_remote, pip.find_links)),
        no_index=pip.no_index or (bool(pip.index_url) and not any((index, *others))),
        cert="",
        wheels=None,
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
