# SPDX-License-Identifier: Apache-2.0
"""One exception for each status that a caller may treat in a way of its own."""

from __future__ import annotations

from typing import Optional


class ShoalError(Exception):
    """A call failed. `code` is the status's name in gRPC ("NOT_FOUND"), `text` says what failed and
    what to do, `retry_after` is the node's forecast in seconds of when to call again, or None."""

    def __init__(self, code: str, text: str, retry_after: Optional[float] = None) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.code}: {self.text}"

    def __reduce__(self) -> tuple[type, tuple[str, str, Optional[float]]]:
        return type(self), (self.code, self.text, self.retry_after)


class InvalidArgument(ShoalError, ValueError):
    """The request does not fit the model, or nothing that could be sent: fix the caller."""


class NotFound(ShoalError, LookupError):
    """The node knows no such model, vmodel or version."""


class DeadlineExceeded(ShoalError, TimeoutError):
    """The answer did not come within the time-out."""


class ResourceExhausted(ShoalError):
    """The node refuses load; it did not run the request. Call again after `retry_after`."""


class Unavailable(ShoalError, ConnectionError):
    """Nothing answers at the target, or the node or a worker ended: use another node, or try again."""


class PermissionDenied(ShoalError, PermissionError):
    """Certificates or headers do not permit this call."""


class FailedPrecondition(ShoalError):
    """The node cannot serve this model as it is."""


class Unimplemented(ShoalError, NotImplementedError):
    """The server does not have this method."""


class Internal(ShoalError):
    """The model or the server broke its contract."""


class Cancelled(ShoalError):
    """The call was given up, for example because its client was closed."""


_CLASSES = {
    "INVALID_ARGUMENT": InvalidArgument,
    "NOT_FOUND": NotFound,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "RESOURCE_EXHAUSTED": ResourceExhausted,
    "UNAVAILABLE": Unavailable,
    "PERMISSION_DENIED": PermissionDenied,
    "UNAUTHENTICATED": PermissionDenied,
    "FAILED_PRECONDITION": FailedPrecondition,
    "UNIMPLEMENTED": Unimplemented,
    "INTERNAL": Internal,
    "CANCELLED": Cancelled,
}


def error_for(code: str, text: str, retry_after: Optional[float] = None) -> ShoalError:
    """The exception for a status."""
    return _CLASSES.get(code, ShoalError)(code, text, retry_after)


def invalid(text: str) -> InvalidArgument:
    """A request that is refused before it is sent."""
    return InvalidArgument("INVALID_ARGUMENT", text)
