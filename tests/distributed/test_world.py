import gc
import os
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributed import DistError
from torch.nn.parallel import DistributedDataParallel

from maskwright.distributed.world import ALONE, World, joining, read_world
from maskwright.errors import ConfigError, TrainingError
from tests.distributed.work import fail_on_one_rank, startup_of, validate
from tests.distributed.worlds import alone, list_names, run_world, start_rank, start_world

PLACE = (("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "1"))


def agree(world: World) -> tuple[list[float], list[float], str]:
    return (
        world.sum(world.rank, 0.1),
        world.from_first(world.rank + 0.25),
        world.text_from_first(lambda: f"größer, von Rang {world.rank}"),
    )


@pytest.mark.parametrize("size", [1, 3])
def test_ranks_agree(size: int) -> None:
    results = run_world(size, agree) if size > 1 else [alone(agree)]
    for sums, first, text in results:
        assert sums == pytest.approx([sum(range(size)), 0.1 * size], abs=1e-15)
        assert first == [0.25]
        assert text == "größer, von Rang 0"


def count_gloo_threads() -> int:
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    return sum(name.startswith("pt_gloo") for name in names)


def outlive_the_group(names: dict[str, str]) -> tuple[int, int]:
    """The threads of the group that was left, before and after the last model of it is freed."""
    os.environ.update(names)
    with joining(read_world(), torch.device("cpu")):
        model = DistributedDataParallel(nn.Linear(2, 2))
        model(torch.ones(1, 2)).sum().backward()
    before = count_gloo_threads()
    del model
    gc.collect()
    return before, count_gloo_threads()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's list of threads")
def test_a_model_that_outlives_its_group_does_not_wait_for_its_threads() -> None:
    """It would keep Python's lock meanwhile, and now and then two ranks of a run never ended."""
    ranks = [start_rank(outlive_the_group, names) for names in list_names(2)]
    for rank in ranks:
        before, after = rank.result(timeout=60)
        assert before == after > 0


def sum_ranks(world: World) -> list[float]:
    tensors = [torch.ones(2, 1), torch.tensor([float(world.rank)])]
    world.sum_tensors(tensors)
    return torch.cat([tensor.flatten() for tensor in tensors]).tolist()


@pytest.mark.parametrize("size", [1, 3])
def test_tensors_are_summed(size: int) -> None:
    results = run_world(size, sum_ranks) if size > 1 else [alone(sum_ranks)]
    assert results == [[size, size, sum(range(size))]] * size


def test_a_process_started_alone_is_a_world_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert read_world() == ALONE
    with joining(ALONE, torch.device("cpu")) as world:
        assert world.is_first


def test_the_environment_names_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RANK", "5"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1"), *PLACE):
        monkeypatch.setenv(name, value)
    assert read_world() == World(5, 8, 1)


@pytest.mark.parametrize(
    ("rank", "size", "message"),
    [("x", "2", "RANK = x must be a number"), ("2", "2", "RANK = 2 must be between 0 and")],
)
def test_a_wrong_environment_is_one_line(
    monkeypatch: pytest.MonkeyPatch, rank: str, size: str, message: str
) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", size)
    with pytest.raises(ConfigError, match=message):
        read_world()


def test_ranks_must_know_where_to_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MASTER_PORT", raising=False)
    with pytest.raises(ConfigError, match="MASTER_PORT = None must be set"):
        read_world()


def test_restarts_on_several_machines_need_a_new_store_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What torchrun sets without the variable, and what lets the ranks begin."""
    torchrun = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "GROUP_WORLD_SIZE": "2"}
    torchrun |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_MAX_RESTARTS": "3"}
    for name, value in (*torchrun.items(), *PLACE):
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="TORCH_DISABLE_SHARE_RDZV_TCP_STORE = None must be 1"):
        read_world()
    remedies = {"TORCHELASTIC_USE_AGENT_STORE": "False", "TORCHELASTIC_MAX_RESTARTS": "0"}
    for name, value in {**remedies, "GROUP_WORLD_SIZE": "1"}.items():
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert read_world() == World(1, 2, 0)


def test_an_address_that_does_not_exist_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "no port")
    with (
        pytest.raises(TrainingError, match=r"rank 0 cannot reach the others through 127\.0\.0\.1"),
        joining(World(0, 2), torch.device("cpu")),
    ):
        pass


def test_ranks_do_not_share_a_gpu() -> None:
    with (
        pytest.raises(ConfigError, match=r"train\.device = cuda:1 is a single GPU"),
        joining(World(0, 2, 0), torch.device("cuda:1")),
    ):
        pass


def test_a_device_that_cannot_be_shared_is_one_line() -> None:
    with (
        pytest.raises(ConfigError, match=r"train\.device = mps cannot be used by several"),
        joining(World(0, 2), torch.device("mps")),
    ):
        pass


def test_scores_do_not_depend_on_the_number_of_ranks() -> None:
    expected = alone(validate, 60)
    for scores in run_world(3, validate, 60):
        assert scores.num_predictions == expected.num_predictions > 100
        for name, value in vars(expected).items():
            assert getattr(scores, name) == pytest.approx(value, rel=1e-6), name


def test_a_shape_that_one_rank_compiles_is_startup_for_all() -> None:
    first, last = run_world(2, startup_of)
    assert first == last
    assert 0 < first[0] == first[1] < first[2] == first[3] == first[4]


@pytest.mark.parametrize("error", [DistError("x"), RuntimeError("[gloo/pair.cc] closed by peer")])
def test_a_lost_rank_is_noticed_in_any_collective(error: RuntimeError) -> None:
    with pytest.raises(TrainingError, match="rank 1 has lost another"), World(1, 2).noticing_loss():
        raise error


def test_other_errors_are_not_taken_for_a_lost_rank() -> None:
    with pytest.raises(torch.OutOfMemoryError), World(1, 2).noticing_loss():
        raise torch.OutOfMemoryError("x")


def test_the_loss_of_a_rank_is_noticed_by_the_others() -> None:
    first, last = start_world(2, fail_on_one_rank)
    assert first.result(60).startswith("rank 0 has lost another rank")
    with pytest.raises(BrokenProcessPool):
        last.result(60)
