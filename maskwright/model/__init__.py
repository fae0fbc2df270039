"""The encoder: single-device modules on packed tokens, one configurable architecture.

A `config` and packed ids [T] come in; hidden states [T, D] (`encoder`) and logits of masked
positions (`masked_lm`) or of labels (`classifier`) go out. `layers` and `attention` are a block;
`fused` has fast paths beside their plain twins.
"""
