"""One module a file format; `maskwright.corpus.readers.dispatch.read_source` picks it."""
