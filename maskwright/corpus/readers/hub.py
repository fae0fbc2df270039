"""Reader of Hugging Face datasets, streamed (extra `hub`).

A name such as ``hf:wikimedia/wikipedia:20231101.en#text`` is a dataset on the hub, and
``hf:/data/my_set#body`` is a local folder that `datasets` can load or `save_to_disk` has written.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwright.corpus.documents import Reading
from maskwright.corpus.readers.records import TextField
from maskwright.errors import CorpusError
from maskwright.extras import import_extra

_SPLIT = "train"


@dataclass(frozen=True, slots=True)
class HubName:
    """A parsed dataset name; `config` and `field` are empty if the name has none."""

    path: str
    config: str
    field: str

    @property
    def folder(self) -> Path | None:
        """The local folder of this name; None if there is none."""
        folder = expand_home(self.path)
        return folder if folder.is_dir() else None


def expand_home(given: str) -> Path:
    """Return a path with ``~`` or ``~user`` expanded; raise CorpusError if the user is unknown."""
    try:
        return Path(given).expanduser()
    except RuntimeError as error:
        raise CorpusError(f"{given}: {error} Check the path.") from None


def parse_hub_name(name: str) -> HubName:
    """Parse ``hf:NAME[:CONFIG][#FIELD]``; raise CorpusError if the name is empty."""
    rest, _, field = name.removeprefix("hf:").partition("#")
    local = rest.startswith(("/", ".", "~"))
    path, config = (rest, "") if local else rest.partition(":")[::2]
    if not path:
        raise CorpusError(f"{name} names no dataset. Write hf:NAME[:CONFIG][#FIELD].")
    return HubName(path, config, field)


def read_hub(reading: Reading) -> Iterator[str]:
    """Yield the texts of a dataset's train split in order.

    Raises:
        CorpusError: the dataset cannot be found or read, or lacks the field.
        MissingPackageError: `datasets` is not installed.
    """
    name = reading.source.name
    parsed = parse_hub_name(name)
    datasets: Any = import_extra("datasets", "hub", name)
    field = TextField(parsed.field or reading.config.text_field, name, reading.counts)
    try:
        rows = _load(datasets, parsed)
        columns: list[str] | None = getattr(rows, "column_names", None)
        if columns is not None:
            field.check_columns(columns)
            rows = rows.select_columns([field.name])
        for row in rows:
            if (text := field.pick(row.get(field.name), row)) is not None:
                yield text
    except CorpusError:
        raise
    except Exception as error:  # damaged datasets raise many kinds of errors
        reason = " ".join(str(error).split()) or type(error).__name__
        raise CorpusError(f"{name} cannot be read: {reason}") from None
    field.check_found()


def _load(datasets: Any, name: HubName) -> Any:
    folder = name.folder
    if folder is None and name.path.startswith(("/", ".", "~")):
        raise FileNotFoundError(f"there is no folder {expand_home(name.path)}")
    if folder and (folder / "dataset_dict.json").is_file():
        splits = datasets.load_from_disk(str(folder))
        if _SPLIT not in splits:
            raise ValueError(f"it has no split {_SPLIT} but {', '.join(splits)}")
        return splits[_SPLIT]
    if folder and (folder / "state.json").is_file():
        return datasets.load_from_disk(str(folder))
    where = str(folder or name.path)
    if folder and any(character in str(folder.resolve()) for character in "*?["):
        rule = "the library datasets takes its path for a pattern"
        raise ValueError(f"{rule}. Rename the folder, or give it without hf:")
    return datasets.load_dataset(where, name.config or None, split=_SPLIT, streaming=True)
