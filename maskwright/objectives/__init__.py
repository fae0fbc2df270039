"""Training objectives, whose losses are sums over predictions.

A network and a batch come in. For each term a loss returns the sum of the losses and the number of
correct predictions (`TermSums`); `Term.count` has counted the predictions before the forward pass.
`objective` has the interface, `mlm` the one that the others build on, `config` the table of all.
`distillation` is not in that table: it takes the place of the loss of `mlm` if a run has a teacher.
"""
