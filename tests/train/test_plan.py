import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.data.config import DataConfig, MaskingConfig
from maskwright.data.loader import StepRequest
from maskwright.errors import ConfigError
from maskwright.optim.config import OptimConfig
from maskwright.train.config import TrainConfig
from maskwright.train.schedule import Schedule


def make_schedule(
    train: TrainConfig, max_seq_length: int = 128, optim: OptimConfig | None = None
) -> Schedule:
    data, masking = DataConfig(max_seq_length), MaskingConfig(rate=0.3, final_rate=0.1)
    return Schedule(train, data, masking, optim or OptimConfig(), vocab_size=16384)


def test_a_step_follows_all_schedules() -> None:
    train = TrainConfig(
        batch_tokens_schedule=("0:1024", "0.5:2048"), seq_length_schedule=("0:64", "0.5:128")
    )
    schedule = make_schedule(train)
    assert schedule.step_at(0.0).request == StepRequest(64, 16, 16, 0.3)
    middle = schedule.step_at(0.5)
    assert (middle.request.row_length, middle.request.num_rows) == (128, 16)
    assert middle.request.mask_rate == pytest.approx(0.2)
    assert middle.learning_rate_scale == 1.0
    assert schedule.step_at(1.0).learning_rate_scale == 0.0


@given(
    rows=st.lists(st.integers(1, 64), min_size=1, max_size=4),
    num_ranks=st.integers(1, 4),
    unit=st.integers(1, 8),
)
def test_micro_batches_keep_their_shape_while_batches_grow(
    rows: list[int], num_ranks: int, unit: int
) -> None:
    """If batches are multiples of the first, all micro-batches have its rows, also on ranks."""
    first = unit * num_ranks
    stages = tuple(f"{i / len(rows):g}:{16 * first * (r if i else 1)}" for i, r in enumerate(rows))
    train = TrainConfig(batch_tokens_schedule=stages)
    sections = (train, DataConfig(16), MaskingConfig(), OptimConfig())
    schedule = Schedule(*sections, vocab_size=64, num_ranks=num_ranks)
    requests = [schedule.step_at(i / len(rows) + 1e-6).request for i in range(len(rows))]
    assert {request.micro_batch_rows for request in requests} == {unit}
    assert all(request.num_rows % (unit * num_ranks) == 0 for request in requests)


def test_a_limit_cuts_all_batches_alike() -> None:
    """Of 32 rows 24 fit: two parts of 16 are one shape for 64 rows, too."""
    stages = ("0:512", "0.5:1024")
    schedule = make_schedule(TrainConfig(batch_tokens_schedule=stages, micro_batch_tokens=384), 16)
    rows = [schedule.step_at(at).request.micro_batch_rows for at in (0.0, 0.9)]
    assert rows == [16, 16]


def test_batches_with_little_in_common_are_computed_as_they_are() -> None:
    schedule = make_schedule(TrainConfig(batch_tokens_schedule=("0:2048", "0.5:2944")))
    assert schedule.step_at(0.0).request.micro_batch_rows == 16
    assert schedule.step_at(0.9).request.micro_batch_rows == 23


def test_the_whole_vocabulary_comes_back_at_the_share() -> None:
    schedule = make_schedule(TrainConfig(num_candidates=2048, candidate_share=0.7))
    counts = [schedule.step_at(at).request.num_candidates for at in (0.0, 0.69, 0.7, 1.0)]
    assert counts == [2048, 2048, 0, 0]


@given(
    num_candidates=st.integers(1, 20_000),
    step=st.integers(0, 50_000),
    progress=st.floats(0, 0.69),
    warmup_share=st.floats(0, 0.5),
)
def test_at_full_rate_every_token_could_have_been_a_candidate(
    num_candidates: int, step: int, progress: float, warmup_share: float
) -> None:
    """Half of the candidates of each step are drawn."""
    train = TrainConfig(num_candidates=num_candidates)
    schedule = make_schedule(train, optim=OptimConfig(warmup_share=warmup_share))
    found = schedule.step_at(progress, step).request.num_candidates
    drawn = (step + 1) * num_candidates / 2
    assert (found == 0) == (drawn < schedule.vocab_size and progress >= warmup_share)
    assert found in (0, num_candidates)


def test_micro_batches_are_whole_rows() -> None:
    def rows_at_once(micro_batch_tokens: int | None) -> int:
        train = TrainConfig(batch_tokens=1024, micro_batch_tokens=micro_batch_tokens)
        return make_schedule(train).step_at(0).request.micro_batch_rows

    assert [rows_at_once(tokens) for tokens in (None, 1, 128, 300)] == [8, 1, 1, 2]


@pytest.mark.parametrize(
    ("field", "train"),
    [
        ("batch_tokens", TrainConfig(batch_tokens=50)),
        (
            "batch_tokens_schedule",
            TrainConfig(
                batch_tokens_schedule=("0:64", "0.7:128"), seq_length_schedule=("0:64", "0.6:128")
            ),
        ),
    ],
)
def test_a_batch_has_a_row_at_every_time(field: str, train: TrainConfig) -> None:
    with pytest.raises(ConfigError) as caught:
        make_schedule(train)
    assert caught.value.field == f"train.{field}"


def test_validation_rows_may_not_pass_the_longest_input() -> None:
    make_schedule(TrainConfig(valid_seq_length=128))
    with pytest.raises(ConfigError, match=r"train.valid_seq_length = 256 is longer than data\."):
        make_schedule(TrainConfig(valid_seq_length=256))


def test_a_curriculum_may_not_pass_the_longest_input() -> None:
    train = TrainConfig(seq_length_schedule=("0:64", "0.5:256"))
    with pytest.raises(ConfigError, match=r"longer than data.max_seq_length = 128\. Set .* 256"):
        make_schedule(train)
