"""The training loop: plan, load, step, log, validate, save.

A built model, an objective and batches come in; trained weights, checkpoints and log lines go out.
Read `trainer` first, then `step`; `capture` records a step on a GPU.
"""
