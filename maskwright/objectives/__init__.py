"""Training objectives, which return the sum of their losses and the count of predictions.

A model and a batch come in. `objective` has the interface, `mlm` the one that the others build on,
`config` the table of all.
"""
