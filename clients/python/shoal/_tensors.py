# SPDX-License-Identifier: Apache-2.0
"""Arrays as tensors of the protocol, and back.

An input takes the datatype that the model declares, if it keeps its meaning: integers must fit, floats
are rounded, floats never become integers or text. Without a declaration it keeps its own.
"""

from __future__ import annotations

import dataclasses
import math
import struct
from typing import Any, Optional, Sequence

import numpy as np

from ._errors import InvalidArgument, error_for, invalid
from ._wire import InputTensor, OutputTensor

_DTYPES = {
    "BOOL": np.dtype("?"), "UINT8": np.dtype("u1"), "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"), "UINT64": np.dtype("<u8"), "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"), "INT32": np.dtype("<i4"), "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"), "FP32": np.dtype("<f4"), "FP64": np.dtype("<f8"),
}
_DATATYPES = {(dtype.kind, dtype.itemsize): name for name, dtype in _DTYPES.items()}
_LENGTH = struct.Struct("<I")


@dataclasses.dataclass(frozen=True)
class Tensor:
    """An input whose datatype the caller chooses: `Tensor([1.5, 2], "BF16")`.

    For BF16, an array of uint16 holds the bits."""

    data: Any
    datatype: str

    def __post_init__(self) -> None:
        if self.datatype not in (*_DTYPES, "BYTES", "BF16"):
            raise invalid(f"there is no datatype {self.datatype!r}: "
                          f"use one of {', '.join(_DTYPES)}, BYTES, BF16")


@dataclasses.dataclass(frozen=True)
class TensorMetadata:
    """A tensor as a model declares it: datatype "" is any, -1 in a shape any length."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.datatype or 'of any type'} {list(self.shape)}"


# ---- to the node


def encode(name: str, value: Any, declared: Optional[TensorMetadata]) -> InputTensor:
    """One input. Raises InvalidArgument with its name."""
    datatype = declared.datatype if declared is not None else ""
    if isinstance(value, Tensor):
        value, datatype = value.data, value.datatype
    try:
        array = _as_array(value)
        if array.ndim == 0 and declared is not None and not hasattr(value, "dtype"):
            array = array.reshape(_one_element(declared.shape))
        shape = array.shape
        datatype = datatype or _datatype_of(array)
        return InputTensor(name, datatype, shape, _contents(array, datatype))
    except InvalidArgument:
        raise
    except (TypeError, ValueError) as error:
        raise invalid(f"input {name!r}: {error}") from error


def _as_array(value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value
    first = value
    while isinstance(first, (list, tuple)) and first:
        first = first[0]
    if isinstance(first, (str, bytes)):  # not NumPy's own text, which ends at the first NULs
        return np.array(value, dtype=object)
    array = np.asarray(value)
    if hasattr(value, "dtype"):
        return array
    if array.dtype.kind in "SU":
        raise TypeError("numbers and text are mixed")
    if array.dtype.kind in "fO" and isinstance(first, int):  # integers beyond 2**63 may be among them
        exact = np.array(value, dtype=object)
        if all(isinstance(one, int) and 0 <= one < 1 << 64 for one in exact.reshape(-1).tolist()):
            return exact.astype(np.uint64)
    return array


def _one_element(shape: Sequence[int]) -> Sequence[int]:
    """The shape of a single value: that of the model, if it can have one element."""
    return [1] * len(shape) if all(length in (1, -1) for length in shape) else []


def _datatype_of(array: np.ndarray) -> str:
    if array.dtype.kind in "SUO":
        return "BYTES"
    if array.dtype.name == "bfloat16":  # of ml_dtypes
        return "BF16"
    found = _DATATYPES.get((array.dtype.kind, array.dtype.itemsize))
    if found is None:
        raise TypeError(f"the protocol has no datatype for NumPy's {array.dtype}: convert the array")
    return found


def _contents(array: np.ndarray, datatype: str) -> Any:
    """The elements as they travel: little-endian, row-major; the array's own memory if it is so."""
    own_text = array.dtype.kind in "SUO"
    if datatype == "BYTES" and (own_text or array.size == 0):
        return _pack_bytes(array)
    if own_text and array.size != 0:
        raise TypeError(f"expected {datatype}, {_describe(array)} given")
    if datatype == "BF16":
        return _plain(_bfloat16_bits(array), np.dtype("<u2"))
    dtype = _DTYPES.get(datatype)
    if dtype is None:
        raise TypeError(f"expected {datatype}, {_describe(array)} given")
    if array.dtype != dtype and array.size != 0:
        _check_conversion(array, datatype, dtype)
    return _plain(array, dtype)


def _plain(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return np.asarray(array, dtype, order="C").reshape(-1).view(np.uint8)


def _describe(array: np.ndarray) -> str:
    return type(array.reshape(-1)[0]).__name__ if array.dtype.kind in "SUO" else str(array.dtype)


def _check_conversion(array: np.ndarray, datatype: str, dtype: np.dtype) -> None:
    kind = array.dtype.kind
    if kind in "biuf" and dtype.kind == "f" or array.dtype.name == "bfloat16" and dtype.kind == "f":
        return
    if kind not in "biu":
        raise TypeError(f"expected {datatype}, {_describe(array)} given: convert it yourself")
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    if int(array.min()) < low or int(array.max()) > high:
        raise ValueError(f"expected {datatype}; values from {array.min()} to {array.max()} "
                         "do not fit")


def _bfloat16_bits(array: np.ndarray) -> np.ndarray:
    """float32's upper half, rounded to nearest even; NaN stays NaN."""
    if array.dtype.name == "bfloat16":
        return array.view(np.uint16)
    if array.dtype.kind == "u" and array.dtype.itemsize == 2:
        return array
    if array.dtype.kind not in "biuf":
        raise TypeError(f"expected BF16, {_describe(array)} given: convert it yourself")
    bits = np.array(array, np.float32, order="C").view(np.uint32)
    rounded = (bits + (0x7FFF + (bits >> 16 & 1))) >> 16
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.where(is_nan, bits >> 16 | 0x40, rounded).astype(np.uint16)


def _pack_bytes(array: np.ndarray) -> bytes:
    parts: list[Any] = []
    for index, element in enumerate(array.reshape(-1).tolist()):
        if isinstance(element, str):
            element = element.encode()
        elif not isinstance(element, (bytes, bytearray, memoryview)):
            raise TypeError(f"element {index} is {type(element).__name__}, not str or bytes; "
                            "or rows differ in length")
        parts += _LENGTH.pack(len(element)), element
    return b"".join(parts)


# ---- from the node


def decode(tensor: OutputTensor) -> np.ndarray:
    """One output: a view of the answer where possible, hence read-only and perhaps not aligned."""
    try:
        if any(length < 0 for length in tensor.shape):
            raise ValueError(f"shape {list(tensor.shape)}")
        if isinstance(tensor.contents, list):
            return _decode_typed(tensor, tensor.contents)
        return _decode_raw(tensor, tensor.contents)
    except (ValueError, TypeError, OverflowError) as error:
        raise error_for("INTERNAL", f"the answer's output {tensor.name!r} is malformed: {error}"
                        ) from error


def _decode_raw(tensor: OutputTensor, data: memoryview) -> np.ndarray:
    count = math.prod(tensor.shape)
    if tensor.datatype == "BYTES":
        return _objects(_unpack_bytes(data), tensor.shape)
    dtype = np.dtype("<u2") if tensor.datatype == "BF16" else _dtype(tensor.datatype)
    if len(data) != count * dtype.itemsize:
        raise ValueError(f"{len(data)} bytes; {tensor.datatype} {list(tensor.shape)} has "
                         f"{count * dtype.itemsize}")
    array: np.ndarray = np.ndarray(tensor.shape, dtype, buffer=data)
    if tensor.datatype == "BF16":  # NumPy has no such type; float32 holds each value exactly
        array = np.left_shift(array, 16, dtype=np.uint32).view(np.float32)
    return array


def _decode_typed(tensor: OutputTensor, values: list[Any]) -> np.ndarray:
    if tensor.datatype == "BYTES":
        return _objects(values, tensor.shape)
    return np.array(values, _dtype(tensor.datatype)).reshape(tensor.shape)


def _dtype(datatype: str) -> np.dtype:
    if datatype not in _DTYPES:
        raise ValueError(f"datatype {datatype!r} is not known")
    return _DTYPES[datatype]


def _objects(values: list[Any], shape: Sequence[int]) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array.reshape(shape)


def _unpack_bytes(data: memoryview) -> list[bytes]:
    elements, at = [], 0
    while at < len(data):
        if len(data) - at < 4:
            raise ValueError("it ends within a length")
        (length,) = _LENGTH.unpack_from(data, at)
        at += 4
        if length > len(data) - at:
            raise ValueError("it ends within an element")
        elements.append(bytes(data[at:at + length]))
        at += length
    return elements
