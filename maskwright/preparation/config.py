"""The configuration of ``maskwright prepare``: how text becomes token shards."""

import re
from dataclasses import dataclass
from typing import Literal

from maskwright.config import check_numbers, section, setting
from maskwright.corpus.config import CorpusConfig
from maskwright.errors import ConfigError
from maskwright.selection.config import SelectionConfig
from maskwright.tokenizer.config import TokenizerConfig, check_extension

EngineName = Literal["local", "datatrove-local", "datatrove-slurm", "datatrove-ray"]

_MAX_TASKS = 1_000  # Slurm's usual MaxArraySize is 1,001
_TIME = re.compile(r"(\d{1,4}):([0-5]\d):([0-5]\d)")
_SBATCH = re.compile(r"([a-z][a-z-]*)(?:=([^\r\n]*))?")


@dataclass(frozen=True)
class ClusterConfig:
    """Cluster resources. None of these settings changes the prepared data."""

    tasks: int = setting(16, "parallel tasks in each stage (with Slurm: jobs in the array)")
    cores: int = setting(1, "processes in each task, one per core")
    memory_gigabytes: int = setting(2, "memory per core, in GB")
    time: str = setting("24:00:00", "time limit of a task, as hours:minutes:seconds")
    partition: str | None = setting(None, "Slurm partition (sinfo lists them)")
    sbatch: tuple[str, ...] = setting((), "further sbatch options: account=NAME, qos=NAME, …")

    def __post_init__(self) -> None:
        if not 1 <= self.tasks <= _MAX_TASKS:
            rule = f"must be between 1 and {_MAX_TASKS:,}"
            raise ConfigError("tasks", self.tasks, rule, "Raise cores, the cores of each task.")
        check_numbers(self, "cores", "memory_gigabytes", above=0)
        if not _TIME.fullmatch(self.time):
            rule = "must be hours:minutes:seconds"
            raise ConfigError("time", self.time, rule, "Write 24:00:00 for a day.")
        for argument in self.sbatch:
            if not _SBATCH.fullmatch(argument):
                rule = "must be NAME or NAME=VALUE, without leading dashes"
                raise ConfigError("sbatch", argument, rule, "Example: account=NAME.")

    @property
    def seconds(self) -> int:
        """Return `time` in seconds."""
        hours, minutes, seconds = map(int, self.time.split(":"))
        return (hours * 60 + minutes) * 60 + seconds

    @property
    def sbatch_arguments(self) -> dict[str, str]:
        """Return the options of `sbatch` by name; the value of a flag is empty."""
        return {name: value for name, _, value in (part.partition("=") for part in self.sbatch)}


@dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    """Reading, selection, tokenizer, shards, and the engine that runs the tasks."""

    corpus: CorpusConfig = section(CorpusConfig)
    select: SelectionConfig = section(SelectionConfig)
    tokenizer: TokenizerConfig = section(TokenizerConfig)
    block_megabytes: int = setting(
        64, "largest block in MB of text; a block becomes one shard (small corpora: smaller blocks)"
    )
    workers: int = setting(0, "processes on this machine; 0: one per core")
    engine: EngineName = setting("local", "what runs the tasks: see docs/scale.md")
    cluster: ClusterConfig = section(ClusterConfig)

    def __post_init__(self) -> None:
        check_numbers(self, "block_megabytes", at_least=1, at_most=1024, remedy="Try 64.")
        check_numbers(self, "workers", at_least=0, remedy="0 uses all cores.")
        check_extension(self.tokenizer)
        if self.engine == "datatrove-slurm" and not self.cluster.partition:
            rule = "is required by engine = datatrove-slurm"
            raise ConfigError("cluster.partition", None, rule, "sinfo lists the partitions.")
