"""What a user can choose about a server."""

from dataclasses import dataclass

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
    max_top_k: int = setting(1000, "words for a mask that may be asked for")
    body_seconds: float = setting(10.0, "time to receive a request; longer is answered with 408")
    answer_seconds: float = setting(30.0, "time to answer it; longer is answered with 504")
    drain_seconds: int = setting(30, "time to end what has begun, after SIGTERM")

    def __post_init__(self) -> None:
        counts = ("max_batch", "max_queued", "max_body_bytes", "max_texts", "max_top_k")
        for name in counts:
            if getattr(self, name) < 1:
                raise ConfigError(name, getattr(self, name), "must be at least 1")
        for name in ("body_seconds", "answer_seconds", "drain_seconds"):
            if getattr(self, name) <= 0:
                raise ConfigError(name, getattr(self, name), "must be above 0")
        if self.max_wait_ms < 0:
            raise ConfigError("max_wait_ms", self.max_wait_ms, "must not be negative")
        if not 0 <= self.port < 65_536:
            raise ConfigError("port", self.port, "must lie between 0 and 65535", "8000 is usual.")
