"""Adapters of PEFT on our model folders: trained there, merged, and read again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from maskwright.finetuning.predict import Predictor
from maskwright.model.init import initialize
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.model_folder.folder import save_model
from tests.finetuning.helpers import TOKENIZER
from tests.models import small_config

# The families of docs/interchange.md whose classifiers maskwright reads.
FAMILIES = ("bert", "modernbert", "eurobert", "roberta", "electra", "deberta-v2")
TEXTS = ["the cat sees", "dog"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore::FutureWarning")  # PEFT uses names that transformers renames
def test_an_adapter_of_all_linear_layers_is_trained_merged_and_read(family: Any, tmp_path: Path):
    peft: Any = pytest.importorskip("peft")
    config = small_config(preset=family, max_seq_length=64)
    model = MaskedLanguageModel(replace(config, vocab_size=TOKENIZER.vocab_size))
    initialize(model, seed=0)
    save_model(tmp_path / "model", model, TOKENIZER)
    auto, folder = transformers.AutoModelForSequenceClassification, str(tmp_path / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    lora = peft.LoraConfig(task_type="SEQ_CLS", target_modules="all-linear")
    adapted = peft.get_peft_model(auto.from_pretrained(folder, num_labels=2), lora)
    batch, losses = tokenizer(TEXTS, return_tensors="pt", padding=True), list[float]()
    optimizer = torch.optim.AdamW([p for p in adapted.parameters() if p.requires_grad], 1e-2)
    for _ in range(10):
        loss = adapted(**batch, labels=torch.tensor([0, 1])).loss
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert losses[-1] < losses[0]
    merged = adapted.merge_and_unload().eval()
    merged.save_pretrained(tmp_path / "merged")
    tokenizer.save_pretrained(tmp_path / "merged")
    with torch.no_grad():
        expected = merged(**batch).logits.softmax(-1)
    found = [[*answer.probabilities.values()] for answer in Predictor(tmp_path / "merged")(TEXTS)]
    assert torch.allclose(torch.tensor(found), expected, atol=1e-5)
