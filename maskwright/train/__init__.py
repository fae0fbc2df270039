"""The training loop: plan, load, step, log, validate, save."""
