"""Classes of transformers that label texts (``…ForSequenceClassification``) and tokens.

The encoder is spelled as in the masked language model of the family; what follows it differs from
family to family, and is a `Form`. A family without one is saved in our own spelling.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from maskwright.model.config import EncoderConfig, HeadActivation, HeadConfig, Level, Pooling
from maskwright.model_folder.native.bert import BERT
from maskwright.model_folder.native.distilbert import DISTILBERT
from maskwright.model_folder.native.electra import ELECTRA
from maskwright.model_folder.native.eurobert import EUROBERT
from maskwright.model_folder.native.family import Family, Names
from maskwright.model_folder.native.megatron_bert import MEGATRON_BERT
from maskwright.model_folder.native.modernbert import MODERNBERT
from maskwright.model_folder.native.own import OWN
from maskwright.model_folder.native.roberta import CAMEMBERT, ROBERTA, XLM_ROBERTA
from maskwright.model_folder.native.roberta_prelayernorm import ROBERTA_PRELAYERNORM

_DENSE, _NORM, _OUTPUT = "head.dense", "head.norm", "head.output"


@dataclass(frozen=True)
class Form:
    """What one class of transformers puts on its encoder.

    Attributes:
        family: the class, with the names of all tensors.
        activation: of its dense layer, None if it has none; or what the configuration says.
        has_norm: whether a norm follows that layer.
        poolings: the poolings that it knows -> its word for each, the first one what it takes
            where a file says nothing; a class that has no such field takes the first token.
        dropout_field: its word for the dropout before the output.
        bias: whether the dense layer has one.
    """

    family: Family
    activation: HeadActivation | Callable[[EncoderConfig], HeadActivation] | None
    has_norm: bool = False
    poolings: Mapping[Pooling, str] = field(default_factory=dict)
    dropout_field: str = "classifier_dropout"
    bias: Callable[[EncoderConfig], bool] = lambda config: True

    def head(
        self, config: EncoderConfig, level: Level, num_labels: int, pooling: Pooling, dropout: float
    ) -> HeadConfig:
        """The head as this class has it."""
        activation = self.activation(config) if callable(self.activation) else self.activation
        return HeadConfig(
            level=level,
            num_labels=num_labels,
            pooling=pooling,
            activation=activation,
            bias=self.bias(config),
            norm=self.has_norm,
            dropout=dropout,
        )

    def write_head(self, head: HeadConfig) -> dict[str, Any]:
        """Its fields of ``config.json``."""
        fields: dict[str, Any] = {self.dropout_field: head.dropout}
        if self.poolings:
            fields["classifier_pooling"] = self.poolings[head.pooling]
        return fields


def _spell(family: Family, architecture: str, head: Names, *ignored: str) -> Family:
    encoder = {ours: theirs for ours, theirs in family.tensors.items() if ours.startswith("enc")}
    return dataclasses.replace(
        family,
        architecture=architecture,
        pair_architecture="",
        tensors={**encoder, **head},
        tied_bias="",
        ignored=(*(name for name in family.ignored if "pooler" not in name), *ignored),
    )


def _activation_of_head(config: EncoderConfig) -> HeadActivation:
    return cast(HeadActivation, config.head_act)


def _bias_of_head(config: EncoderConfig) -> bool:
    return config.head_bias


def _bert_form(family: Family, name: str) -> Form:
    head = {_DENSE: "bert.pooler.dense", _OUTPUT: "classifier"}
    return Form(_spell(family, f"{name}ForSequenceClassification", head, "cls.*"), "tanh")


def _roberta_form(family: Family, name: str, activation: HeadActivation = "tanh") -> Form:
    head = {_DENSE: "classifier.dense", _OUTPUT: "classifier.out_proj"}
    return Form(_spell(family, f"{name}ForSequenceClassification", head), activation)


def _token_form(family: Family, name: str, *ignored: str) -> Form:
    ignored = ("*.pooler.*", *ignored)
    return Form(
        _spell(family, f"{name}ForTokenClassification", {_OUTPUT: "classifier"}, *ignored), None
    )


def _modernbert_form(name: str, poolings: Mapping[Pooling, str]) -> Form:
    head = {_DENSE: "head.dense", _NORM: "head.norm", _OUTPUT: "classifier"}
    family = _spell(MODERNBERT, name, head)
    return Form(family, _activation_of_head, has_norm=True, poolings=poolings, bias=_bias_of_head)


def _own_form(level: Level) -> Form:
    architecture = "TextClassifier" if level == "text" else "TokenClassifier"
    head = {_DENSE: _DENSE, _OUTPUT: _OUTPUT}
    family = _spell(OWN, architecture, head if level == "text" else {_OUTPUT: _OUTPUT})
    if level == "token":
        return Form(family, None)
    return Form(family, "gelu", poolings={"mean": "mean", "cls": "cls", "late": "late"})


_CLS_OR_MEAN: Mapping[Pooling, str] = {"cls": "cls", "mean": "mean"}
_DISTILBERT_HEAD = {_DENSE: "pre_classifier", _OUTPUT: "classifier"}
_EUROBERT_HEAD = {_DENSE: "dense", _OUTPUT: "classifier"}
FORMS: dict[Level, dict[str, Form]] = {
    "text": {
        "bert": _bert_form(BERT, "Bert"),
        "megatron-bert": _bert_form(MEGATRON_BERT, "MegatronBert"),
        "roberta": _roberta_form(ROBERTA, "Roberta"),
        "xlm-roberta": _roberta_form(XLM_ROBERTA, "XLMRoberta"),
        "camembert": _roberta_form(CAMEMBERT, "Camembert"),
        "roberta-prelayernorm": _roberta_form(ROBERTA_PRELAYERNORM, "RobertaPreLayerNorm"),
        "electra": _roberta_form(ELECTRA, "Electra", "gelu"),
        "distilbert": Form(
            _spell(DISTILBERT, "DistilBertForSequenceClassification", _DISTILBERT_HEAD),
            "relu",
            dropout_field="seq_classif_dropout",
        ),
        "modernbert": _modernbert_form("ModernBertForSequenceClassification", _CLS_OR_MEAN),
        "eurobert": Form(
            _spell(EUROBERT, "EuroBertForSequenceClassification", _EUROBERT_HEAD),
            "gelu",
            poolings={"late": "late", "mean": "mean", "cls": "bos"},
        ),
        OWN.model_type: _own_form("text"),
    },
    "token": {
        "bert": _token_form(BERT, "Bert", "cls.*"),
        "megatron-bert": _token_form(MEGATRON_BERT, "MegatronBert", "cls.*"),
        "roberta": _token_form(ROBERTA, "Roberta"),
        "xlm-roberta": _token_form(XLM_ROBERTA, "XLMRoberta"),
        "camembert": _token_form(CAMEMBERT, "Camembert"),
        "roberta-prelayernorm": _token_form(ROBERTA_PRELAYERNORM, "RobertaPreLayerNorm"),
        "electra": _token_form(ELECTRA, "Electra"),
        "distilbert": _token_form(DISTILBERT, "DistilBert"),
        "modernbert": _modernbert_form("ModernBertForTokenClassification", {}),
        "eurobert": _token_form(EUROBERT, "EuroBert"),
        OWN.model_type: _own_form("token"),
    },
}
# A class tells both what is labelled and by which family.
ARCHITECTURES: dict[str, tuple[Level, Form]] = {
    form.family.architecture: (level, form)
    for level, forms in FORMS.items()
    for form in forms.values()
}
