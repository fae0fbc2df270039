"""The run's part of the model card: data, recipe and scores."""

from typing import Any

from maskwright.commands.assemble import PreparedData
from maskwright.commands.config import PretrainConfig
from maskwright.config import write_yaml

_CARD = """\
# {name}

A masked language model trained from scratch with maskwright {version}.

## Scores

On held-out text, with the same masks every time (15 % of the tokens, 80/10/10):

| | model | unigram baseline |
|---|---|---|
| masked accuracy | {accuracy:.4f} | {unigram_accuracy:.4f} |
| masked accuracy, top 5 | {top5:.4f} | |
| loss (nats) | {loss:.4f} | {unigram_loss:.4f} |

{predictions:,} predictions after {steps:,} steps, {tokens:,} tokens and {minutes:.1f} minutes. The
baseline always gives the most frequent token (accuracy), or the token frequencies (loss).

## Data

{text}: {train_tokens:,} tokens in {documents:,} documents, and {valid_tokens:,} held-out tokens.
Tokenizer: {kind}, {vocabulary:,} tokens, fingerprint `{fingerprint}`.

## Recipe

```yaml
{recipe}```
"""


def describe_training(
    name: str, version: str, config: PretrainConfig, data: PreparedData, final: dict[str, Any]
) -> str:
    """Markdown for the card, from the run's last validation record."""
    return _CARD.format(
        name=name,
        version=version,
        accuracy=final["masked_accuracy"],
        unigram_accuracy=final["unigram_accuracy"],
        top5=final["masked_accuracy_top5"],
        loss=final["loss"],
        unigram_loss=final["unigram_loss"],
        predictions=final["num_predictions"],
        steps=final["step"],
        tokens=final["tokens"],
        minutes=final["seconds"] / 60,
        text=", ".join(f"`{path}`" for path in data.train.manifest.source["paths"]),
        train_tokens=data.train.num_tokens,
        documents=data.train.num_documents,
        valid_tokens=data.valid.num_tokens,
        kind=config.tokenizer.path or config.tokenizer.kind,
        vocabulary=data.tokenizer.vocab_size,
        fingerprint=data.tokenizer.fingerprint[:12],
        recipe=write_yaml(config),
    )
