"""Token shards: plain files of token ids on disk, described by a manifest."""
