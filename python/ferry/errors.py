"""What ferry raises."""

from __future__ import annotations


class Error(Exception):
    """An operation failed. The message says what was expected, what was found, and what to do.

    kind: "not_found", "corrupt", "unsupported", "invalid", "mismatch", "io", "exhausted", "busy",
        "cancelled" by another rank or by stop(), or "internal", which is a bug of ferry's.
    path: the file or folder that the error is about; None where it is about none, or where it is
        not known which.
    hint: the end of the message, if it says what to do or what follows; else None.
    """

    kind: str = "internal"
    path: str | None
    hint: str | None

    def __init__(self, message: str = "", path: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.hint = hint

    def __str__(self) -> str:  # KeyError's would quote it
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[type[Error], tuple[str, str | None, str | None]]:
        return type(self), (str(self), self.path, self.hint)


class NotFound(Error, KeyError, FileNotFoundError):
    """A file, tensor or iteration is not there."""

    kind = "not_found"


class Corrupt(Error):
    """A file contradicts its own format."""

    kind = "corrupt"


class Unsupported(Error):
    """What is there is valid, but ferry cannot read or express it."""

    kind = "unsupported"


class Invalid(Error, ValueError):
    """An argument is wrong, or contradicts another."""

    kind = "invalid"


class Mismatch(Error):
    """Two things that must agree do not."""

    kind = "mismatch"


class IOFailed(Error, OSError):
    """The operating system refused."""

    kind = "io"


class Exhausted(Error):
    """No disk space, memory or budget is left."""

    kind = "exhausted"


class Busy(Error):
    """Another process is using it; try again later."""

    kind = "busy"


_KINDS = {
    each.kind: each
    for each in (NotFound, Corrupt, Unsupported, Invalid, Mismatch, IOFailed, Exhausted, Busy)
}


def _of_kind(kind: str, message: str, path: str | None, hint: str | None) -> Error:
    kind = kind.replace(" ", "_")
    error = _KINDS.get(kind, Error)(message, path, hint)
    error.kind = kind
    return error
