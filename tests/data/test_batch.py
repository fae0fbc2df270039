from typing import Literal

import numpy as np
import pytest
import torch

from maskwright.data.batch import Batch, collate
from maskwright.data.config import MaskingConfig
from maskwright.data.loader import RowSource, StepRequest
from maskwright.data.rows import DataPosition, Row, Rows
from tests.helpers import CLS, PAD, SEP, SyntheticCorpus, random_corpus, row_source, special_ids

ROW = 16


def load(source: RowSource, num_rows: int, micro: int, rate: float = 0.15) -> tuple[Batch, ...]:
    request = StepRequest(ROW, num_rows, micro, rate)
    return source.load(request, DataPosition(ROW)).micro_batches


def test_a_row_is_laid_out_as_it_should_be() -> None:
    corpus = SyntheticCorpus([3, 4, 2])
    corpus.starts[:] = False
    rows = Rows.of([Row(0, 0, ((3, 4), (0, 3))), Row(0, 1, ((7, 2),))])
    clean = collate(rows, 12, corpus, special_ids())
    a, b, c = (corpus.ids[i:j].tolist() for i, j in [(3, 7), (0, 3), (7, 9)])
    assert clean.ids.tolist() == [[CLS, *a, SEP, CLS, *b, SEP, PAD], [CLS, *c, SEP, *8 * [PAD]]]
    assert clean.positions.tolist() == [[*range(6), *range(5), 0], [*range(4), *range(8)]]
    assert clean.segment_ids.tolist() == [[*6 * [0], *5 * [1], 2], [*4 * [0], *8 * [1]]]
    assert clean.cu_seqlens.tolist() == [0, 6, 11, 12, 16, 24, 24, 24]
    assert clean.num_tokens == 15
    # The first token of a segment begins a word; special tokens and padding are words of their own.
    assert clean.word_starts[0].astype(int).tolist() == [1, 1, 0, 0, 0, 1, 1, 1, 0, 0, 1, 1]


@pytest.mark.parametrize("strategy", ["tokens", "words", "spans"])
@pytest.mark.parametrize("packed", [True, False])
def test_shapes_are_the_same_for_every_batch(
    strategy: Literal["tokens", "words", "spans"], packed: bool
) -> None:
    masking = MaskingConfig(rate=0.3, final_rate=0.1, strategy=strategy)
    source = row_source(random_corpus(), masking=masking, packed=packed)
    position, shapes = DataPosition(ROW), set()
    for step in range(30):
        loaded = source.load(StepRequest(ROW, 6, 3, masking.rate_at(step / 30)), position)
        position = loaded.next_position
        for batch in loaded.micro_batches:
            shapes.add(
                tuple((name, v.shape) for name, v in vars(batch).items() if torch.is_tensor(v))
            )
            assert batch.context.cu_seqlens[-1] == len(batch.input_ids)
            assert bool((batch.context.cu_seqlens.diff() >= 0).all())
    assert len(shapes) == 1


def test_masked_positions_point_at_what_the_labels_name() -> None:
    corpus = random_corpus(200)
    batch = load(row_source(corpus), 50, 50, 0.15)[0]
    planner = row_source(corpus).planner(ROW)
    rows, _ = planner.plan_rows(DataPosition(ROW), 50)
    clean = torch.from_numpy(collate(rows, ROW, corpus, special_ids()).ids.reshape(-1))
    used = batch.masked_labels != -100
    assert int(used.sum()) == batch.num_predictions > 50
    assert torch.equal(clean[batch.masked_positions[used]], batch.masked_labels[used])
    assert batch.masked_positions[~used].unique().tolist() == [0]
    changed = set((clean != batch.input_ids).nonzero().flatten().tolist())
    assert changed <= set(batch.masked_positions[used].tolist())


def test_ids_beyond_int16_survive() -> None:
    corpus = SyntheticCorpus([10])
    corpus.ids[:] = 65_535
    clean = collate(Rows.of([Row(0, 0, ((0, 10),))]), ROW, corpus, special_ids())
    assert np.array_equal(clean.ids[0, 1:11], np.full(10, 65_535))
