"""From text to a prepared folder: tokenizer, shards and manifest."""
