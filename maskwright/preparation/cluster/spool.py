"""Work handed out in files: items, what is done with them, and what came of each.

They are pickled, as what goes to processes of one machine is, and by the same rule: nothing is read
but what this very preparation wrote. Its folder has a name that nobody can guess and is open to
its owner alone.

An item may be given to two processes, if one of them is believed dead and is not. So whoever works
on an item holds a lock on it, and one on the lock file beside the spool, which tells the next
preparation whether anybody still works for the last one.
"""

import fcntl
import pickle
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from maskwright.files import naming_file, replacing_file

_ITEM, _RESULT = ".item", ".result"
_LEVEL = 1  # of zstandard, the fastest: it is one process that packs for all


@dataclass(frozen=True)
class Spool:
    """The folder of some items that are handed out together."""

    folder: Path

    @property
    def logs(self) -> Path:
        """Where datatrove puts its logs and its completion markers."""
        return self.folder / "datatrove"

    def create(self, start: Callable[[], Callable[[Any], Any]]) -> None:
        """Make the folder; `start` returns what is called with each item, see `team.Start`."""
        self.folder.mkdir(mode=0o700)
        (self.folder / "results").mkdir()
        (self.folder / "start").write_bytes(pickle.dumps(start))

    def load_start(self) -> Callable[[], Callable[[Any], Any]]:
        """Return the `start` that was given to `create`."""
        return pickle.loads((self.folder / "start").read_bytes())

    def add(self, index: int, item: Any) -> int:
        """Write an item; return its size in bytes."""
        packed = zstandard.compress(pickle.dumps(item), _LEVEL)
        path = self._item(index)
        with naming_file(path):
            path.write_bytes(packed)
        return len(packed)

    def read_item(self, index: int) -> Any:
        """Read the item of this number."""
        return pickle.loads(zstandard.decompress(self._item(index).read_bytes()))

    def write_result(self, index: int, result: Any) -> None:
        """Write the outcome of an item: a result, or the error that it ended in."""
        content = pickle.dumps(result)
        with replacing_file(self._result(index)) as temporary:
            temporary.write_bytes(content)

    def has_result(self, index: int) -> bool:
        """Return True if an item is done, by asking for its file, which no stale listing hides."""
        return self._result(index).exists()

    def read_result(self, index: int) -> Any:
        """Return the outcome of a finished item."""
        return pickle.loads(self._result(index).read_bytes())

    def list_results(self) -> set[int]:
        """List the finished items, as far as the file system shows them by now."""
        names = (path.name for path in (self.folder / "results").iterdir())
        return {int(name.removesuffix(_RESULT)) for name in names if name[0] != "."}

    @contextmanager
    def working_on(self, index: int) -> Generator[None]:
        """Lock an item against others; wait for one that works on it."""
        with (
            holding_lock(lock_path(self.folder.parent), fcntl.LOCK_SH),
            holding_lock(self._item(index), fcntl.LOCK_EX),
        ):
            yield

    def _item(self, index: int) -> Path:
        return self.folder / f"{index:05d}{_ITEM}"

    def _result(self, index: int) -> Path:
        return self.folder / "results" / f"{index:05d}{_RESULT}"


def lock_path(root: Path) -> Path:
    """Return the file that all who work for the spools in `root` lock in shared mode."""
    return root / "lock"


@contextmanager
def holding_lock(
    path: Path, kind: int, when_busy: Callable[[], None] | None = None
) -> Generator[bool]:
    """Hold a lock on an existing file, waiting for it; yield whether locks are supported at all.

    Without them (some network file systems) work goes on: they guard against a process that
    nobody knows of any more.
    """
    with path.open("r+b") as file:
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if when_busy is not None:
                when_busy()
            fcntl.flock(file, kind)
        except OSError:
            yield False
            return
        yield True
