"""Prepared folders, opened and checked: one, or several as a mixture."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

from maskwright.data.batch import SpecialIds
from maskwright.data.config import MixtureConfig
from maskwright.data.masking import Vocabulary
from maskwright.data.mixture import MAX_SOURCES, Mixture, count_passes
from maskwright.errors import InputError, ShardError
from maskwright.runs.config import PretrainConfig
from maskwright.shards.manifest import TOKENIZER_NAME, Verify
from maskwright.shards.reader import ConcatStore, TokenStore
from maskwright.shards.remote import show_path
from maskwright.tokenizer.tokenizer import Tokenizer

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


def count_epoch_tokens(config: PretrainConfig, data: PreparedData) -> float:
    """Return the tokens that a run counts in an epoch: those of the text, [CLS] and [SEP]."""
    extra = config.data.special_per_segment
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
