"""maskwright in one file: pretrains the encoder of the recipe `tiny`.

    python examples/mlm_in_one_file.py FILE.txt --steps 200
    python examples/mlm_in_one_file.py data/NAME     (a folder that `maskwright prepare` wrote)

The library's computation in its simplest, not its fastest form, without importing the library; a
test requires equal losses. R rows of L tokens, D width, H heads of K, M masked tokens, V words.
"""

import argparse
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, count, islice
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Settings(NamedTuple):
    seed: int = 0  # determines the initial weights, the order of the data and the masks
    num_rows: int = 16  # R
    row_length: int = 128  # L
    mask_rate: float = 0.3  # share of the tokens that is masked, at the start
    final_mask_rate: float = 0.15  # and at the end
    hidden_size: int = 256  # D
    num_hidden_layers: int = 6
    num_attention_heads: int = 4  # H
    intermediate_size: int = 704
    learning_rate: float = 0.003  # of AdamW, for word embeddings, norms and the bias
    muon_learning_rate: float = 0.02  # of Muon, for the other matrices
    momentum: float = 0.95
    weight_decay: float = 0.01  # of both
    warmup_share: float = 0.03  # learning rates rise from 0 in this share of the steps,
    decay_share: float = 0.5  # are constant, and fall to 0 in this share


MAX_WORDS = 8187  # words in the vocabulary of a text file, besides the five special tokens

# A random number is a hash of its purpose, so any row of any epoch can be built independently.
ORDER, ROW_ORDER, MASK_COUNT, MASK_CHOICE, CORRUPTION, REPLACEMENT = 1, 2, 3, 4, 6, 7
SECOND_REPLACEMENT = 16


def scatter(bits: int) -> int:
    """Hash 64 bits to 64 bits, one to one: the finalizer of SplitMix64 (Steele et al. 2014)."""
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB % 2**64
    return bits ^ bits >> 31


def draw(*purpose: int) -> int:
    """Return 64 random bits; divided by 2^64, a number from 0 to 1."""
    bits = 0
    for part in purpose:
        bits = scatter((bits + (part + 1) * 0x9E3779B97F4A7C15) % 2**64)
    return bits


def shuffle(index: int, size: int, *key: int) -> int:
    """Return the position of `index` in a random order of range(size), without storing the order.

    A Feistel network on a grid of a x b cells: add a hash of the line to the column, then one of
    the column to the line. Both are invertible, so no two indices meet. Cells outside of `size`
    are permuted again.
    """
    a = math.isqrt(size - 1) + 1
    a += a % 2  # with two odd sides, all permutations would be even
    b = math.ceil(size / a)
    column, line = divmod(index, b)
    for half_round in range(0, 16, 2):
        column = (column + scatter(line ^ draw(*key, ORDER, half_round))) % a
        line = (line + scatter(column ^ draw(*key, ORDER, half_round + 1))) % b
    index = column * b + line
    return index if index < size else shuffle(index, size, *key)


class Corpus:
    """The training text as (start, length) segments of one sequence of tokens.

    It is a prepared folder (docs/formats.md) or a text file. The tokens of a text file are
    words, and blank lines separate its documents.
    """

    def __init__(self, path: Path, row_length: int) -> None:
        self.row_length, longest = row_length, row_length - 2  # for [CLS] and [SEP]
        self.segments, start = [], 0
        for end in self.read_folder(path) if path.is_dir() else self.read_file(path):
            self.segments += [(i, min(longest, end - i)) for i in range(start, end, longest)]
            start = end
        if not self.segments:
            raise ValueError("holds no text to train on")
        found = set(self.tokens.int().unique().tolist())
        self.occurring = [token for token in self.ordinary_ids if token in found]

    def read_folder(self, folder: Path) -> list[int]:
        """Return the end of each document in the tokens of all shards."""
        manifest = json.loads((folder / "manifest.json").read_bytes())
        self.vocab_size, dtype = manifest["vocab_size"], getattr(torch, manifest["dtype"])
        shards, all_ends, start = [], [], 0
        for shard in manifest["splits"]["train"]["shards"]:
            path = folder / "train" / shard["name"]
            shards.append(torch.from_file(f"{path}.tokens", size=shard["num_tokens"], dtype=dtype))
            ends = torch.from_file(f"{path}.ends", size=shard["num_documents"], dtype=torch.int64)
            all_ends += (start + ends).tolist()
            start += shard["num_tokens"]
        self.tokens = torch.cat(shards)
        tokenizer = json.loads((folder / "tokenizer" / "tokenizer.json").read_bytes())
        self.special = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
        ids = tokenizer["model"]["vocab"]
        words = [word for word in ids if word not in self.special and word[:7] != "[unused"]
        self.ordinary_ids = sorted(ids[word] for word in words)
        return all_ends

    def read_file(self, file: Path) -> list[int]:
        """Return the end of each document; all but the most frequent words are [UNK]."""
        text = file.read_text(encoding="utf-8").lower()
        documents = [re.findall(r"\w+|[^\w\s]", block) for block in text.split("\n\n")]
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        counts = Counter(word for words in documents for word in words)
        frequent = [word for word, _ in counts.most_common(MAX_WORDS)]
        ids = {word: number for number, word in enumerate([*special, *frequent])}
        self.vocab_size, self.special = len(ids), {token: ids[token] for token in special}
        self.ordinary_ids = [ids[word] for word in frequent]
        unknown = ids["[UNK]"]
        self.tokens = torch.tensor([ids.get(w, unknown) for words in documents for w in words])
        return list(accumulate(len(words) for words in documents))


def pack(lengths: list[int], capacity: int) -> list[list[int]]:
    """Pack by best fit decreasing: the longest first, each in the fullest row with space for it."""
    rows, rows_by_room = [], [[] for _ in range(capacity + 1)]  # room: the free positions of a row
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        room = next((n for n in range(lengths[index], capacity) if rows_by_room[n]), capacity)
        row = rows_by_room[room].pop() if room < capacity else []
        if not row:
            rows.append(row)
        row.append(index)
        if len(row) < capacity // 4:  # with this limit, the library's arrays have a fixed size
            rows_by_room[room - lengths[index]].append(row)
    return rows


def plan_rows(corpus: Corpus, seed: int, window_size: int = 4096) -> Iterator[tuple[int, list]]:
    """Yield key and segments of each row: shuffle, pack a window at a time, shuffle the rows."""
    size = len(corpus.segments)
    for epoch in count():
        for window, first in enumerate(range(0, size, window_size)):
            indices = range(first, min(first + window_size, size))
            segments = [corpus.segments[shuffle(index, size, seed, epoch)] for index in indices]
            rows = pack([length + 2 for _, length in segments], corpus.row_length)
            order = sorted(range(len(rows)), key=lambda i: draw(seed, epoch, window, ROW_ORDER, i))
            for number, row in enumerate(order, start=first):
                yield draw(seed, epoch, number), [segments[i] for i in rows[row]]


def build_row(key: int, segments: list, corpus: Corpus, rate: float) -> list[list[int]]:
    """Return input ids, labels (-100 where no token is masked), positions and segment numbers.

    The padding at the end is a segment too. A share `rate` of the ordinary tokens, rounded at
    random, is masked: 80 % become [MASK], 10 % a random token, 10 % are unchanged (Devlin et al.
    2019).
    """
    pad, cls, sep = (corpus.special[token] for token in ("[PAD]", "[CLS]", "[SEP]"))
    pieces = [[cls, *corpus.tokens[i : i + n].tolist(), sep] for i, n in segments]
    pieces.append([pad] * (corpus.row_length - sum(map(len, pieces))))
    positions = [position for piece in pieces for position in range(len(piece))]
    numbers = [number for number, piece in enumerate(pieces) for _ in piece]
    ids, labels = [token for piece in pieces for token in piece], [-100] * corpus.row_length
    ordinary = [i for i, token in enumerate(ids) if token not in corpus.special.values()]
    quota = math.floor(len(ordinary) * rate + draw(key, MASK_COUNT) / 2**64)
    for i in sorted(ordinary, key=lambda i: draw(key, MASK_CHOICE, i))[:quota]:
        labels[i], decision = ids[i], draw(key, CORRUPTION, i) / 2**64
        if decision < 0.8:
            ids[i] = corpus.special["[MASK]"]
        elif decision < 0.9:
            ids[i] = corpus.ordinary_ids[draw(key, REPLACEMENT, i) * len(corpus.ordinary_ids) >> 64]
            if ids[i] not in corpus.occurring:  # only tokens of the text replace others
                again = draw(key, SECOND_REPLACEMENT, i) * len(corpus.occurring) >> 64
                ids[i] = corpus.occurring[again]
    return [ids, labels, positions, numbers]


class Block(nn.Module):
    """x = x + softmax(q k^T / sqrt(K)) v, then x = x + gelu(a) * b, each of norm(x): [R, L, D]."""

    def __init__(self, settings: Settings, has_first_norm: bool) -> None:
        super().__init__()
        D, inner = settings.hidden_size, settings.intermediate_size
        self.heads = (settings.num_attention_heads, D // settings.num_attention_heads)  # H, K
        self.attention_norm = nn.LayerNorm(D, bias=False) if has_first_norm else nn.Identity()
        self.qkv = nn.Linear(D, 3 * D, bias=False)
        self.attention_output = nn.Linear(D, D, bias=False)
        self.mlp_norm = nn.LayerNorm(D, bias=False)
        self.gate_up = nn.Linear(D, 2 * inner, bias=False)
        self.mlp_output = nn.Linear(inner, D, bias=False)

    def forward(self, x: Tensor, rotations: Tensor, attention_mask: Tensor) -> Tensor:
        qkv = self.qkv(self.attention_norm(x)).unflatten(-1, (3, *self.heads))
        qkv = qkv.permute(2, 0, 3, 1, 4)  # [3, R, H, L, K]
        # Rotary embeddings (Su et al. 2021): the halves of a head are real and imaginary parts.
        qk = torch.complex(*qkv[:2].chunk(2, dim=-1)) * rotations
        q, k = torch.cat((qk.real, qk.imag), dim=-1)
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        attended = scores.masked_fill(~attention_mask, -math.inf).softmax(dim=-1) @ qkv[2]
        x = x + self.attention_output(attended.transpose(1, 2).flatten(2))
        a, b = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
        return x + self.mlp_output(F.gelu(a) * b)


class Encoder(nn.Module):
    """ModernBERT (Warner et al. 2024) with attention to all tokens in all layers."""

    def __init__(self, settings: Settings, corpus: Corpus) -> None:
        super().__init__()
        D, K = settings.hidden_size, settings.hidden_size // settings.num_attention_heads
        self.frequencies = 160_000.0 ** -(torch.arange(0, K, 2) / K)
        self.words = nn.Embedding(corpus.vocab_size, D)
        self.word_norm = nn.LayerNorm(D, bias=False)
        layers = range(settings.num_hidden_layers)
        self.blocks = nn.ModuleList(Block(settings, layer > 0) for layer in layers)
        self.final_norm = nn.LayerNorm(D, bias=False)
        self.head = nn.Sequential(
            nn.Linear(D, D, bias=False), nn.GELU(), nn.LayerNorm(D, bias=False)
        )
        self.decoder = nn.Linear(D, corpus.vocab_size)
        self.decoder.weight = self.words.weight
        generator = torch.Generator().manual_seed(settings.seed)
        for name, weight in self.named_parameters():
            if "output" in name or "bias" in name:
                nn.init.zeros_(weight)  # so that every block is the identity at first
            elif weight.ndim == 2:
                nn.init.trunc_normal_(weight, 0.0, 0.02, -0.04, 0.04, generator=generator)
        nn.init.constant_(self.word_norm.weight, 0.1)  # so that the blocks count from the start
        self.words.weight.data[corpus.special["[PAD]"]] = 0.0

    def forward(self, ids: Tensor, positions: Tensor, numbers: Tensor, masked: Tensor) -> Tensor:
        """Return the logits [M, V] at the `masked` positions; all arguments are [R, L]."""
        angles = positions[:, None, :, None] * self.frequencies
        rotations = torch.polar(torch.ones_like(angles), angles)  # e^(i angle)
        attention_mask = numbers[:, None, :, None] == numbers[:, None, None, :]
        x = self.word_norm(self.words(ids))
        for block in self.blocks:
            x = block(x, rotations, attention_mask)
        return self.decoder(self.head(self.final_norm(x)[masked]))


def orthogonalize(x: Tensor) -> Tensor:
    """Move singular values s towards 1 by Newton-Schulz: s = 3.4445 s - 4.775 s^3 + 2.0315 s^5."""
    if x.shape[0] > x.shape[1]:
        return orthogonalize(x.mT).mT  # the same result with smaller products
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
    return x


@torch.no_grad()
def step_muon(name: str, weight: Tensor, average: Tensor, scale: float, settings: Settings) -> None:
    """Update a matrix by Muon (Jordan et al. 2024): subtract its orthogonalized momentum."""
    assert weight.grad is not None
    rate = scale * settings.muon_learning_rate
    average.lerp_(weight.grad, 1 - settings.momentum)
    direction = weight.grad.lerp(average, settings.momentum)  # Nesterov momentum
    weight.mul_(1 - rate * settings.weight_decay)
    n = 3 if "qkv" in name else 2 if "gate_up" in name else 1  # matrices stacked in this weight
    for part, change in zip(weight.chunk(n), direction.chunk(n), strict=True):
        part -= rate * max(1, part.shape[0] / part.shape[1]) ** 0.5 * orthogonalize(change)


def train(corpus: Corpus, settings: Settings, steps: int) -> Iterator[float]:
    """Yield the loss of each step: the mean of -log p(masked token)."""
    model, rows = Encoder(settings, corpus), plan_rows(corpus, settings.seed)
    hidden = {n: w for n, w in model.named_parameters() if w.ndim == 2 and n != "words.weight"}
    momenta = {name: torch.zeros_like(weight) for name, weight in hidden.items()}
    words = {"params": [model.words.weight], "weight_decay": settings.weight_decay}
    norms = {"params": [w for w in model.parameters() if w.ndim == 1], "weight_decay": 0.0}
    adamw = torch.optim.AdamW([words, norms], betas=(0.9, 0.98))
    for done in (step / steps for step in range(steps)):
        rate = settings.mask_rate + (settings.final_mask_rate - settings.mask_rate) * done
        batch = [build_row(*row, corpus, rate) for row in islice(rows, settings.num_rows)]
        ids, labels, positions, numbers = torch.tensor(batch).unbind(1)
        logits = model(ids, positions, numbers, labels != -100)
        loss = F.cross_entropy(logits, labels[labels != -100], reduction="sum") / len(logits)
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scale = min(1.0, done / settings.warmup_share, (1 - done) / settings.decay_share)
        for group in adamw.param_groups:
            group["lr"] = scale * settings.learning_rate
        adamw.step()
        for name, weight in hidden.items():
            step_muon(name, weight, momenta[name], scale, settings)
        yield loss.item()


def main() -> None:
    parser = argparse.ArgumentParser(description="Pretrain an encoder on text.")
    parser.add_argument("path", type=Path, help="a text file, or what `maskwright prepare` wrote")
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    try:
        corpus = Corpus(arguments.path, Settings().row_length)
    except UnicodeDecodeError:
        parser.exit(2, f"{arguments.path} is not UTF-8 text. Convert it.\n")
    except OSError as error:
        parser.exit(2, f"{error.filename} cannot be read: {error.strerror}.\n")
    except KeyError as error:
        parser.exit(2, f"{arguments.path} is not prepared data: {error} is missing.\n")
    except (ValueError, RuntimeError) as error:
        parser.exit(2, f"{arguments.path}: {' '.join(str(error).split())}\n")
    for step, loss in enumerate(train(corpus, Settings(), arguments.steps), start=1):
        print(f"step {step}  loss {loss:.4f}")


if __name__ == "__main__":
    main()
