"""From shards to batches: order, segments, packing and masks as pure functions of an index."""
