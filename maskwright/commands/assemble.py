"""Puts the parts of a pretraining run together."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from maskwright.commands.config import PretrainConfig
from maskwright.data.batch import Batch, SpecialIds
from maskwright.data.loader import Prefetcher, RowSource
from maskwright.data.masking.corruption import Masker, Vocabulary
from maskwright.data.rows import DataPosition
from maskwright.errors import ConfigError, ShardError
from maskwright.evaluation.masked_lm import build_pinned_batches, evaluate_masked_lm
from maskwright.inference.samples import HeldOutSamples
from maskwright.logs import Record
from maskwright.model.config import EncoderConfig, resolve_config
from maskwright.model.init import initialise
from maskwright.model.matrices import count_fused_matrices
from maskwright.model.pretraining import MaskedLanguageModel
from maskwright.objectives.mlm import MaskedLM
from maskwright.optim.build import build_optimizers
from maskwright.shards.reader import TokenStore
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.train.device import choose_device, should_compile
from maskwright.train.ema import WeightAverage
from maskwright.train.plan import Planner
from maskwright.train.state import TrainState
from maskwright.train.trainer import Reporter, Trainer

NUM_SAMPLES = 5


class SilentReporter:
    """Reports nothing."""

    def report(self, record: Record, progress: float) -> None:
        pass


class PreparedData:
    """A prepared folder: both splits and the tokenizer they were made with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.train = TokenStore.open(folder, "train")
        self.valid = TokenStore.open(folder, "valid")
        if self.valid.num_tokens == 0:
            raise ShardError(
                f"{folder} holds no validation text. Prepare it again with a larger "
                "corpus.valid_fraction."
            )
        self.tokenizer = Tokenizer.load(folder / "tokenizer")
        expected, found = self.train.tokenizer_fingerprint, self.tokenizer.fingerprint
        if found != expected:
            raise ShardError(
                f"{folder / 'tokenizer'} has the fingerprint {found}, but the tokens were made "
                f"with {expected}. Bring that tokenizer back, or prepare the data again."
            )

    @property
    def vocabulary(self) -> Vocabulary:
        """What masking must know of the tokenizer."""
        return Vocabulary(
            size=self.tokenizer.vocab_size,
            mask_id=self.tokenizer.mask_id,
            ordinary_ids=np.asarray(self.tokenizer.ordinary_ids, dtype=np.int64),
            unigram_counts=self.train.unigram_counts,
        )

    def special_ids(self, wrap: bool) -> SpecialIds:
        """The ids that rows are built with."""
        tokenizer = self.tokenizer
        return SpecialIds(tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, wrap)


def resolve_model(config: PretrainConfig, tokenizer: Tokenizer) -> EncoderConfig:
    """The architecture for a tokenizer's vocabulary."""
    return resolve_config(
        config.model,
        vocab_size=tokenizer.vocab_size,
        max_seq_length=config.data.max_seq_length,
        pad_token_id=tokenizer.pad_id,
        cls_token_id=tokenizer.cls_id,
        sep_token_id=tokenizer.sep_id,
        mask_token_id=tokenizer.mask_id,
    )


def guess_model(config: PretrainConfig) -> EncoderConfig:
    """The architecture before there is a tokenizer, with the vocabulary that was asked for."""
    tokenizer = config.tokenizer
    size = Tokenizer.load(tokenizer.path).vocab_size if tokenizer.path else tokenizer.vocab_size
    return resolve_config(
        config.model,
        vocab_size=-(-size // 64) * 64,
        max_seq_length=config.data.max_seq_length,
    )


def build_planner(config: PretrainConfig) -> Planner:
    """The schedules of the run."""
    return Planner(config.train, config.data, config.masking, config.optim)


def check_config(config: PretrainConfig) -> None:
    """Finds what can be wrong without looking at the text, before hours go into preparing it.

    Raises:
        ConfigError: sections that do not fit one another or this machine.
        TokenizerError: no tokenizer in ``tokenizer.path``.
    """
    build_planner(config)
    choose_device(config.train.device)
    model = guess_model(config)
    with torch.device("meta"):
        network = MaskedLanguageModel(model)
    build_optimizers(config.optim, network.named_parameters(), count_fused_matrices(network))


def build_row_source(config: PretrainConfig, data: PreparedData) -> RowSource:
    """The training rows, masked as configured.

    Raises:
        ConfigError: a protected token that the tokenizer does not know.
    """
    protected: list[int] = []
    for token in config.masking.no_mask_tokens:
        token_id = data.tokenizer.token_id(token)
        if token_id is None:
            raise ConfigError("masking.no_mask_tokens", token, "is not in the vocabulary")
        protected.append(token_id)
    masker = Masker(config.masking, data.vocabulary, tuple(protected))
    special = data.special_ids(config.data.special_tokens)
    return RowSource(data.train, config.data, special, masker, config.seed)


class Validation:
    """Pinned-mask scores and, beside them, what the model fills into held-out text.

    Raises:
        ShardError: there is nothing to score.
    """

    def __init__(
        self, config: PretrainConfig, data: PreparedData, model: MaskedLanguageModel
    ) -> None:
        self.config, self.data, self.model = config, data, model
        longest = model.config.max_position_embeddings - config.data.extra_slots
        wrap = config.data.special_tokens
        longest = model.config.max_position_embeddings - 2 * wrap
        self.samples = HeldOutSamples(data.valid, data.tokenizer, NUM_SAMPLES, longest)
        # The baseline may only guess what can be a label: [UNK] is often frequent and never one.
        ordinary = data.vocabulary.ordinary_ids
        self._label_counts = np.zeros_like(data.train.unigram_counts)
        self._label_counts[ordinary] = data.train.unigram_counts[ordinary]
        for final in (False, True):
            if not any(batch.num_predictions for batch in self._batches(final)):
                raise ShardError(
                    f"{data.folder} holds too little validation text: no token of it is hidden, so "
                    "nothing can be scored. Prepare it with a larger corpus.valid_fraction."
                )

    def __call__(self, final: bool) -> dict[str, Any]:
        device = next(self.model.parameters()).device
        batches = self._batches(final)
        scores = evaluate_masked_lm(self.model, batches, self._label_counts, device)
        lines = self.samples.predict(self.model, self.config.data.special_tokens)
        return {**asdict(scores), "final": final, "samples": lines}

    def _batches(self, final: bool) -> Iterator[Batch]:
        train = self.config.train
        return build_pinned_batches(
            self.data.valid,
            self.config.data,
            self.data.special_ids(self.config.data.special_tokens),
            self.data.vocabulary,
            train.final_valid_tokens if final else train.valid_tokens,
        )


def build_trainer(
    config: PretrainConfig, data: PreparedData, reporter: Reporter, checkpoints: Path | None
) -> tuple[Trainer, str]:
    """A trainer at step 0, and a sentence on whether it compiles and why."""
    device = choose_device(config.train.device)
    model = MaskedLanguageModel(resolve_model(config, data.tokenizer))
    initialise(model, config.seed)
    model.to(device)
    objective = MaskedLM(model)
    compiles, reason = should_compile(config.train, device)
    decay = config.train.ema_decay
    first_length = config.train.seq_length_at(0.0, config.data.max_seq_length)
    trainer = Trainer(
        config=config.train,
        planner=build_planner(config),
        seed=config.seed,
        model=model,
        objective=torch.compile(objective, dynamic=False) if compiles else objective,
        optimizers=build_optimizers(
            config.optim, model.named_parameters(), count_fused_matrices(model)
        ),
        prefetcher=Prefetcher(build_row_source(config, data).load),
        device=device,
        reporter=reporter,
        validate=Validation(config, data, model),
        checkpoints=checkpoints,
        state=TrainState(DataPosition(first_length)),
        average=WeightAverage(model, decay) if decay else None,
    )
    return trainer, f"{'compiling' if compiles else 'not compiling'}: {reason}"
