"""From shards to batches: segments, order, packing and masks as pure functions of an index."""
