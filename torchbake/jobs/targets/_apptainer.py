"""Shell lines of a Slurm script that make files of images for Apptainer, once for all nodes and jobs. Pure.

A file is made under another name and renamed, so no node reads a part of it. Its name has the digest of the image. A
lock keeps a second job from doing the same work at the same time. On file systems without locks both jobs do it. The
last modification of a file is the time of its last use.

Sources: https://apptainer.org/docs/user/latest/cli/apptainer_build.html and bind_paths_and_mounts.html ("Image
Mounts"); flock(1)
"""

import re
import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

from torchbake.core.paths import JOB_FOLDER
from torchbake.jobs.task import SplitImage

# zstd is read as fast as the default, and written in an eighth of its time.
_FAST = 'export APPTAINER_MKSQUASHFS_ARGS="${APPTAINER_MKSQUASHFS_ARGS--comp zstd -Xcompression-level 1}"'
# The descriptor of the lock is closed for the command, so that only the shell itself holds the lock.
_ONCE = """\
# once FILE FUNCTION: let the function make the file, unless another job has made it
once() {{
    if [ -e "$1" ]; then
        touch -c "$1" 2> /dev/null || true
        return
    fi
    part="$1.part-$SLURM_JOB_ID"
    (
        flock 9 2> /dev/null && rm -rf "$1".part-*
        [ -e "$1" ] || {{ "$2" "$part" 9>&- && sync "$part" && mv "$part" "$1"; }}
    ) 9> "$1.lock" && rm -f "$1.lock" && return
    free=$(df -h --output=avail "${{1%/*}}" | tail -n 1 | tr -d ' ') || free=unknown
    rm -rf "$part"
    echo {name}": $1 cannot be made: the reason is above. Free there: $free." >&2
    exit 1
}}"""
_CONVERT = """\
convert() {{
    apptainer build --force "$1" {source}
}}"""
# Apptainer mounts no SIF file over a folder, but a plain squashfs file.
_UNPACK = """\
unpack() {{
    folder=$(mktemp -d) || return
    trap 'rm -rf "$folder"' EXIT
    apptainer --silent build --disable-cache --sandbox "$folder/code" {source} || return
    # shellcheck disable=SC2086 # several words
    PATH="$PATH:/usr/local/sbin:/usr/sbin" mksquashfs "$folder/code"{at} "$1" -all-root -noappend -no-progress -quiet \\
        $APPTAINER_MKSQUASHFS_ARGS
}}"""
_FREE = """\
is_free() {{
    apptainer --silent exec --no-mount home,cwd "$image" sh -c \\
        '[ ! -d {at} ] || [ -z "$(ls -A {at})" ] || exit 3' && : > "$1" && return
    [ $? -ne 3 ] || echo {name}": the image has files in {at}, which the code would hide: take them out." >&2
    return 1
}}"""


def made_once(name: str, image: str) -> list[str]:
    """Return the lines that make the SIF file ``$image`` of an image."""
    convert = _CONVERT.format(source=_source(image))
    return [
        _path("image", sif_of(image)), _FAST, *_once(name), *convert.splitlines(), 'once "$image" convert',
    ]  # fmt: skip


def split_once(name: str, image: str, split: SplitImage) -> list[str]:
    """Return the lines for an image with code: the file of the image below, and ``$files``, the file of the code."""
    free = _FREE.format(name=shlex.quote(name), at=JOB_FOLDER)
    unpack = _UNPACK.format(source=_source(split.code), at=JOB_FOLDER)
    return [
        f"# The image: {image}", *made_once(name, split.base), *free.splitlines(), 'once "$image.free" is_free',
        _path("files", f"code-{_digest(split.code)}.squashfs"), *unpack.splitlines(), 'once "$files" unpack',
        "quote='\"'",
    ]  # fmt: skip


def code_mount() -> str:
    """Return the option that mounts ``$files``, for a command line of the script; Apptainer parses it as CSV."""
    return f'--mount "type=bind,\\"source=${{files//$quote/$quote$quote}}\\",destination={JOB_FOLDER},image-src=/,ro"'


def sif_of(image: str) -> str:
    """Return the file name of an image, with its tag or digest, so that each image has a file."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", PurePosixPath(without_tag(image)).name) + ".sif"


def without_tag(image: str) -> str:
    """Remove the tag of a reference with a digest, since Apptainer does not take both."""
    return re.sub(r":[^:/@]+(?=@)", "", image)


def _once(name: str) -> Sequence[str]:
    return _ONCE.format(name=shlex.quote(name)).splitlines()


def _path(variable: str, file: str) -> str:
    return f'{variable}="${{SLURM_SUBMIT_DIR:?}}/"{shlex.quote(file)}'


def _source(image: str) -> str:
    return shlex.quote(f"docker://{without_tag(image)}")


def _digest(image: str) -> str:
    return image.rpartition("@")[2].replace(":", "-")
