"""The prepared data of a run, one folder or several, checked against its configuration."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from maskwright.data.batch import SpecialIds
from maskwright.data.config import MixtureConfig
from maskwright.data.loader import RowSource, TokensInMemory
from maskwright.data.masking import Masker, Vocabulary
from maskwright.data.rows import MAX_SOURCES, DataPosition, Mixture, count_passes
from maskwright.distributed.world import ALONE, World, read_world
from maskwright.errors import ConfigError, InputError, ShardError
from maskwright.model.config import EncoderConfig, resolve_config
from maskwright.model.encoder import count_stacked_matrices
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.objectives.distillation import DistilledMaskedLM
from maskwright.objectives.objective import Loss, Objective, build_objective
from maskwright.optim.build import build_optimizers
from maskwright.runs.config import PretrainConfig
from maskwright.shards.manifest import TOKENIZER_NAME, Verify
from maskwright.shards.reader import ConcatStore, TokenStore
from maskwright.shards.remote import show_path
from maskwright.tokenizer.files import round_up
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.train.device import choose_device, computes_in_bf16, product_dtype
from maskwright.train.reporting import check_trackers
from maskwright.train.state import Planner

_NUM_SPECIAL = 5  # as in every tokenizer that is trained here
_MANY_EPOCHS = 40  # a model learns little more from a text that it has read so often


class PreparedData:
    """A prepared folder: both splits and the tokenizer they were made with.

    Args:
        verify: "full" to hash the files, which one rank does for all.

    Attributes:
        sources: the sources of a mixture by name; empty for a single folder.
        mixture: the mixture of the sources in training; None for a single folder.
    """

    sources: Mapping[str, "PreparedData"] = MappingProxyType({})
    mixture: Mixture | None = None

    def __init__(self, folder: Path, verify: Verify = "full") -> None:
        self.folder = folder
        self.train = TokenStore.open(folder, "train", verify)
        self.valid = TokenStore.open(folder, "valid", verify)
        if self.valid.num_tokens == 0:
            raise ShardError(
                f"{show_path(folder)} holds no validation text. Prepare it again with a larger "
                "corpus.valid_fraction."
            )
        self.tokenizer = Tokenizer.load(folder / "tokenizer")
        expected, found = self.train.tokenizer_fingerprint, self.tokenizer.fingerprint
        if found != expected:
            raise ShardError(
                f"{show_path(folder / 'tokenizer')} has the fingerprint {found}, but the tokens "
                f"were made with {expected}. Restore that tokenizer, or prepare the data again."
            )

    @property
    def name(self) -> str:
        """The name of the data in messages."""
        return show_path(self.folder)

    @property
    def epoch_tokens(self) -> float:
        """The number of tokens of the text in an epoch (`count_epoch_tokens`: and special ones)."""
        return self.train.num_tokens

    @property
    def epoch_words(self) -> float:
        """The number of words of an epoch, separated by whitespace and counted in preparation."""
        return self.train.manifest.splits["train"].num_words

    def count_segments(self, length: int) -> float:
        """Return the number of segments of at most `length` tokens in an epoch."""
        return int((-(-self.train.document_lengths // length)).sum())

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary for masking."""
        return Vocabulary(
            size=self.tokenizer.vocab_size,
            mask_id=self.tokenizer.mask_id,
            ordinary_ids=np.asarray(self.tokenizer.ordinary_ids, dtype=np.int64),
            unigram_counts=self.train.unigram_counts,
        )

    def special_ids(self, wrap: bool) -> SpecialIds:
        """Return the special ids that rows are built with."""
        tokenizer = self.tokenizer
        return SpecialIds(tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, wrap)


def resolve_model(config: PretrainConfig, tokenizer: Tokenizer | None = None) -> EncoderConfig:
    """Return the architecture for a tokenizer; without one, for the vocabulary that is asked for.

    Raises:
        ConfigError: the sections contradict each other, or the tokenizer.
    """
    asked = config.tokenizer
    if tokenizer is not None:
        vocabulary = {
            "vocab_size": tokenizer.vocab_size,
            "pad_token_id": tokenizer.pad_id,
            "cls_token_id": tokenizer.cls_id,
            "sep_token_id": tokenizer.sep_id,
            "mask_token_id": tokenizer.mask_id,
        }
    elif asked.path is None or asked.replace_vocab:
        vocabulary = {"vocab_size": round_up(asked.replace_vocab or asked.vocab_size)}
    else:
        vocabulary = {"vocab_size": Tokenizer.load(asked.path).vocab_size + asked.extend_vocab}
    length, has_pairs = config.data.max_seq_length, config.data.pairs is not None
    model = resolve_config(
        config.model, max_seq_length=length, sentence_pair_head=has_pairs, **vocabulary
    )
    if model.next_token_prediction and not config.data.special_tokens:
        rule = "needs data.special_tokens = True: [CLS] predicts the first token"
        raise ConfigError("model.next_token_prediction", True, rule, "Set it to true.")
    return model


def objective_of(config: PretrainConfig) -> Objective[Any]:
    """Return the objective that a run's configuration chooses."""
    return build_objective(config.objective, config.data, config.masking)


def build_loss(config: PretrainConfig, network: Any, teacher: MaskedLanguageModel | None) -> Loss:
    """Return the module that computes the loss of a run, beside its teacher if it has one."""
    if teacher is not None:
        return DistilledMaskedLM(network, teacher, config.distill)
    return objective_of(config).build_loss(network)


def count_epoch_tokens(config: PretrainConfig, data: PreparedData) -> float:
    """Return the tokens that a run counts in an epoch: those of the text, [CLS] and [SEP]."""
    extra = config.data.extra_slots
    added = (
        share * extra * data.count_segments(row_length - extra)
        for share, row_length in config.train.share_lengths(config.data.max_seq_length)
    )
    return data.epoch_tokens + sum(added)


def warn_of_epochs(epochs: float) -> str:
    """Return a warning for a run that reads its text very often, else ``""``."""
    if epochs <= _MANY_EPOCHS:
        return ""
    return (
        f"warning: about {epochs:,.0f} epochs of this text, more than {_MANY_EPOCHS}. Add text, or "
        f"train for fewer minutes: 1/{epochs / _MANY_EPOCHS:,.0f} of them is {_MANY_EPOCHS} epochs."
    )


def build_planner(config: PretrainConfig, vocab_size: int, num_ranks: int = 1) -> Planner:
    """Return the schedules of the run."""
    sections = (config.train, config.data, config.masking, config.optim)
    return Planner(*sections, vocab_size, num_ranks)


def check_machine(config: PretrainConfig) -> None:
    """Check what a run needs of this machine: its device, packages and files.

    Raises:
        ConfigError: the device or a file does not exist.
        MissingPackageError: the package of a tracker is not installed.
    """
    device = choose_device(config.train.device, read_world().local_rank)
    in_fp32 = product_dtype(config.train.precision, device) is torch.float32
    if config.model.attention_backend == "varlen" and (device.type != "cuda" or in_fp32):
        rule = f"needs an NVIDIA GPU and bf16, and the run is on {device}"
        raise ConfigError("model.attention_backend", "varlen", rule, "Set it to auto.")
    if config.train.precision == "bf16" and device.type == "cuda" and not computes_in_bf16(device):
        raise ConfigError("train.precision", "bf16", "needs a newer GPU", "Set it to auto.")
    if config.train.trackers:
        check_trackers(config.train.trackers)
    if config.evaluate.blimp is not None and not Path(config.evaluate.blimp).exists():
        raise ConfigError("evaluate.blimp", config.evaluate.blimp, "does not exist")


def check_config(config: PretrainConfig) -> None:
    """Check everything that does not depend on the text, before it is prepared for hours.

    Raises:
        ConfigError: sections contradict each other.
        TokenizerError: there is no tokenizer in ``tokenizer.path``.
    """
    model = resolve_model(config)
    build_planner(config, model.vocab_size)
    with torch.device("meta"):
        network = objective_of(config).build_network(model)
    build_optimizers(config.optim, network.named_parameters(), count_stacked_matrices(network))


def build_row_source(
    config: PretrainConfig, data: PreparedData, world: World = ALONE, split: str = "train"
) -> RowSource:
    """Return the rows of a split, masked as configured; each rank loads its own.

    Training mixes the sources of `data`, if there are several; validation reads each once.

    Raises:
        ConfigError: the vocabulary lacks a token of `masking.no_mask_tokens`.
        ShardError: pairs need two documents, and there is only one.
    """
    protected: list[int] = []
    for token in config.masking.no_mask_tokens:
        token_id = data.tokenizer.token_id(token)
        if token_id is None:
            raise ConfigError("masking.no_mask_tokens", token, "is not in the vocabulary")
        protected.append(token_id)
    masker = Masker(config.masking, data.vocabulary, tuple(protected))
    special = data.special_ids(config.data.special_tokens)
    corpus, mixture = (data.train, data.mixture) if split == "train" else (data.valid, None)
    return RowSource(corpus, config.data, special, masker, config.seed, world, mixture)


def build_random_rows(
    config: PretrainConfig, model: EncoderConfig, num_rows: int, length: int
) -> RowSource:
    """Return rows of random ordinary tokens, every one a word, each as long as a row can take."""
    size = model.vocab_size
    inside = length - config.data.extra_slots
    num_documents = max(2, num_rows)  # pairs of texts may want two
    generator = np.random.default_rng(config.seed)
    ids = generator.integers(_NUM_SPECIAL, size, num_documents * inside)
    words, lengths = np.ones(len(ids), np.bool_), np.full(num_documents, inside, np.int64)
    corpus = TokensInMemory(ids.astype(np.uint32), words, lengths)
    ordinary = np.arange(_NUM_SPECIAL, size)
    vocabulary = Vocabulary(size, _NUM_SPECIAL - 1, ordinary, np.ones(size, np.int64))
    special = SpecialIds(model.pad_token_id, 2, 3, config.data.special_tokens)
    masker = Masker(config.masking, vocabulary)
    return RowSource(corpus, config.data, special, masker, config.seed)


def fetch_ahead(
    config: PretrainConfig, data: PreparedData, position: DataPosition, world: World = ALONE
) -> None:
    """Start to download the missing files of remote data, in the order in which they are read.

    One rank of each machine downloads for all of its ranks.
    """
    if world.local_rank == 0 and data.train.is_remote:
        planner = build_row_source(config, data).planner(position.row_length)
        data.train.fetch_ahead(planner.read_ahead(position))
        data.valid.fetch_ahead([])


class PreparedMixture(PreparedData):
    """Several prepared folders as one.

    Args:
        folders: the folders, or mirrors of remote data, by name; at least one.
        config: the share of each folder in training.
        verify: "full" to hash the files.

    Attributes:
        folder: the first folder; all have its tokenizer.

    Raises:
        ShardError: a folder is damaged, holds no text, or was made with another tokenizer.
        ConfigError: `config` names a folder that is not among these.
    """

    def __init__(
        self, folders: Mapping[str, Path], config: MixtureConfig, verify: Verify = "full"
    ) -> None:
        if len(folders) > MAX_SOURCES:
            raise InputError(f"{len(folders)} sources are too many: {MAX_SOURCES} at most")
        first = next(iter(folders.values()))
        super().__init__(first, verify)
        self.sources = {
            name: PreparedData(folder, "sizes" if folder == first else verify)
            for name, folder in folders.items()
        }
        for source in self.sources.values():
            _check_source(source, self.folder, self.tokenizer)
        sizes = {name: source.train.num_tokens for name, source in self.sources.items()}
        self.passes = count_passes(config, sizes)
        passes = tuple(self.passes.values())
        train = ConcatStore({name: s.train for name, s in self.sources.items()}, passes)
        self.train = train
        self.valid = ConcatStore({name: s.valid for name, s in self.sources.items()}, passes)
        self.mixture = Mixture(train.num_documents_each, passes)

    @property
    def name(self) -> str:
        return " + ".join(source.name for source in self.sources.values())

    @property
    def epoch_tokens(self) -> float:
        return sum(self.passes[name] * s.epoch_tokens for name, s in self.sources.items())

    @property
    def epoch_words(self) -> float:
        return sum(self.passes[name] * s.epoch_words for name, s in self.sources.items())

    def count_segments(self, length: int) -> float:
        return sum(self.passes[n] * s.count_segments(length) for n, s in self.sources.items())

    def describe(self) -> Iterator[str]:
        """Yield a line for each source: its share of the training tokens, its passes per epoch."""
        width = max(map(len, self.sources))
        for name, source in self.sources.items():
            num_tokens = source.train.num_tokens
            share = self.passes[name] * num_tokens / self.epoch_tokens
            yield (
                f"{name:<{width}}  {share:6.1%} of the tokens: {num_tokens:,} of its own, "
                f"{self.passes[name]:.3g} times an epoch"
            )


def open_data(
    folders: Mapping[str, Path], config: MixtureConfig, verify: Verify = "full"
) -> PreparedData:
    """Open the prepared data of a run, one folder or several; errors as in `PreparedMixture`."""
    if len(folders) == 1:
        [folder] = folders.values()
        return PreparedData(folder, verify)
    return PreparedMixture(folders, config, verify)


def describe_sources(data: PreparedData) -> list[str]:
    """Return a line for each source; empty for a single folder."""
    return [*data.describe()] if isinstance(data, PreparedMixture) else []


def _check_source(source: PreparedData, first: Path, tokenizer: Tokenizer) -> None:
    if not source.train.num_tokens:
        raise ShardError(f"{source.name} holds no text to train on. Remove it.")
    if source.tokenizer.fingerprint != tokenizer.fingerprint:
        paths = map(str, source.train.manifest.source.get("paths", []))
        folder = Path("data", source.train.name) if source.train.is_remote else source.folder
        path, out = f"{first / TOKENIZER_NAME}", f"{folder}-again"
        command = shlex.join(["prepare", *paths, "--tokenizer.path", path, "--out", out])
        raise ShardError(
            f"{source.name} was prepared with another tokenizer than {show_path(first)}. Prepare "
            f"its text again: maskwright {command} (with its other flags)"
        )
