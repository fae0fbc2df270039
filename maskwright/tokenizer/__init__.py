"""Tokenizers, based on the `tokenizers` library.

Text comes in, to train a tokenizer or to encode; token ids with word starts go out, or text again.
In the order of imports: `words`, `files`, `encoding`, `tokenizer`, which has the class; then
`learning`, `train`, `token_text` and `extension` to train and extend one, `template` to wrap texts.
"""
