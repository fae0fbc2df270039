"""Tokenizers, based on the `tokenizers` library: training, encoding, decoding, word starts."""
