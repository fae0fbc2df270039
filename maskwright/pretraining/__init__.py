"""The job of ``maskwright pretrain``."""
