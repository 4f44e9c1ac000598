"""The server: it listens on an address, and prints it."""

import contextlib
import socket
import sys
import threading
import webbrowser
from types import FrameType

import uvicorn

from ndstack.analysis.explorer.app import LOOPBACK, make_app
from ndstack.analysis.explorer.catalogue import Catalogue
from ndstack.errors import NdstackError


class _Server(uvicorn.Server):
    """A server that ends its requests when it is interrupted, instead of waiting for their answers."""

    def __init__(self, config: uvicorn.Config, catalogue: Catalogue) -> None:
        super().__init__(config)
        self._catalogue = catalogue

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._catalogue.requests.close()
        super().handle_exit(sig, frame)


def serve(catalogue: Catalogue, host: str | None, port: int, browser: bool) -> None:
    """Serve the page until interrupted; the address is printed when the page can be opened."""
    listener = _listen(host or "127.0.0.1", port)
    name, number = listener.getsockname()[:2]
    address = f"http://{f'[{name}]' if ':' in name else name}:{number}/"
    config = uvicorn.Config(
        make_app(catalogue, host),
        log_level="warning",
        server_header=False,
        limit_concurrency=64,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=2,
    )
    print(f"{address}  (Ctrl-C ends it)", flush=True)
    if name not in LOOPBACK:
        print(
            "ndstack: anyone who can reach this address can use the page; there is no password",
            file=sys.stderr,
        )
    if browser:
        threading.Timer(0.5, webbrowser.open, (address,)).start()
    with contextlib.suppress(KeyboardInterrupt):  # the ordinary end
        _Server(config, catalogue).run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen()
    except OSError as error:
        raise NdstackError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}; try --port 0"
        ) from None
    return listener
