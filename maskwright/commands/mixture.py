"""Several prepared folders of one tokenizer, to be trained on together."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from maskwright.commands.assemble import PreparedData
from maskwright.data.config import MixtureConfig
from maskwright.data.mixture import MOST_SOURCES, Mixture, count_passes
from maskwright.errors import InputError, ShardError
from maskwright.shards.joint import JointStore
from maskwright.shards.manifest import TOKENIZER_NAME
from maskwright.shards.reader import Verify


class PreparedMixture(PreparedData):
    """Several prepared folders as one.

    Args:
        folders: by name, of remote data the mirror; at least one.
        config: how much of each training sees.
        verify: whether to hash the files.

    Attributes:
        folder: that of the first, whose tokenizer all have.

    Raises:
        ShardError: a folder is damaged, holds no text, or was made with another tokenizer.
        ConfigError: `config` names other folders than these.
    """

    def __init__(
        self, folders: Mapping[str, Path], config: MixtureConfig, verify: Verify = "full"
    ) -> None:
        if len(folders) > MOST_SOURCES:
            raise InputError(f"{len(folders)} sources are too many: {MOST_SOURCES} at most")
        self.sources = {name: PreparedData(folder, verify) for name, folder in folders.items()}
        first = next(iter(self.sources.values()))
        self.folder, self.tokenizer = first.folder, first.tokenizer
        for source in self.sources.values():
            _check_source(source, first)
        sizes = {name: source.train.num_tokens for name, source in self.sources.items()}
        self.passes = count_passes(config, sizes)
        passes = tuple(self.passes.values())
        train = JointStore({name: s.train for name, s in self.sources.items()}, passes)
        self.train = train
        self.valid = JointStore({name: s.valid for name, s in self.sources.items()}, passes)
        self.mixture = Mixture(train.num_documents_each, passes)

    @property
    def name(self) -> str:
        return " + ".join(source.name for source in self.sources.values())

    @property
    def epoch_tokens(self) -> float:
        return sum(self.passes[name] * s.train.num_tokens for name, s in self.sources.items())

    def describe(self) -> Iterator[str]:
        """A line for each source: its share of the training, and how often it is passed over."""
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
    """The prepared data of a run: one folder, or several as one.

    Raises:
        ShardError, ConfigError: as `PreparedMixture`.
    """
    if len(folders) == 1:
        [folder] = folders.values()
        return PreparedData(folder, verify)
    return PreparedMixture(folders, config, verify)


def describe_sources(data: PreparedData) -> list[str]:
    """What there is of each source, if there are several."""
    return [*data.describe()] if isinstance(data, PreparedMixture) else []


def _check_source(source: PreparedData, first: PreparedData) -> None:
    if not source.train.num_tokens:
        raise ShardError(f"{source.name} holds no text to train on. Leave it out.")
    if source.tokenizer.fingerprint != first.tokenizer.fingerprint:
        paths = map(str, source.train.manifest.source.get("paths", []))
        folder = Path("data", source.train.name) if source.train.is_remote else source.folder
        path, out = f"{first.folder / TOKENIZER_NAME}", f"{folder}-again"
        command = shlex.join(["prepare", *paths, "--tokenizer.path", path, "--out", out])
        raise ShardError(
            f"{source.name} was prepared with another tokenizer than {first.name}. Prepare its "
            f"text again: maskwright {command} (and its other flags)"
        )
