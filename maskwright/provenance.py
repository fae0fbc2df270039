"""The environment of a run for provenance.json: code revision, versions and hardware."""

import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict

_PACKAGES = ("maskwright", "torch", "numpy", "tokenizers", "safetensors")


class Environment(TypedDict):
    """Versions, hardware, command line, and the state of the source tree."""

    started: str
    command: list[str]
    python: str
    platform: str
    cpu: str
    cpu_count: int | None
    packages: dict[str, str | None]
    source: dict[str, str] | None


def show_computation(found: Mapping[str, str]) -> str:
    """Return a result of `describe_computation` as ``cpu in float32``."""
    return f"{found['device']} in {found['products']}"


def describe_environment() -> Environment:
    """Return the environment of this process."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": describe_cpu(),
        "cpu_count": os.cpu_count(),
        "packages": {name: find_version(name) for name in _PACKAGES},
        "source": _describe_source(Path(__file__).parent),
    }


def describe_cpu() -> str:
    """Return the processor's name as the operating system reports it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def find_version(package: str) -> str | None:
    """Return the version of a package; None if it is missing, or a checkout on the import path."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _describe_source(folder: Path) -> dict[str, str] | None:
    """Return revision and uncommitted changes of a git checkout; None for an installed package.

    An installed package may be inside the checkout of another project, so git must track this file.
    """
    revision = _git(folder, "rev-parse", "HEAD")
    if revision is None or _git(folder, "ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None
    return {"revision": revision, "diff": _git(folder, "diff", "HEAD", "--", ".") or ""}


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        result = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None
