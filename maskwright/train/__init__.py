"""The training loop: plan, load, step, log, validate, save.

A built model, a loss and batches come in; trained weights, checkpoints and log lines go out. Read
`trainer` first, then `state` (counts, and the schedules that follow from them) and `step`, which
`capture` records on a GPU. Around them: `config`, `checkpoint`, `device` (precision, compiling,
memory), `reporting` (panel, TensorBoard, trackers) and `signals`.
"""
