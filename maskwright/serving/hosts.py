"""Names by which a server without a token lets itself be called.

A page of another site cannot read this server's answers, unless it makes its own name stand for
this address (DNS rebinding): then the browser takes both for one site. The name it calls is in the
header ``Host``, which no page can change.
"""

import ipaddress
from collections.abc import Sequence


class AllowedHosts:
    """The names and addresses that a ``Host`` header may have.

    These are localhost, names under it, and addresses of this machine's loopback; the address that
    the server listens on; and `names`. A server that listens on all addresses may be called by any
    of them: behind an address there is no name that could be made to stand for another.

    Args:
        listening: the address or name that the server listens on.
        names: more of them, without ports.
    """

    def __init__(self, listening: str, names: Sequence[str] = ()) -> None:
        self._names = {_normalize(name) for name in (listening, *names)}
        self._takes_addresses = listening in ("", "0.0.0.0", "::")

    def allow(self, host: str) -> bool:
        """Return True if a request may name this host, with or without a port."""
        name = _normalize(_without_port(host))
        if name in self._names or name == "localhost" or name.endswith(".localhost"):
            return True
        address = _read_address(name)
        return address is not None and (self._takes_addresses or address.is_loopback)


def is_loopback(host: str) -> bool:
    """Return True if only this machine reaches a server that listens on `host`."""
    address = _read_address(host)
    return host == "localhost" if address is None else address.is_loopback


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _normalize(name: str) -> str:
    return name.lower().removesuffix(".")


def _read_address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
