"""What requests hold and answers look like, as /openapi.json says it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from maskwright.serving.answers import TaskName

Text = Annotated[str, Field(max_length=100_000)]  # of which models read some thousand at most


class Pair(BaseModel):
    """Two texts of one question."""

    model_config = ConfigDict(extra="forbid")
    text: Text
    text_pair: Text | None = None


class Parameters(BaseModel):
    """How a question is to be answered."""

    model_config = ConfigDict(extra="ignore")  # clients send what other tasks know
    top_k: int | None = Field(None, ge=1)
    targets: list[Text] | None = Field(None, min_length=1, max_length=1000)


class Asked(BaseModel):
    """A request as Hugging Face's clients send it."""

    model_config = ConfigDict(extra="ignore")
    inputs: Text | Pair | list[Text | Pair]
    parameters: Parameters | None = None


class Texts(BaseModel):
    """Texts to read, not to answer."""

    model_config = ConfigDict(extra="ignore")
    inputs: Text | list[Text]


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
_Masks = list[Candidate] | list[list[Candidate]]  # of one mask, of several
ANSWERS: dict[TaskName, Any] = {
    "fill-mask": _Masks | list[_Masks],
    "text-classification": list[list[LabelScore]],
    "token-classification": list[Entity] | list[list[Entity]],
}
