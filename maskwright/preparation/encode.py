"""The last stage over blocks: the documents of a block that stay become one shard of each split."""

from collections import Counter
from dataclasses import asdict

import numpy as np

from maskwright.corpus.stream import HELD_OUT, Split
from maskwright.preparation.splits import Splits
from maskwright.preparation.work import ENCODE, EXACT, VOCABULARY, Facts, Work
from maskwright.selection.tally import Tally
from maskwright.shards.manifest import TOKENIZER_NAME, choose_dtype
from maskwright.shards.writer import ShardWriter, write_array
from maskwright.tokenizer.tokenizer import EncodedText, Tokenizer

COUNTS = "counts"  # suffix: how often each id occurs in the training text of a block
CUT = "document cut in two to hold out its end"


class BlockEncoder:
    """Encodes one block after the other."""

    def __init__(self, work: Work) -> None:
        self.work, self.plan = work, work.plan
        self.tokenizer = Tokenizer.load(work.folder / TOKENIZER_NAME)
        self.splits = Splits(**work.facts(VOCABULARY)["splits"])

    def __call__(self, number: int) -> Facts:
        """Write ``WORK/SPLIT/NNNNN.*``; return their description, and what was dropped."""
        counts, tally = Counter[str](), Tally()
        dropped, by_name = self.work.read_drops(number), self.work.is_held_out(number)
        shards: dict[str, _Shard] = {}
        for index, text in enumerate(self.work.read_texts(number)):
            if index in dropped:
                tally.drop(self._explain(*dropped[index]), text)
                continue
            if self.plan.config.select.does_anything:
                tally.keep(text)
            divided = self.splits.divide(number, index, text)
            parts: list[tuple[Split, str]] = [("valid", text)] if by_name else divided
            counts[CUT] += len(parts) > 1
            for split, part in parts:
                encoded = self.tokenizer.encode(part)
                if not len(encoded.ids):
                    counts["without tokens"] += 1
                    continue
                if split not in shards:
                    shards[split] = _Shard(self.work, split, number, self.tokenizer.vocab_size)
                shards[split].add(part, encoded)
        return {
            "splits": {split: shard.close() for split, shard in shards.items()},
            "counts": counts + tally.dropped,
            "tally": tally.to_plain(),
        }

    def _explain(self, stage: str, by: int) -> str:
        if stage != EXACT:
            return "near duplicate"
        return HELD_OUT if self.work.is_held_out(by) else "duplicate"


class _Shard:
    """The shard of a block and a split, with the size of its text and the counts of its ids."""

    def __init__(self, work: Work, split: str, number: int, vocab_size: int) -> None:
        dtype = choose_dtype(vocab_size)
        self._writer = ShardWriter(work.folder / split, f"{number:05d}", dtype)
        self._counts = np.zeros(vocab_size, np.uint32)
        self._counts_path = work.path(ENCODE, number, COUNTS)
        self._is_train = split == "train"
        self._sizes = Counter(num_characters=0, num_bytes=0, num_words=0)

    def add(self, text: str, encoded: EncodedText) -> None:
        """Add a document."""
        self._writer.add(encoded.ids, encoded.word_starts)
        if self._is_train:
            np.add.at(self._counts, encoded.ids, 1)
        self._sizes["num_characters"] += len(text)
        self._sizes["num_bytes"] += len(text.encode())
        self._sizes["num_words"] += len(text.split())

    def close(self) -> Facts:
        """Finish the shard and return its description."""
        if self._is_train:
            write_array(self._counts_path, self._counts, shared=True)
        return {"shard": asdict(self._writer.close()), **self._sizes}
