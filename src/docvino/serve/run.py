"""The server around the application: its socket, its logs, its end."""

from __future__ import annotations

import logging
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType

import uvicorn

from docvino.errors import ConfigError
from docvino.parser import Parser
from docvino.serve.app import build_app
from docvino.serve.guard import JsonLines, is_loopback
from docvino.serve.page import add_page
from docvino.serve.service import Service
from docvino.settings import ServeConfig, Settings

_END_LIMIT_S = 30
_BACKLOG = 256


def check_safe(config: ServeConfig) -> None:
    """Raises: ConfigError for an address that others reach, without a key."""
    if config.auth and config.api_key is None and not is_loopback(config.host):
        raise ConfigError(
            f"{config.host} can be reached from other machines, and there is no key",
            fix="set DOCVINO_API_KEY (or --api-key), or say --no-auth",
        )


def listen(config: ServeConfig) -> socket.socket:
    """A socket on the address, before models are loaded: a taken port is told at once.

    Raises: ConfigError.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        opened = socket.socket(family, kind, protocol)
        try:
            if sys.platform != "win32":
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind(address)
        except OSError:
            opened.close()
            raise
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {config.host} port {config.port}: {error.strerror or error}",
            fix="choose another --port, or stop what uses it",
        ) from error
    return opened


def serve(settings: Settings, listening: socket.socket, parser: Parser, ready: Callable[[str], None]) -> None:
    """Answers until the process is told to end.

    ready   gets the address when requests are answered

    Raises: ConfigError.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    log = logging.getLogger("docvino.serve")
    log.handlers, log.propagate = [handler], False
    log.setLevel(logging.INFO)
    with Service.open(parser, settings) as service:
        config = uvicorn.Config(
            build_app(service, add_page),
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            backlog=_BACKLOG,
            h11_max_incomplete_event_size=64 * 1024,
            timeout_graceful_shutdown=_END_LIMIT_S,
        )
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        _Server(config, service, lambda: ready(f"http://{shown}:{port}")).run(sockets=[listening])


class _Server(uvicorn.Server):
    """Ends readings and streams when it is told to end, as it would wait for them else."""

    def __init__(self, config: uvicorn.Config, service: Service, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._service, self._ready = service, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._service.begin_end()
        if sig == signal.SIGINT and not self.should_exit:
            self.should_exit = True  # and is not raised again at the end: Ctrl-C is the usual way to stop
            return
        super().handle_exit(sig, frame)
