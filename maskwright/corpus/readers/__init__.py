"""Readers, one module per file format; `maskwright.corpus.readers.dispatch` chooses one."""
