"""Forward a port of a machine's own loopback to the same port of this host, through a Unix socket.

As a program: ``python -m tests.e2e.launchers.relay LISTEN TARGET``. Each is a port of 127.0.0.1 or a Unix socket.
"""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from torchbake.core.paths import TOOLKIT

_PIECE = 2**18  # bytes


@contextmanager
def relayed(port: int, inside: Sequence[str], folder: Path) -> Iterator[None]:
    """Make a port of this host answer in a machine too; ``inside`` begins a command line in the machine's network."""
    socket, program = folder / "relay.socket", (sys.executable, "-m", __name__)
    with ExitStack() as stack:
        for command in ([*program, str(socket), str(port)], [*inside, *program, str(port), str(socket)]):
            process = stack.enter_context(subprocess.Popen(command, cwd=TOOLKIT, stdout=subprocess.PIPE, text=True))
            stack.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "ready", command
        yield


async def _serve(listen: str, target: str) -> None:
    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await _connect(target)
        await asyncio.gather(_pass(reader, back), _pass(there, writer))

    if listen.isdigit():
        server = await asyncio.start_server(relay, "127.0.0.1", int(listen))
    else:
        server = await asyncio.start_unix_server(relay, listen)
    print("ready", flush=True)
    await server.serve_forever()


async def _connect(target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if target.isdigit():
        return await asyncio.open_connection("127.0.0.1", int(target))
    return await asyncio.open_unix_connection(target)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
        writer.write_eof()


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:]))
