"""What a user can choose about a server."""

from dataclasses import dataclass, fields

from maskwright.config import setting
from maskwright.errors import ConfigError


@dataclass(frozen=True)
class ServeConfig:
    """Where it listens, how requests share a pass through the model, and what is too much."""

    host: str = setting("127.0.0.1", "address to listen on; 0.0.0.0 is everybody's network")
    port: int = setting(8000, "port to listen on; 0: any that is free")
    max_batch: int = setting(64, "texts that go through the model together")
    max_wait_ms: float = setting(2.0, "milliseconds that a text waits for others")
    max_queued: int = setting(1024, "texts that may wait; more are answered with 503")
    max_body_bytes: int = setting(1_000_000, "bytes of a request; more are answered with 413")
    max_texts: int = setting(256, "texts of a request; more are answered with 422")
    max_tokens: int = setting(
        131_072, "tokens of a request that go through the model; scores take each text's squared"
    )
    max_top_k: int = setting(1000, "words for a mask that may be asked for")
    max_candidates: int = setting(10_000, "words for all masks of a request together")
    max_requests: int = setting(1024, "requests at once; more are answered with 503")
    max_connections: int = setting(
        4096, "open connections; one more takes the place of the longest idle"
    )
    header_seconds: float = setting(10.0, "time for a request to begin; then the line is cut")
    body_seconds: float = setting(10.0, "time to receive a request; longer is answered with 408")
    answer_seconds: float = setting(30.0, "time to answer it; longer is answered with 504")
    read_seconds: float = setting(30.0, "time to take the answer; then the line is cut")
    drain_seconds: int = setting(8, "time to end what has begun, after SIGINT or SIGTERM")

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.startswith("max_") and field.type in (int, "int") and value < 1:
                raise ConfigError(field.name, value, "must be at least 1")
            if field.name.endswith("_seconds") and value <= 0:
                raise ConfigError(field.name, value, "must be above 0")
        if self.max_texts > self.max_queued:
            rule = f"is more than may wait, max_queued = {self.max_queued}"
            raise ConfigError("max_texts", self.max_texts, rule, "Such requests would always fail.")
        if self.max_requests > self.max_connections:
            rule = f"is more than max_connections = {self.max_connections}"
            raise ConfigError("max_requests", self.max_requests, rule, "Each needs a connection.")
        if self.max_wait_ms < 0:
            raise ConfigError("max_wait_ms", self.max_wait_ms, "must not be negative")
        if not 0 <= self.port < 65_536:
            raise ConfigError("port", self.port, "must lie between 0 and 65535", "8000 is usual.")
