"""Optimizers and learning-rate schedules.

Gradients and a rate come in, new weights go out: matrices by `muon`, the rest by AdamW (`build`,
`eager`). The schedules of the rate are functions in `config`.
"""
