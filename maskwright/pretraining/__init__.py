"""The job of ``maskwright pretrain``: a configuration in, a run directory with a model folder out.

Read `run` first: it prepares text or finds prepared data (`prepared_data`), chooses a size
(`budget`), builds model and trainer (`build`, with `micro_batch` on a GPU and `validation`), and
trains in `run_session`. A run may begin with a model (`init_from`, `vocabulary_transfer`). Without
training, `dry_run` describes a run, `plan` one on GPUs that are not here (`cards`), and `watch`
shows one that another process trains.
"""
