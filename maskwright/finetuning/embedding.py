"""The task ``embedding``: an encoder with similar vectors for texts that belong together.

The columns of the table select the loss. Pairs are trained with in-batch negatives, and optionally
with negatives from a third column or from mining. Pairs with a number are trained so that their
cosines have the order of the numbers. In text without labels, the positive of a text is the text
itself with another dropout mask (Gao et al., "SimCSE", 2021), or a decoder rebuilds the text
(`denoising`); the score is the retrieval of the second half of a text by its first half. R pairs, D
width.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import compress
from pathlib import Path

import torch
from torch import Tensor, nn

from maskwright.errors import ConfigError, CorpusError, InputError
from maskwright.files import write_json
from maskwright.finetuning.column_roles import Column, normalize_name
from maskwright.finetuning.config import FinetuneConfig, Request, TaskFiles
from maskwright.finetuning.contrastive import (
    Decoder,
    compare,
    contrast,
    delete_tokens,
    find_same,
    mine_negatives,
    nest,
    number_texts,
    order,
    overlap,
)
from maskwright.finetuning.examples import collate, encode_texts
from maskwright.finetuning.fit import EarlyStopping, Loop, copy_weights
from maskwright.finetuning.metrics import RESULTS_NAME, VALID_LOSS, compute_metric, is_better
from maskwright.finetuning.network import batch_tokens_on, with_dropout
from maskwright.finetuning.resume import record_start
from maskwright.finetuning.split import count_shared, split_examples
from maskwright.finetuning.table_files import TableRow, list_names, open_lines, read_columns
from maskwright.finetuning.task import CustomTask, Tell
from maskwright.formatting import describe_cut, write_code, write_code_block
from maskwright.inference.embed import Pooling
from maskwright.inference.text_model import plan_batches
from maskwright.logs import MetricsLog, Record
from maskwright.model.classifier import pool_mean
from maskwright.model.masked_lm import BareEncoder, EncoderModel, MaskedLanguageModel
from maskwright.model_folder.card import SIMILARITY, HubMetadata
from maskwright.model_folder.folder import adapt_card, open_encoder, save_model, write_dimensions
from maskwright.model_folder.sentence_modules import find_modules, find_pooling, write_modules
from maskwright.progress import Pulse
from maskwright.runs.run_directory import METRICS_NAME, MODEL_NAME
from maskwright.tokenizer.files import read_max_length
from maskwright.tokenizer.template import ModelInput, list_added_ids
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.train.device import autocast, choose_device, describe_computation

NEGATIVE, SCORE = "negative", "score"
USUAL_NAMES = {NEGATIVE: ("negative", "hard_negative"), SCORE: ("score", "similarity")}
_LABELS = frozenset({"label", "labels", "gold_label", "is_duplicate", "target"})
_CANDIDATES = 256  # validation pairs; each text is matched with all of their partners
_FEWEST = 32  # training pairs; fewer are too few to train on
_FEWEST_CHARACTERS = 24  # of a text that is split into halves
_OBJECTIVES = {
    "simcse": "each text is its own positive, under another dropout mask (SimCSE)",
    "tsdae": "a decoder rebuilds each text from the vector of 40 % of its tokens (TSDAE)",
}


class Embedding(CustomTask):
    """Similar vectors for the two texts of each pair; the model stays an encoder."""

    name = "embedding"
    roles = ("sentence1", "sentence2", NEGATIVE, SCORE)
    unused = ("seeds", "folds", "metric", "class_weights", "pooling", "control", "test", "teacher")

    def find_columns(self, train: Path, given: Mapping[str, Column]) -> dict[str, Column]:
        if is_text(train) and not given:
            return {}
        found = super().find_columns(train, given)
        free = [name for name in list_names(train) if name not in found.values()]
        for role in USUAL_NAMES:
            if role not in found and (name := find_usual(role, free)):
                found[role] = name
        labels = [name for name in free if normalize_name(name) in _LABELS]
        if labels and not given and not found.keys() & USUAL_NAMES:
            raise InputError(
                f"{train} has a column {labels[0]}, but --task embedding takes all pairs as texts "
                f"that belong together. Give --columns score={labels[0]} if it says how much they "
                "are alike; else remove the other pairs, and this column."
            )
        if NEGATIVE in found and SCORE in found:
            raise InputError(
                f"{train} has negatives ({found[NEGATIVE]}) and numbers ({found[SCORE]}), which "
                "cannot be combined. Remove a column."
            )
        return found if "sentence2" in found else {"sentence2": "sentence2", **found}

    def train(self, request: Request, out: Path, report: Tell) -> None:
        """Train on pairs; write the encoder and the share of texts that retrieve their partner.

        Raises:
            InputError, ModelFolderError: as `VectorFolder.open`.
        """
        config = request.config
        device = choose_device(config.device, field="device")
        start = VectorFolder.open(request.model, config.dropout)
        model = start.model.to(device)
        config.find_length(model.config.max_position_embeddings)
        max_length = config.max_length or start.longest
        self.show_columns(request.files, report)
        train, valid, num_shared = load_pairs(request.files, start.tokenizer, max_length)
        report(f"{len(train):,} training pairs, {len(valid):,} validation pairs")
        if is_text(request.files.train):
            report(f"no labels: {_OBJECTIVES[config.objective]}")
        if cut := train.num_cut + valid.num_cut:
            report(describe_cut(cut, 2 * (len(train) + len(valid)), max_length))
        if num_shared:
            report(
                f"{num_shared:,} validation pairs share a text with training pairs: scores on new "
                "text will be lower"
            )
        _check_losses(config, request.files.train, train, model)
        config = config.resolve(len(train), model.config.hidden_size)
        computation = describe_computation(config.precision, device)
        report(config.describe_budget(computation))
        record_start(out, request, config, report)
        log, pulse = MetricsLog(out / METRICS_NAME), Pulse(report)
        records: list[Record] = []

        def keep(record: Record) -> None:
            log.write(record)
            records.append(record)
            pulse.say(_describe(record))

        parts = start.tokenizer, config, keep, pulse, start.pooling
        fitting = ContrastiveFitting(model, train, valid, *parts)
        if config.negatives == "mined":
            report("mining negatives")
            fitting.mine()
        best = fitting.run()
        log.close()
        facts = {"before": records[0], "train_pairs": len(train), "computation": computation}
        write_json(out / RESULTS_NAME, {**best, **facts})
        card = _write_card(request.origin, len(train), records[0], best)
        start.save(out / MODEL_NAME, card, config.dimensions, max_length)
        if not best["step"]:
            report(
                "Training did not improve the score, so the original weights are saved. Try a lower"
                " --learning_rate, or more pairs."
            )


def _write_card(origin: str, num_pairs: int, before: Record, best: Record) -> str:
    """Return the introduction of the model card: base model, number of pairs, and scores."""
    scores = "\n".join(dict.fromkeys(_describe(record) for record in (before, best)))
    return (
        "# A model of text vectors\n\n"
        f"Fine-tuned by maskwright from {write_code(origin)} on {num_pairs:,} pairs of texts. On "
        f"validation pairs, which selected the weights:\n\n{write_code_block(scores, 'text')}"
    )


def find_usual(role: str, names: Sequence[str]) -> str | None:
    """Return the first of the columns that has a usual name of the role; None if none has."""
    return next((name for name in names if normalize_name(name) in USUAL_NAMES[role]), None)


def _check_losses(config: FinetuneConfig, file: Path, train: "Pairs", model: EncoderModel) -> None:
    """Raise ConfigError if a setting of the loss conflicts with the file or the model."""
    denoises, width = config.objective == "tsdae", model.config.hidden_size
    if denoises and isinstance(model, BareEncoder):
        rule = "needs a model that predicts masked tokens, but this encoder has no head"
        raise ConfigError("objective", "tsdae", rule, "Remove it.")
    if denoises and not is_text(file):
        rule = f"needs text without labels (.txt), but {file} is a table"
        raise ConfigError("objective", "tsdae", rule, "Remove it.")
    if denoises and (config.dimensions or config.negatives == "mined"):
        rule = "cannot be combined with dimensions or mined negatives"
        raise ConfigError("objective", "tsdae", rule, "Remove one of them.")
    if config.negatives == "mined" and (train.negatives or train.scores is not None):
        has = "negatives" if train.negatives else "numbers"
        rule = f"cannot be combined with examples that have {has}"
        raise ConfigError("negatives", "mined", rule, "Remove the setting or the column.")
    if not config.dropout and not denoises and torch.equal(*number_texts(*train.sides)):
        rule = "must be above 0 for text without labels, whose positives differ only by dropout"
        raise ConfigError("dropout", config.dropout, rule, "Try 0.1.")
    for size in config.dimensions:
        if not 1 <= size < width:
            rule = f"must be between 1 and {width - 1}, below the hidden size of the model"
            raise ConfigError("dimensions", size, rule, "The full vector is always trained.")


@dataclass(frozen=True)
class Pairs:
    """Pairs of texts as tokens: [N] first texts and their partners.

    Attributes:
        negatives: [N] texts that do not belong to the first texts; empty if there are none.
        scores: [N] the similarity of the texts of each pair; None if all belong together.
        num_cut: the number of texts that were longer than `max_length` and were cut.
    """

    first: list[ModelInput]
    second: list[ModelInput]
    negatives: Sequence[ModelInput] = ()
    scores: Tensor | None = None
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
        if is_text(path):
            return read_plain(path)
        columns = files.columns or Embedding().find_columns(path, {})
        return list(read_columns(path, columns, files.has_header))

    rows = read(files.train)
    if len(rows) < _FEWEST:
        raise CorpusError(f"{files.train} holds {len(rows)} rows. Give at least {_FEWEST}.")
    if files.valid is None:
        # More than is scored would be lost to training.
        most = 1.0 if SCORE in rows[0].values else _CANDIDATES / len(rows)
        rows, valid = split_examples(rows, [()] * len(rows), min(files.valid_share, most))
    else:
        valid = read(files.valid)
    if is_text(scored_file := files.valid or files.train):
        valid, short = _halve_all(valid, scored_file)
        rows += short if files.valid is None else []
    valid = valid if valid and SCORE in valid[0].values else valid[:_CANDIDATES]

    def encode(chosen: Sequence[TableRow], path: Path) -> Pairs:
        texts = [row.texts_of(("sentence1", "sentence2", NEGATIVE)) for row in chosen]
        texts = [each if len(each) > 1 else each * 2 for each in texts]
        columns = [
            encode_texts([(text,) for text in column], tokenizer, max_length)
            for column in zip(*texts, strict=True)
        ]
        inputs = [column for column, _ in columns]
        numbers = [row.number(SCORE) for row in chosen if SCORE in row.values]
        scores = torch.tensor(numbers) if numbers else None
        negatives = inputs[2] if len(inputs) > 2 else ()
        if scores is not None and (scores == scores[0]).all():
            rule = f"all {len(chosen)} pairs have the score {numbers[0]:g}, which is no order"
            raise CorpusError(f"{path}: {rule}. Give other scores, or remove the column.")
        return Pairs(inputs[0], inputs[1], negatives, scores, sum(cut for _, cut in columns))

    scored = encode(valid, scored_file) if valid else Pairs([], [])
    if not rows or (scored.scores is None and find_same(scored.first, scored.second).all()):
        raise CorpusError(
            f"{scored_file}: {len(valid)} validation pairs are too few, or all share a text once "
            "tokenized. Give --valid or a larger --valid-share."
        )
    return encode(rows, files.train), scored, count_shared(rows, valid)


def is_text(path: Path) -> bool:
    """Return True if a file holds one text per line without labels, and is not a table."""
    return path.name.removesuffix(".gz").endswith(".txt")


def read_plain(path: Path) -> list[TableRow]:
    """Return the lines of a text file that are not blank."""
    name, lines = open_lines(path)
    numbered = ((number, line.strip()) for number, line in enumerate(lines, start=1))
    return [TableRow(f"{name}:{n}", {"sentence1": line}) for n, line in numbered if line]


def _halve_all(rows: list[TableRow], path: Path) -> tuple[list[TableRow], list[TableRow]]:
    """Return the halves of the lines that are long enough, and the other lines."""
    is_long = [len(row.texts[0]) >= _FEWEST_CHARACTERS for row in rows]
    if rows and not any(is_long):
        rule = f"all {len(rows)} held-out lines are shorter than {_FEWEST_CHARACTERS} characters"
        remedy = "Give longer lines, or a table of pairs, with --valid."
        raise CorpusError(f"{path}: {rule}, too short to be split into halves. {remedy}")
    halves = [halve(row) for row in compress(rows, is_long)]
    return halves, [row for row, fits in zip(rows, is_long, strict=True) if not fits]


def halve(row: TableRow) -> TableRow:
    """Return the halves of a text as a pair, which belong together more than other halves."""
    text = row.texts[0]
    middle = len(text) // 2
    near = (i for i in range(middle // 2, 2 * middle - middle // 2) if text[i].isspace())
    cut = min(near, key=lambda i: abs(i - middle), default=middle)  # some scripts have no blanks
    return TableRow(row.place, {"sentence1": text[:cut], "sentence2": text[cut:].lstrip()})


class ContrastiveFitting:
    """Training of an encoder on pairs, with the pooling of ``maskwright embed``.

    Afterwards the model has the weights that scored best, which may be its original ones.
    """

    def __init__(
        self,
        model: MaskedLanguageModel | BareEncoder,
        train: Pairs,
        valid: Pairs,
        tokenizer: Tokenizer,
        config: FinetuneConfig,
        log: Callable[[Record], None],
        pulse: Pulse | None = None,
        pooling: Pooling = "mean",
    ) -> None:
        self.model, self.train, self.valid, self.pooling = model, train, valid, pooling
        self.pad_id, self.num_added = tokenizer.pad_id, len(list_added_ids(tokenizer))
        self.config, self.log = config.resolve(len(train), model.config.hidden_size), log
        self.device = next(model.parameters()).device
        lengths = [len(a.ids) + len(b.ids) for a, b in zip(*train.sides, strict=True)]
        self.loop = Loop(self.config, lengths, config.first_seed, self.device, pulse)
        self.metric = "found" if valid.scores is None else "spearman"
        self._best: Record = {}
        self._weights: dict[str, Tensor] = {}

    def run(self) -> Record:
        """Train until the budget is spent or early stopping ends the run; return the best record.

        The first record is of step 0, before training. If it is the best, training did not help.

        Raises:
            TrainingError: a loss is not finite.
        """
        stopping = EarlyStopping(self.config, self.loop.num_steps, self.metric)
        stopping.is_over(0, self._evaluate({"step": 0, "epoch": 0.0, "seconds": 0.0}))
        trained, compute_loss = nn.ModuleDict({"encoder": self.model.encoder}), self._compute_loss
        if self.config.objective == "tsdae":
            assert isinstance(self.model, MaskedLanguageModel), "the decoder has its head"
            trained["decoder"] = decoder = Decoder(self.model)
            compute_loss = partial(self._rebuild, decoder)
        for point in self.loop.run(trained, compute_loss):
            if stopping.is_over(point.step, self._evaluate(asdict(point))):
                break
        self.model.load_state_dict(self._weights)
        return self._best

    def _compute_loss(self, numbers: list[int]) -> Tensor:
        texts = [[side[number] for number in numbers] for side in self.train.sides]
        if self.train.negatives:
            texts.append([self.train.negatives[number] for number in numbers])
        with autocast(self.config.precision, self.device):
            vectors = [self._embed(column).float() for column in texts]
        sizes, scores = self.config.dimensions, self.train.scores
        if scores is not None:
            ordered = partial(order, scores=scores[numbers].to(self.device))
            return nest(ordered, sizes, *vectors)
        columns = number_texts(*texts)
        same = overlap(columns[:2], columns[:2]).to(self.device)
        right = overlap(columns[:2], columns[2:]).to(self.device) if columns[2:] else None

        def loss(first: Tensor, second: Tensor, negatives: Tensor | None = None) -> Tensor:
            return contrast(first, second, same, negatives, right)

        return nest(loss, sizes, *vectors)

    def _rebuild(self, decoder: Decoder, numbers: list[int]) -> Tensor:
        assert isinstance(self.model, MaskedLanguageModel)
        texts = [self.train.first[number] for number in numbers]
        with autocast(self.config.precision, self.device):
            vectors = self._embed(delete_tokens(texts, self.num_added))
            return decoder(self.model, collate(texts, self.pad_id).to(self.device), vectors)

    def _evaluate(self, point: Record) -> Record:
        """Return the scores of the model, and keep its weights if they are the best so far."""
        record = {"seed": self.config.first_seed, **point, **self.score()}
        if not self._best or is_better(self.metric, record, self._best):
            self._best, self._weights = record, copy_weights(self.model)
        self.log(record)
        return record

    @torch.no_grad()
    def score(self) -> dict[str, float]:
        """Return the loss, and the share of validation texts whose nearest neighbor is correct.

        As in the loss, other pairs that share a text are no candidates: every text is its own
        nearest neighbor. For pairs with numbers, the score is Spearman's correlation of the numbers
        with the cosines.
        """
        self.model.eval()
        first, second = (self._embed_all(side) for side in self.valid.sides)
        if self.valid.scores is not None:
            cosines = torch.cosine_similarity(first, second).double().numpy()
            spearman = compute_metric("spearman", self.valid.scores.double().numpy(), cosines)
            loss = order(first, second, self.valid.scores)
            return {"spearman": spearman, VALID_LOSS: loss.item()}
        same = find_same(self.valid.first, self.valid.second)
        cosines = compare(first, second, same)
        ranks = (cosines >= cosines.diagonal()[:, None]).sum(1)  # from 1; equal ones come first
        return {
            "found": (ranks == 1).float().mean().item(),
            "recall_10": (ranks <= 10).float().mean().item(),
            "mrr": (1 / ranks).mean().item(),
            "candidates": len(first),
            VALID_LOSS: contrast(first, second, same).item(),
        }

    @torch.no_grad()
    def mine(self) -> None:
        """Set the partner of another pair as the negative of each pair, by current vectors."""
        self.model.eval()
        first, second = (self._embed_all(side) for side in self.train.sides)
        rows = mine_negatives(first, second, number_texts(*self.train.sides))
        self.train = replace(self.train, negatives=[self.train.second[row] for row in rows])

    def _embed_all(self, inputs: Sequence[ModelInput]) -> Tensor:
        """Return vectors [N, D] on the CPU, computed in batches of similar lengths."""
        vectors = torch.zeros(len(inputs), self.model.config.hidden_size)
        lengths = [len(one.ids) for one in inputs]
        for numbers in plan_batches(lengths, batch_tokens_on(self.device)):
            vectors[numbers] = self._embed([inputs[number] for number in numbers]).float().cpu()
        return vectors

    def _embed(self, inputs: Sequence[ModelInput]) -> Tensor:
        batch = collate(inputs, self.pad_id).to(self.device)
        if self.pooling == "cls":
            first = torch.arange(len(inputs), device=self.device) * batch.context.row_length
            return self.model.encoder(batch.input_ids, batch.context, output_positions=first)
        return pool_mean(self.model.encoder(batch.input_ids, batch.context), batch.context)


def _describe(record: Record) -> str:
    step = "before training"
    if record["step"]:
        step = f"epoch {record['epoch']:.2f}  loss {record['loss']:.4f}"
    if "spearman" in record:
        return f"  {step}  Spearman's correlation: {record['spearman']:.4f}"
    return (
        f"  {step}  retrieved among {record['candidates']}: {record['found']:.4f}  recall@10 "
        f"{record['recall_10']:.4f}  MRR {record['mrr']:.4f}"
    )


_METADATA: HubMetadata = {
    "library_name": "maskwright",
    "pipeline_tag": SIMILARITY,
    "tags": ["maskwright", "feature-extraction", SIMILARITY],
}
_VECTORS = {"mean": "the mean of its tokens", "cls": "that of its first token"}
_USE = "\n`maskwright embed` and `maskwright.Embedder` compute the vector of a text, {}.\n{}"
_HEAD = """`maskwright export --to sentence-transformers` writes a folder for that library. The head
that predicts masked tokens was not trained further.
"""
_MODULES = "sentence-transformers loads this folder.\n"


@dataclass(frozen=True)
class VectorFolder:
    """A model to train vectors with.

    Attributes:
        longest: the longest input in tokens, as the folder has it.
        is_modular: True if the folder is one of sentence-transformers.
    """

    model: MaskedLanguageModel | BareEncoder
    tokenizer: Tokenizer
    add_special_tokens: bool
    pooling: Pooling
    longest: int
    is_modular: bool

    @classmethod
    def open(cls, folder: Path, dropout: float) -> "VectorFolder":
        """Open a model with this dropout.

        Raises:
            InputError: the model detects replaced tokens.
            ModelFolderError: sentence-transformers makes its vectors with other modules or pooling.
        """
        pooling, loaded = find_pooling(folder), open_encoder(folder)
        model, weights = loaded.model, dict(loaded.model.named_parameters())
        if not isinstance(model, MaskedLanguageModel | BareEncoder):
            rule = "detects replaced tokens, but --task embedding needs a model that predicts"
            raise InputError(f"{folder} {rule} masked tokens, or an encoder. Name another.")
        model = type(model).from_tensors(with_dropout(model.config, dropout), weights)
        most = model.config.max_position_embeddings
        longest = int(min(read_max_length(folder) or most, most))
        wraps, is_modular = loaded.add_special_tokens, find_modules(folder) is not None
        return cls(model, loaded.tokenizer, wraps, pooling, longest, is_modular)

    def save(self, folder: Path, card: str, dimensions: Sequence[int], max_length: int) -> None:
        """Write the trained model.

        Args:
            dimensions: the sizes that were trained beside the whole vector.
            max_length: the longest input in training.
        """
        width = self.model.config.hidden_size

        def finish(folder: Path) -> None:
            more = _HEAD * isinstance(self.model, MaskedLanguageModel) + _MODULES * self.is_modular
            adapt_card(folder, _METADATA, _USE.format(_VECTORS[self.pooling], more))
            write_dimensions(folder, [*dimensions, width] if dimensions else [])
            if self.is_modular:
                write_modules(folder, width, self.pooling, max_length)

        wraps, model = self.add_special_tokens, self.model.cpu()
        save_model(folder, model, self.tokenizer, card, add_special_tokens=wraps, finish=finish)
