"""Batches from shards: segments, order, packing and masks as pure functions of an index.

A prepared folder and (seed, epoch, row) come in; micro-batches of static shapes go out. Read
`config` and `counter_rng` first, the hash behind every random decision. `rows` plans the segments
of a row, window by window, with `permutation` (their order) and `packing` (best fit); `masking` and
`pairs` make its inputs and labels, `batch` joins rows, `loader` does it ahead of the step, and
`row_view` shows rows to people.
"""
