"""Reading and cleaning of documents from files, folders, hubs or the Python environment.

`maskwright.corpus.stream.stream_corpus` does all of it in one call.
"""
