"""A model folder as a pipeline: its task's results, embeddings and token scores, batched.

Results have the shapes of Hugging Face's inference API. Every method takes the texts of many
requests at once, and returns the error of a text that the model cannot answer in place of a result.
"""

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

from maskwright.console import tell
from maskwright.errors import InputError, ModelFolderError
from maskwright.evaluation.pseudo_likelihood import PseudoLikelihoodScorer
from maskwright.evaluation.run import hash_model
from maskwright.finetuning.conll import OUTSIDE, Sentence
from maskwright.finetuning.predict import Predictor, list_entities
from maskwright.finetuning.task import Answer
from maskwright.inference.embed import Embedder
from maskwright.inference.fill_mask import FillMask, FillResult, Prediction
from maskwright.model_folder.classifier_folder import is_classifier
from maskwright.model_folder.folder import (
    CARD,
    is_encoder,
    read_card,
    read_config_file,
    read_dimensions,
)
from maskwright.model_folder.model_card import read_example
from maskwright.model_folder.sentence_modules import VectorSettings, read_settings
from maskwright.runs.evaluation_file import to_plain
from maskwright.serving.config import ServeConfig
from maskwright.serving.schemas import (
    EntityGroup,
    FillMaskParameters,
    FillMaskResult,
    LabelScore,
    MaskCandidate,
    Parameters,
    ScoredText,
    TaggedWord,
    TaskName,
    TaskResult,
    TextClassificationParameters,
    TokenClassificationParameters,
    TokenClassificationResult,
)
from maskwright.tokenizer.template import InputTemplate
from maskwright.tokenizer.token_text import show_tokens

_DEFAULT_TOP_K = 5  # as in transformers


@dataclass(frozen=True)
class Query(Generic[Parameters]):
    """A text, or a pair of texts, and the parameters of its request."""

    text: str
    text_pair: str | None
    parameters: Parameters


class Pipeline(ABC, Generic[Parameters]):
    """A model with its task, whose encoder also embeds texts.

    Attributes:
        scorer: scores tokens; None for a model without a masked-language-model head.
        dimensions: the sizes that embeddings may be cut to, if the model was trained for some.
        example: the text, or pair of texts, in the model card; empty if there is none.
        sha256: of the configuration and the weights, as in ``evaluation.json``.
        labels: the labels that it predicts; none for a number, or for masks.
        count_label: called with each label that is predicted.
        longest_input: tokens of an input of the task that the model reads; None: it reads all of
            them, in parts.
    """

    task: TaskName
    dimensions: Sequence[int] = ()
    sha256 = ""
    labels: Sequence[str] = ()
    longest_input: int | None = None

    def __init__(
        self, embedder: Embedder, scorer: PseudoLikelihoodScorer | None, example: Sequence[str]
    ) -> None:
        self.embedder, self.scorer, self.example = embedder, scorer, example
        self.count_label: Callable[[str], None] = lambda label: None

    @property
    def title(self) -> str:
        """The task and the version of the model."""
        return f"{self.task}, {self.sha256[:12]}"

    @abstractmethod
    def __call__(self, queries: Sequence[Query[Parameters]]) -> Sequence[TaskResult | InputError]:
        """Return the result of each query."""

    def check(self, queries: Sequence[Query[Parameters]], config: ServeConfig) -> None:
        """Raise InputError unless the model supports the queries of a request, within limits."""
        if any(query.text_pair is not None for query in queries):
            raise InputError(f"text_pair has no effect with {self.task}. Remove it.")

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text as it is, with special tokens."""
        num_special = len(self.embedder.wrap([]))
        encoded = self.embedder.tokenizer.encode_batch(texts, split_special_tokens=False)
        return [len(text.ids) + num_special for text in encoded]

    def count_query_tokens(self, queries: Sequence[Query[Parameters]]) -> list[int]:
        """Return the number of tokens of each text or pair as it is, with special tokens."""
        return self.count_tokens([query.text for query in queries])

    @property
    def longest(self) -> int:
        """The longest input of the model; that of embeddings may be shorter."""
        return self.embedder.model.config.max_position_embeddings

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the embedding of each text, which has its prompt already."""
        return [vector.tolist() for vector in self.embedder(texts, prompt_name="")]

    def score(self, texts: Sequence[str]) -> list[ScoredText | InputError]:
        """Return the tokens of each text and their log-probabilities in nats."""
        assert self.scorer is not None
        tokenizer = self.scorer.tokenizer
        results: list[ScoredText | InputError] = []
        for text, found in zip(texts, self.scorer.attempt(texts), strict=True):
            if isinstance(found, InputError):
                results.append(found)
                continue
            offsets = tokenizer.encode_with_offsets(text).offsets.tolist()
            names = show_tokens(tokenizer, found.token_ids)
            if len(offsets) != len(names):  # encoding cuts very long words, offsets do not
                results.append(InputError("a word is too long: the places of its tokens differ"))
                continue
            tokens = zip(names, offsets, found.scores, strict=True)
            results.append(
                {
                    "score": found.total,
                    "mean": to_plain(found.mean),
                    "tokens": [
                        {"token": token, "start": start, "end": end, "score": score}
                        for token, (start, end), score in tokens
                    ],
                }
            )
        return results


class FillMaskPipeline(Pipeline[FillMaskParameters]):
    """Candidates for each [MASK]: a list of them, or one list for each of several masks."""

    task: TaskName = "fill-mask"

    def __init__(
        self,
        fill: FillMask,
        example: Sequence[str] = (),
        settings: VectorSettings | None = None,
    ) -> None:
        # The embedder and the scorer share the weights.
        parts = (fill.model, fill.tokenizer, bool(fill.wrap([])))
        scorer = PseudoLikelihoodScorer.from_parts(*parts)
        super().__init__(Embedder.from_parts(*parts, settings=settings), scorer, example)
        self.fill = fill
        self.longest_input = self.longest  # longer texts are refused

    def check(self, queries: Sequence[Query[FillMaskParameters]], config: ServeConfig) -> None:
        super().check(queries, config)
        num_candidates = num_characters = 0
        for query in queries:
            _check_top_k(query.parameters.top_k, config)
            num_masks = query.text.count(self.fill.tokenizer.mask_token)
            asked = num_masks * (query.parameters.top_k or _DEFAULT_TOP_K)
            num_candidates += asked
            num_characters += asked * len(query.text)
        if num_candidates > config.max_candidates:
            raise InputError(
                f"the request asks for {num_candidates:,} candidates for its masks; at most "
                f"{config.max_candidates:,} are allowed. Lower top_k."
            )
        if num_characters > config.max_filled_characters:
            raise InputError(
                f"the filled texts of the request have {num_characters:,} characters; at most "
                f"{config.max_filled_characters:,} are allowed. Lower top_k, or send fewer texts."
            )

    def __call__(
        self, queries: Sequence[Query[FillMaskParameters]]
    ) -> list[FillMaskResult | InputError]:
        groups: dict[tuple[tuple[str, ...], int], list[int]] = defaultdict(list)
        for number, query in enumerate(queries):
            targets, top_k = query.parameters.targets or (), query.parameters.top_k
            groups[tuple(targets), top_k or _DEFAULT_TOP_K].append(number)
        results: dict[int, FillMaskResult | InputError] = {}
        for (targets, top_k), numbers in groups.items():
            texts = [queries[number].text for number in numbers]
            try:
                filled = self.fill.attempt(texts, top_k, targets or None)
            except InputError as error:  # in the targets
                filled = [error] * len(numbers)
            for number, result in zip(numbers, filled, strict=True):
                is_error = isinstance(result, InputError)
                results[number] = result if is_error else self._format(result, top_k)
        return [results[number] for number in range(len(queries))]

    def _format(self, result: FillResult, top_k: int) -> FillMaskResult:
        tokenizer = self.fill.tokenizer
        ids: list[int] = tokenizer.encode_prompt(result.text).ids.tolist()
        positions = [n for n, token in enumerate(ids) if token == tokenizer.mask_id]
        is_only = len(positions) == 1
        masks = [
            [self._describe(one, ids, position, is_only=is_only) for one in predictions[:top_k]]
            for position, predictions in zip(positions, result.masks, strict=True)
        ]
        return masks[0] if len(masks) == 1 else masks

    def _describe(
        self, prediction: Prediction, ids: list[int], position: int, *, is_only: bool
    ) -> MaskCandidate:
        """Return a candidate, its text spelled as transformers does, with the other masks in it."""
        filled = [*ids[:position], prediction.token_id, *ids[position + 1 :]]
        filled = filled if is_only else self.fill.wrap(filled)
        backend = self.fill.tokenizer.backend
        return {
            "score": prediction.score,
            "token": prediction.token_id,
            "token_str": prediction.token,
            "sequence": backend.decode(filled, skip_special_tokens=is_only),
        }


class VectorPipeline(Pipeline[Any]):
    """Embeddings of texts, by a model without a head."""

    task: TaskName = "feature-extraction"

    def __call__(self, queries: Sequence[Query[Any]]) -> list[list[float]]:
        return self.embed([query.text for query in queries])


class _PredictorPipeline(Pipeline[Parameters]):
    """A fine-tuned model."""

    def __init__(self, predict: Predictor, example: Sequence[str] = ()) -> None:
        loaded = predict.loaded
        parts = (loaded.model, loaded.tokenizer, loaded.add_special_tokens)
        super().__init__(Embedder.from_parts(*parts), None, example)
        self.predict = predict
        self.labels = () if loaded.problem == "regression" else loaded.labels


class TextClassificationPipeline(_PredictorPipeline[TextClassificationParameters]):
    """The labels of a text or a pair, the most probable first."""

    task: TaskName = "text-classification"
    names_problem = True  # False for a folder of another library without problem_type

    def __init__(self, predict: Predictor, example: Sequence[str] = ()) -> None:
        super().__init__(predict, example)
        self.longest_input = predict.longest

    def count_query_tokens(self, queries: Sequence[Query[Any]]) -> list[int]:
        tokenizer = self.embedder.tokenizer
        texts = [[q.text] if q.text_pair is None else [q.text, q.text_pair] for q in queries]
        added = {n: InputTemplate.of(tokenizer, n).num_added for n in {*map(len, texts)}}
        return [
            added[len(each)]
            + sum(len(one.ids) for one in tokenizer.encode_batch(each, split_special_tokens=False))
            for each in texts
        ]

    @property
    def functions(self) -> tuple[str, ...]:
        """The functions of logits that fit, as transformers calls them; first the default."""
        # Of a single label, transformers takes the sigmoid unless problem_type is regression.
        number = ("none",) if self.names_problem else ("sigmoid", "none")
        known = {"regression": number, "multi_label_classification": ("sigmoid",)}
        return known.get(self.predict.loaded.problem, ("softmax",))

    def check(
        self, queries: Sequence[Query[TextClassificationParameters]], config: ServeConfig
    ) -> None:
        for parameters in (query.parameters for query in queries):
            _check_top_k(parameters.top_k, config)
            if parameters.function_to_apply not in (None, *self.functions):
                raise InputError(
                    f"function_to_apply = {parameters.function_to_apply} must be "
                    f"{' or '.join(self.functions)} for this model. Remove it."
                )

    def __call__(
        self, queries: Sequence[Query[TextClassificationParameters]]
    ) -> list[list[LabelScore] | InputError]:
        results: dict[int, list[LabelScore] | InputError] = {}
        for is_pair in (False, True):
            numbers = [n for n, q in enumerate(queries) if (q.text_pair is not None) == is_pair]
            inputs = [
                (queries[n].text, queries[n].text_pair or "") if is_pair else queries[n].text
                for n in numbers
            ]
            try:
                answers: Sequence[Answer | InputError] = self.predict(inputs) if inputs else []
            except InputError as error:  # pairs for a model of single texts, or the reverse
                answers = [error] * len(numbers)
            for number, answer in zip(numbers, answers, strict=True):
                self._count_labels(answer)
                results[number] = self._rank(answer, queries[number].parameters)
        return [results[number] for number in range(len(queries))]

    def _count_labels(self, answer: Answer | InputError) -> None:
        label = 0.0 if isinstance(answer, InputError) else answer.label
        for name in label if isinstance(label, list) else [label]:
            if isinstance(name, str):
                self.count_label(name)

    def _rank(
        self, answer: Answer | InputError, parameters: TextClassificationParameters
    ) -> list[LabelScore] | InputError:
        if isinstance(answer, InputError):
            return answer
        if isinstance(score := answer.label, float):  # a regression
            if (parameters.function_to_apply or self.functions[0]) == "sigmoid":
                score = (1 + math.tanh(score / 2)) / 2  # math.exp may overflow
            return [{"label": self.predict.loaded.labels[0], "score": score}]
        ranked = sorted(answer.probabilities.items(), key=lambda pair: -pair[1])
        return [{"label": label, "score": score} for label, score in ranked[: parameters.top_k]]


class TokenClassificationPipeline(_PredictorPipeline[TokenClassificationParameters]):
    """Tagged words, or entities, with their offsets; words that become no token are left out."""

    task: TaskName = "token-classification"

    def __call__(
        self, queries: Sequence[Query[TokenClassificationParameters]]
    ) -> list[TokenClassificationResult]:
        words = [self.predict.split(query.text) for query in queries]
        tagged = self.predict.tag(words)
        results: list[TokenClassificationResult] = []
        for query, sentence, answers in zip(queries, words, tagged, strict=True):
            for answer in answers:
                if answer.score is not None:
                    self.count_label(str(answer.label))
            parameters = query.parameters
            ignored = (OUTSIDE,) if parameters.ignore_labels is None else parameters.ignore_labels
            # The other strategies choose between the tags of a word's tokens. Here a word has one
            # tag, so they all equal "simple".
            if parameters.aggregation_strategy in (None, "none"):
                results.append(_list_words(sentence, answers, ignored))
            else:
                results.append(_group_entities(sentence, answers, ignored))
        return results


def _check_top_k(top_k: int | None, config: ServeConfig) -> None:
    if top_k is not None and top_k > config.max_top_k:
        raise InputError(f"top_k = {top_k} must be at most {config.max_top_k}.")


def _list_words(
    words: Sentence, answers: Sequence[Answer], ignored: Sequence[str]
) -> list[TaggedWord]:
    return [
        {
            "entity": str(answer.label),
            "score": answer.score,
            "index": number,
            "word": word,
            "start": start,
            "end": end,
        }
        for number, (word, (start, end), answer) in enumerate(
            zip(words, words.spans, answers, strict=True)
        )
        if answer.score is not None and answer.label not in ignored
    ]


def _group_entities(
    words: Sentence, answers: Sequence[Answer], ignored: Sequence[str]
) -> list[EntityGroup]:
    """Return the entities, each with the mean score of its words."""
    return [
        {"entity_group": kind, "score": score, "word": text, "start": start, "end": end}
        for kind, score, text, start, end in list_entities(words, answers)
        if kind not in ignored
    ]


def open_pipeline(folder: Path, device: str | None) -> Pipeline[Any]:
    """Return the pipeline of a model folder; raise ModelFolderError if it holds no model."""
    pipeline = _open_task(folder, device)
    pipeline.sha256 = hash_model(folder)
    return pipeline


def _open_task(folder: Path, device: str | None) -> Pipeline[Any]:
    example = _read_card_example(folder)
    if not is_classifier(folder):
        if is_encoder(folder):
            pipeline: Pipeline[Any] = VectorPipeline(Embedder(folder, device), None, example)
        else:
            settings = read_settings(folder)
            pipeline = FillMaskPipeline(FillMask(folder, device), example, settings)
        pipeline.dimensions = read_dimensions(folder)
        return pipeline
    predict = Predictor(folder, device or "auto")
    if predict.finds_spans:
        raise ModelFolderError(
            f"{folder} answers questions; serve has no page for that. Use maskwright predict."
        )
    if predict.labels_tokens:
        return TokenClassificationPipeline(predict, example)
    texts = TextClassificationPipeline(predict, example)
    texts.names_problem = read_config_file(folder).get("problem_type") is not None
    return texts


def _read_card_example(folder: Path) -> tuple[str, ...]:
    """Return the example of the model card; nothing, with a warning, if the card is damaged."""
    try:
        return read_example(read_card(folder) or "")
    except (ModelFolderError, ValueError) as error:
        tell(f"warning: no example for the page: {folder / CARD}: {error}")
    return ()
