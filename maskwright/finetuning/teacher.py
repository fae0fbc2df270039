"""Task distillation: the answers of a fine-tuned teacher are targets, beside the labels.

Hinton et al., "Distilling the Knowledge in a Neural Network", 2015. The teacher reads each training
example once, since inputs do not change between epochs. K labels.
"""

from pathlib import Path

from maskwright.errors import InputError
from maskwright.finetuning.config import FinetuneConfig
from maskwright.finetuning.network import compute_logits
from maskwright.finetuning.task import Logits, TaskData
from maskwright.model_folder.classifier_folder import open_classifier
from maskwright.progress import Pulse
from maskwright.train.device import choose_device


def ask_teacher(folder: Path, data: TaskData, config: FinetuneConfig, pulse: Pulse) -> list[Logits]:
    """Return the teacher's logits for each training example: [K] for a text, [words, K] for words.

    A teacher of texts may have another tokenizer. One of words must cut sentences as the student
    does.

    Raises:
        InputError: the teacher was trained for another task, or with other labels.
        ModelFolderError: `folder` is not a classifier's folder.
    """
    teacher, task, labels = open_classifier(folder), data.task, data.labels
    level, problem = teacher.model.head_config.level, teacher.problem
    if level != task.level or (level == "text" and problem != task.problem):
        raise InputError(
            f"--teacher {folder} labels {level}s ({problem}), which is not --task {task.name}. "
            "Give a model that was fine-tuned for this task."
        )
    if task.problem != "regression" and {*teacher.labels} != {*labels.names}:
        first = min({*teacher.labels} ^ {*labels.names})
        raise InputError(
            f"--teacher {folder} has other labels than the training examples, such as {first}. "
            "Give a model that was fine-tuned with these labels."
        )
    examples = task.encode(data.train.rows, labels, teacher.tokenizer, teacher.max_length)
    theirs, ours = ([len(each) for each in one.positions or ()] for one in (examples, data.train))
    if theirs != ours:
        raise InputError(
            f"--teacher {folder} cuts sentences at other words. Set max_length = "
            f"{teacher.max_length}, and use a model with the same tokenizer."
        )
    model = teacher.model.to(choose_device(config.device, field="device"))
    logits = compute_logits(model, examples, teacher.tokenizer.pad_id, config.precision, pulse)
    if task.problem == "regression":
        return logits
    order = [teacher.labels.index(name) for name in labels.names]
    return [each[..., order] for each in logits]
