"""Batches from shards: segments, order, packing and masks as pure functions of an index.

A prepared folder and (seed, epoch, row) come in; micro-batches of static shapes go out. `rows`
plans the segments of a row with `permutation` and `packing`, `masking` and `pairs` make its inputs
and labels, `batch` joins rows, and `loader` does it ahead of the step.
"""
