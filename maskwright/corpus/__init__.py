"""Text to documents.

What comes in is what a user names: files, folders, patterns, hubs, or the Python environment. What
goes out are cleaned documents, and a count of everything that was dropped or repaired, by reason.

In the order of reading: `sources` finds the inputs, `blocks` cuts them into parts for independent
tasks, `unpack` yields their bytes, `readers` their texts, and `documents` cuts and cleans them.
`maskwright.corpus.sources.stream_corpus` does all of it in one call.
"""
