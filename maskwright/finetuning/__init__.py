"""Fine-tuning: a model folder and labeled text in, a model that predicts labels out.

Read `run` first: it reads a task (`task`, with one file for each kind), trains with some seeds
(`fit`), and writes scores beside those of baselines, predictions and a model folder; `predict` uses
that.
"""
