"""What requests hold and answers look like, as /openapi.json says it."""

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from maskwright.serving.answers import Strategy, TaskName

Text = Annotated[str, Field(max_length=100_000)]  # of which models read some thousand at most
TAGS = {str: "<text>", dict: "<pair>", list: "<list>"}  # what inputs are, as errors place them


class Form(BaseModel):
    """An object that refuses names which it does not know, and says which it does."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def refuse_unknown(cls, given: Any) -> Any:
        """Looks at the names before their values are checked."""
        known = ", ".join(cls.model_fields)
        if not isinstance(given, dict):
            raise PydanticCustomError("no_object", "must be an object of {known}", {"known": known})
        for name in given.keys() - cls.model_fields.keys():
            context = {"name": repr(name[:40]), "known": known}
            raise PydanticCustomError(
                "unknown", "{name} is nothing here; there is {known}", context
            )
        return given


def _choose(message: str) -> Discriminator:
    return Discriminator(lambda given: TAGS.get(type(given)), "no_text", message)


class Pair(Form):
    """Two texts of one question."""

    text: Text
    text_pair: Text | None = None


class FillParameters(Form):
    """Which words are wanted."""

    top_k: int | None = Field(default=None, ge=1)
    targets: list[Text] | None = Field(default=None, min_length=1, max_length=1000)


class LabelParameters(Form):
    """How many labels are wanted; the function is the one of the model's task, or refused."""

    top_k: int | None = Field(default=None, ge=1)
    function_to_apply: Literal["softmax", "sigmoid", "none"] | None = None


class TagParameters(Form):
    """Whether words are wanted or entities; pieces of long texts do not overlap by any stride."""

    aggregation_strategy: Strategy | None = None
    ignore_labels: list[Text] | None = Field(default=None, max_length=1000)
    stride: int | None = Field(default=None, ge=0)


P = TypeVar("P", bound=Form)
_TextTag, _PairTag, _ListTag = (Tag(name) for name in TAGS.values())
_PAIR = 'for models of pairs {"text": …, "text_pair": …}'
Input = Annotated[
    Annotated[Text, _TextTag] | Annotated[Pair, _PairTag], _choose(f"must be a text, or {_PAIR}")
]
_Inputs = Annotated[
    Annotated[Text, _TextTag] | Annotated[Pair, _PairTag] | Annotated[list[Input], _ListTag],
    _choose(f"must be a text, a list of texts, or {_PAIR}"),
]


class Asked(Form, Generic[P]):
    """A request as Hugging Face's clients send it; their options are of a service of many."""

    inputs: _Inputs
    parameters: P | None = None
    options: dict[str, Any] | None = None


class Texts(Form):
    """Texts to read, not to answer."""

    inputs: Annotated[
        Annotated[Text, _TextTag] | Annotated[list[Text], _ListTag],
        _choose("must be a text or a list of texts"),
    ]


class EmbeddedTexts(Texts):
    """Texts as Hugging Face's clients send them for vectors, which are made in one way."""

    normalize: Literal[True] | None = None
    truncate: Literal[True] | None = None
    truncation_direction: Literal["right"] | None = None
    encoding_format: Literal["float"] | None = None


class Candidate(BaseModel):
    """A word for a mask."""

    score: float
    token: int
    token_str: str
    sequence: str


class LabelScore(BaseModel):
    """A label of a text and its probability; of a number the number."""

    label: str
    score: float


class Entity(BaseModel):
    """A word with a tag; `start` and `end` are characters of the text."""

    entity: str
    score: float
    index: int
    word: str
    start: int
    end: int


class EntityGroup(BaseModel):
    """Words of one entity together; `start` and `end` are characters of the text."""

    entity_group: str
    score: float
    word: str
    start: int
    end: int


class ScoredToken(BaseModel):
    """A token, its place in the text in characters, and its log-probability in nats."""

    token: str
    start: int
    end: int
    score: float


class ScoredText(BaseModel):
    """The pseudo-log-likelihood of a text."""

    score: float
    tokens: list[ScoredToken]


class Health(BaseModel):
    """That the server works, and what it serves."""

    status: Literal["ok", "not working"]
    model: str
    task: TaskName
    scores: bool


class Refusal(BaseModel):
    """Why a request was not answered, in one line."""

    error: str


Vectors = list[list[float]]
_Entities = list[Entity] | list[EntityGroup]
_Masks = list[Candidate] | list[list[Candidate]]  # of one mask, of several
ANSWERS: dict[TaskName, Any] = {
    "fill-mask": _Masks | list[_Masks],
    "text-classification": list[list[LabelScore]],
    "token-classification": _Entities | list[_Entities],
}
