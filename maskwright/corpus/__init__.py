"""Text to documents.

What comes in is what a user names: files, folders, patterns, hubs, or the Python environment. What
goes out are cleaned documents, and a count of everything that was dropped or repaired, by reason.

Read `documents` first: it has the types that all others pass on, and cuts and cleans texts.
`unpack` yields the bytes of an input, `readers` its texts, `sources` finds the inputs, and `blocks`
cuts them into parts for independent tasks. `sources.stream_corpus` does all of it in one process
and without blocks, for small jobs; `maskwright.preparation` does it in tasks.
"""
