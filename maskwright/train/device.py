"""Device, precision, compiling and memory of this process."""

import ctypes
import shutil
from contextlib import AbstractContextManager, nullcontext

import torch

from maskwright.errors import ConfigError
from maskwright.train.config import Precision, TrainConfig

# On a CPU compiling takes a minute or two. In fp32 it saves about a tenth of a step, most of which
# is matrix products (research/speed.md); in bf16 a third, because products are fast there; on a GPU
# even more.
# The shortest runs, in minutes and in tokens, that pay for it:
_WORTH_COMPILING = {
    ("cpu", torch.float32): (60.0, 20_000_000),
    ("cpu", torch.bfloat16): (15.0, 5_000_000),
    ("cuda", torch.float32): (3.0, 20_000_000),
    ("cuda", torch.bfloat16): (3.0, 20_000_000),
}
GIGABYTE = 1e9  # of `TrainConfig.device_memory`
SPARE = 0.1  # the share of a GPU that is kept free
_COMPILERS = (("g++", "clang++"), ("gcc", "clang"))  # on a CPU; of Triton on a GPU


def choose_device(name: str, local_rank: int = 0, field: str = "train.device") -> torch.device:
    """Return the device of a name; ``auto`` and ``cuda`` mean the GPU of this process.

    Args:
        field: the field that names the device, for the message.

    Raises:
        ConfigError: this machine has no such device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name, local_rank) if name == "cuda" else torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        rule = "is not a device here"
        if torch.accelerator.is_available() and name.startswith("cuda"):  # it is full or busy
            rule = f"cannot be used: {str(error).splitlines()[0]}"
        raise ConfigError(field, name, rule, "Try cpu.") from None
    return device


def computes_in_bf16(device: torch.device) -> bool:
    """Return True if bf16 is fast on `device`; on a CPU without bf16 units fp32 is far faster."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return False


def product_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """Return the dtype of the matrix products of a run."""
    bf16 = precision == "bf16" or (precision == "auto" and computes_in_bf16(device))
    return torch.bfloat16 if bf16 else torch.float32


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Return the autocast context for the loss."""
    dtype = product_dtype(precision, device)
    return nullcontext() if dtype is torch.float32 else torch.autocast(device.type, dtype=dtype)


def describe_computation(precision: Precision, device: torch.device) -> dict[str, str]:
    """Return `device`, a GPU by its name, and the dtype of its matrix ``products``."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    products = str(product_dtype(precision, device)).removeprefix("torch.")
    return {"device": name, "products": products}


def should_compile(config: TrainConfig, device: torch.device) -> tuple[bool, str]:
    """Return whether to compile, and the reason, for the user."""
    if config.compile != "auto":
        return config.compile == "on", f"train.compile is {config.compile}"
    names = _COMPILERS[device.type == "cuda"]
    if not any(map(shutil.which, names)):
        return False, f"no compiler found: {' or '.join(names)}"
    kind = (device.type, product_dtype(config.precision, device))
    least_minutes, least_tokens = _WORTH_COMPILING.get(kind, (float("inf"), 0))
    if config.most_minutes < least_minutes or config.most_tokens < least_tokens:
        return False, "the run is too short to pay for it"
    return True, "the run is long enough to pay for it"


def should_capture(config: TrainConfig, device: torch.device) -> bool:
    """Return True if steps are recorded as CUDA graphs.

    Raises:
        ConfigError: ``train.capture`` is on, and this run cannot do it.
    """
    if config.capture == "on":
        if device.type != "cuda":
            raise ConfigError("train.capture", "on", "needs a CUDA GPU", "Set it to auto.")
        if config.parallel != "ddp":
            rule = f"cannot be combined with train.parallel = {config.parallel}"
            raise ConfigError("train.capture", "on", rule, "Set it to auto.")
    return config.capture != "off" and device.type == "cuda" and config.parallel == "ddp"


def limit_memory(gigabytes: float | None, device: torch.device) -> None:
    """Let this process allocate at most so many GB (10^9 bytes) of a GPU; None: all of it."""
    _, total = torch.cuda.mem_get_info(device)
    share = min(1.0, gigabytes * GIGABYTE / total) if gigabytes else 1.0
    torch.cuda.set_per_process_memory_fraction(share, device)


def measure_room(gigabytes: float | None, device: torch.device) -> float:
    """Return the bytes of a GPU for this process, of which other processes use none now.

    A tenth of the card is kept free, for fragments and the workspaces of kernels.

    Args:
        gigabytes: the limit of `limit_memory`.
    """
    free, total = torch.cuda.mem_get_info(device)
    card = min(total, gigabytes * GIGABYTE) if gigabytes else total
    return min(free + torch.cuda.memory_reserved(device), card) - card * SPARE


# glibc's malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_BLOCK, _NEVER = 32 * 2**20, 2**31 - 1


def keep_freed_memory() -> bool:
    """Make the C library keep freed memory for the next step instead of returning it.

    Every training step on a CPU allocates the same large blocks. Mapping and clearing their pages
    each time takes up to a fifth of a step, and keeping them does not raise the peak of memory.

    Returns:
        True if the C library supports this, as glibc does.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library; TypeError: Windows
        return False
    settings = {_M_MMAP_THRESHOLD: _LARGEST_BLOCK, _M_TRIM_THRESHOLD: _NEVER}
    taken = [mallopt(option, value) for option, value in settings.items()]
    return all(taken)
