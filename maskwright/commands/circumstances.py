"""What a model card says about a run's circumstances, and what it keeps to itself."""

import os
from dataclasses import replace
from pathlib import Path

import torch

from maskwright.commands.config import PretrainConfig
from maskwright.provenance import describe_cpu, describe_environment


def describe_circumstances() -> str:
    """The hardware and the versions of now, as the end of a sentence."""
    packages = describe_environment()["packages"]
    versions = ", ".join(f"{name} {version}" for name, version in packages.items() if version)
    return f"{_describe_hardware()}, with {versions}"


def shorten_path(path: str) -> str:
    """A path as it is shown to others: of an absolute one the name, for the rest is private."""
    return Path(path).name if Path(path).expanduser().is_absolute() else path


def shorten_paths(config: PretrainConfig) -> PretrainConfig:
    """The configuration as it is shown to others."""
    path, source = config.tokenizer.path, config.init_from
    if source is not None:  # the tokenizer is its own, and what was downloaded lies in a cache
        path = None
    return replace(
        config,
        text=tuple(map(shorten_path, config.text)),
        tokenizer=replace(config.tokenizer, path=path and shorten_path(path)),
        init_from=source and shorten_path(source),
    )


def _describe_hardware() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{describe_cpu()} ({os.cpu_count()} cores)"
