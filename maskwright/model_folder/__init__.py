"""The model folder: configuration, weights, tokenizer and card, in names that others know."""
