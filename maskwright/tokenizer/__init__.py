"""Tokenizers, based on the `tokenizers` library.

Text comes in, to train a tokenizer (`train`, `learning`, `extension`) or to encode (`encoding`).
Token ids with word starts (`words`) go out, a ``tokenizer.json`` (`files`), or text again.
"""
