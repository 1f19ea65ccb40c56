"""Let an engine pull images from this process, over 127.0.0.1.

A pull skips layers that the engine has, and verifies each digest. `docker load` sends every layer, and unpacks more
slowly.
"""

import contextlib
import gzip
import io
import secrets
import tarfile
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from torchbake.core.json_text import read_object
from torchbake.core.machine import host_platform
from torchbake.engine import podman
from torchbake.engine.client import Engine
from torchbake.engine.leftovers import LOOPBACK, loopback_path, remove_loopback_names
from torchbake.errors import EngineError
from torchbake.matrix.spec import PLATFORMS
from torchbake.oci.layer_order import Layer, image_of
from torchbake.oci.manifest import Blob, Manifest, sha256
from torchbake.store.layout import Layout
from torchbake.store.layout_server import LayoutServer, serving

_PATIENCE = 10  # seconds for the engine to pull the probe
_NO_LOGIN: dict[str, str] = {}  # with None docker's SDK would ask a credential helper
_GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"
_ELSEWHERE = (
    "The engine cannot pull from this machine's 127.0.0.1, because it is on another machine or in another network: "
    "images are sent by `docker load`, which takes longer."
)


class Loopback:
    """A server from which one engine pulls the images of one run. Thread-safe.

    Each pulled image has a name of this run until `release` or `close`. The name contains this process's owner label,
    so that the next run can remove the names of a killed process.
    """

    def __init__(self, engine: Engine, say: Callable[[str], None]) -> None:
        self._engine, self._say = engine, say
        self._lock, self._naming, self._closing = threading.Lock(), threading.Lock(), contextlib.ExitStack()
        self._started = False
        self._server: LayoutServer | None = None
        self._pulled: dict[str, str] = {}  # names of pulled images, by ID

    def pull(self, layout: Layout, digest: str) -> bool:
        """Let the engine pull an image of a layout. Return False if the engine cannot reach this process.

        Raises EngineError, and BuildError if the image is not in the layout.
        """
        with self._lock:
            if not self._started:
                self._started, self._server = True, self._start()
        if self._server is None:
            return False
        self._pull(self._server, layout, digest)
        return True

    def release(self, digest: str) -> None:
        """Remove the name of a pulled image, and the image if it has no other name.

        ``digest`` is the manifest's, or the image's ID in the engine.
        """
        if self._server is None:
            return
        with self._naming:
            ids = [image for image, name in self._pulled.items() if digest == image or name.endswith(f"@{digest}")]
            names = [self._pulled.pop(image) for image in ids]
        with contextlib.suppress(EngineError):  # the next run removes them
            self._engine.remove(names)

    def close(self) -> None:
        """Remove all remaining names, and end the server."""
        for digest in (*self._pulled,):
            self.release(digest)
        self._closing.close()
        self._server = None

    def _start(self) -> LayoutServer | None:
        """Start the server; return None if the engine does not reach it."""
        with contextlib.suppress(EngineError):
            remove_loopback_names(self._engine)
        try:
            server = self._closing.enter_context(serving(loopback_path(secrets.token_hex(16))))
            if self._reaches(server):
                return server
        except OSError:  # no port
            pass
        self._closing.close()
        self._pulled.clear()
        self._say(_ELSEWHERE)
        return None

    def _reaches(self, server: LayoutServer) -> bool:
        """Check that the engine pulls a small image in time."""
        reached = threading.Event()

        def pull(layout: Layout, digest: str) -> None:
            with contextlib.suppress(EngineError):
                self._pull(server, layout, digest)
                reached.set()

        with tempfile.TemporaryDirectory() as folder:
            layout = Layout(folder=Path(folder))
            # docker's SDK has no time limit for a pull. A daemon thread ends with this process.
            thread = threading.Thread(target=pull, args=(layout, _write_probe(layout)), name="probe", daemon=True)
            thread.start()
            thread.join(_PATIENCE)
        return reached.is_set()

    def _pull(self, server: LayoutServer, layout: Layout, digest: str) -> None:
        manifest = layout.get(digest)
        server.add(layout, manifest.digest)
        name = f"{server.repository}@{manifest.digest}"
        with self._naming:  # before the pull, because an interrupted pull can leave the name
            self._pulled[self._engine.id_of(manifest)] = name
        if self._engine.podman:
            podman.pull(name)
        else:
            self._engine.pull(server.repository, manifest.digest, _NO_LOGIN, _foreign_platform(layout, manifest))


def _foreign_platform(layout: Layout, manifest: Manifest) -> str | None:
    """Return the platform of an image if it is another than this machine's: the engine must not look for its own."""
    config = read_object(layout.path(manifest.config.digest).read_bytes())
    platform = f"{config.get('os')}/{config.get('architecture')}"
    return platform if platform in PLATFORMS and platform != host_platform() else None


def _write_probe(layout: Layout) -> str:
    """Write a small image of one layer into a layout, and return its digest."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as packed:
        packed.addfile(tarfile.TarInfo(LOOPBACK))
    data = gzip.compress(archive.getvalue(), mtime=0)
    blob = Blob(digest=sha256(data), size=len(data), media_type=_GZIP)
    layout.blobs.mkdir(parents=True)
    layout.path(blob.digest).write_bytes(data)
    manifest, config = image_of([("probe", Layer(blob=blob, diff_id=sha256(archive.getvalue())))])
    layout.write(manifest, config)
    return manifest.digest
