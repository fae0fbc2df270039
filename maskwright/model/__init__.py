"""The encoder: single-device modules on packed tokens, one configurable architecture.

A `config` (with the `presets` of published models) and packed ids [T] come in. Hidden states [T, D]
(`encoder`) go out, or logits: of masked positions (`masked_lm`), replaced tokens (`electra`) or
labels (`classifier`, for fine-tuning). `layers` and `attention` are a block; `fused` has fast paths
beside their plain twins, `init` the first weights, `flops` counts parameters and operations.
"""
