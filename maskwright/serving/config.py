"""The configuration of a server."""

from dataclasses import dataclass

from maskwright.config import check_numbers, setting
from maskwright.errors import ConfigError


@dataclass(frozen=True)
class ServeConfig:
    """Address, batching, and the limits of requests and connections."""

    host: str = setting("127.0.0.1", "address to listen on; 0.0.0.0: reachable from the network")
    port: int = setting(8000, "port to listen on; 0: any free port")
    max_batch: int = setting(64, "texts in one forward pass")
    max_wait_ms: float = setting(2.0, "milliseconds that a text waits for others to join its batch")
    max_queued: int = setting(4096, "texts in the queue; more are refused with 503")
    max_body_bytes: int = setting(8_000_000, "bytes of a request; more are refused with 413")
    max_texts: int = setting(2048, "texts of a request; more are refused with 422")
    max_tokens: int = setting(
        262_144, "tokens of a request in the model; /score counts the square of each text's tokens"
    )
    max_top_k: int = setting(1000, "candidates for a mask")
    max_candidates: int = setting(20_000, "candidates for all masks of a request")
    max_filled_characters: int = setting(
        8_000_000, "characters of the filled texts of a request, one text for each candidate"
    )
    max_requests: int = setting(1024, "simultaneous requests; more are refused with 503")
    max_connections: int = setting(
        4096, "open connections; a new one then replaces the one idle longest"
    )
    header_seconds: float = setting(10.0, "time to begin a request; then the connection is closed")
    body_seconds: float = setting(10.0, "time to send a request; more is refused with 408")
    answer_seconds: float = setting(30.0, "time to compute a response; more is refused with 504")
    read_seconds: float = setting(
        30.0, "time without reading a response; then the connection is closed"
    )
    drain_seconds: int = setting(8, "time to finish open requests after SIGINT or SIGTERM")

    def __post_init__(self) -> None:
        counts = (name for name in vars(self) if name.startswith("max_") and name != "max_wait_ms")
        check_numbers(self, *counts, at_least=1)
        check_numbers(self, *(name for name in vars(self) if name.endswith("_seconds")), above=0)
        if self.max_texts > self.max_queued:
            rule = f"must be at most max_queued = {self.max_queued}"
            remedy = "The queue could never take such a request."
            raise ConfigError("max_texts", self.max_texts, rule, remedy)
        if self.max_requests > self.max_connections:
            rule = f"must be at most max_connections = {self.max_connections}"
            raise ConfigError("max_requests", self.max_requests, rule, "Each needs a connection.")
        check_numbers(self, "max_wait_ms", at_least=0)
        check_numbers(self, "port", at_least=0, at_most=65535, remedy="8000 is usual.")
