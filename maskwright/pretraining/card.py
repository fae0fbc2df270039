"""The run's part of the model card: data, recipe and scores."""

from collections.abc import Mapping
from typing import Any

from maskwright.config import to_mapping, write_yaml
from maskwright.formatting import escape_markdown, write_code, write_code_block
from maskwright.logs import Record
from maskwright.preparation.vocabulary import EXTENSION_KEY
from maskwright.pretraining.prepared_data import PreparedData, describe_sources
from maskwright.runs.config import PretrainConfig
from maskwright.runs.metadata import describe_circumstances, shorten_path, shorten_paths
from maskwright.train.panel import of_sources

MODEL = "A masked language model"
DISCRIMINATOR = "A discriminator of replaced tokens (ELECTRA), whose generator lies beside it,"
_CARD = """\
# {name}

{what} {origin} with maskwright {version}.

## Scores

On held-out text, with the same masks every time (15 % of the tokens, 80/10/10):

{scores}

{predictions:,} predictions after {tokens:,} tokens of training. The baseline always gives the most
frequent token (accuracy), or the token frequencies (loss).{judged}

## Data

{text}: {train_tokens:,} tokens in {documents:,} documents, and {valid_tokens:,} held-out tokens.
{mixture}Tokenizer: {kind}, {vocabulary:,} tokens, {case}, fingerprint `{fingerprint}`.{extension}

## Training

Seed {seed}, {steps:,} steps, {minutes:.1f} minutes on {circumstances}.

<details>
<summary>The whole configuration</summary>

{recipe}
</details>
"""


_JUDGED = """

Of hidden words the generator guesses; the discriminator judges {tokens:,} tokens, some of which the
generator replaced. Its baseline always says that a token is the original (accuracy), or gives every
token the share of the replaced ones (loss)."""

_EXTENSION = """
Of these, {new:,} were added to a vocabulary of {base:,}, learnt from this text: on held-out text
it now takes {after:.3f} tokens a word, before {before:.3f}.
"""


def describe_training(
    name: str,
    version: str,
    config: PretrainConfig,
    data: PreparedData,
    final: Record,
    before: Record | None = None,
    origin: Mapping[str, Any] | None = None,
    what: str = MODEL,
) -> str:
    """Markdown for the card, from the run's last validation record.

    Args:
        before: the record of the model that the run began with.
        origin: what provenance.json says of that model.
        what: kind of model, as the first sentence begins.
    """
    source = data.train.manifest.source
    return _CARD.format(
        name=escape_markdown(name),
        what=what,
        version=version,
        origin=_describe_origin(origin) if origin else "trained from scratch",
        scores=_tabulate(final, before),
        judged=_JUDGED.format(tokens=final["num_judged"]) if "num_judged" in final else "",
        predictions=final["num_predictions"],
        steps=final["step"],
        tokens=final["tokens"],
        minutes=final["seconds"] / 60,
        text=_list_paths(source),
        train_tokens=data.train.num_tokens,
        documents=data.train.num_documents,
        valid_tokens=data.valid.num_tokens,
        mixture=_list_sources(data),
        kind=_describe_tokenizer(config),
        vocabulary=data.tokenizer.vocab_size,
        case=data.tokenizer.case,
        fingerprint=data.tokenizer.fingerprint[:12],
        extension=_describe_extension(source.get(EXTENSION_KEY)),
        seed=config.seed,
        circumstances=describe_circumstances(),
        recipe=write_code_block(write_yaml(shorten_paths(to_mapping(config))), "yaml"),
    )


def _describe_tokenizer(config: PretrainConfig) -> str:
    """Where the tokenizer is from, or of which kind the one learnt here is."""
    if config.init_from is not None:
        return f"that of {write_code(shorten_path(config.init_from))}"
    path = config.tokenizer.path
    return config.tokenizer.kind if path is None else write_code(shorten_path(path))


def _list_paths(source: Mapping[str, Any]) -> str:
    """Return the names of the texts in a manifest, which anybody may have written."""
    paths = source.get("paths")
    names = [path for path in paths if isinstance(path, str)] if isinstance(paths, list) else []
    return ", ".join(write_code(shorten_path(name)) for name in names) or "unknown text"


def _list_sources(data: PreparedData) -> str:
    """A list of the sources, if there are several."""
    lines = "".join(f"- {escape_markdown(line)}\n" for line in describe_sources(data))
    return f"\n{lines}\n" if lines else ""


def _tabulate(final: Record, before: Record | None) -> str:
    """Scores beside what no learning would score and, if there is one, the model before."""
    rows = {
        "masked accuracy": ("masked_accuracy", "unigram_accuracy"),
        "masked accuracy, top 5": ("masked_accuracy_top5", ""),
        "where [MASK] is seen": ("seen_mask_accuracy", ""),
        "loss (nats)": ("loss", "unigram_loss"),
    }
    if "num_judged" in final:
        rows["replaced-token accuracy"] = ("rtd_accuracy", "rtd_base_accuracy")
        rows["replaced tokens found"] = ("rtd_recall", "")
        rows["replaced-token loss (nats)"] = ("rtd_loss", "rtd_base_loss")
    if "num_pairs" in final:
        rows["pairs of texts, accuracy"] = ("pair_accuracy", "pair_baseline")
    baselines = "unigram baseline" if len(rows) == 4 else "baseline"
    for name in of_sources(final, "loss"):
        shown = escape_markdown(name)
        rows[f"masked accuracy, {shown}"] = (f"masked_accuracy/{name}", f"unigram_accuracy/{name}")
        rows[f"loss (nats), {shown}"] = (f"loss/{name}", f"unigram_loss/{name}")
    columns = ["model", *["before"] * (before is not None), baselines]
    lines = [f"| | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]
    for title, (score, baseline) in rows.items():
        figures = [final[score], final.get(baseline)]
        if before is not None:
            figures.insert(1, before.get(score))
        cells = ["" if figure is None else f"{figure:.4f}" for figure in figures]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _describe_origin(origin: Mapping[str, Any]) -> str:
    """Which weights the run began with; `sha256` has the hash of each of their files."""
    hashes = origin.get("sha256")
    files = [
        f"{escape_markdown(str(file))} {write_code(str(sha))}"
        for file, sha in (hashes.items() if isinstance(hashes, dict) else ())
    ]
    name = write_code(shorten_path(str(origin.get("name"))))
    return f"continued from {name} (sha256 of {', '.join(files)})"


def _describe_extension(extension: object) -> str:
    """What the manifest says of added tokens, if it does; anybody may have written it."""
    if not isinstance(extension, Mapping):
        return ""
    names = ("base_vocab_size", "vocab_size", "fertility_before", "fertility")
    figures = [f for name in names if isinstance(f := extension.get(name), int | float)]
    if len(figures) < len(names):
        return ""
    base, size, before, after = figures
    return _EXTENSION.format(new=size - base, base=base, before=before, after=after).rstrip()
