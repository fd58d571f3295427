"""Our own listening sockets: what they are set to, every accepted one inherits."""

import socket

# What the kernel keeps for a reader that does not read; without it one was found to hold 2.8 MB.
SEND_BUFFER_BYTES = 64 * 1024
# A peer that acknowledges nothing for so long is gone; an honest slow one acknowledges.
UNACKNOWLEDGED_MS = 30_000


class CannotListen(Exception):
    """An address is taken, or is none of this machine's; `variable` is what chooses the port."""

    def __init__(self, host: str, port: int, variable: str, reason: str | None) -> None:
        super().__init__(f"cannot listen at {host}:{port} ({reason}); choose another {variable}")
        self.host = host
        self.port = port
        self.variable = variable


def listening_socket(host: str, port: int, variable: str) -> socket.socket:
    """A bound socket; port 0 picks a free one. Raises CannotListen."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CannotListen(host, port, variable, error.strerror) from error
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)
    try:
        listening.bind(address)
    except OSError as error:
        listening.close()
        raise CannotListen(host, port, variable, error.strerror) from error
    return listening


def address_of(listening: socket.socket) -> str:
    """As a URL."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
