"""Token shards: plain files of token ids on disk, described by a manifest.

Encoded documents come in, a prepared folder goes out, and comes back as one sequence of tokens.
`manifest` has the format and checks a folder, `writer` writes a shard, `remote` mirrors a folder
from a URL, and `reader` reads one or several.
"""
