"""The configuration of the optimizer, and its learning-rate schedules as functions of progress.

Progress is the used share of the budget, so a schedule works with a budget of steps, tokens or
minutes.

==============  ==================================  ==============================================
schedule        after the warm-up                   source
==============  ==================================  ==============================================
``linear``      linear                              Devlin et al. 2019, BERT; with a warm-up of
                                                    0.75 from 0.25 the triangle of Geiping and
                                                    Goldstein 2022 (cramming)
``cosine``      half a cosine                       Loshchilov and Hutter 2017, without restarts
``wsd``         constant, then linear               Hu et al. 2024, MiniCPM, arXiv 2404.06395
``wsd_sqrt``    constant, then 1 - sqrt             Hägele et al. 2024, arXiv 2405.18392
``onecycle``    half a cosine, as in the warm-up    Smith 2018, arXiv 1803.09820, as in torch's
                                                    ``OneCycleLR``
``noam``        the inverse square root             Vaswani et al. 2017, section 5.3
==============  ==================================  ==============================================
"""

import math
from dataclasses import dataclass
from typing import Literal

from maskwright.config import check_numbers, setting
from maskwright.errors import ConfigError

ScheduleName = Literal["linear", "cosine", "wsd", "wsd_sqrt", "onecycle", "noam"]
STABLE: tuple[ScheduleName, ...] = ("wsd", "wsd_sqrt")  # schedules with a constant part


@dataclass(frozen=True)
class OptimConfig:
    """Optimizer, learning rates and the shape of the learning-rate schedule."""

    name: Literal["muon", "adamw"] = setting(
        "muon", "muon: Muon for the hidden matrices, AdamW for the rest; adamw: AdamW for all"
    )
    learning_rate: float = setting(3e-3, "peak learning rate of AdamW")
    muon_learning_rate: float = setting(0.02, "peak learning rate of Muon")
    weight_decay: float = setting(0.01, "decoupled weight decay of matrices, AdamW")
    muon_weight_decay: float = setting(0.01, "decoupled weight decay of matrices, Muon")
    beta1: float = setting(0.9, "AdamW: decay of the mean gradient")
    beta2: float = setting(0.98, "AdamW: decay of the mean squared gradient")
    eps: float = setting(1e-8, "AdamW: added to the root of the mean squared gradient")
    momentum: float = setting(0.95, "Muon: momentum (Nesterov)")
    muon_beta2: float = setting(
        0.0,
        "Muon: decay of the mean squared update by which the update of each neuron is divided "
        "(NorMuon); 0: no division",
    )
    newton_schulz_steps: int = setting(5, "Muon: iterations of the orthogonalization")
    schedule: ScheduleName = setting(
        "wsd",
        "after the warm-up; linear, cosine: decay; wsd, wsd_sqrt: constant, then a linear or "
        "1 - sqrt decay; onecycle: cosine warm-up and decay; noam: inverse square root",
    )
    warmup_share: float = setting(0.03, "share of the budget for the warm-up to the peak")
    decay_share: float = setting(0.5, "wsd, wsd_sqrt: share of the budget for the decay at the end")
    initial_share: float = setting(0.0, "learning rate at the start, as a share of the peak")
    final_share: float = setting(0.0, "learning rate at the end, as a share of the peak")

    def __post_init__(self) -> None:
        check_numbers(self, "learning_rate", "muon_learning_rate", "eps", above=0)
        check_numbers(self, "weight_decay", "muon_weight_decay", at_least=0)
        for name in ("beta1", "beta2", "momentum", "muon_beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(name, getattr(self, name), "must be in [0, 1)")
        shares = ("warmup_share", "decay_share", "initial_share", "final_share")
        check_numbers(self, *shares, at_least=0, at_most=1)
        check_numbers(self, "newton_schulz_steps", at_least=1)
        if self.schedule == "noam":
            self._check_noam()
        if self.schedule in STABLE and self.warmup_share + self.decay_share > 1:
            rule = f"and warmup_share = {self.warmup_share} add up to more than 1"
            remedy = f"Set it to at most {1 - self.warmup_share:g}."
            raise ConfigError("decay_share", self.decay_share, rule, remedy)

    def _check_noam(self) -> None:
        """Check ``noam``: its formula divides by the warm-up and has no initial or final share."""
        if self.warmup_share == 0:
            raise ConfigError("warmup_share", 0.0, "must be above 0 for noam", "Try 0.1.")
        for name in ("initial_share", "final_share"):
            if getattr(self, name):
                rule = "has no effect: optim.schedule is noam"
                raise ConfigError(name, getattr(self, name), rule, "Remove it.")


def learning_rate_scale(config: OptimConfig, progress: float) -> float:
    """Return the factor of all peak learning rates at `progress` (0..1)."""
    progress = min(max(progress, 0.0), 1.0)
    warmup = config.warmup_share
    if progress < warmup:
        risen = progress / warmup
        if config.schedule == "onecycle":
            risen = _ease(risen)
        return config.initial_share + (1.0 - config.initial_share) * risen
    if config.schedule == "noam":
        return math.sqrt(warmup / progress)
    decay_start = 1 - config.decay_share if config.schedule in STABLE else warmup
    if progress <= decay_start:
        return 1.0
    decayed = (progress - decay_start) / (1 - decay_start)
    if config.schedule in ("cosine", "onecycle"):
        decayed = _ease(decayed)
    elif config.schedule == "wsd_sqrt":
        decayed = math.sqrt(decayed)
    return 1.0 - (1.0 - config.final_share) * decayed


def _ease(share: float) -> float:
    """Return half a cosine from 0 to 1."""
    return 0.5 * (1 - math.cos(math.pi * share))
