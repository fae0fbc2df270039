from itertools import count, islice
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from maskwright.errors import InputError
from maskwright.inference.text_model import TextModel, plan_batches, show_text, split_blocks
from maskwright.model_folder.folder import save_model
from tests.model.helpers import tiny_model
from tests.model_folder.helpers import tiny_tokenizer


@pytest.fixture(scope="module")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    return TextModel.from_parts(tiny_model(), tiny_tokenizer(tmp_path_factory.mktemp("tokenizer")))


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(1, 100), st.sampled_from([0.1, 1]))
def test_batches_hold_every_text_with_tokens_once_and_fit(
    lengths: list[int], batch_tokens: int, padded_share: float
):
    batches = list(plan_batches(lengths, batch_tokens, padded_share))
    numbers = sorted(number for batch in batches for number in batch)
    assert numbers == [number for number, length in enumerate(lengths) if length]
    for batch in batches:
        ordered = [lengths[number] for number in batch]
        assert ordered == sorted(ordered)
        padded = len(batch) * ordered[-1]
        assert padded <= batch_tokens or len(batch) == 1


@given(st.lists(st.integers(1, 120), min_size=1, max_size=300))
def test_little_is_padding(lengths: list[int]):
    for batch in plan_batches(lengths, 1024, 1 / 64):
        padded = len(batch) * lengths[batch[-1]]
        assert padded - sum(lengths[number] for number in batch) <= 1024 / 64


def test_batches_are_padded_at_the_end(text_model: TextModel):
    rows = [[5, 6, 7] * 4, [], [8], [9, 9]]
    [first, second] = text_model.make_batches(rows, batch_tokens=64)
    assert (first.numbers, first.lengths, first.ids.tolist()) == ([2, 3], [1, 2], [[8, 0], [9, 9]])
    assert (second.numbers, second.lengths, second.ids.tolist()) == ([0], [12], [[5, 6, 7] * 4])


def test_wanted_vectors_are_those_among_all(text_model: TextModel):
    [batch] = text_model.make_batches([[5, 6, 7], [8, 9]])
    wanted = torch.tensor([4, 0])
    torch.testing.assert_close(
        text_model.encode(batch, wanted), text_model.encode(batch)[wanted], atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "cpu:x"])
def test_a_device_that_is_not_here(text_model: TextModel, tmp_path: Path, device: str):
    save_model(tmp_path, text_model.model, text_model.tokenizer)
    with pytest.raises(InputError, match=f"device = {device} is not a device here. Try cpu."):
        TextModel(tmp_path, device)
    assert TextModel(tmp_path, "cpu").device == torch.device("cpu")


def test_a_long_text_is_shown_by_its_beginning():
    assert show_text("a\nb") == '"a b"'
    assert show_text("x" * 100) == f'"{"x" * 60}…"'


@given(st.lists(st.integers(0, 3_000_000), max_size=30))
def test_blocks_are_the_items_in_order_and_small(sizes: list[int]):
    blocks = list(split_blocks(sizes, lambda size: size))
    assert [size for block in blocks for size in block] == sizes
    assert all(sum(block[:-1]) < 4_000_000 for block in blocks)
    assert [] not in blocks


def test_no_more_is_read_than_a_block():
    numbers = count()
    first = next(split_blocks(str(n) for n in numbers))
    assert first == [str(n) for n in range(4096)]
    assert list(islice(numbers, 1)) == [4096]
