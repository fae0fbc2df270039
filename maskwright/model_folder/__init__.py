"""The model folder: configuration, weights, tokenizer and card, in transformers' format."""
