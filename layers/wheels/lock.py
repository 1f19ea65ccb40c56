"""Splits a lock into a list for each layer."""

import re
from collections.abc import Collection

_LINE = re.compile(r"(?:[a-z0-9-]+==[0-9][0-9A-Za-z.!+]*|    --hash=sha256:[0-9a-f]{64})(?: \\)?")


def split_lock(text: str, needs: Collection[str] = ()) -> dict[str, str]:
    """Return each layer's part of the lock, without comments, so that a changed comment causes no build.

    Packages of the layer ``site`` that ``needs`` names become the part ``needs``. Raises ValueError for a line that is
    neither a pin nor a hash, such as an option, which the installer would obey.
    """
    sections = re.split(r"^# --- layer (\w+)\n", text, flags=re.MULTILINE)[1:]
    parts: dict[str, str] = {}
    for name, body in zip(sections[::2], sections[1::2], strict=True):
        lines = [line for line in body.splitlines() if not line.lstrip().startswith("#")]
        strange = next((line for line in lines if not _LINE.fullmatch(line)), None)
        if strange is not None:
            raise ValueError(f"a lock holds no such line: {strange!r}")
        parts[name] = "".join(f"{line}\n" for line in lines)
    if needs:
        pins = re.findall(r"^\S.*\n(?: .*\n)*", parts["site"], flags=re.MULTILINE)
        parts["needs"] = "".join(pin for pin in pins if pin.partition("==")[0] in needs)
        parts["site"] = "".join(pin for pin in pins if pin.partition("==")[0] not in needs)
    return parts
