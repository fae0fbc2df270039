"""Learning-rate schedules as functions of progress.

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

from maskwright.optim.config import STABLE, OptimConfig


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
