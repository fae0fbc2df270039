"""The job that ``maskwright pretrain`` starts."""
