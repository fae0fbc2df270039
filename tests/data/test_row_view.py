"""Rows as ``maskwright inspect`` shows them are those that a step trains on."""

from maskwright.data.config import MaskingConfig
from maskwright.data.loader import StepRequest
from maskwright.data.row_view import view_rows
from maskwright.data.rows import DataPosition
from tests.helpers import random_corpus, row_source

LENGTH, ROWS = 16, 150  # more rows than are loaded at once


def test_later_rows_of_a_step_are_causal_if_its_first_is() -> None:
    source = row_source(random_corpus(), masking=MaskingConfig(causal_share=0.5))
    kinds = set[bool]()
    for epoch in range(8):
        position = DataPosition(LENGTH, epoch)
        loaded = source.load(StepRequest(LENGTH, ROWS, ROWS, 0.15), position)
        [batch] = loaded.micro_batches
        shown = list(view_rows(source, position, ROWS, 0.15))
        assert [i for row in shown for i in row.ids] == batch.input_ids.tolist()
        predicted = sum(label >= 0 for row in shown for label in row.labels)
        assert predicted == batch.num_predictions
        kinds.add(loaded.is_causal)
    assert kinds == {False, True}
