"""Token ids on disk: plain files, described by a manifest."""
