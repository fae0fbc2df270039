"""Token ids on disk: files that are memory-mapped, described by a manifest."""
