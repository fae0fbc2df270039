"""Text to token ids and back: training, encoding, word starts; on the `tokenizers` library."""
