"""Preparation of text: tokenizer, token shards and manifest."""
