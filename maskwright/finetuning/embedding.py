"""The task ``embedding``: an encoder with similar vectors for texts that belong together.

The columns of the table select the loss. Pairs are trained with in-batch negatives, and optionally
with negatives from a third column or from mining. Pairs with a number are trained so that their
cosines have the order of the numbers. In text without labels, the positive of a text is the text
itself with another dropout mask (Gao et al., "SimCSE", 2021), or a decoder rebuilds the text; the
score is the retrieval of the second half of a text by its first half. A folder of
sentence-transformers keeps what it states about its vectors, is trained with its prompts, and
becomes one again.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path

import torch

from maskwright.console import Pulse
from maskwright.corpus.column_roles import (
    FIRST,
    NEGATIVE,
    SCORE,
    SECOND,
    USUAL_MORE,
    Column,
    find_usual,
    normalize_name,
)
from maskwright.corpus.table_files import TableRow, list_names, open_lines, read_columns
from maskwright.errors import ConfigError, CorpusError, InputError
from maskwright.files import write_json
from maskwright.finetuning.config import FinetuneConfig, Request, TaskFiles
from maskwright.finetuning.contrastive import ContrastiveFitting, Pairs
from maskwright.finetuning.examples import encode_texts
from maskwright.finetuning.loop import StoppedSeed
from maskwright.finetuning.metrics import RESULTS_NAME
from maskwright.finetuning.network import with_dropout
from maskwright.finetuning.pair_losses import find_same, number_texts
from maskwright.finetuning.resume import record_start
from maskwright.finetuning.split import count_shared, split_examples
from maskwright.finetuning.task import SPLIT_FLAGS, CustomTask, Tell, report_columns
from maskwright.formatting import describe_cut, show_score, write_code, write_code_block
from maskwright.logs import MetricsLog, Record
from maskwright.model.masked_lm import BareEncoder, EncoderModel, MaskedLanguageModel
from maskwright.model_folder.folder import (
    Loaded,
    adapt_card,
    open_encoder,
    save_model,
    write_dimensions,
)
from maskwright.model_folder.model_card import SIMILARITY, HubMetadata
from maskwright.model_folder.sentence_modules import (
    DOCUMENT,
    QUERY,
    VectorSettings,
    read_settings,
    write_modules,
)
from maskwright.runs.evaluation_file import to_plain
from maskwright.runs.run_directory import (
    CHECKPOINTS_NAME,
    METRICS_NAME,
    MODEL_NAME,
    STOPPED_NAME,
)
from maskwright.tokenizer.lost import check_known
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.train.device import choose_device, describe_computation

_LABELS = frozenset({"label", "labels", "gold_label", "is_duplicate", "target"})
_MAX_CANDIDATES = 256  # validation pairs; each text is matched with all of their partners
_MIN_PAIRS = 32  # of training
_MIN_CHARACTERS = 24  # of a text that is split into halves
_OBJECTIVES = {
    "simcse": "each text is its own positive, under another dropout mask (SimCSE)",
    "tsdae": "a decoder rebuilds each text from the vector of 40 % of its tokens (TSDAE)",
}
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


class Embedding(CustomTask):
    """Similar vectors for the two texts of each pair; the model stays an encoder."""

    name = "embedding"
    roles = (FIRST, SECOND, NEGATIVE, SCORE)
    unused = (
        *("seeds", "folds", "metric", "class_weights", "pooling", "control", "test", "teacher"),
        *SPLIT_FLAGS,
    )

    def find_columns(self, train: Path, given: Mapping[str, Column]) -> dict[str, Column]:
        if is_text(train) and not given:
            return {}
        found = super().find_columns(train, given)
        free = [name for name in list_names(train) if name not in found.values()]
        for role in USUAL_MORE:
            if role not in found and (name := find_usual(role, free)):
                found[role] = name
        labels = [name for name in free if normalize_name(name) in _LABELS]
        if labels and not given and not found.keys() & USUAL_MORE:
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
        return found if SECOND in found else {SECOND: SECOND, **found}

    def train(self, request: Request, out: Path, report: Tell) -> None:
        """Train on pairs; write the encoder and the share of texts that retrieve their partner."""
        config = request.config
        device = choose_device(config.device, field="device")
        settings = read_settings(request.model)
        loaded = open_to_train(request.model, config.dropout)
        model, most = loaded.model.to(device), loaded.model.config.max_position_embeddings
        config.find_length(most)
        max_length = config.max_length or min(settings.max_seq_length or most, most)
        report_columns(self, request.files, report)
        tokenizer = loaded.tokenizer
        tokenizer = tokenizer.with_lowercase() if settings.do_lower_case else tokenizer
        train, valid, num_shared = load_pairs(request.files, tokenizer, max_length, settings)
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
        (out / METRICS_NAME).unlink(missing_ok=True)  # a stopped seed has its records
        stopped = StoppedSeed(out / CHECKPOINTS_NAME / STOPPED_NAME)
        log, pulse, records = MetricsLog(out / METRICS_NAME), Pulse(report), list[Record]()

        def keep(record: Record) -> None:
            log.write(record)
            records.append(record)
            pulse.say(_describe(record))

        parts = tokenizer, config, keep, pulse, settings.pooling, stopped
        with closing(log):
            fitting = ContrastiveFitting(model, train, valid, *parts)
            if config.negatives == "mined":
                report("mining negatives")
                fitting.mine()
            best = fitting.run()
        facts = {"before": records[0], "train_pairs": len(train), "computation": computation}
        write_json(out / RESULTS_NAME, to_plain({**best, **facts}))
        card = _write_card(request.origin, len(train), records[0], best)
        settings = replace(settings, max_seq_length=max_length)
        _save(out / MODEL_NAME, loaded, settings, card, config.dimensions)
        if not best["step"]:
            report(
                "Training did not improve the score, so the original weights are saved. Try a lower"
                " --learning_rate, or more pairs."
            )


def _write_card(origin: str, num_pairs: int, before: Record, best: Record) -> str:
    scores = "\n".join(dict.fromkeys(_describe(record) for record in (before, best)))
    return (
        "# A model of text vectors\n\n"
        f"Fine-tuned by maskwright from {write_code(origin)} on {num_pairs:,} pairs of texts. On "
        f"validation pairs, which selected the weights:\n\n{write_code_block(scores, 'text')}"
    )


def _describe(record: Record) -> str:
    step = "before training"
    if record["step"]:
        step = f"epoch {record['epoch']:.2f}  loss {record['loss']:.4f}"
    if "spearman" in record:
        return f"  {step}  Spearman's correlation: {show_score(record['spearman'])}"
    return (
        f"  {step}  retrieved among {record['candidates']}: {record['found']:.4f}  recall@10 "
        f"{record['recall_10']:.4f}  MRR {record['mrr']:.4f}"
    )


def _check_losses(config: FinetuneConfig, file: Path, train: Pairs, model: EncoderModel) -> None:
    """Raise ConfigError unless the model and the examples have what the settings need."""

    def refuse(field: str, rule: str, remedy: str = "Remove one of them.") -> None:
        raise ConfigError(field, getattr(config, field), rule, remedy)

    denoises, mines = config.objective == "tsdae", config.negatives == "mined"
    has = "negatives" if train.negatives else "numbers" if train.scores is not None else None
    if denoises and isinstance(model, BareEncoder):
        refuse("objective", "needs a model that predicts masked tokens, but this one has no head")
    if denoises and not is_text(file):
        refuse("objective", f"needs text without labels (.txt), but {file} is a table")
    if denoises and (config.dimensions or mines):
        refuse("objective", "cannot be combined with dimensions or mined negatives")
    if mines and has:
        refuse("negatives", f"cannot be combined with examples that have {has}")
    if not config.dropout and not denoises and torch.equal(*number_texts(*train.sides)):
        rule = "must be above 0 for text without labels, whose positives differ only by dropout"
        refuse("dropout", rule, "Try 0.1.")
    width = model.config.hidden_size
    for size in config.dimensions:
        if not 1 <= size < width:
            rule = f"must be between 1 and {width - 1}, below the hidden size of the model"
            raise ConfigError("dimensions", size, rule, "The full vector is always trained.")


def load_pairs(
    files: TaskFiles,
    tokenizer: Tokenizer,
    max_length: int,
    settings: VectorSettings | None = None,
) -> tuple[Pairs, Pairs, int]:
    """Return training pairs, validation pairs, and how many of these share a text with training.

    Args:
        settings: those of the folder, whose prompts are put before the texts.

    Raise CorpusError if a file cannot be read, or there are too few pairs.
    """
    rows = _read_pairs(files.train, files)
    if len(rows) < _MIN_PAIRS:
        raise CorpusError(f"{files.train} holds {len(rows)} rows. Give at least {_MIN_PAIRS}.")
    if files.valid is None:
        # More than is scored would be lost to training.
        most = 1.0 if SCORE in rows[0].values else _MAX_CANDIDATES / len(rows)
        rows, valid = split_examples(rows, [()] * len(rows), min(files.valid_share, most))
    else:
        valid = _read_pairs(files.valid, files)
    if is_text(scored_file := files.valid or files.train):
        valid, short = _halve_all(valid, scored_file)
        rows += short if files.valid is None else []
    valid = valid if valid and SCORE in valid[0].values else valid[:_MAX_CANDIDATES]
    scored = Pairs([], [])
    if valid:
        scored = _encode_pairs(valid, scored_file, tokenizer, max_length, settings)
    if not rows or (scored.scores is None and find_same(*scored.sides).all()):
        raise CorpusError(
            f"{scored_file}: {len(valid)} validation pairs are too few, or all share a text once "
            "tokenized. Give --valid or a larger --valid-share."
        )
    pairs = _encode_pairs(rows, files.train, tokenizer, max_length, settings)
    return pairs, scored, count_shared(rows, valid)


def is_text(path: Path) -> bool:
    """Return True if a file holds one text per line without labels, and is not a table."""
    return path.name.removesuffix(".gz").endswith(".txt")


def _read_pairs(path: Path, files: TaskFiles) -> list[TableRow]:
    """Return the rows of a table, or the lines of a text file that are not blank."""
    if not is_text(path):
        columns = files.columns or Embedding().find_columns(path, {})
        return list(read_columns(path, columns, files.has_header))
    name, lines = open_lines(path)
    numbered = ((number, line.strip()) for number, line in enumerate(lines, start=1))
    return [TableRow(f"{name}:{n}", {FIRST: line}) for n, line in numbered if line]


def choose_prompts(settings: VectorSettings, *, is_search: bool) -> list[str]:
    """Return the prompts of first, second and negative texts: those with which they are compared
    later, by ``search`` if a folder has prompts for it, else by ``embed``.
    """
    names = (QUERY, DOCUMENT, DOCUMENT)
    if is_search and any(settings.prompts.get(name) for name in names):
        return [settings.find_prompt(name) for name in names]
    return [settings.find_prompt()] * len(names)


def _encode_pairs(
    rows: Sequence[TableRow],
    path: Path,
    tokenizer: Tokenizer,
    max_length: int,
    settings: VectorSettings | None,
) -> Pairs:
    texts = [row.texts_of((FIRST, SECOND, NEGATIVE)) for row in rows]
    check_known(tokenizer, chain.from_iterable(texts), str(path))
    is_search = all(len(each) > 1 for each in texts) and SCORE not in rows[0].values
    texts = [each if len(each) > 1 else each * 2 for each in texts]
    prompts = choose_prompts(settings or VectorSettings(), is_search=is_search)
    columns = [
        encode_texts([(prompt + text,) for text in column], tokenizer, max_length)
        for prompt, column in zip(prompts, zip(*texts, strict=True), strict=False)
    ]
    first, second, *more = (inputs for inputs, _ in columns)
    numbers = [row.number(SCORE) for row in rows if SCORE in row.values]
    scores = torch.tensor(numbers) if numbers else None
    if scores is not None and (scores == scores[0]).all():
        rule = f"all {len(rows)} pairs have the score {numbers[0]:g}, which is no order"
        raise CorpusError(f"{path}: {rule}. Give other scores, or remove the column.")
    return Pairs(first, second, more[0] if more else (), scores, sum(cut for _, cut in columns))


def _halve_all(rows: list[TableRow], path: Path) -> tuple[list[TableRow], list[TableRow]]:
    """Return the halves of the lines that are long enough, and the other lines."""
    long = [row for row in rows if len(row.texts[0]) >= _MIN_CHARACTERS]
    if rows and not long:
        rule = f"all {len(rows)} held-out lines are shorter than {_MIN_CHARACTERS} characters"
        remedy = "Give longer lines, or a table of pairs, with --valid."
        raise CorpusError(f"{path}: {rule}, too short to be split into halves. {remedy}")
    return [*map(halve, long)], [row for row in rows if len(row.texts[0]) < _MIN_CHARACTERS]


def halve(row: TableRow) -> TableRow:
    """Return the halves of a text as a pair, which belong together more than other halves."""
    text = row.texts[0]
    middle = len(text) // 2
    near = (i for i in range(middle // 2, 2 * middle - middle // 2) if text[i].isspace())
    cut = min(near, key=lambda i: abs(i - middle), default=middle)  # some scripts have no blanks
    return TableRow(row.place, {FIRST: text[:cut], SECOND: text[cut:].lstrip()})


def open_to_train(folder: Path, dropout: float) -> Loaded[MaskedLanguageModel | BareEncoder]:
    """Open a model with this dropout; raise InputError if it detects replaced tokens."""
    loaded = open_encoder(folder)
    model, weights = loaded.model, dict(loaded.model.named_parameters())
    if not isinstance(model, MaskedLanguageModel | BareEncoder):
        rule = "detects replaced tokens, but --task embedding needs a model that predicts"
        raise InputError(f"{folder} {rule} masked tokens, or an encoder. Name another.")
    model = type(model).from_tensors(with_dropout(model.config, dropout), weights)
    return Loaded(model, loaded.tokenizer, loaded.add_special_tokens)


def _save(
    folder: Path,
    loaded: Loaded[MaskedLanguageModel | BareEncoder],
    settings: VectorSettings,
    card: str,
    dimensions: Sequence[int],
) -> None:
    """Write the trained model; a folder of sentence-transformers becomes one again."""
    model, is_modular = loaded.model.cpu(), settings.is_stated
    width = model.config.hidden_size

    def finish(folder: Path) -> None:
        more = _HEAD * isinstance(model, MaskedLanguageModel) + _MODULES * is_modular
        adapt_card(folder, _METADATA, _USE.format(_VECTORS[settings.pooling], more))
        write_dimensions(folder, [*dimensions, width] if dimensions else [])
        if is_modular:
            write_modules(folder, width, settings)

    wraps = loaded.add_special_tokens
    save_model(folder, model, loaded.tokenizer, card, add_special_tokens=wraps, finish=finish)
