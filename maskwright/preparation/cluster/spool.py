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
        """Makes the folder; `start` gives what is called with each item, see `team.Start`."""
        self.folder.mkdir(mode=0o700)
        (self.folder / "results").mkdir()
        (self.folder / "start").write_bytes(pickle.dumps(start))

    def load_start(self) -> Callable[[], Callable[[Any], Any]]:
        """What was given to `create`."""
        return pickle.loads((self.folder / "start").read_bytes())

    def add(self, index: int, item: Any) -> int:
        """Writes an item down; returns how many bytes that takes."""
        packed = zstandard.compress(pickle.dumps(item), _LEVEL)
        path = self._item(index)
        with naming_file(path):
            path.write_bytes(packed)
        return len(packed)

    def read_item(self, index: int) -> Any:
        """The item of this number."""
        return pickle.loads(zstandard.decompress(self._item(index).read_bytes()))

    def write_result(self, index: int, result: Any) -> None:
        """Says what came of an item: a result, or the error that it ended in."""
        content = pickle.dumps(result)
        with replacing_file(self._result(index)) as temporary:
            temporary.write_bytes(content)

    def has_result(self, index: int) -> bool:
        """Whether an item is done. Looks for its very file, which no cached listing can hide."""
        return self._result(index).exists()

    def read_result(self, index: int) -> Any:
        """What came of an item that is done."""
        return pickle.loads(self._result(index).read_bytes())

    def list_results(self) -> set[int]:
        """The items that are done, as far as the file system shows it by now."""
        names = (path.name for path in (self.folder / "results").iterdir())
        return {int(name.removesuffix(_RESULT)) for name in names if name[0] != "."}

    @contextmanager
    def working_on(self, index: int) -> Generator[None]:
        """Keeps others from working on an item; waits for one that does."""
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
    """The file on which all that work for the spools in `root` hold a shared lock."""
    return root / "lock"


@contextmanager
def holding_lock(
    path: Path, kind: int, when_busy: Callable[[], None] | None = None
) -> Generator[bool]:
    """Holds a lock on an existing file, waiting for it; tells whether there are locks at all.

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
