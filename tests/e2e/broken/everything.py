"""Every broken image by its check."""

from tests.e2e.broken import (
    Broken,
    files,
    libraries,
    metadata,
    own,
    parts,
    process,
    python,
    smoke,
    users,
    volume_permissions,
)

BROKEN: dict[str, Broken] = {
    **metadata.BROKEN,
    **files.BROKEN,
    **own.BROKEN,
    **users.BROKEN,
    **python.BROKEN,
    **libraries.BROKEN,
    **parts.BROKEN,
    **process.BROKEN,
    **volume_permissions.BROKEN,
    **smoke.BROKEN,
}
