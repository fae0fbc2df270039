"""What the ranks of a run do together: join, own the run directory, open the data."""

import json
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from maskwright.distributed.world import World, joining, read_world
from maskwright.errors import ShardError
from maskwright.pretraining.find_data import is_elsewhere
from maskwright.pretraining.init_from import tell_on_first_rank
from maskwright.pretraining.prepared_data import PreparedData, open_data
from maskwright.pretraining.run_session import open_console
from maskwright.runs.config import PretrainConfig
from maskwright.runs.run_directory import locking_run
from maskwright.shards.remote import is_remote
from maskwright.train.device import choose_device, keep_freed_memory, limit_memory


@contextmanager
def joining_ranks(config: PretrainConfig) -> Generator[World]:
    """Join the other ranks of the run, on the device of this one."""
    world = read_world()
    device = choose_device(config.train.device, world.local_rank)
    if device.type == "cpu":
        keep_freed_memory()
    elif device.type == "cuda":
        limit_memory(config.train.device_memory, device)
    if config.train.device_memory and device.type != "cuda":
        tell_on_first_rank(f"train.device_memory has no effect: the run is on {device}")
    with joining(world, device):
        yield world


def owning_run(run: Path, world: World) -> AbstractContextManager[None]:
    """Lock the run directory against other runs; the first rank holds the lock for all."""
    return locking_run(run, open_console(world).print) if world.is_first else nullcontext()


def open_on_all_ranks(
    world: World, config: PretrainConfig, find: Callable[[], Mapping[str, Path]]
) -> PreparedData:
    """Open on all ranks the data that the first rank finds and verifies.

    Every machine has its own mirror of remote data, which its first rank verifies.
    """

    def find_whole() -> str:
        folders = find()
        open_data(folders, config.mixture, verify="full")
        return json.dumps({name: str(folder) for name, folder in folders.items()})

    found = json.loads(world.text_from_first(find_whole))
    folders = {name: Path(folder) for name, folder in found.items()}
    if world.size > 1 and is_elsewhere(config):
        firsts, folders = folders, find()
        for text, first, folder in zip(config.text, firsts.values(), folders.values(), strict=True):
            if folder.name != first.name:
                raise ShardError(f"{text} changed while the ranks began. Start them again.")
            if is_remote(text) and world.local_rank == 0 and not world.is_first:
                PreparedData(folder, verify="full")
        world.wait()
    return open_data(folders, config.mixture, verify="sizes")
