"""Vectors of texts from pairs that belong together: InfoNCE with in-batch negatives.

van den Oord et al., "Representation Learning with Contrastive Predictive Coding", 2018; the loss of
sentence-transformers' ``MultipleNegativesRankingLoss``, in both directions. R pairs, D width.

Fine-tuning on pairs of texts with its output; the encoder stays what it was, for embed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from maskwright.console import Console
from maskwright.errors import CorpusError, InputError
from maskwright.files import write_json
from maskwright.finetuning.batches import collate, plan_scoring
from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.examples import encode_texts, read_texts
from maskwright.finetuning.files import ExampleFiles
from maskwright.finetuning.folder import RESULTS_NAME, Asked, begin_run, owning_run
from maskwright.finetuning.loop import Loop, Patience, Report
from maskwright.finetuning.run import describe_budget
from maskwright.finetuning.scoring import batch_tokens_on
from maskwright.finetuning.split import count_shared, split_pairs
from maskwright.finetuning.tables import LabelledRow, read_columns
from maskwright.formatting import describe_cut
from maskwright.logs import MetricsLog
from maskwright.model.classifier import pool_mean
from maskwright.model.pretraining import MaskedLanguageModel
from maskwright.model_folder.folder import open_encoder, save_model
from maskwright.progress import Pulse
from maskwright.runs.run_directory import METRICS_NAME, MODEL_NAME
from maskwright.tokenizer.template import ModelInput
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.train.device import autocast, choose_device

TEMPERATURE = 0.05  # as in SimCSE, Gao et al. 2021
_CANDIDATES = 256  # among which held-out texts look for their partners
_FEWEST = 32  # pairs from which anything can be learned


@dataclass(frozen=True)
class Pairs:
    """Pairs of texts that belong together, as tokens: [N] first ones and their partners.

    `num_cut` of these 2 N texts were longer than the model takes.
    """

    first: list[ModelInput]
    second: list[ModelInput]
    num_cut: int = 0

    def __len__(self) -> int:
        return len(self.first)

    @property
    def sides(self) -> tuple[list[ModelInput], list[ModelInput]]:
        """The two texts of all pairs, each [N]."""
        return self.first, self.second


def read_pairs(
    files: ExampleFiles, tokenizer: Tokenizer, max_length: int
) -> tuple[Pairs, Pairs, int]:
    """The pairs to train on, those to score on, and how many of these have a text of the others.

    Raises:
        CorpusError: what `read_columns` raises, fewer pairs than anything can be learned from, or
            no two to score on that share no text.
    """

    def read(path: Path) -> list[LabelledRow]:
        return list(read_columns(path, files.columns, files.has_header))

    rows = read(files.train)
    if len(rows) < _FEWEST:
        raise CorpusError(f"{files.train} holds {len(rows)} pairs; at least {_FEWEST} are needed.")
    if files.valid is None:
        rows, valid = split_pairs(rows, files.valid_share)
    else:
        valid = read(files.valid)
    valid = valid[:_CANDIDATES]

    def encode(chosen: Sequence[LabelledRow]) -> Pairs:
        texts = [read_texts(row) for row in chosen]
        sides = ([(pair[side],) for pair in texts] for side in (0, 1))
        (first, cut), (second, more) = (encode_texts(side, tokenizer, max_length) for side in sides)
        return Pairs(first, second, cut + more)

    scored = encode(valid)
    if not rows or find_same(scored.first, scored.second).all():
        raise CorpusError(
            f"{files.valid or files.train}: {len(valid)} pairs to score on are too few, or all "
            "share a text as the tokenizer reads them. Give --valid or a larger --valid-share."
        )
    return encode(rows), scored, count_shared(rows, valid)


def contrast(first: Tensor, second: Tensor, same: Tensor | None = None) -> Tensor:
    """The loss of R pairs of vectors [R, D]: each is to find its own among all of the others.

    ``-1/R Σ log softmax(cos(a_i, b_j) / temperature)_i``, the mean of both directions.

    Args:
        same: [R, R] where a text of pair i is one of pair j, so that j is no wrong answer.
    """
    similar = compare(first, second, same) / TEMPERATURE
    own = torch.arange(len(first), device=first.device)
    return (F.cross_entropy(similar, own) + F.cross_entropy(similar.T, own)) / 2


def compare(first: Tensor, second: Tensor, same: Tensor | None = None) -> Tensor:
    """Cosines [R, R] of all first ones with all partners; -inf where another pair is the same."""
    similar = F.normalize(first, dim=-1) @ F.normalize(second, dim=-1).T
    if same is None:
        return similar
    others = same & ~torch.eye(len(first), dtype=torch.bool, device=first.device)
    return similar.masked_fill(others, float("-inf"))


def find_same(first: Sequence[ModelInput], second: Sequence[ModelInput]) -> Tensor:
    """[R, R] bool, symmetric: whether any text of one pair is one of the other, on either side."""
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
    """Training of an encoder on pairs; mean pooling, as ``maskwright embed`` has it.

    Afterwards the model has the weights that scored best, which may be those that it came with.
    """

    def __init__(
        self,
        model: MaskedLanguageModel,
        train: Pairs,
        valid: Pairs,
        pad_id: int,
        config: FinetuneConfig,
        report: Report,
        pulse: Pulse | None = None,
    ) -> None:
        self.model, self.train, self.valid, self.pad_id = model, train, valid, pad_id
        self.config, self.report = config.settle(len(train), model.config.hidden_size), report
        self.device = next(model.parameters()).device
        lengths = [len(a.ids) + len(b.ids) for a, b in zip(train.first, train.second, strict=True)]
        self.loop = Loop(self.config, lengths, config.first_seed, self.device, pulse or Pulse())
        self._best: dict[str, Any] = {}
        self._weights: dict[str, Tensor] = {}

    def run(self) -> dict[str, Any]:
        """Trains to the end of the budget, or until no score gets better; the best record.

        The first record is that of step 0, before training; if it is the best, nothing was gained.

        Raises:
            TrainingError: a loss that is not finite.
        """
        patience = Patience(self.config, self.loop.num_steps)
        self._evaluate({"step": 0, "epoch": 0.0, "seconds": 0.0})
        encoder = nn.ModuleDict({"encoder": self.model.encoder})
        for moment in self.loop.run(encoder, self._compute_loss):
            if patience.is_over(moment.step, self._evaluate(asdict(moment))):
                break
        self.model.load_state_dict(self._weights)
        return self._best

    def _compute_loss(self, numbers: list[int]) -> Tensor:
        sides = [[side[number] for number in numbers] for side in self.train.sides]
        with autocast(self.config.precision, self.device):
            first, second = (self._embed(side) for side in sides)
        same = find_same(sides[0], sides[1]).to(self.device)
        return contrast(first.float(), second.float(), same)

    def _evaluate(self, moment: Mapping[str, Any]) -> bool:
        record = {"seed": self.config.first_seed, **moment, **self.score()}
        best = self._best
        # Of as many that are found the smaller loss is the better one.
        improved = not best or (record["found"], -record["valid_loss"]) > (
            best["found"],
            -best["valid_loss"],
        )
        if improved:
            state = self.model.state_dict()
            self._best = record
            self._weights = {name: tensor.detach().clone() for name, tensor in state.items()}
        self.report(record)
        return improved

    @torch.no_grad()
    def score(self) -> dict[str, float]:
        """How many of the held-out texts find their own partner among those of all other pairs.

        Other pairs with one of the same texts are left out, as they are of the loss: to find them
        is neither right nor wrong, and a text itself is always the nearest to it.
        """
        self.model.eval()
        first, second = (self._embed_all(side) for side in self.valid.sides)
        same = find_same(self.valid.first, self.valid.second)
        nearest = compare(first, second, same).argmax(1)
        found = (nearest == torch.arange(len(first))).float().mean().item()
        loss = contrast(first, second, same).item()
        return {"found": found, "candidates": len(first), "valid_loss": loss}

    def _embed_all(self, inputs: Sequence[ModelInput]) -> Tensor:
        """Vectors [N, D] on the CPU, a few texts of similar length at a time."""
        vectors = torch.zeros(len(inputs), self.model.config.hidden_size)
        lengths = [len(one.ids) for one in inputs]
        for numbers in plan_scoring(lengths, batch_tokens_on(self.device)):
            vectors[numbers] = self._embed([inputs[number] for number in numbers]).float().cpu()
        return vectors

    def _embed(self, inputs: Sequence[ModelInput]) -> Tensor:
        batch = collate(inputs, self.pad_id).to(self.device)
        hidden = self.model.encoder(batch.input_ids, batch.context)
        return pool_mean(hidden, batch.context)


def finetune_embedder(folder: Path, files: ExampleFiles, config: FinetuneConfig, out: Path) -> None:
    """Train on pairs, print how many find their partners, and write the run directory.

    Raises:
        InputError: another process trains in `out`, or it holds something else.
    """
    console = Console(highlight=False, soft_wrap=True)

    def say(line: str) -> None:
        console.print(line, markup=False)

    asked = Asked(folder, files, config)
    with owning_run(out, asked, say) as is_due:
        if is_due:
            _run(asked, out, console)
        else:
            say(f"{out} is finished already: nothing is left to do")
        say(f"\n{out / MODEL_NAME}: try  maskwright embed {out} --file … --out vectors.npy")


def _run(asked: Asked, out: Path, console: Console) -> None:
    folder, files, config = asked.model, asked.files, asked.config
    device = choose_device(config.device, field="device")
    loaded = open_encoder(folder)
    if not isinstance(loaded.model, MaskedLanguageModel):
        raise InputError(f"{folder} is a discriminator; embeddings are learned by other models.")
    model = _with_dropout(loaded.model, config.dropout).to(device)
    max_length = config.find_length(model.config.max_position_embeddings)
    train, valid, num_shared = read_pairs(files, loaded.tokenizer, max_length)
    console.print(f"{len(train):,} pairs to train on, {len(valid):,} to score on")
    if cut := train.num_cut + valid.num_cut:
        console.print(describe_cut(cut, 2 * (len(train) + len(valid)), max_length))
    if num_shared:
        console.print(
            f"{num_shared:,} of those to score on share a text with some to train on: "
            "scores are too good for new text"
        )
    config = config.settle(len(train), model.config.hidden_size)
    console.print(describe_budget(config))
    begin_run(out, asked, config, lambda line: console.print(line, markup=False))
    log = MetricsLog(out / METRICS_NAME)
    pulse = Pulse(console.print)

    scores: list[dict[str, Any]] = []

    def report(record: dict[str, Any]) -> None:
        log.write(record)
        scores.append(record)
        pulse.say(_describe(record))

    pad_id = loaded.tokenizer.pad_id
    fitting = ContrastiveFitting(model, train, valid, pad_id, config, report, pulse)
    best = fitting.run()
    log.close()
    write_json(out / RESULTS_NAME, {**best, "before": scores[0], "train_pairs": len(train)})
    save_model(
        out / MODEL_NAME,
        model.cpu(),
        loaded.tokenizer,
        add_special_tokens=loaded.add_special_tokens,
    )
    if not best["step"]:
        console.print(
            "No step found more partners than the model before training: it is saved as it was. "
            "Try a lower --learning_rate, or more pairs."
        )


def _describe(record: dict[str, Any]) -> str:
    moment = "before training"
    if record["step"]:
        moment = f"epoch {record['epoch']:.2f}  loss {record['loss']:.4f}"
    return f"  {moment}  found among {record['candidates']}: {record['found']:.4f}"


def _with_dropout(model: MaskedLanguageModel, dropout: float) -> MaskedLanguageModel:
    config = replace(
        model.config, attention_dropout=dropout, hidden_dropout=dropout, embedding_dropout=dropout
    )
    return MaskedLanguageModel.from_tensors(config, dict(model.named_parameters()))
