"""Readers, a module per kind of file: a `Reading` comes in, texts go out.

`FORMATS` in `maskwright.corpus.sources` lists them by kind and suffix.
"""
