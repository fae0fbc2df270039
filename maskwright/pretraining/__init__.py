"""The job of ``maskwright pretrain``: a configuration in, a run directory with a model folder out.

Read `run` first: it prepares text or finds prepared data (`prepared_data`), chooses a size
(`budget`), builds model and trainer (`build`), and trains in `run_session`.
"""
