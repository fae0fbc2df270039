import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from maskwright.finetuning.batches import (
    collate,
    find_targets,
    find_wanted,
    plan_epoch,
    plan_scoring,
)
from maskwright.finetuning.examples import Examples
from maskwright.tokenizer.template import ModelInput

lengths = st.lists(st.integers(1, 50), min_size=1, max_size=300)


@given(lengths, st.integers(1, 40), st.integers(0, 3), st.integers(0, 3))
def test_every_example_is_in_one_batch_of_an_epoch(
    sizes: list[int], batch_size: int, seed: int, epoch: int
) -> None:
    batches = plan_epoch(sizes, batch_size, seed, epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(sizes)))
    assert len(batches) == -(-len(sizes) // batch_size)
    again = plan_epoch(sizes, batch_size, seed, epoch)
    assert all(np.array_equal(a, b) for a, b in zip(batches, again, strict=True))


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    sizes = [1] * 64
    plans = [plan_epoch(sizes, 8, seed, epoch) for seed in (0, 1) for epoch in (0, 1)]
    assert len({np.concatenate(plan).tobytes() for plan in plans}) == 4


def test_batches_hold_similar_lengths() -> None:
    sizes = np.random.default_rng(0).integers(1, 100, 3200).tolist()
    spread = [np.ptp(np.take(sizes, batch)) for batch in plan_epoch(sizes, 32, 0, 0)]
    assert np.mean(spread) < 10  # of 97 in batches of chance


@given(lengths, st.integers(1, 200))
def test_all_examples_are_scored_in_batches_that_fit(sizes: list[int], batch_tokens: int) -> None:
    batches = list(plan_scoring(sizes, batch_tokens))
    assert sorted(number for batch in batches for number in batch) == list(range(len(sizes)))
    for batch in batches:
        padded = len(batch) * max(sizes[number] for number in batch)
        assert padded <= batch_tokens or len(batch) == 1


def test_a_batch_is_padded_and_knows_its_targets() -> None:
    inputs = [ModelInput([5, 6, 7], [0, 0, 1], 1), ModelInput([8], [0], 1)]
    batch = collate(inputs, pad_id=9)
    assert batch.input_ids.tolist() == [5, 6, 7, 8, 9, 9]
    assert batch.token_type_ids.tolist() == [0, 0, 1, 0, 0, 0]
    assert batch.context.segment_ids.tolist() == [0, 0, 0, 0, 1, 1]
    tagged = Examples(inputs, [[1, 2], [0]], [[0, 2], [0]])
    assert find_targets(tagged, [1, 0]).tolist() == [0, 1, 2]
    wanted = find_wanted(tagged, [1, 0], 3)
    assert wanted is not None
    assert wanted.tolist() == [0, 3, 5]
    texts = Examples(inputs, np.array([3, 4]))
    assert find_wanted(texts, [0, 1], 3) is None
    assert find_targets(texts, [1]).tolist() == [4]
