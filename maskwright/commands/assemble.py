"""Puts the parts of a pretraining run together."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from maskwright.commands.config import PretrainConfig
from maskwright.data.batch import SpecialIds
from maskwright.data.loader import Prefetcher, RowSource
from maskwright.data.masking.corruption import Masker, Vocabulary
from maskwright.data.rows import DataPosition
from maskwright.errors import ConfigError, ShardError
from maskwright.evaluation.masked_lm import build_pinned_batches, evaluate_masked_lm
from maskwright.inference.samples import HeldOutSamples
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
    """Pinned-mask scores and, beside them, what the model fills into held-out text."""

    def __init__(
        self, config: PretrainConfig, data: PreparedData, model: MaskedLanguageModel
    ) -> None:
        self.config, self.data, self.model = config, data, model
        self.samples = HeldOutSamples(data.valid, data.tokenizer, NUM_SAMPLES)
        # The baseline may only guess what can be a label: [UNK] is often frequent and never one.
        ordinary = data.vocabulary.ordinary_ids
        self._label_counts = np.zeros_like(data.train.unigram_counts)
        self._label_counts[ordinary] = data.train.unigram_counts[ordinary]

    def __call__(self, final: bool) -> dict[str, Any]:
        train = self.config.train
        batches = build_pinned_batches(
            self.data.valid,
            self.config.data,
            self.data.special_ids(self.config.data.special_tokens),
            self.data.vocabulary,
            train.final_valid_tokens if final else train.valid_tokens,
        )
        device = next(self.model.parameters()).device
        scores = evaluate_masked_lm(self.model, batches, self._label_counts, device)
        lines = self.samples.predict(self.model, self.config.data.special_tokens)
        return {**asdict(scores), "final": final, "samples": lines}


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
        planner=Planner(config.train, config.data, config.masking, config.optim),
        seed=config.seed,
        model=model,
        objective=torch.compile(objective) if compiles else objective,
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
