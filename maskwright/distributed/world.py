"""The processes that train one model together, and their communication.

``torchrun`` (or anything else that sets ``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and
``MASTER_PORT``) starts them; a process that was started alone is a world of one. Gradients are
reduced by nccl on GPUs and by gloo on CPUs; the few numbers that ranks must agree on always use
gloo, so that agreeing does not wait for a GPU.
"""

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from maskwright.errors import ConfigError, TrainingError

# The time that ranks wait while one prepares the data; they still notice at once if a rank dies.
_LONG_WAIT = timedelta(days=7)


@dataclass(frozen=True)
class World:
    """The rank of this process, and the number of processes.

    Attributes:
        rank: its number, from 0.
        size: the number of processes.
        local_rank: its number on this machine.
        node_size: the number of processes on each machine; None: unknown.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    node_size: int | None = None

    @property
    def is_first(self) -> bool:
        """Return True if this process writes the files and the messages."""
        return self.rank == 0

    def sum(self, *values: float) -> list[float]:
        """Return each value summed over all ranks, in fp64. All ranks must call it."""
        if self.size == 1:
            return list(values)
        sums = torch.tensor(values, dtype=torch.float64)
        with self.noticing_loss():
            dist.all_reduce(sums)
        return sums.tolist()

    def least(self, value: float) -> float:
        """Return the least value of all ranks, in fp64. All ranks must call it."""
        least = torch.tensor(value, dtype=torch.float64)
        if self.size > 1:
            with self.noticing_loss():
                dist.all_reduce(least, dist.ReduceOp.MIN)
        return least.item()

    def sum_tensors(self, tensors: Sequence[Tensor]) -> None:
        """Sum tensors of one dtype over all ranks, in place, by one message. All must call it."""
        if self.size > 1:
            joined = torch.cat([tensor.flatten() for tensor in tensors])
            with self.noticing_loss():
                dist.all_reduce(joined)
            parts = torch.split(joined, [tensor.numel() for tensor in tensors])
            for tensor, part in zip(tensors, parts, strict=True):
                tensor.copy_(part.view_as(tensor))

    def from_first(self, *values: float) -> list[float]:
        """Return the values of rank 0, in fp64. All ranks must call it."""
        return self.sum(*(values if self.is_first else [0.0] * len(values)))

    def wait(self) -> None:
        """Return when all ranks have called it."""
        self.sum(0)

    def text_from_first(self, make: Callable[[], str]) -> str:
        """Return the result of `make` on rank 0, which may take days. All ranks must call it."""
        if self.size == 1:
            return make()
        text = make().encode() if self.is_first else b""
        with self.noticing_loss():
            channel = open_channel(_LONG_WAIT)
            length = torch.tensor([len(text)])
            dist.broadcast(length, src=0, group=channel)
            content = torch.tensor(list(text.ljust(int(length))), dtype=torch.uint8)
            dist.broadcast(content, src=0, group=channel)
            dist.destroy_process_group(channel)
        return bytes(content.tolist()).decode()

    @contextmanager
    def noticing_loss(self) -> Generator[None]:
        """Raise TrainingError where torch reports that another rank is lost."""
        try:
            yield
        except RuntimeError as error:
            # gloo raises plain errors, with the name of its file in the message.
            if not (isinstance(error, dist.DistError) or "gloo" in str(error)):
                raise
            raise TrainingError(
                f"rank {self.rank} has lost another rank, whose own message reports the reason "
                f"({str(error).splitlines()[0]})"
            ) from None


ALONE = World()
_left: list[object] = []  # the process group that was left last


def open_channel(timeout: timedelta | None = None) -> dist.ProcessGroup:
    """Return another process group of all ranks, whose messages do not block the training."""
    group = dist.new_group(backend="gloo", timeout=timeout)
    assert isinstance(group, dist.ProcessGroup)
    return group


def read_world() -> World:
    """Return the world that the environment variables describe, without joining it.

    Raises:
        ConfigError: a variable is not a number, a rank is outside the world, or torchrun restarts
            ranks on several machines with a store that keeps the addresses of dead ranks.
    """
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return ALONE
    rank, size = _read_number("RANK"), _read_number("WORLD_SIZE")
    local_rank, node_size = (
        _read_number(name) if name in os.environ else None
        for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE")
    )
    if not 0 <= rank < size:
        rule = f"must be between 0 and WORLD_SIZE - 1 = {size - 1}"
        raise ConfigError("RANK", rank, rule, "Start the processes with torchrun.")
    for name in ("MASTER_ADDR", "MASTER_PORT") if size > 1 else ():
        if not os.environ.get(name):
            raise ConfigError(name, None, "must be set", "Start the processes with torchrun.")
    restarts = os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0"
    is_kept = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if restarts and is_kept and os.environ.get("GROUP_WORLD_SIZE", "1") != "1":
        name, rule = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "must be 1 for --max-restarts"
        raise ConfigError(name, os.environ.get(name), rule, "Export it on all machines.")
    return World(rank, size, rank if local_rank is None else local_rank, node_size)


def _read_number(name: str) -> int:
    value = os.environ[name]
    if not value.isdecimal():
        raise ConfigError(name, value, "must be a number", "Start the processes with torchrun.")
    return int(value)


@contextmanager
def joining(world: World, device: torch.device) -> Generator[World]:
    """Connect the ranks of `world` within this context.

    Raises:
        ConfigError: `device` does not support several processes.
        TrainingError: the other ranks cannot be reached.
    """
    backends = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
    is_launched = device.type in backends and dist.is_torchelastic_launched()
    if world.size == 1 and not is_launched:
        if device.type == "cuda":
            torch.cuda.set_device(device)
        yield world
        return
    if device.type not in backends:
        rule = "cannot be used by several processes"
        raise ConfigError("train.device", device.type, rule, "Use cpu or cuda, or one process.")
    if world.size > 1 and device.type == "cuda" and device.index != world.local_rank:
        rule = "is a single GPU, and every process needs its own"
        raise ConfigError("train.device", str(device), rule, "Set it to cuda.")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    try:
        store = _open_store(world)
        dist.init_process_group(
            backends[device.type], store=store, rank=world.rank, world_size=world.size
        )
    except (RuntimeError, ValueError) as error:
        address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        reason = str(error).splitlines()[0]
        raise TrainingError(
            f"rank {world.rank} cannot reach the others through {address} ({reason})"
        ) from None
    group = dist.group.WORLD
    try:
        yield world
    finally:
        dist.destroy_process_group()
        # What gathers shards may live longer. If its reference to the group were the last one, it
        # would wait for gloo's threads and keep Python's lock, and they wait for that lock to free
        # a tensor.
        _left[:] = [group]


def _open_store(world: World) -> Store:
    """Return the store in which ranks find each other's addresses.

    When torchrun restarts the ranks of one machine, its store may still hold the addresses of the
    dead ones, hence a prefix for each attempt. Several machines may count attempts differently;
    there torchrun makes a new store each time (`read_world` checks it).
    """
    store, _, _ = next(rendezvous("env://", world.rank, world.size))
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    is_one_machine = os.environ.get("GROUP_WORLD_SIZE", "1") == "1"
    return PrefixStore(f"attempt {attempt}", store) if is_one_machine else store
