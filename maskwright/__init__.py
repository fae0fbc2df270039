"""Raw text to a BERT-class encoder of your own.

The names below are the whole public interface; a test pins them. They are imported when they are
first used, because torch takes two seconds to import and many commands do without it::

    from maskwright import FillMask, pretrain

    folder = pretrain("corpus/*.txt", recipe="tiny", out="runs/mine", train={"max_minutes": 10})
    print(FillMask(folder)("The larvae are black and [MASK] on snails."))

`pretrain`, `prepare`, `finetune`, `predict`, `evaluate`, `compare`, `serve`, `export` and `publish`
do what the commands of these names do, and take the same words as their flags; the classes are for
models in memory.
"""

from importlib import import_module
from typing import Any

_loader: Any = import_module("lazy_loader")  # it has no types
__getattr__, __dir__, __all__ = _loader.attach_stub(__name__, __file__)
