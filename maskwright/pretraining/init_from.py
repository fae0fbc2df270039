"""Runs that begin with an existing model, or learn from one: its part of the configuration.

Architecture, tokenizer and special tokens of the model are written to config.yaml, so a resumed run
does not need the model folder. A value of the user that contradicts the model is an error; a value
of a recipe is replaced. Of a teacher these are defaults: the student's architecture is free, and by
default the teacher's with half of its layers. A teacher is read again when a run is resumed.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from maskwright.config import Plain
from maskwright.console import tell
from maskwright.errors import ConfigError, MaskwrightError, ShardError
from maskwright.files import as_mapping, hash_file
from maskwright.model.config import EncoderConfig, ModelConfig, to_model_config
from maskwright.model.init import draw_pair_head, initialize
from maskwright.model.masked_lm import PAIR_HEAD, EncoderModel, MaskedLanguageModel
from maskwright.model_folder.folder import describe_folder, open_model, read_bare
from maskwright.model_folder.sentence_modules import VectorSettings, read_settings
from maskwright.model_folder.weights import holds_pair_head, is_headless, read_model
from maskwright.pretraining.vocabulary_transfer import Transfer, grow_vocabulary, mix_vocabulary
from maskwright.runs.config import PretrainConfig, is_set
from maskwright.runs.find_model import find_model_folder, is_hub_name
from maskwright.runs.run_directory import Origin
from maskwright.runs.settled import Settled
from maskwright.shards.manifest import TOKENIZER_NAME
from maskwright.shards.remote import show_path
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.extension import extends
from maskwright.tokenizer.files import round_up
from maskwright.tokenizer.template import wraps_inputs
from maskwright.tokenizer.token_text import TokenText
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.train.config import parse_schedule


@dataclass(frozen=True)
class InitialModel:
    """A model that training begins with or learns from: its name as given, its folder's content.

    `vectors` are the settings of a folder of sentence-transformers, else None.
    """

    name: str
    folder: Path
    model: MaskedLanguageModel
    tokenizer: Tokenizer
    vectors: VectorSettings | None = None

    def adapt(
        self,
        config: EncoderConfig,
        tokenizer: Tokenizer,
        seed: int = 0,
        transfer: Transfer | None = None,
    ) -> MaskedLanguageModel:
        """Return the same weights in an architecture that may have another vocabulary.

        Args:
            config: the model's own, except for the vocabulary, the number of positions that are not
                learned, dropout, and the head for pairs.
            tokenizer: the model's own, one that extends it, or with `transfer` any other.
            seed: seed of the weights of that head, if the model has none.
            transfer: the origin of the rows of a vocabulary that replaces the model's.
        """
        tensors = {name: p.detach() for name, p in self.model.named_parameters()}
        if config.sentence_pair_head:
            tensors = {**draw_pair_head(config, seed), **tensors}
        else:
            tensors = {n: t for n, t in tensors.items() if not n.startswith(PAIR_HEAD)}
        new_ids = range(self.tokenizer.vocab_size, tokenizer.vocab_size)
        if transfer is not None:
            tensors = mix_vocabulary(tensors, config.vocab_size, transfer.sources)
        elif new_ids or config.vocab_size > self.model.config.vocab_size:
            old = TokenText(self.tokenizer)
            pieces = {i: old.cut_token(tokenizer.token(i)) for i in new_ids}
            tensors = grow_vocabulary(tensors, config.vocab_size, pieces)
        return MaskedLanguageModel.from_tensors(config, tensors)

    def describe(self) -> Origin:
        """Return the entry of the model in provenance.json."""
        weights = sorted(self.folder.glob("*.safetensors"))
        origin: Origin = {
            "name": self.name,
            "folder": str(self.folder.resolve()),
            "sha256": {path.name: hash_file(path) for path in weights},
            "tokenizer_fingerprint": self.tokenizer.fingerprint,
        }
        if self.vectors is not None:
            origin["vectors"] = self.vectors.to_json()
        return origin


def load_initial(config: PretrainConfig) -> InitialModel | None:
    """Return the model of ``init_from``, on the CPU; None for a run from scratch.

    Raises:
        InputError, ModelFolderError, TokenizerError: it cannot be downloaded or read.
    """
    if config.init_from is None:
        return None
    folder = find_model_folder(config.init_from)
    described = describe_folder(folder)
    architecture, family = described.config, described.family
    if config.data.pairs is not None and holds_pair_head(folder, architecture, family):
        architecture = replace(architecture, sentence_pair_head=True)
    if is_headless(folder, architecture, family):
        model = MaskedLanguageModel(replace(architecture, sentence_pair_head=False))
        initialize(model, config.seed)
        model.encoder = read_bare(folder, architecture, family).encoder
        if model.config.tie_word_embeddings:
            model.head.decoder.weight = model.encoder.embeddings.word.weight
        tell_on_first_rank(f"{config.init_from} has no head that predicts masked tokens: it is new")
    else:
        model = read_model(folder, lambda: MaskedLanguageModel(architecture), family)
    vectors = _read_vectors(folder, config.init_from)
    return InitialModel(config.init_from, folder, model, described.tokenizer, vectors)


def _read_vectors(folder: Path, name: str) -> VectorSettings | None:
    """Return what a folder of sentence-transformers states about its vectors, else None."""
    try:
        found = read_settings(folder)
    except MaskwrightError as error:  # training does not need them
        tell_on_first_rank(f"{name}: the new model will not state how to compute vectors: {error}")
        return None
    return found if found.is_stated else None


def load_teacher(config: PretrainConfig, tokenizer: Tokenizer | None) -> InitialModel | None:
    """Return the model of ``teacher``, on the CPU; None for a run without a teacher.

    Args:
        tokenizer: that of the data; None if the data is not prepared yet.

    Raises:
        ConfigError: its inputs are not those of the run.
        ShardError: its tokenizer is not that of the data.
        InputError, ModelFolderError, TokenizerError: it cannot be downloaded or read.
    """
    if config.teacher is None:
        return None
    loaded = open_model(folder := find_model_folder(config.teacher))
    theirs, longest = loaded.tokenizer, loaded.model.config.max_position_embeddings
    if tokenizer and not (extends(tokenizer, theirs) and extends(theirs, tokenizer)):
        raise ShardError(
            f"the data was prepared with another tokenizer than that of the teacher {folder}. Name "
            f"the text itself, or prepare it with --tokenizer.path {folder}."
        )
    if loaded.add_special_tokens != config.data.special_tokens:
        rule = f"contradicts the teacher {folder}, which has {loaded.add_special_tokens}"
        raise ConfigError("data.special_tokens", config.data.special_tokens, rule, "Remove it.")
    if config.data.max_seq_length > longest:
        rule = f"is longer than the {longest} positions of the teacher {folder}"
        raise ConfigError("data.max_seq_length", config.data.max_seq_length, rule, "Lower it.")
    return InitialModel(config.teacher, folder, loaded.model, theirs)


# The model does not fix how to compute, and how a new or extended tokenizer is trained.
_OUR_OWN = (
    *("attention_backend", "extend_vocab", "replace_vocab", "min_frequency", "sample_megabytes"),
)
_NEW_TOKENIZER_FIELDS = ("kind", "lowercase")  # may differ if a new tokenizer replaces the model's
# Only training uses these, so they may differ from the model's.
_MAY_DIFFER = ("embedding_dropout", "attention_dropout", "hidden_dropout", "mlp_dropout")
_POSITIONS = "max_position_embeddings"
_FIXED_LENGTH = ("learned", "relative")  # types of positions that depend on it


class ModelFacts(NamedTuple):
    """A model that a run begins with or learns from, as its folder describes it.

    `prepared` is the prepared folder that the run names, if any, and `made_with` its tokenizer.
    """

    name: str
    folder: Path
    config: EncoderConfig
    tokenizer: Tokenizer
    prepared: Path | None
    made_with: Tokenizer | None


class FixedValues(NamedTuple):
    """The part of a run's configuration that the model it begins with fixes."""

    model: ModelConfig
    tokenizer: TokenizerConfig
    special_tokens: bool | None  # of [CLS] … [SEP]; None if inputs have other special tokens


def tell_on_first_rank(line: str) -> None:
    """Print a note about the configuration on standard error, on the first rank."""
    if os.environ.get("RANK", "0") == "0":
        tell(line)


def read_model_facts(
    config: PretrainConfig, prepared: Path | None, begun: PretrainConfig | None = None
) -> ModelFacts | None:
    """Return what the folder of ``init_from``, or else of the teacher, states, without its weights.

    Args:
        prepared: the prepared folder that the run names, if any.
        begun: the configuration of the run to resume, which has adopted its ``init_from``.

    Raises:
        ModelFolderError, TokenizerError: the folder is not a model.
    """
    name = config.init_from or config.teacher
    if name is None or _has_adopted(config, begun):
        return None
    folder = find_model_folder(name)
    described = describe_folder(folder)
    made_with = Tokenizer.load(prepared / TOKENIZER_NAME) if prepared is not None else None
    model, tokenizer = described.config, described.tokenizer
    return ModelFacts(name, folder, model, tokenizer, prepared, made_with)


def _has_adopted(config: PretrainConfig, begun: PretrainConfig | None) -> bool:
    known = begun.init_from if begun is not None else None
    return known is not None and known == config.init_from


def adopt_model(
    settled: Settled, facts: ModelFacts | None, begun: PretrainConfig | None = None
) -> Settled:
    """Return the configuration with the parts that the model of ``init_from`` or a teacher fixes.

    Inputs and tokenizer are those of the model. A model to continue has its own architecture. A
    student has half of its teacher's layers; the user may set any other value of it, or state the
    whole with ``model.preset``.

    Args:
        facts: the model; None without one, or if `begun` knows it.
        begun: the configuration of the run to resume.

    Raises:
        ConfigError: a given value contradicts the model.
        ShardError: the text is data that was prepared with another tokenizer.
    """
    config, given = settled.config, settled.layers.given
    if begun is not None and _has_adopted(config, begun):
        fixed = FixedValues(begun.model, begun.tokenizer, begun.data.special_tokens)
    elif facts is None:
        return settled
    else:
        asked = config.tokenizer
        if asked.replace_vocab and _asked(given, "tokenizer", "vocab_size"):
            rule = "cannot be combined with tokenizer.replace_vocab, which is the size"
            raise ConfigError("tokenizer.vocab_size", asked.vocab_size, rule, "Remove one.")
        fixed = fix_values(facts, config.tokenizer)
    name = str(config.init_from or config.teacher)
    tokenizer = _adopt_section("tokenizer", config.tokenizer, fixed.tokenizer, given, name)
    data = replace(config.data, special_tokens=_choose_wrapping(config, fixed, given, name))
    config = replace(config, tokenizer=tokenizer, data=data)
    if config.init_from is not None:
        model = _adopt_section("model", config.model, fixed.model, given, name)
        model = replace(model, **_choose_positions(config.model, fixed, given, name))
    elif _asked(given, "model", "preset"):
        return settled.change(config, "model")
    else:
        model = _halve(fixed.model, config.model, given)
    config = replace(config, model=model)
    shorter = shorten_rows(config, given)
    if shorter != config:
        longest, length = shorter.data.max_seq_length, config.data.max_seq_length
        reason = f"data.max_seq_length is {longest}, not {length}: {name} has {longest} positions"
        settled = settled.explain("rows", reason)
    return settled.change(shorter, "model")


def locate_teacher(config: PretrainConfig) -> PretrainConfig:
    """Return `config` with the absolute path of its teacher, if it has one.

    A relative path would change with the directory of a resumed run. Raise ModelFolderError unless
    it is there.
    """
    if config.teacher is None:
        return config
    find_model_folder(config.teacher)  # which knows names nearby
    if is_hub_name(config.teacher):
        return config
    return replace(config, teacher=str(Path(config.teacher).absolute()))


def _halve(teacher: ModelConfig, asked: ModelConfig, given: Mapping[str, Any]) -> ModelConfig:
    """Return the architecture of a student, with the values of it that the user set."""
    own = {n: v for n, v in vars(asked).items() if n in _OUR_OWN or _asked(given, "model", n)}
    for name in ("num_attention_heads", "intermediate_size") if "hidden_size" in own else ():
        own.setdefault(name, None)  # it follows the width
    total, types = teacher.num_hidden_layers, teacher.layer_types
    count = own.setdefault("num_hidden_layers", -(-total // 2))
    if types:
        own.setdefault("layer_types", tuple(types[i] for i in spread_layers(count, total)))
    return replace(teacher, **own)


def spread_layers(count: int, total: int) -> list[int]:
    """Return `count` of `total` layers, evenly spaced from the first to the last.

    6 of 12 are 0, 2, 4, 7, 9, 11, as in DistilBERT (Sanh et al. 2019).
    """
    return [round(layer * (total - 1) / max(1, count - 1)) for layer in range(count)]


def take_layers(model: EncoderModel, teacher: EncoderModel) -> list[int]:
    """Copy the teacher's weights, with the layers that `spread_layers` chooses; return those.

    Nothing is copied and the list is empty if any size but the number of layers differs.
    """
    blocks = teacher.encoder.blocks
    layers = spread_layers(model.config.num_hidden_layers, len(blocks))
    unused = ("encoder.blocks.", PAIR_HEAD)
    state = {n: t for n, t in teacher.state_dict().items() if not n.startswith(unused)}
    for number, layer in enumerate(layers):
        weights = blocks[layer].state_dict().items()
        state |= {f"encoder.blocks.{number}.{name}": tensor for name, tensor in weights}
    ours = model.state_dict()
    if {n: t.shape for n, t in state.items()} != {n: t.shape for n, t in ours.items()}:
        return []
    model.load_state_dict(state)
    return layers


def fix_values(facts: ModelFacts, asked: TokenizerConfig) -> FixedValues:
    """Return the values that a model fixes.

    Args:
        asked: the settings of the tokenizer, of prepared data those that it was made with.

    Raises:
        ShardError: the data was prepared with another tokenizer.
    """
    tokenizer, prepared, found = facts.tokenizer, facts.prepared, facts.made_with
    if prepared is None or found is None:
        kind, size, lowercase = tokenizer.kind, tokenizer.vocab_size, tokenizer.lowercase
        path = str(facts.folder)
        stated = TokenizerConfig(kind=kind, vocab_size=size, lowercase=lowercase, path=path)
        num_tokens = asked.replace_vocab or size + asked.extend_vocab
    else:
        stated, num_tokens = asked, found.vocab_size
        if not extends(found, tokenizer) and not stated.replace_vocab:
            raise ShardError(
                f"{show_path(prepared)} was prepared with another tokenizer than that of "
                f"{facts.name}. Name the text itself, or prepare it with --tokenizer.path "
                f"{facts.folder}."
            )
    model = to_model_config(facts.config)
    if num_tokens > facts.config.vocab_size or asked.replace_vocab:
        model = replace(model, vocab_size=round_up(num_tokens))
    return FixedValues(model, stated, wraps_inputs(tokenizer))


def fit_vocabulary(settled: Settled, tokenizer: Tokenizer) -> Settled:
    """Return the configuration with the size of a vocabulary that replaces the model's.

    The text may give fewer tokens than `replace_vocab` asks for.
    """
    config = settled.config
    if config.init_from is None or not config.tokenizer.replace_vocab:
        return settled
    size = tokenizer.vocab_size
    fitted = replace(
        config,
        tokenizer=replace(config.tokenizer, vocab_size=size),
        model=replace(config.model, vocab_size=round_up(size)),
    )
    return settled.change(fitted, "data")


def _asked(given: Mapping[str, Any], section: str, name: str) -> bool:
    """Return True if the user set a field to a value other than none and an empty list."""
    return is_set(as_mapping(given.get(section)).get(name))


def _adopt_section(
    section: str, asked: Any, stated: Any, given: Mapping[str, Any], source: str
) -> Any:
    """Return the model's section with the fields that the user may set; others are errors."""
    chosen: Plain = {}
    free = (*_MAY_DIFFER, *(_NEW_TOKENIZER_FIELDS if getattr(asked, "replace_vocab", 0) else ()))
    for field in fields(asked):
        name, value = field.name, getattr(asked, field.name)
        is_given = _asked(given, section, name)
        if name in _OUR_OWN or (name in free and is_given):
            chosen[name] = value
        elif is_given and name != _POSITIONS and value != getattr(stated, name):
            rule = f"contradicts {source}, which has {getattr(stated, name)}"
            raise ConfigError(f"{section}.{name}", value, rule, "Remove it.")
    return replace(stated, **chosen)


def _choose_positions(
    asked: ModelConfig, facts: FixedValues, given: Mapping[str, Any], source: str
) -> dict[str, int]:
    """Return the number of positions that was set, if it can differ (`_FIXED_LENGTH`)."""
    positions, stated = asked.max_position_embeddings, facts.model.max_position_embeddings
    if not _asked(given, "model", _POSITIONS) or positions is None or stated is None:
        return {}
    fixed = facts.model.positions in _FIXED_LENGTH
    if positions < stated or (positions > stated and fixed):
        rule = f"contradicts {source}, which has {stated}"
        remedy = "Remove it." if positions > stated else "To use fewer, set data.max_seq_length."
        raise ConfigError(f"model.{_POSITIONS}", positions, rule, remedy)
    return {_POSITIONS: positions}


def _choose_wrapping(
    config: PretrainConfig, facts: FixedValues, given: Mapping[str, Any], source: str
) -> bool:
    """Return True if the model's inputs are [CLS] … [SEP]."""
    asked, stated = config.data.special_tokens, facts.special_tokens
    is_given = _asked(given, "data", "special_tokens")
    if stated is None and not is_given:
        rule = (
            f"cannot be inferred: the tokenizer of {source} adds special tokens other than "
            "[CLS] … [SEP]"
        )
        remedy = "Set it to true for [CLS] … [SEP] around every segment, or to false."
        raise ConfigError("data.special_tokens", None, rule, remedy)
    if stated is not None and is_given and asked != stated:
        rule = f"contradicts {source}, which has {stated}"
        raise ConfigError("data.special_tokens", asked, rule, "Remove it.")
    return asked if stated is None else stated


def shorten_rows(config: PretrainConfig, given: Mapping[str, Any]) -> PretrainConfig:
    """Return the configuration with rows that are no longer than the positions of its model.

    They are those of ``init_from`` or of a teacher; a model from scratch has as many as its rows
    need. Raise ConfigError if `given` has longer rows, or a schedule of them.
    """
    source = config.init_from or config.teacher
    length, longest = config.data.max_seq_length, config.model.max_position_embeddings
    if source is None or longest is None or length <= longest:
        return config
    if _asked(given, "data", "max_seq_length"):
        more = f", or --model.{_POSITIONS} {length} as well"
        remedy = f"Give at most {longest}{more * (config.model.positions not in _FIXED_LENGTH)}."
        rule = f"is longer than the {longest} positions of {source}"
        raise ConfigError("data.max_seq_length", length, rule, remedy)
    stages = config.train.seq_length_schedule
    parsed = parse_schedule("seq_length_schedule", stages, longest)
    if any(length > longest for _, length in parsed):
        if _asked(given, "train", "seq_length_schedule"):
            rule = f"has rows longer than the {longest} positions of {source}"
            raise ConfigError("train.seq_length_schedule", list(stages), rule, "Shorten them.")
        stages = tuple(f"{start:g}:{min(length, longest)}" for start, length in parsed)
    return replace(
        config,
        data=replace(config.data, max_seq_length=longest),
        train=replace(config.train, seq_length_schedule=stages),
    )
