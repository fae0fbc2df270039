"""The model folder: configuration, weights, tokenizer and card, in transformers' format.

`folder` saves and opens one; a family (`families`, `native`) translates fields and names of tensors
to those of a class of transformers and back.
"""
