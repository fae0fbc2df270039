"""How text becomes token shards: everything that ``maskwright prepare`` can be told."""

from dataclasses import dataclass

from maskwright.config import section, setting
from maskwright.corpus.config import CorpusConfig
from maskwright.errors import ConfigError
from maskwright.preparation.cluster.config import ClusterConfig, EngineName, check_engine
from maskwright.selection.config import SelectionConfig
from maskwright.tokenizer.config import TokenizerConfig, check_extension


@dataclass(frozen=True, kw_only=True)
class PrepareConfig:
    """Reading, selection, tokenizer, shards, and who does the work.

    Raises:
        ConfigError: a value outside its range.
    """

    corpus: CorpusConfig = section(CorpusConfig)
    select: SelectionConfig = section(SelectionConfig)
    tokenizer: TokenizerConfig = section(TokenizerConfig)
    shard_megabytes: int = setting(
        16, "text (UTF-8) in one shard at most; each core works on one at a time"
    )
    workers: int = setting(0, "processes of this machine; 0 for one per core")
    engine: EngineName = setting("local", "who does the work; see docs/scale.md")
    cluster: ClusterConfig = section(ClusterConfig)

    def __post_init__(self) -> None:
        if not 1 <= self.shard_megabytes <= 1024:
            rule = "must be between 1 and 1024"
            raise ConfigError("shard_megabytes", self.shard_megabytes, rule, "Try 16.")
        if self.workers < 0:
            raise ConfigError("workers", self.workers, "must not be negative", "0 takes all cores.")
        check_extension(self.tokenizer)
        check_engine(self.engine, self.cluster)
