"""Evaluation of models.

A model and text, pairs or files come in; scores with confidence intervals go out, of one model by
several suites (`run`, `suites`) or of several models side by side (`compare`).
"""
