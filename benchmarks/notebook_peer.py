"""The peer of `wiki-sentences`: model and loop of the from-scratch notebook, in plain torch.

    python -m benchmarks.notebook_peer DATA RUN --minutes 30

DATA is a prepared folder of sentences, RUN a folder to write. As in model.py and the notebook of
shreydan/masked-language-modeling, commit 8670081: every sentence padded to 128 slots, 128 of them
a step, logits for all slots, 15 % hidden and all of it [MASK], Adam, OneCycle with its cycle of
beta1, no clipping; a block normalizes what its residual is added to, and drops attention scores
before the softmax. What is ours: tokens and splits, the clock in place of 100 epochs, the
validation on the pinned masks of the recipe, and checkpoints: run again, it goes on.

B rows, L slots, H heads, K head size, D width, V vocabulary.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maskwright.data.config import DataConfig
from maskwright.data.masking import IGNORED
from maskwright.evaluation.pinned import PinnedText
from maskwright.files import write_text
from maskwright.logs import read_metrics
from maskwright.optim.config import OptimConfig
from maskwright.optim.schedules import learning_rate_scale
from maskwright.pretraining.prepared_data import PreparedData

LENGTH, ROWS, RATE = 128, 128, 0.15
PEAK = 6e-4
SCHEDULE = OptimConfig(
    schedule="onecycle", warmup_share=0.3, initial_share=1 / 25, final_share=1 / 25e4
)
VALID_TOKENS = 65_536
NUM_VALIDATIONS = 15
CHECKPOINT_SECONDS = 120


class Attention(nn.Module):
    """Self-attention: [B, L, D] -> [B, L, D]."""

    def __init__(self, size: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(size, 3 * size, bias=False)
        self.output = nn.Linear(size, size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, is_token: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        scores = self.dropout(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]))
        scores = scores.masked_fill(~is_token[:, None, None, :], float("-inf"))
        return self.output((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """The notebook's block: its residual is added to what was normalized."""

    def __init__(self, size: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(size, eps=1e-8)
        self.attention = Attention(size, num_heads, dropout)
        self.mlp_norm = nn.RMSNorm(size, eps=1e-8)
        self.mlp = nn.Sequential(
            nn.Linear(size, 4 * size), nn.Dropout(dropout), nn.GELU(), nn.Linear(4 * size, size)
        )

    def forward(self, x: Tensor, is_token: Tensor) -> Tensor:
        x = self.attention_norm(x)
        x = x + self.attention(x, is_token)
        x = self.mlp_norm(x)
        return x + self.mlp(x)


class NotebookModel(nn.Module):
    """6 layers of width 256: [B, L] ids -> [B, L, V] logits; 6,861,056 parameters."""

    def __init__(self, vocab_size: int, pad_id: int, size: int = 256, num_layers: int = 6) -> None:
        super().__init__()
        self.pad_id = pad_id
        self.word, self.position = nn.Embedding(vocab_size, size), nn.Embedding(LENGTH, size)
        self.blocks = nn.ModuleList(Block(size, 8, 0.1) for _ in range(num_layers))
        self.norm = nn.RMSNorm(size, eps=1e-8)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, ids: Tensor) -> Tensor:
        is_token = ids != self.pad_id
        x = self.word(ids) + self.position.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x, is_token)
        return self.norm(x) @ self.word.weight.T


class Peer:
    """A run of the notebook's recipe: its model, optimizer, data and clock."""

    def __init__(self, data: PreparedData, run: Path, minutes: float) -> None:
        self.data, self.run, self.budget = data, run, 60 * minutes
        tokenizer = data.tokenizer
        torch.manual_seed(0)
        self.model = NotebookModel(tokenizer.vocab_size, tokenizer.pad_id)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=PEAK / 25)
        self.rows = pad_documents(data)
        self.step = self.tokens = self.validations = 0
        self.seconds = 0.0
        self.checkpoint = run / "checkpoint.pt"
        if self.checkpoint.exists():
            self._restore(torch.load(self.checkpoint, weights_only=True))

    @property
    def progress(self) -> float:
        return min(self.seconds / self.budget, 1.0)

    def train(self) -> dict[str, Any]:
        """To the end of the budget; the last validation."""
        began, saved = time.perf_counter() - self.seconds, self.seconds
        scores = self._last_scores()
        while self.progress < 1:
            self.train_step()
            self.seconds = time.perf_counter() - began
            if int(self.progress * NUM_VALIDATIONS + 1e-9) > self.validations:
                self.validations = int(self.progress * NUM_VALIDATIONS + 1e-9)
                scores = self.validate()
                self.seconds = time.perf_counter() - began
            if self.seconds - saved > CHECKPOINT_SECONDS or self.progress >= 1:
                self.save()
                saved = self.seconds
        return scores

    def train_step(self) -> None:
        """One step on the next 128 sentences of a shuffled epoch."""
        self.model.train()
        steps_an_epoch = math.ceil(len(self.rows) / ROWS)
        epoch, place = divmod(self.step, steps_an_epoch)
        generator = torch.Generator().manual_seed(epoch)
        order = torch.randperm(len(self.rows), generator=generator)
        clean = self.rows[order[place * ROWS : (place + 1) * ROWS]].long()
        is_token = clean != self.model.pad_id
        torch.manual_seed(self.step)  # masks and dropout, so that a resumed run is the same run
        hidden = (torch.rand(clean.shape) < RATE) & is_token & (clean != self.data.tokenizer.unk_id)
        labels = clean.masked_fill(~hidden, IGNORED)
        logits = self.model(clean.masked_fill(hidden, self.data.tokenizer.mask_id))
        self._set_rates()
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.step += 1
        self.tokens += int(is_token.sum())

    def _set_rates(self) -> None:
        """OneCycle: while the rate rises to its peak, beta1 falls from 0.95 to 0.85, and back."""
        scale = learning_rate_scale(SCHEDULE, self.progress)
        start = SCHEDULE.initial_share if self.progress < SCHEDULE.warmup_share else 0.0
        beta1 = 0.95 - 0.1 * (scale - start) / (1 - start)
        for group in self.optimizer.param_groups:
            group["lr"], group["betas"] = PEAK * scale, (beta1, 0.999)

    @torch.no_grad()
    def validate(self) -> dict[str, Any]:
        """Adds a line to metrics.jsonl: loss and accuracy on pinned masks."""
        self.model.eval()
        loss = correct = count = 0
        for ids, positions, labels in pinned_batches(self.data, VALID_TOKENS):
            logits = self.model(ids).flatten(0, 1)[positions]
            loss += F.cross_entropy(logits, labels, reduction="sum").item()
            correct += int((logits.argmax(-1) == labels).sum())
            count += len(labels)
        scores = {
            "split": "valid", "step": self.step, "tokens": self.tokens,
            "seconds": round(self.seconds, 1), "loss": loss / count,
            "masked_accuracy": correct / count, "num_predictions": count,
        }  # fmt: skip
        with (self.run / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(scores) + "\n")
        print(scores, flush=True)
        return scores

    def _last_scores(self) -> dict[str, Any]:
        """Those at the end, or none; what was written after the last checkpoint is dropped."""
        file = self.run / "metrics.jsonl"
        kept = [record for record in read_metrics(file) if record["step"] <= self.step]
        write_text(file, "".join(json.dumps(record) + "\n" for record in kept))
        return kept[-1] if kept else {}

    def save(self) -> None:
        """Writes a checkpoint in the place of the last."""
        state = {
            "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
            "counts": [self.step, self.tokens, self.validations, self.seconds],
        }  # fmt: skip
        temporary = self.checkpoint.with_suffix(".new")
        torch.save(state, temporary)
        temporary.replace(self.checkpoint)

    def _restore(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.tokens, self.validations, self.seconds = state["counts"]


def pad_documents(data: PreparedData) -> Tensor:
    """All sentences for training, cut or padded to `LENGTH`: [N, L], as small integers."""
    lengths = data.train.document_lengths.tolist()
    rows = torch.full((len(lengths), LENGTH), data.tokenizer.pad_id, dtype=torch.int32)
    start = 0
    for number, length in enumerate(lengths):
        kept = min(length, LENGTH)
        ids = data.train.tokens(start, start + kept).astype("int32")
        rows[number, :kept] = torch.from_numpy(ids)
        start += length
    return rows


def pinned_batches(data: PreparedData, num_tokens: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Ids [B, L], places of hidden tokens in them [M], and these tokens [M], as in the recipe."""
    config = DataConfig(max_seq_length=LENGTH, special_tokens=False, packed=False)
    special = data.special_ids(wrap=False)
    for batch in PinnedText(data.valid, config, special, data.vocabulary, num_tokens).batches():
        used = batch.masked_labels != IGNORED
        ids = batch.input_ids.view(-1, LENGTH)
        yield ids, batch.masked_positions[used], batch.masked_labels[used]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path, help="a prepared folder of sentences")
    parser.add_argument("run", type=Path, help="a folder to write, or to go on with")
    parser.add_argument("--minutes", type=float, default=30)
    arguments = parser.parse_args()
    arguments.run.mkdir(parents=True, exist_ok=True)
    Peer(PreparedData(arguments.data), arguments.run, arguments.minutes).train()


if __name__ == "__main__":
    main()
