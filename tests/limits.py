"""What a test takes away from its own process, to see what happens then."""

import resource
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def limited_file_size(num_bytes: int) -> Generator[None]:
    """No file can grow beyond `num_bytes`: a write stops there, as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
