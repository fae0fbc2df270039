"""The tokenizer: text to token ids with word starts, and back to text."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import tokenizers
from numpy.typing import NDArray

from maskwright.errors import InputError, TokenizerError
from maskwright.files import JsonObject, write_text
from maskwright.tokenizer.bounds import check_bounds
from maskwright.tokenizer.config import TokenizerKind
from maskwright.tokenizer.encoding import (
    WORD_START,
    CachedEncoder,
    PromptEncoder,
    Tokens,
    choose_cutting,
)
from maskwright.tokenizer.files import (
    CONFIG,
    OTHER_ROLES,
    ROLES,
    TOKENIZER,
    calling_library,
    hide_special_tokens,
    is_filler,
    make_valid,
    read_tokenizer,
)
from maskwright.tokenizer.words import TOKEN_WORDS, find_word_starts

_KINDS: dict[str, TokenizerKind] = {"WordPiece": "wordpiece", "BPE": "bpe", "Unigram": "unigram"}


@dataclass(frozen=True, slots=True)
class EncodedText:
    """Tokens of one text, without special tokens. ids: uint32 [n]; word_starts: bool [n]."""

    ids: NDArray[np.uint32]
    word_starts: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class EncodedPrompt(EncodedText):
    """Tokens of a text with [MASK] in it; offsets: int64 [n, 2], the characters of each token."""

    offsets: NDArray[np.int64]


class Tokenizer:
    """A trained tokenizer with the five special tokens of BERT, whatever they are called::

        tokenizer = Tokenizer.load("runs/mine/model")
        ids = tokenizer.encode("Snails eat leaves.").ids  # uint32 [tokens]

    Attributes:
        vocab_size: one more than the largest id.
        pad_token, unk_token, cls_token, sep_token, mask_token: the special tokens.
        pad_id, unk_id, cls_id, sep_id, mask_id: their ids. A tokenizer without an unknown token,
            which encodes every text, uses the padding token instead: neither occurs in a text.
        special_tokens: the token of each role that the files name, with ``bos`` and ``eos``.
        special_ids: the ids of these and of any other special token in the file.
        fingerprint: sha256 (hex) of the tokenizer's canonical JSON.
    """

    def __init__(self, description: Mapping[str, Any], special_tokens: Mapping[str, str]) -> None:
        """Build from a parsed ``tokenizer.json`` and the token of each role (see `find_roles`).

        Raises:
            TokenizerError: the library cannot read the description, or a token is not in it.
        """
        with calling_library("is refused"):
            self._longest = check_bounds(description)
        with calling_library("is not a tokenizer"):
            # Three tokenizers of the library: `backend` is as in the file; for `_plain`, special
            # tokens in a text are text; `_without_post` recognizes them and keeps spans whole.
            plain = {**description, "truncation": None, "padding": None}
            self.backend = tokenizers.Tokenizer.from_str(json.dumps(plain))
            self.vocab_size = 1 + max(self.backend.get_vocab(with_added_tokens=True).values())
            self.description: JsonObject = json.loads(self.backend.to_str())
            plain = {**hide_special_tokens(self.description), "post_processor": None}
            self._plain = tokenizers.Tokenizer.from_str(json.dumps(plain))
            self._plain.encode_special_tokens = True
        self.special_tokens = {
            role: make_valid(special_tokens[role])
            for role in (*ROLES, *OTHER_ROLES)
            if role in special_tokens
        }
        tokens = {"unk": self.special_tokens["pad"], **self.special_tokens}
        self.pad_token, self.unk_token, self.cls_token, self.sep_token, self.mask_token = (
            tokens[role] for role in ROLES
        )
        ids = _find_special_ids(self.backend, tokens)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = ids
        self._encoder = CachedEncoder(
            self._plain,
            choose_cutting(self.description),
            self._longest,
            self.unk_id,
            self.tokens_are_words,
        )
        added = self.description["added_tokens"]
        self.special_ids = frozenset([*ids, *(token["id"] for token in added if token["special"])])

    @cached_property
    def tokens_are_words(self) -> bool:
        """Whether every token counts as a word, for text without blanks: masks, scores and samples
        then concern tokens, because a word may be as long as a text.
        """
        return mentions(self.description["pre_tokenizer"], {"Regex": TOKEN_WORDS})

    @property
    def role_ids(self) -> tuple[int, int, int, int, int]:
        """The ids of pad, unk, cls, sep and mask."""
        return self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id

    @property
    def kind(self) -> TokenizerKind:
        """The algorithm that splits words; ``character`` for tokenizers that do not split them."""
        return _KINDS.get(self.description["model"]["type"], "character")

    @cached_property
    def _without_post(self) -> tokenizers.Tokenizer:
        """The backend without its post-processor, which may cut blanks off the spans of tokens."""
        plain = {**self.description, "post_processor": None}
        return tokenizers.Tokenizer.from_str(json.dumps(plain))

    @cached_property
    def _prompts(self) -> PromptEncoder:
        return PromptEncoder(self._without_post, self.description, self.mask_token)

    @cached_property
    def _special_texts(self) -> list[str]:
        """What a text contains if special tokens may be written in it, such as ``[MASK]``."""
        added = [token for token in self.description["added_tokens"] if token["special"]]
        return ["" if token["normalized"] else token["content"] for token in added]

    @cached_property
    def fingerprint(self) -> str:
        canonical = json.dumps(self.description, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    @cached_property
    def ordinary_ids(self) -> NDArray[np.int64]:
        """The sorted ids of all tokens that represent text: no special tokens, no fillers."""
        vocabulary = self.backend.get_vocab(with_added_tokens=True)
        ordinary = [
            token_id
            for token, token_id in vocabulary.items()
            if token_id not in self.special_ids and not is_filler(token)
        ]
        return np.array(sorted(ordinary), np.int64)

    @property
    def lowercase(self) -> bool:
        """Whether the tokenizer lowercases text."""
        return self._normalize("A").endswith("a")

    def with_lowercase(self) -> "Tokenizer":
        """Return a tokenizer that lowercases first, as ``do_lower_case`` of sentence-transformers.

        Special tokens written in a text keep their case.
        """
        normalizer: JsonObject | None = self.description["normalizer"]
        is_sequence = normalizer is not None and normalizer["type"] == "Sequence"
        steps = normalizer["normalizers"] if normalizer and is_sequence else [normalizer]
        steps = [{"type": "Lowercase"}, *filter(None, steps)]
        lowercase = {"type": "Sequence", "normalizers": steps}
        return Tokenizer({**self.description, "normalizer": lowercase}, self.special_tokens)

    @property
    def strips_accents(self) -> bool:
        """Whether the tokenizer removes accents."""
        return self._normalize("é").endswith("e")

    @property
    def case(self) -> str:
        """The treatment of case and accents in words, such as ``cased, accents kept``."""
        case = "uncased" if self.lowercase else "cased"
        return f"{case}, accents {'removed' if self.strips_accents else 'kept'}"

    def _normalize(self, text: str) -> str:
        normalizer = self.backend.normalizer
        return text if normalizer is None else normalizer.normalize_str(text)

    def encode(self, text: str, split_special_tokens: bool = True) -> EncodedText:
        """Return the tokens of `text`; no special tokens are added.

        Special tokens written in the text are text, as in a corpus, if `split_special_tokens`; else
        they are recognized, as in transformers and sentence-transformers.

        Raises:
            TokenizerError: the tokenizer has a step that fails on this text.
        """
        valid = make_valid(text)
        is_plain = split_special_tokens or not any(one in valid for one in self._special_texts)
        # Texts with special tokens are rare, so their words are not kept.
        encoder = self._encoder
        if not is_plain:
            encoder = CachedEncoder(
                self._without_post,
                None,
                self._longest,
                tokens_are_words=self.tokens_are_words,
            )
        packed = encoder.encode(valid)
        return EncodedText(packed & np.uint32(WORD_START - 1), packed >= WORD_START)

    def encode_batch(
        self, texts: Iterable[str], split_special_tokens: bool = True
    ) -> list[EncodedText]:
        """Encode each text as `encode` does."""
        return [self.encode(text, split_special_tokens) for text in texts]

    def find_lost(self, text: str) -> list[int]:
        """Return the number of characters, without blanks, of each unknown token of a text."""
        return self._encoder.find_lost(make_valid(text))

    @property
    def longest_word(self) -> int | None:
        """The longest word in characters that WordPiece encodes; None if there is no limit."""
        return self.description["model"].get("max_input_chars_per_word")

    def encode_with_offsets(self, text: str, split_special_tokens: bool = True) -> EncodedPrompt:
        """Return the tokens of `text` as `encode` does, with the character span of each.

        Raises:
            InputError: `text` is too long to encode at once.
            TokenizerError: the tokenizer has a step that fails on this text.
        """
        backend = self._plain if split_special_tokens else self._without_post
        return self._encode_whole(text, lambda valid: Tokens.of(backend, valid))

    def encode_prompt(self, text: str) -> EncodedPrompt:
        """Encode `text`, recognizing special tokens written in it, such as [MASK].

        What touches a mask continues its word, as in training: after ``[MASK]`` the tokens of
        ``[MASK]s`` are ``##s``. transformers begins a new word there.

        Raises:
            InputError: `text` is too long to encode at once.
            TokenizerError: the tokenizer has a step that fails on this text.
        """
        return self._encode_whole(text, self._prompts.encode)

    def _encode_whole(self, text: str, encode: Callable[[str], Tokens]) -> EncodedPrompt:
        if len(text) > self._longest:
            raise InputError(
                f"the text has {len(text):,} characters; the limit of this "
                f"tokenizer is {self._longest:,}. Split the text."
            )
        valid = make_valid(text)
        with calling_library("the tokenizer fails on this text"):
            found = encode(valid)
        ids = np.array(found.ids, np.uint32)
        starts = np.ones(len(ids), np.bool_)
        if not self.tokens_are_words:
            starts = np.array(find_word_starts(valid, found.spans), np.bool_)
        return EncodedPrompt(
            ids,
            starts | (ids == self.mask_id),
            np.array(found.spans, np.int64).reshape(-1, 2),
        )

    def find_unknown_share(self, prompt: EncodedPrompt) -> float:
        """Return the share of characters in unknown tokens, among those of a prompt but masks."""
        text, unknown = set[int](), set[int]()  # as tokens may share a character
        for token, span in zip(prompt.ids.tolist(), prompt.offsets.tolist(), strict=True):
            if token != self.mask_id:
                text.update(range(*span))
                unknown.update(range(*span) if token == self.unk_id else ())
        return len(unknown) / len(text) if text else 0.0

    def masks_begin_words(self, text: str, ids: Sequence[int]) -> list[bool]:
        """Return, for each mask of a prompt with these ids, True if it begins a word.

        A mask begins a word after a blank, and for WordPiece also after punctuation.
        """
        found, num_masks = self._prompts.masks_begin_words(text), list(ids).count(self.mask_id)
        return found if len(found) == num_masks else [True] * num_masks

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of `ids`, special tokens included, as normalization left it."""
        numbers = [int(token_id) for token_id in ids]
        with calling_library("the tokenizer fails on these tokens"):
            return self.backend.decode(numbers, skip_special_tokens=False)

    def token(self, token_id: int) -> str:
        """Return the token as it is in the vocabulary; an unused id has the unknown token."""
        return self.backend.id_to_token(int(token_id)) or self.unk_token

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return `token` of each id."""
        return [self.token(token_id) for token_id in ids]

    def token_id(self, token: str) -> int | None:
        """Return the id of a token as it is in the vocabulary, or None."""
        return self.backend.token_to_id(make_valid(token))

    def save(
        self, folder: Path | str, max_length: int | None = None, *, with_types: bool = False
    ) -> None:
        """Write ``tokenizer.json`` and ``tokenizer_config.json`` for maskwright and transformers.

        Args:
            folder: made if missing.
            max_length: longest input of the model, special tokens included.
            with_types: the model distinguishes the two texts of a pair by token types, so
                transformers must pass them.
        """
        folder = Path(folder)
        config: JsonObject = {
            # This class uses tokenizer.json unchanged, as BertTokenizer of transformers 4 does;
            # that of 5 replaces the normalizer: Hindi, Tamil and Japanese get other ids.
            "tokenizer_class": "PreTrainedTokenizerFast",
            "do_lower_case": self.lowercase,
            "clean_up_tokenization_spaces": False,
            "model_input_names": ["input_ids", *["token_type_ids"] * with_types, "attention_mask"],
            **{f"{role}_token": token for role, token in self.special_tokens.items()},
        }
        if max_length is not None:
            config["model_max_length"] = max_length
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / TOKENIZER, json.dumps(self.description, ensure_ascii=False, indent=1))
        write_text(folder / CONFIG, json.dumps(config, ensure_ascii=False, indent=2) + "\n")

    @classmethod
    def load(cls, path: Path | str) -> "Tokenizer":
        """Load from a folder that holds a ``tokenizer.json``, or from the file itself.

        Raises:
            TokenizerError: the file is missing or damaged, or lacks one of the special tokens.
        """
        file, description, special_tokens = read_tokenizer(Path(path))
        try:
            return cls(description, special_tokens)
        except TokenizerError as error:
            raise TokenizerError(f"{file} {error}") from None


def mentions(step: JsonObject | None, pattern: JsonObject) -> bool:
    """Return True if a pre-tokenizer, or a step of it, splits at this pattern."""
    if step is None:
        return False
    inner = cast(list[JsonObject], step.get("pretokenizers", []))
    return step.get("pattern") == pattern or any(mentions(one, pattern) for one in inner)


def _find_special_ids(backend: tokenizers.Tokenizer, tokens: Mapping[str, str]) -> list[int]:
    ids = {role: backend.token_to_id(tokens[role]) for role in ROLES}
    missing = [f"{role}_token {tokens[role]}" for role, found in ids.items() if found is None]
    if missing:
        raise TokenizerError(
            f"has no {', '.join(missing)}. A masked language model needs tokens for pad, unk, cls, "
            "sep and mask: name them in tokenizer_config.json."
        )
    return [found for found in ids.values() if found is not None]
