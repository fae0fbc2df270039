"""The weights that a run begins with, where they come from a model that exists.

A run that begins with a model that exists says of that model what its folder says.

The resolved configuration is the whole truth: the architecture, the tokenizer and whether inputs
are wrapped stand in config.yaml like those of any other run. So a resumed run needs the folder no
more, and a reader needs no second file. What the user asked for and the folder contradicts is an
error; what only a recipe says gives way.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from maskwright.console import tell
from maskwright.errors import ConfigError, ShardError
from maskwright.files import hash_file
from maskwright.model.config import EncoderConfig, ModelConfig
from maskwright.model.init import draw_pair_head, grow_vocabulary
from maskwright.model.pretraining import PAIR_HEAD, MaskedLanguageModel
from maskwright.model_folder.folder import describe_folder
from maskwright.model_folder.weights import holds_pair_head, read_model
from maskwright.runs.config import PretrainConfig
from maskwright.runs.find_data import named_folder
from maskwright.runs.find_model import find_model_folder
from maskwright.shards.folder import name_path
from maskwright.shards.manifest import TOKENIZER_NAME
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.token_text import Pieces
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.vocabulary import round_up
from maskwright.train.config import parse_schedule


@dataclass(frozen=True)
class InitialModel:
    """A model that training begins with: what the user called it, and what its folder holds."""

    name: str
    folder: Path
    model: MaskedLanguageModel
    tokenizer: Tokenizer

    def adapt(
        self, config: EncoderConfig, tokenizer: Tokenizer, seed: int = 0
    ) -> MaskedLanguageModel:
        """The same weights in an architecture that may have a larger vocabulary.

        Args:
            config: differs from the model's own in vocabulary, in positions that are computed, in
                what only training reads, and in the head for pairs.
            tokenizer: the model's own, or one that extends it.
            seed: names the weights of that head, if the model has none.
        """
        tensors = {name: p.detach() for name, p in self.model.named_parameters()}
        if config.sentence_pair_head:
            tensors = {**draw_pair_head(config, seed), **tensors}
        else:
            tensors = {n: t for n, t in tensors.items() if not n.startswith(PAIR_HEAD)}
        new_ids = range(self.tokenizer.vocab_size, tokenizer.vocab_size)
        if new_ids or config.vocab_size > self.model.config.vocab_size:
            old = Pieces(self.tokenizer)
            pieces = {i: old.cut_token(tokenizer.token(i)) for i in new_ids}
            tensors = grow_vocabulary(tensors, config.vocab_size, pieces)
        return MaskedLanguageModel.from_tensors(config, tensors)

    def describe(self) -> dict[str, Any]:
        """What identifies it, for provenance.json."""
        weights = sorted(self.folder.glob("*.safetensors"))
        return {
            "name": self.name,
            "folder": str(self.folder.resolve()),
            "sha256": {path.name: hash_file(path) for path in weights},
            "tokenizer_fingerprint": self.tokenizer.fingerprint,
        }


def load_initial(config: PretrainConfig) -> InitialModel | None:
    """The model of ``init_from``, on the CPU; None where the run begins from scratch.

    Raises:
        InputError, ModelFolderError, TokenizerError: it cannot be had or read.
    """
    if config.init_from is None:
        return None
    folder = find_model_folder(config.init_from)
    described = describe_folder(folder)
    architecture, family = described.config, described.family
    if config.data.pairs is not None and holds_pair_head(folder, architecture, family):
        architecture = replace(architecture, sentence_pair_head=True)
    model = read_model(folder, architecture, family)
    return InitialModel(config.init_from, folder, model, described.tokenizer)


Report = Callable[[str], None]

# Of these a folder says nothing: how to compute, and what an extended tokenizer is learnt by.
_OUR_OWN = ("attention_backend", "extend_vocab", "min_frequency", "sample_megabytes")
# Only training reads these, so they may differ from what a folder says.
_MAY_DIFFER = ("embedding_dropout", "attention_dropout", "hidden_dropout", "mlp_dropout")
_POSITIONS = "max_position_embeddings"


@dataclass(frozen=True)
class Statement:
    """What a model says that the configuration of a run that begins with it must say, too.

    Attributes:
        source: the model, for messages.
        special_tokens: whether inputs are [CLS] … [SEP]; None where they are something else.
    """

    source: str
    model: ModelConfig
    tokenizer: TokenizerConfig
    special_tokens: bool | None


def say_on_first_rank(line: str) -> None:
    """A note about the configuration; standard output is for the configuration itself."""
    if os.environ.get("RANK", "0") == "0":
        tell(line)


def adopt_model(
    config: PretrainConfig,
    given: Mapping[str, Any],
    report: Report = say_on_first_rank,
    begun: PretrainConfig | None = None,
) -> PretrainConfig:
    """`config` with what the model of ``init_from`` says; as it is where there is none.

    Args:
        given: what the user asked for over the recipe, nested.
        report: called with a line about each thing that is not as the recipe has it.
        begun: of the run that is gone on with; it said the same when it was begun.

    Raises:
        ConfigError: `given` contradicts the model.
        ModelFolderError, TokenizerError: the folder is not a model.
        ShardError: the text is prepared data, of another tokenizer.
    """
    if config.init_from is None:
        return config
    if begun is not None and begun.init_from == config.init_from:
        wraps = begun.data.special_tokens
        statement = Statement(config.init_from, begun.model, begun.tokenizer, wraps)
    else:
        statement = read_statement(config.init_from, config)
    source = statement.source
    model = _adopt_section("model", config.model, statement.model, given, source)
    model = replace(model, **_choose_positions(config.model, statement, given))
    tokenizer = _adopt_section("tokenizer", config.tokenizer, statement.tokenizer, given, source)
    data = replace(config.data, special_tokens=_choose_wrapping(config, statement, given))
    config = replace(config, model=model, tokenizer=tokenizer, data=data)
    return _shorten_rows(config, source, given, report)


def read_statement(source: str, config: PretrainConfig) -> Statement:
    """What the folder that `source` names says; its weights are not read."""
    # torch is imported here, for the few runs that begin with a model.
    from maskwright.model.config import state_architecture
    from maskwright.model_folder.folder import describe_folder
    from maskwright.tokenizer.extension import extends
    from maskwright.tokenizer.template import wraps_inputs
    from maskwright.tokenizer.tokenizer import Tokenizer

    folder = find_model_folder(source)
    described = describe_folder(folder)
    tokenizer, prepared = described.tokenizer, named_folder(config)
    if prepared is None:
        stated = TokenizerConfig(
            kind=tokenizer.kind,
            vocab_size=tokenizer.vocab_size,
            lowercase=tokenizer.lowercase,
            path=str(folder),
        )
        num_tokens = tokenizer.vocab_size + config.tokenizer.extend_vocab
    else:  # whose tokenizer has been told already, by `adopt_preparation`
        stated, found = config.tokenizer, Tokenizer.load(prepared / TOKENIZER_NAME)
        num_tokens = found.vocab_size
        if not extends(found, tokenizer):
            raise ShardError(
                f"{name_path(prepared)} was prepared with another tokenizer than that of {source}. "
                f"Name the text itself, or prepare it with --tokenizer.path {folder}."
            )
    model = state_architecture(described.config)
    if num_tokens > described.config.vocab_size:
        model = replace(model, vocab_size=round_up(num_tokens))
    return Statement(source, model, stated, wraps_inputs(tokenizer))


def _asked(given: Mapping[str, Any], section: str, name: str) -> bool:
    """Whether the user gave a field a value; none and an empty list leave it to something else."""
    values = given.get(section)
    value = values.get(name) if isinstance(values, Mapping) else None
    return value is not None and str(value).lower() not in ("", "none", "null", "[]")


def _adopt_section(
    section: str, asked: Any, stated: Any, given: Mapping[str, Any], source: str
) -> Any:
    """The section as stated, with those of its fields that are the user's to choose.

    Raises:
        ConfigError: another field was given, with another value.
    """
    chosen: dict[str, Any] = {}
    for field in fields(asked):
        name, value = field.name, getattr(asked, field.name)
        is_given = _asked(given, section, name)
        if name in _OUR_OWN or (name in _MAY_DIFFER and is_given):
            chosen[name] = value
        elif is_given and name != _POSITIONS and value != getattr(stated, name):
            rule = f"contradicts {source}, which has {getattr(stated, name)}"
            raise ConfigError(f"{section}.{name}", value, rule, "Leave it out.")
    return replace(stated, **chosen)


def _choose_positions(
    asked: ModelConfig, statement: Statement, given: Mapping[str, Any]
) -> dict[str, int]:
    """More positions than the model has, if the user wants them and they are not learned."""
    wanted, stated = asked.max_position_embeddings, statement.model.max_position_embeddings
    if not _asked(given, "model", _POSITIONS) or wanted is None or stated is None:
        return {}
    if wanted < stated or (wanted > stated and statement.model.positions == "learned"):
        rule = f"contradicts {statement.source}, which has {stated}"
        remedy = "Leave it out." if wanted > stated else "To use fewer, set data.max_seq_length."
        raise ConfigError(f"model.{_POSITIONS}", wanted, rule, remedy)
    return {_POSITIONS: wanted}


def _choose_wrapping(
    config: PretrainConfig, statement: Statement, given: Mapping[str, Any]
) -> bool:
    """Whether inputs are [CLS] … [SEP], as the model knows them."""
    asked, stated = config.data.special_tokens, statement.special_tokens
    is_given = _asked(given, "data", "special_tokens")
    if stated is None and not is_given:
        rule = f"cannot be told from {statement.source}: its tokenizer wraps texts in its own way"
        remedy = "Set it to true for [CLS] … [SEP] around every segment, or to false."
        raise ConfigError("data.special_tokens", None, rule, remedy)
    if stated is not None and is_given and asked != stated:
        rule = f"contradicts {statement.source}, which has {stated}"
        raise ConfigError("data.special_tokens", asked, rule, "Leave it out.")
    return asked if stated is None else stated


def _shorten_rows(
    config: PretrainConfig, source: str, given: Mapping[str, Any], report: Report
) -> PretrainConfig:
    """Rows no longer than the model has positions."""
    wanted, longest = config.data.max_seq_length, config.model.max_position_embeddings
    if longest is None or wanted <= longest:
        return config
    if _asked(given, "data", "max_seq_length"):
        more = f", or --model.{_POSITIONS} {wanted} as well"
        remedy = f"Give at most {longest}{more * (config.model.positions != 'learned')}."
        rule = f"is longer than the {longest} positions of {source}"
        raise ConfigError("data.max_seq_length", wanted, rule, remedy)
    report(f"data.max_seq_length is {longest} and not {wanted}: {source} has no more positions")
    stages = config.train.seq_length_schedule
    if stages:
        parsed = parse_schedule("seq_length_schedule", stages, longest)
        stages = tuple(f"{start:g}:{min(length, longest)}" for start, length in parsed)
    return replace(
        config,
        data=replace(config.data, max_seq_length=longest),
        train=replace(config.train, seq_length_schedule=stages),
    )
