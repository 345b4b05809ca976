# SPDX-License-Identifier: Apache-2.0
"""The declarations of a modelet in Python: the tensors of its `run`, and whether it takes batches.

    def run(self, x: shoal.FP32[-1, 4]) -> {"label": shoal.BYTES[-1]}:

A datatype without a shape stands for any shape, -1 for a dimension of any length. A worker runs this
file too, as part of its own module `shoal`."""

from __future__ import annotations

from typing import Any, Callable, Optional, TypeVar, Union

RANK_MAX = 8

_Run = TypeVar("_Run", bound=Callable[..., Any])


class TensorType:
    """A datatype, and a shape or None."""

    def __init__(self, datatype: str, shape: Optional[tuple[int, ...]] = None) -> None:
        self.datatype = datatype
        self.shape = shape

    def __getitem__(self, shape: Union[int, tuple[int, ...]]) -> TensorType:
        shape = shape if isinstance(shape, tuple) else (shape,)
        if len(shape) > RANK_MAX:
            raise TypeError(f"{self.datatype}: {len(shape)} dimensions; at most {RANK_MAX}")
        for length in shape:
            if isinstance(length, bool) or not isinstance(length, int) or length < -1:
                raise TypeError(f"{self.datatype}: a dimension is {length!r}: an integer from 0, "
                                "or -1 for any length")
        return TensorType(self.datatype, shape)

    def __repr__(self) -> str:
        return f"shoal.{self.datatype}" + ("" if self.shape is None else str(list(self.shape)))


ANY = TensorType("ANY")
BOOL = TensorType("BOOL")
UINT8 = TensorType("UINT8")
UINT16 = TensorType("UINT16")
UINT32 = TensorType("UINT32")
UINT64 = TensorType("UINT64")
INT8 = TensorType("INT8")
INT16 = TensorType("INT16")
INT32 = TensorType("INT32")
INT64 = TensorType("INT64")
FP16 = TensorType("FP16")
FP32 = TensorType("FP32")
FP64 = TensorType("FP64")
BYTES = TensorType("BYTES")
BF16 = TensorType("BF16")


def cancelled() -> bool:
    """Whether the request of this `run` is cancelled, or its deadline has passed; with `batched`,
    those of all its requests. So a long `run` can give up: what it returns or raises then is
    dropped. On any thread; False outside a `run`."""
    return False  # a worker has its own


def batched(run: _Run) -> _Run:
    """Has `run` called with the tensors of all requests of a batch, concatenated along their first
    dimension; the outputs are divided likewise."""
    run.shoal_batched = True  # type: ignore[attr-defined]
    return run
