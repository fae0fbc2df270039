"""What a run trains and what that learns: a masked language model, or ELECTRA's two models."""

from torch import nn

from maskwright.data.config import MaskingConfig
from maskwright.errors import ConfigError
from maskwright.model.config import EncoderConfig
from maskwright.model.electra import (
    GeneratorAndDiscriminator,
    Network,
    narrow_config,
)
from maskwright.model.flops import count_detection_flops_per_token, count_flops_per_token
from maskwright.model.pretraining import MaskedLanguageModel
from maskwright.objectives.causal import MaskedAndCausalLM
from maskwright.objectives.config import ObjectiveConfig
from maskwright.objectives.mlm import MaskedLM
from maskwright.objectives.rtd import ReplacedTokenDetection
from maskwright.objectives.sentence_pairs import MaskedLMWithPairs


def build_network(config: ObjectiveConfig, architecture: EncoderConfig) -> Network:
    """What is trained, its weights not drawn yet.

    Raises:
        ConfigError: a generator of that share of the architecture cannot be.
    """
    if config.name == "mlm":
        return MaskedLanguageModel(architecture)
    try:
        narrow = narrow_config(architecture, config.generator_share)
    except ConfigError as error:
        rule = (
            f"asks for a generator that cannot be: its {error.field} = {error.value} {error.rule}"
        )
        remedy = "Set it to 1, or take model.preset electra."
        raise ConfigError(
            "objective.generator_share", config.generator_share, rule, remedy
        ) from None
    return GeneratorAndDiscriminator(architecture, narrow)


def build_objective(
    config: ObjectiveConfig, masking: MaskingConfig, network: Network
) -> MaskedLM | ReplacedTokenDetection:
    """What it learns; a model with a head for pairs learns these, too."""
    if isinstance(network, GeneratorAndDiscriminator):
        return ReplacedTokenDetection(network, config.discriminator_weight)
    if network.config.sentence_pair_head:
        return MaskedLMWithPairs(network)
    return MaskedAndCausalLM(network) if masking.causal_share else MaskedLM(network)


def count_parameters_of(network: nn.Module) -> int:
    """What is shared counts once."""
    return sum(parameter.numel() for parameter in network.parameters())


def count_step_flops_per_token(
    config: ObjectiveConfig,
    architecture: EncoderConfig,
    segment_length: float,
    masked_share: float,
    pair_share: float = 0.0,
) -> float:
    """Floating-point operations of one training step per token, of all that is trained."""
    if config.name == "mlm":
        return count_flops_per_token(architecture, segment_length, masked_share, pair_share)
    narrow = narrow_config(architecture, config.generator_share)
    guessing = count_flops_per_token(narrow, segment_length, masked_share)
    return guessing + count_detection_flops_per_token(architecture, segment_length)
