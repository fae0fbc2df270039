"""Items in files: written, done by one at a time, and cleared when nobody works on them."""

import fcntl
import threading
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.errors import ShardError
from maskwright.preparation.cluster.engine import clear_spools
from maskwright.preparation.cluster.share import ItemWorker, Job, do_share, list_share
from maskwright.preparation.cluster.spool import Spool, holding_lock, lock_path
from tests.preparation.cluster.helpers import begin_doubling


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    lock_path(tmp_path).touch()
    spool = Spool(tmp_path / "wave")
    spool.create(partial(begin_doubling, tmp_path / "log"))
    return spool


def test_items_and_results_come_back(spool: Spool) -> None:
    assert spool.add(0, ["text", b"bytes"]) > 0
    assert spool.read_item(0) == ["text", b"bytes"]
    assert spool.list_results() == set()
    spool.write_result(0, 5)
    assert (spool.list_results(), spool.has_result(0), spool.read_result(0)) == ({0}, True, 5)


def test_it_is_open_to_its_owner_alone(spool: Spool) -> None:
    assert spool.folder.stat().st_mode & 0o077 == 0


def test_an_item_that_is_done_is_not_done_again(spool: Spool) -> None:
    spool.add(0, 4)
    for worker in (ItemWorker(spool.folder), ItemWorker(spool.folder)):
        assert worker(0) is None
    assert spool.read_result(0) == 8
    assert (spool.folder.parent / "log").read_text() == "4\n"


def test_one_works_on_an_item_at_a_time(spool: Spool) -> None:
    spool.add(0, 4)
    other = threading.Thread(target=ItemWorker(spool.folder), args=(0,))
    with spool.working_on(0):
        other.start()
        other.join(0.2)
        assert other.is_alive()
        spool.write_result(0, 99)
    other.join()
    assert spool.read_result(0) == 99


@given(num_items=st.integers(0, 40), num_tasks=st.integers(1, 9))
def test_every_item_is_in_one_share(num_items: int, num_tasks: int) -> None:
    job = Job("datatrove-local", num_items, num_tasks, 1, ".")
    shares = [list_share(job, task) for task in range(num_tasks)]
    assert sorted(i for share in shares for i in share) == list(range(num_items))


def test_an_unseen_folder_is_one_line(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(spool.folder)  # which is put back
    job = Job("datatrove-ray", 1, 1, 1, str(spool.folder / "elsewhere"))
    with pytest.raises(ShardError, match="needs a file system that all machines share"):
        list(do_share(spool.folder, job, 0))


def test_the_remains_of_an_earlier_preparation_wait_for_its_last_worker(spool: Spool) -> None:
    root, said = spool.folder.parent, list[str]()
    clearing = threading.Thread(target=clear_spools, args=(root, said.append))
    with holding_lock(lock_path(root), fcntl.LOCK_SH):
        clearing.start()
        clearing.join(0.2)
        assert clearing.is_alive()
        assert spool.folder.exists()
    clearing.join()
    assert not root.exists()
    assert "earlier preparation still work" in said[0]
