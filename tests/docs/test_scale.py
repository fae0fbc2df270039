"""The computed bytes of research/scale.md are those of its formulas and of the recipes."""

import re

import pytest
import torch

from maskwright.model.config import resolve_config
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.optim.groups import divide_parameters
from maskwright.runs.config import resolve
from tests.architecture.sources import ROOT


@pytest.mark.parametrize(("column", "recipe"), [(3, "babylm-10m"), (4, "base")])
def test_the_bytes_of_a_step_are_computed_as_the_page_says(column: int, recipe: str):
    config = resolve(recipe, None, {})
    resolved = resolve_config(
        config.model,
        vocab_size=config.tokenizer.vocab_size,
        max_seq_length=config.data.max_seq_length,
        pad_token_id=0,
        cls_token_id=1,
        sep_token_id=2,
        mask_token_id=3,
    )
    with torch.device("meta"):
        model = MaskedLanguageModel(resolved)
    matrices = divide_parameters({p: name for name, p in model.named_parameters()}).hidden
    names = {"P": sum(parameter.numel() for parameter in model.parameters())}
    names["L"] = sum(parameter.numel() for parameter in model.encoder.blocks.parameters())
    names["H"] = sum(matrix.numel() for matrix in matrices)
    names |= {"n": 8, "k": 4, "w": 2, "M": 1}
    text = (ROOT / "research" / "scale.md").read_text(encoding="utf-8")
    page = text.partition("### What a step sends")[2].partition("## Checkpoints")[0]
    rows = [line.strip("|").split("|") for line in page.splitlines() if " MB |" in line]
    assert len(rows) == 7
    for cells in rows:
        formula = re.sub(r"(?<=[\w)]) +(?=[\w(])", " * ", cells[2].strip()).replace("²", "**2")
        expected = eval(formula, {}, names) / 1e6
        assert cells[column].strip() == f"{expected:.0f} MB", cells[0]
    number = r"= ([\d.]+)\s+million"
    millions = re.findall(rf"{recipe} has P {number}, L {number}, H {number}", page)
    assert millions == [tuple(f"{names[name] / 1e6:.1f}" for name in "PLH")]
