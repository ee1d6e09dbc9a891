"""What checkpoints store besides tensors, without the classes that it was made of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

__all__ = ["Global", "Object", "TensorInfo"]


class Global(str):
    """The name of a class or function that a checkpoint refers to: "torch.bfloat16"."""

    __slots__ = ()


class TensorInfo(NamedTuple):
    """A tensor inside a stored object whose elements were not read."""

    dtype: str
    shape: tuple[int, ...]


class Object(SimpleNamespace):
    """An instance of a class that was not imported: its attributes are those that were stored.

    class_name: "module.Class".
    class_arguments: what the class was called with.
    """

    __slots__ = ("class_arguments", "class_name")

    class_name: str
    class_arguments: tuple[Any, ...]

    def __init__(self, class_name: str = "", **attributes: Any) -> None:
        super().__init__(**attributes)
        self.class_name = class_name
        self.class_arguments = ()

    def __repr__(self) -> str:
        shown = [repr(each) for each in self.class_arguments]
        shown += [f"{name}={value!r}" for name, value in vars(self).items()]
        return f"{self.class_name}({', '.join(shown)})"
