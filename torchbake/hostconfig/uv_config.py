"""The host's pip settings as uv's configuration file. An argument would show a password to every process."""

import json
from urllib.parse import urlsplit

from torchbake.hostconfig.pip_config import PipConfig, local_folder


def uv_toml(pip: PipConfig) -> str:
    """Return the text of a uv.toml; "" if pip has only default settings."""
    own = [str(pip.wheels.absolute())] if pip.wheels and pip.wheels.is_dir() else []
    # A JSON string or list of strings is the same in TOML.
    lines: dict[str, object] = {
        "index-url": _absolute(pip.index_url),
        "extra-index-url": [_absolute(url) for url in pip.extra_index_urls],
        "find-links": [*(_absolute(place) for place in pip.find_links), *own],
        "allow-insecure-host": list(pip.trusted_hosts),
        "no-index": pip.no_index,
    }
    outputs = {key: value for key, value in lines.items() if value}
    if "extra-index-url" in outputs:
        # pip takes the best version of all indexes; uv by default the best one of the first index that has the name.
        outputs["index-strategy"] = "unsafe-best-match"
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in outputs.items())


def _absolute(place: str) -> str:
    """Make a folder absolute: uv resolves a relative one from the folder of its configuration file."""
    folder = None if not place or urlsplit(place).scheme else local_folder(place)
    return str(folder.absolute()) if folder else place
