"""Batches from shards: segments, order, packing and masks as pure functions of an index."""
