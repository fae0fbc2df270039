"""Model folders of classifiers: those of masked language models with label names.

The class in ``config.json`` determines whether texts or tokens are labeled; ``problem_type`` is
transformers' name for the kind of labels.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import cast, get_args

from maskwright.config import from_mapping
from maskwright.errors import ConfigError, ModelFolderError, show_value
from maskwright.files import find_stated
from maskwright.model.classifier import Classifier
from maskwright.model.config import EncoderConfig, HeadConfig, Level, Pooling, ProblemType
from maskwright.model.masked_lm import EncoderModel
from maskwright.model_folder.families import find_classifier, native_classifier
from maskwright.model_folder.folder import (
    EXTRA_KEY,
    Loaded,
    check_replaceable,
    check_tokenizer,
    check_wrapping,
    find_model,
    list_classes,
    open_encoder,
    read_architecture,
    read_config_file,
    with_ids_of,
    write_folder,
)
from maskwright.model_folder.model_card import write_classifier_card
from maskwright.model_folder.native.family import NativeHead, RawConfig
from maskwright.model_folder.weights import read_model
from maskwright.tokenizer.files import read_max_length
from maskwright.tokenizer.template import trim_blanks, wrap_apart, wrap_inputs
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.words import WordRule

# Entries of maskwright's section of config.json.
_NUM_TEXTS, _MAY_BE_EMPTY, _WORDS = "num_texts", "may_be_empty", "words"


@dataclass(frozen=True)
class LoadedClassifier(Loaded[Classifier]):
    """The contents of a classifier's folder.

    Attributes:
        labels: the label names, in the order of the logits.
        problem: one of several labels, any number of labels, or a number.
        max_length: the maximum tokens per input, in training or of the model.
        num_texts: texts per input: 1, or 2 if it was trained on pairs; None if the folder does not
            record it, or tokens are labeled.
        may_be_empty: True if a question may have no answer; False if spans are not labeled.
        words: how the words were split, if tokens are labeled.
    """

    labels: tuple[str, ...]
    problem: ProblemType
    max_length: int
    num_texts: int | None = None
    may_be_empty: bool = False
    words: WordRule = field(default_factory=WordRule)


def save_classifier(
    folder: Path | str,
    model: Classifier,
    tokenizer: Tokenizer,
    labels: tuple[str, ...],
    problem: ProblemType,
    card: str | None = None,
    *,
    add_special_tokens: bool = True,
    max_length: int | None = None,
    num_texts: int | None = None,
    may_be_empty: bool = False,
    words: WordRule | None = None,
    finish: Callable[[Path], None] | None = None,
) -> None:
    """Write a classifier's folder; arguments and errors are those of `save_model`.

    Args:
        labels: the names of the K labels; for regression, one name for the number.
        max_length: the maximum tokens per input in training, if below the model's maximum.
        num_texts: texts per input, unless tokens are labeled: 1, or 2 for pairs.
        may_be_empty: True if a question may have no answer, if spans are labeled.
        words: how the words were split, if tokens are labeled.
        finish: called with the folder before it replaces an older one, to write more.
    """
    folder = Path(folder)
    check_replaceable(folder)
    tokenizer = trim_blanks(wrap_inputs(tokenizer, add_special_tokens))
    level, pooling = model.head_config.level, model.head_config.pooling
    tokenizer = wrap_apart(tokenizer) if pooling == "bi" else tokenizer
    config = with_ids_of(model.config, tokenizer)
    (family, head), reason = native_classifier(config, level, pooling)
    fields = {
        **family.write_config(config),
        **head.write_config(model.head_config),
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
        "num_labels": len(labels),  # text-embeddings-inference reads it, transformers id2label
        "problem_type": problem,
    }
    if problem == "regression":  # otherwise CrossEncoder applies a sigmoid to a single output
        fields["sentence_transformers"] = {"activation_fn": "torch.nn.modules.linear.Identity"}
    card = write_classifier_card(card, config, level, labels, family, reason)
    rule = words and asdict(words)
    facts = {_NUM_TEXTS: num_texts, _MAY_BE_EMPTY: may_be_empty, _WORDS: rule}
    facts = {name: value for name, value in facts.items() if value}
    write_folder(folder, model, config, tokenizer, family, fields, card, max_length, facts, finish)


def open_classifier(folder: Path | str) -> LoadedClassifier:
    """Read a classifier's folder written by maskwright, or by transformers for a supported class.

    Raises:
        ModelFolderError: as `open_model`; a label has no name; the model is no classifier.
        TokenizerError: ``model_max_length`` is not a valid length.
    """
    folder = find_model(folder)
    raw = read_config_file(folder)
    found = find_classifier(list_classes(raw))
    if found is None:
        classes = ", ".join(list_classes(raw)) or "unknown"
        raise ModelFolderError(
            f"{folder} is not a classifier: its class is {classes}. "
            "maskwright finetune trains one from it."
        )
    level, native = found
    extra = find_stated(raw, {}, EXTRA_KEY)
    config = read_architecture(raw, extra, native.family, folder)
    tokenizer = Tokenizer.load(folder)
    check_tokenizer(tokenizer, config, extra, folder)
    labels = _read_labels(raw, folder)
    head = _read_head(raw, config, native.head, level, len(labels), folder)
    model = read_model(folder, lambda: Classifier(config, head), native.family).eval()
    wraps = check_wrapping(tokenizer, folder)
    longest = config.max_position_embeddings
    max_length = int(min(read_max_length(folder) or longest, longest))
    problem = _read_problem(raw, len(labels))
    if level == "text" and problem == "regression" and len(labels) > 1:
        raise ModelFolderError(
            f"{folder} predicts {len(labels)} numbers (problem_type = regression); only one is "
            "supported. Use transformers."
        )
    num_texts: int | None = extra.get(_NUM_TEXTS)
    may_be_empty, words = extra.get(_MAY_BE_EMPTY) is True, _read_words(extra, folder)
    return LoadedClassifier(
        model, tokenizer, wraps, labels, problem, max_length, num_texts, may_be_empty, words
    )


def open_pretrained(folder: Path | str) -> Loaded[EncoderModel]:
    """Open a masked language model, encoder or classifier to fine-tune; raise as `open_model`."""
    folder = find_model(folder)
    if not is_classifier(folder):
        return open_encoder(folder)
    loaded = open_classifier(folder)
    if loaded.model.head_config.pooling == "bi":  # which is left to the new head
        return replace(loaded, tokenizer=wrap_apart(loaded.tokenizer, apart=False))
    return loaded


def is_classifier(folder: Path) -> bool:
    """Return True if a folder labels texts or tokens; raise ModelFolderError if it has no model."""
    return find_classifier(list_classes(read_config_file(folder))) is not None


def _read_labels(raw: RawConfig, folder: Path) -> tuple[str, ...]:
    names = raw.get("id2label", {"0": "LABEL_0", "1": "LABEL_1"})  # transformers' default
    numbers = range(len(names)) if isinstance(names, dict) else ()
    if not numbers or any(not isinstance(names.get(str(n)), str) for n in numbers):
        raise ModelFolderError(
            f"{folder}: id2label = {show_value(names)} must name the labels from 0 on."
        )
    return tuple(names[str(number)] for number in numbers)


def _read_problem(raw: RawConfig, num_labels: int) -> ProblemType:
    """Return the problem type; the default for one label is regression, as in transformers."""
    problem = raw.get("problem_type")
    if problem in get_args(ProblemType):
        return cast(ProblemType, problem)
    return "regression" if num_labels == 1 else "single_label_classification"


def _read_words(extra: RawConfig, folder: Path) -> WordRule:
    try:
        return from_mapping(WordRule, find_stated(extra, {}, _WORDS), f"{EXTRA_KEY}.{_WORDS}.")
    except ConfigError as error:
        raise ModelFolderError(f"{folder}: {error}") from None


def _read_head(
    raw: RawConfig,
    config: EncoderConfig,
    head: NativeHead,
    level: Level,
    num_labels: int,
    folder: Path,
) -> HeadConfig:
    pooling: Pooling = "cls"
    if head.poolings:
        words: dict[str, Pooling] = {word: known for known, word in head.poolings.items()}
        word = raw.get("classifier_pooling", next(iter(words)))
        if word not in words:
            raise ModelFolderError(
                f"{folder}: classifier_pooling = {show_value(word)} is not supported. "
                f"Supported are {' and '.join(words)}."
            )
        pooling = words[word]
    return head.build_config(config, level, num_labels, pooling, _read_dropout(raw, head))


def _read_dropout(raw: RawConfig, head: NativeHead) -> float:
    """Return the dropout, used only in further training; 0.1 if it is missing."""
    dropout = raw.get(head.dropout_field)
    return float(dropout) if isinstance(dropout, int | float) and 0 <= dropout < 1 else 0.1
