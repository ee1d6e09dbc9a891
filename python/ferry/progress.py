"""What progress= of operations takes, and the line that progress=True shows."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Callable, Union

Progress = Union[None, bool, Callable[[int, int], object]]
"""None or False: nothing; True: a line on stderr; or called with bytes done and bytes in total, at
most ten times a second. What it raises ends the operation and is raised by it."""

_WIDTH = 30


def _size(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"


def _clock(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute:02}:{second:02}"


class _Line:
    """converting:  42%|############      | 4.2 GB/10 GB [00:02<00:03, 2.1 GB/s]"""

    def __init__(self, label: str) -> None:
        self._label = label
        self._start = time.monotonic()
        self._shown = 0
        self._done = 0

    def __call__(self, done: int, total: int) -> None:
        if done < self._done:  # a next pass
            self._start = time.monotonic()
        self._done = done
        seconds = time.monotonic() - self._start
        part = min(1.0, done / total) if total else 1.0
        rate = done / seconds if seconds > 0 else 0.0
        bar = ("#" * int(part * _WIDTH)).ljust(_WIDTH)
        left = _clock((total - done) / rate) if rate else "?"
        line = (
            f"{self._label}: {part:4.0%}|{bar}| {_size(done)}/{_size(total)} "
            f"[{_clock(seconds)}<{left}, {_size(rate)}/s]"
        )
        sys.stderr.write("\r" + line.ljust(self._shown))
        sys.stderr.flush()
        self._shown = len(line)

    def end(self) -> None:
        if self._shown:
            sys.stderr.write("\n")
            sys.stderr.flush()


class watched:
    """`with watched(progress, "converting") as call:` where call is what the bindings take."""

    def __init__(self, progress: Progress, label: str) -> None:
        if progress is not None and not isinstance(progress, bool) and not callable(progress):
            kind = type(progress).__name__
            raise TypeError(f"progress: expected None, True or a callable, not {kind}")
        self._line = _Line(label) if progress is True else None
        self._call = progress if callable(progress) else self._line

    def __enter__(self) -> Callable[[int, int], object] | None:
        return self._call

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._line is not None:
            self._line.end()
