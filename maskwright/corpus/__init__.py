"""Text in: documents read from files, folders, hubs or the environment, cleaned.

`maskwright.corpus.stream.stream_corpus` is the whole room in one call.
"""
