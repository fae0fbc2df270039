"""Learning-rate schedules as functions of progress.

Progress is the share of the budget that is used up, whether the budget is steps, tokens or
minutes; so one schedule ends on any of them.
"""

import math

from maskwright.optim.config import OptimConfig


def learning_rate_scale(config: OptimConfig, progress: float) -> float:
    """The factor on every peak learning rate at `progress` (0..1), from 0 to 1.

    ``wsd`` is warm-up, stable, decay (Hu et al. 2024, MiniCPM, arXiv 2404.06395) with a linear
    decay; ``linear`` is BERT's.
    """
    progress = min(max(progress, 0.0), 1.0)
    if progress < config.warmup_share:
        return progress / config.warmup_share
    is_wsd = config.schedule == "wsd"
    decay_start = 1 - config.decay_share if is_wsd else config.warmup_share
    if progress <= decay_start:
        return 1.0
    decayed = (progress - decay_start) / (1 - decay_start)
    if config.schedule == "cosine":
        decayed = 0.5 * (1 - math.cos(math.pi * decayed))
    return 1.0 - (1.0 - config.final_share) * decayed
