"""Evaluation of models: suites, scores with confidence intervals, comparisons."""
