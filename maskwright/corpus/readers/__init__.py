"""Readers, a module per kind of file: a `Reading` comes in, texts go out.

`maskwright.corpus.sources` chooses one, and lists the formats.
"""
