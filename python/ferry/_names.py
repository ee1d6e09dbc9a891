"""What mappings of names have in common, and what can be closed."""

from __future__ import annotations

from types import TracebackType
from typing import Collection, Iterator, Mapping, TypeVar

T = TypeVar("T")
_Self = TypeVar("_Self", bound="Closing")


class Named(Mapping[str, T]):
    """A mapping whose values are made when they are asked for. It equals itself alone, as open files
    do."""

    @property
    def _names(self) -> Collection[str]:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._names

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return object.__hash__(self)


class Closing:
    """A context manager that closes at its end."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
