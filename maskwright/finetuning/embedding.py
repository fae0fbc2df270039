"""The task ``embedding``: an encoder trained on text pairs by InfoNCE with in-batch negatives.

van den Oord et al., "Representation Learning with Contrastive Predictive Coding", 2018; the loss of
sentence-transformers' ``MultipleNegativesRankingLoss``, in both directions. R pairs, D width.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maskwright.errors import CorpusError, InputError
from maskwright.files import write_json
from maskwright.finetuning.batches import collate, plan_scoring
from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.examples import encode_texts
from maskwright.finetuning.fit import EarlyStopping, Loop, copy_weights
from maskwright.finetuning.metrics import VALID_LOSS
from maskwright.finetuning.network import batch_tokens_on, with_dropout
from maskwright.finetuning.results import RESULTS_NAME
from maskwright.finetuning.resume import record_start
from maskwright.finetuning.split import count_shared, split_examples
from maskwright.finetuning.table_files import Column, TableRow, read_columns
from maskwright.finetuning.task import CustomTask, Request, TaskFiles, Tell
from maskwright.formatting import describe_cut
from maskwright.logs import MetricsLog, Record
from maskwright.model.classifier import pool_mean
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.model_folder.folder import open_encoder, save_model
from maskwright.progress import Pulse
from maskwright.runs.run_directory import METRICS_NAME, MODEL_NAME
from maskwright.tokenizer.template import ModelInput
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.train.device import autocast, choose_device

TEMPERATURE = 0.05  # as in SimCSE, Gao et al. 2021
_CANDIDATES = 256  # validation pairs; each text is matched with all of their partners
_FEWEST = 32  # training pairs; fewer are too few to train on


class Embedding(CustomTask):
    """Similar vectors for the two texts of each pair; the model stays an encoder."""

    name = "embedding"
    roles = ("sentence1", "sentence2")
    unused = ("seeds", "metric", "class_weights", "pooling", "control", "test")

    def find_columns(self, train: Path, given: Mapping[str, Column]) -> dict[str, Column]:
        found = super().find_columns(train, given)
        return found if "sentence2" in found else {"sentence2": "sentence2", **found}

    def train(self, request: Request, out: Path, report: Tell) -> None:
        """Train on pairs; write the encoder and the share of texts that retrieve their partner.

        Raises:
            InputError: the model predicts no masked tokens.
        """
        config = request.config
        device = choose_device(config.device, field="device")
        loaded = open_encoder(request.model)
        if not isinstance(loaded.model, MaskedLanguageModel):
            raise InputError(
                f"{request.model} predicts no masked tokens. Give --task embedding one that does."
            )
        architecture = with_dropout(loaded.model.config, config.dropout)
        weights = dict(loaded.model.named_parameters())
        model = MaskedLanguageModel.from_tensors(architecture, weights).to(device)
        max_length = config.find_length(model.config.max_position_embeddings)
        train, valid, num_shared = load_pairs(request.files, loaded.tokenizer, max_length)
        report(f"{len(train):,} training pairs, {len(valid):,} validation pairs")
        if cut := train.num_cut + valid.num_cut:
            report(describe_cut(cut, 2 * (len(train) + len(valid)), max_length))
        if num_shared:
            report(
                f"{num_shared:,} validation pairs share a text with training pairs: scores on new "
                "text will be lower"
            )
        config = config.resolve(len(train), model.config.hidden_size)
        report(config.describe_budget())
        record_start(out, request, config, report)
        log, pulse = MetricsLog(out / METRICS_NAME), Pulse(report)
        records: list[Record] = []

        def keep(record: Record) -> None:
            log.write(record)
            records.append(record)
            pulse.say(_describe(record))

        pad_id = loaded.tokenizer.pad_id
        best = ContrastiveFitting(model, train, valid, pad_id, config, keep, pulse).run()
        log.close()
        write_json(out / RESULTS_NAME, {**best, "before": records[0], "train_pairs": len(train)})
        wraps = loaded.add_special_tokens
        save_model(out / MODEL_NAME, model.cpu(), loaded.tokenizer, add_special_tokens=wraps)
        if not best["step"]:
            report(
                "Training did not improve retrieval, so the original weights are saved. Try a lower"
                " --learning_rate, or more pairs."
            )


@dataclass(frozen=True)
class Pairs:
    """Pairs of texts as tokens: [N] first texts and their partners.

    `num_cut` of these 2 N texts were longer than `max_length` and were cut.
    """

    first: list[ModelInput]
    second: list[ModelInput]
    num_cut: int = 0

    def __len__(self) -> int:
        return len(self.first)

    @property
    def sides(self) -> tuple[list[ModelInput], list[ModelInput]]:
        """The first texts and the second texts of all pairs, each [N]."""
        return self.first, self.second


def load_pairs(files: TaskFiles, tokenizer: Tokenizer, max_length: int) -> tuple[Pairs, Pairs, int]:
    """Return training pairs, validation pairs, and how many of these share a text with training.

    Raises:
        CorpusError: a file cannot be read, there are too few pairs, or all validation pairs share
            a text.
    """

    def read(path: Path) -> list[TableRow]:
        return list(read_columns(path, files.columns, files.has_header))

    rows = read(files.train)
    if len(rows) < _FEWEST:
        raise CorpusError(f"{files.train} holds {len(rows)} pairs. Give at least {_FEWEST}.")
    if files.valid is None:
        rows, valid = split_examples(rows, [()] * len(rows), files.valid_share)
    else:
        valid = read(files.valid)
    valid = valid[:_CANDIDATES]

    def encode(chosen: Sequence[TableRow]) -> Pairs:
        texts = [row.texts for row in chosen]
        sides = ([(pair[side],) for pair in texts] for side in (0, 1))
        (first, cut), (second, more) = (encode_texts(side, tokenizer, max_length) for side in sides)
        return Pairs(first, second, cut + more)

    scored = encode(valid)
    if not rows or find_same(scored.first, scored.second).all():
        raise CorpusError(
            f"{files.valid or files.train}: {len(valid)} validation pairs are too few, or all "
            "share a text once tokenized. Give --valid or a larger --valid-share."
        )
    return encode(rows), scored, count_shared(rows, valid)


def contrast(first: Tensor, second: Tensor, same: Tensor | None = None) -> Tensor:
    """Return the InfoNCE loss of R pairs of vectors [R, D], with in-batch negatives.

    ``-1/R Σ log softmax(cos(a_i, b_j) / temperature)_i``, the mean of both directions.

    Args:
        same: [R, R] True where pairs i and j share a text, so that j is not a negative of i.
    """
    similar = compare(first, second, same) / TEMPERATURE
    own = torch.arange(len(first), device=first.device)
    return (F.cross_entropy(similar, own) + F.cross_entropy(similar.T, own)) / 2


def compare(first: Tensor, second: Tensor, same: Tensor | None = None) -> Tensor:
    """Return cosines [R, R] of all first texts with all partners; -inf where `same`, i != j."""
    similar = F.normalize(first, dim=-1) @ F.normalize(second, dim=-1).T
    if same is None:
        return similar
    others = same & ~torch.eye(len(first), dtype=torch.bool, device=first.device)
    return similar.masked_fill(others, float("-inf"))


def find_same(first: Sequence[ModelInput], second: Sequence[ModelInput]) -> Tensor:
    """Return [R, R] bool, symmetric: True where two pairs share a text, on either side."""
    numbers: dict[tuple[int, ...], int] = {}
    sides = [
        torch.tensor([numbers.setdefault(tuple(one.ids), len(numbers)) for one in side])
        for side in (first, second)
    ]
    same = torch.zeros(len(first), len(first), dtype=torch.bool)
    for ours in sides:
        for theirs in sides:
            same |= ours[:, None] == theirs[None, :]
    return same


class ContrastiveFitting:
    """Training of an encoder on pairs, with mean pooling as in ``maskwright embed``.

    Afterwards the model has the weights that scored best, which may be its original ones.
    """

    def __init__(
        self,
        model: MaskedLanguageModel,
        train: Pairs,
        valid: Pairs,
        pad_id: int,
        config: FinetuneConfig,
        log: Callable[[Record], None],
        pulse: Pulse | None = None,
    ) -> None:
        self.model, self.train, self.valid, self.pad_id = model, train, valid, pad_id
        self.config, self.log = config.resolve(len(train), model.config.hidden_size), log
        self.device = next(model.parameters()).device
        lengths = [len(a.ids) + len(b.ids) for a, b in zip(*train.sides, strict=True)]
        self.loop = Loop(self.config, lengths, config.first_seed, self.device, pulse)
        self._best: Record = {}
        self._weights: dict[str, Tensor] = {}

    def run(self) -> Record:
        """Train until the budget is spent or early stopping ends the run; return the best record.

        The first record is of step 0, before training. If it is the best, training did not help.

        Raises:
            TrainingError: a loss is not finite.
        """
        stopping = EarlyStopping(self.config, self.loop.num_steps)
        self._evaluate({"step": 0, "epoch": 0.0, "seconds": 0.0})
        encoder = nn.ModuleDict({"encoder": self.model.encoder})
        for point in self.loop.run(encoder, self._compute_loss):
            if stopping.is_over(point.step, self._evaluate(asdict(point))):
                break
        self.model.load_state_dict(self._weights)
        return self._best

    def _compute_loss(self, numbers: list[int]) -> Tensor:
        sides = [[side[number] for number in numbers] for side in self.train.sides]
        with autocast(self.config.precision, self.device):
            first, second = (self._embed(side) for side in sides)
        same = find_same(sides[0], sides[1]).to(self.device)
        return contrast(first.float(), second.float(), same)

    def _evaluate(self, point: Record) -> bool:
        """Score the model; if it is the best so far, copy its weights and return True."""
        record = {"seed": self.config.first_seed, **point, **self.score()}
        best = self._best
        # At the same retrieval score, the smaller loss is better.
        improved = not best or (record["found"], -record[VALID_LOSS]) > (
            best["found"],
            -best[VALID_LOSS],
        )
        if improved:
            self._best, self._weights = record, copy_weights(self.model)
        self.log(record)
        return improved

    @torch.no_grad()
    def score(self) -> dict[str, float]:
        """Return the loss, and the share of validation texts whose nearest neighbor is correct.

        As in the loss, other pairs that share a text are no candidates: every text is its own
        nearest neighbor.
        """
        self.model.eval()
        first, second = (self._embed_all(side) for side in self.valid.sides)
        same = find_same(self.valid.first, self.valid.second)
        nearest = compare(first, second, same).argmax(1)
        found = (nearest == torch.arange(len(first))).float().mean().item()
        loss = contrast(first, second, same).item()
        return {"found": found, "candidates": len(first), VALID_LOSS: loss}

    def _embed_all(self, inputs: Sequence[ModelInput]) -> Tensor:
        """Return vectors [N, D] on the CPU, computed in batches of similar lengths."""
        vectors = torch.zeros(len(inputs), self.model.config.hidden_size)
        lengths = [len(one.ids) for one in inputs]
        for numbers in plan_scoring(lengths, batch_tokens_on(self.device)):
            vectors[numbers] = self._embed([inputs[number] for number in numbers]).float().cpu()
        return vectors

    def _embed(self, inputs: Sequence[ModelInput]) -> Tensor:
        batch = collate(inputs, self.pad_id).to(self.device)
        hidden = self.model.encoder(batch.input_ids, batch.context)
        return pool_mean(hidden, batch.context)


def _describe(record: Record) -> str:
    step = "before training"
    if record["step"]:
        step = f"epoch {record['epoch']:.2f}  loss {record['loss']:.4f}"
    return f"  {step}  retrieved among {record['candidates']}: {record['found']:.4f}"
