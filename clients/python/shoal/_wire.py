# SPDX-License-Identifier: Apache-2.0
"""The protocol's messages, as bytes. proto/inference/open_inference.proto has the field numbers.

Tensors are neither copied into a message object nor out of one: a request is joined once from the
arrays' own memory, and outputs of an answer are views of its bytes. DESIGN.md says why there is no
protobuf here.
"""

from __future__ import annotations

import struct
from typing import Any, Iterable, Iterator, Mapping, NamedTuple, Sequence, Union

Parameter = Union[bool, int, float, str]
Value = Union[int, memoryview]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_UINT64 = (1 << 64) - 1
_INT64_MAX = (1 << 63) - 1


class Malformed(ValueError):
    """The bytes are not the message that they should be."""


class InputTensor(NamedTuple):
    name: str
    datatype: str
    shape: Sequence[int]
    contents: Any  # contiguous, with the buffer protocol


class OutputTensor(NamedTuple):
    name: str
    datatype: str
    shape: tuple[int, ...]
    contents: Any  # memoryview, raw; or a list, of typed contents


class InferResponse(NamedTuple):
    model: str
    version: str
    id: str
    parameters: dict[str, Parameter]
    outputs: list[OutputTensor]


# ---- writing


def _varint(value: int) -> bytes:
    value &= _UINT64  # negative numbers are sent as 64 bits
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _head(number: int, length: int) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(length)


def _field(number: int, payload: bytes) -> bytes:
    return _head(number, len(payload)) + payload


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode()) if text else b""


def _parameter(value: Parameter) -> bytes:
    if isinstance(value, bool):
        return b"\x08" + _varint(value)
    if isinstance(value, int):
        if not -_INT64_MAX - 1 <= value <= _UINT64:
            raise ValueError(f"{value} does not fit into 64 bits")
        return (b"\x28" if value > _INT64_MAX else b"\x10") + _varint(value)
    if isinstance(value, float):
        return b"\x21" + struct.pack("<d", value)
    if isinstance(value, str):
        return _field(3, value.encode())
    raise TypeError(f"expected bool, int, float or str, not {type(value).__name__}")


def _parameters(number: int, parameters: Mapping[str, Parameter]) -> Iterator[bytes]:
    for name, value in parameters.items():
        try:
            payload = _parameter(value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"parameter {name!r}: {error}") from None
        yield _field(number, _field(1, name.encode()) + _field(2, payload))


def infer_request(model: str, version: str, request_id: str, parameters: Mapping[str, Parameter],
                  inputs: Iterable[InputTensor], outputs: Iterable[str]) -> bytes:
    """Encodes a ModelInferRequest."""
    parts = [_text(1, model), _text(2, version), _text(3, request_id), *_parameters(4, parameters)]
    raw: list[Any] = []
    for tensor in inputs:
        shape = b"".join(map(_varint, tensor.shape))
        parts.append(_field(5, _text(1, tensor.name) + _text(2, tensor.datatype)
                            + (_field(3, shape) if shape else b"")))
        raw += _head(7, memoryview(tensor.contents).nbytes), tensor.contents
    parts += (_field(6, _field(1, name.encode())) for name in outputs)
    return b"".join(parts + raw)


def model_request(model: str, version: str) -> bytes:
    """Encodes a ModelReadyRequest or a ModelMetadataRequest."""
    return _text(1, model) + _text(2, version)


# ---- reading


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while shift < 70:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _UINT64, at + 1
        shift += 7
    raise Malformed("a number has more than 64 bits")


def _fields(message: Union[bytes, memoryview]) -> Iterator[tuple[int, Value]]:
    """(number, value) of each field; of other than numbers a view of the bytes."""
    data = bytes(message)  # no copy of what is bytes; of a part of a message a small one
    view, at, end = memoryview(data), 0, len(data)
    while at < end:
        try:
            tag, at = _read_varint(data, at)
            kind = tag & 7
            length, at = _read_varint(data, at) if kind in (_VARINT, _BYTES) else (0, at)
        except IndexError:
            raise Malformed("it ends within a number") from None
        if kind == _VARINT:
            yield tag >> 3, length
            continue
        if kind in (_FIXED32, _FIXED64):
            length = 4 if kind == _FIXED32 else 8
        elif kind != _BYTES:
            raise Malformed(f"there is no wire type {kind}")
        if length > end - at:
            raise Malformed("it ends within a field")
        yield tag >> 3, view[at:at + length]
        at += length


def _bytes(value: Value) -> memoryview:
    if isinstance(value, int):
        raise Malformed("a number stands where bytes should")
    return value


def _number(value: Value) -> int:
    if not isinstance(value, int):
        raise Malformed("bytes stand where a number should")
    return value


def _string(value: Value) -> str:
    return str(_bytes(value), "utf-8", "replace")


def _signed(value: int) -> int:
    return value - (1 << 64) if value > _INT64_MAX else value


def _numbers(value: Value) -> list[int]:
    """A repeated number, packed or one of many."""
    if isinstance(value, int):
        return [value]
    found, data, at = [], bytes(value), 0
    try:
        while at < len(data):
            number, at = _read_varint(data, at)
            found.append(number)
    except IndexError:
        raise Malformed("it ends within a number") from None
    return found


def _decode_parameter(data: memoryview) -> Parameter:
    found: Parameter = False
    for number, value in _fields(data):
        if number == 1:
            found = bool(_number(value))
        elif number == 2:
            found = _signed(_number(value))
        elif number == 3:
            found = _string(value)
        elif number == 4:
            if len(_bytes(value)) != 8:
                raise Malformed("a double has 8 bytes")
            found = struct.unpack("<d", _bytes(value))[0]
        elif number == 5:
            found = _number(value)
    return found


def _decode_entry(data: memoryview) -> tuple[str, Parameter]:
    name, parameter = "", memoryview(b"")
    for number, value in _fields(data):
        if number == 1:
            name = _string(value)
        elif number == 2:
            parameter = _bytes(value)
    return name, _decode_parameter(parameter)


def _decode_contents(data: memoryview) -> list[Any]:
    """Typed contents: external runtimes of a mesh may answer with them."""
    found: list[Any] = []
    for number, value in _fields(data):
        if number in (6, 7):
            form, size = ("f", 4) if number == 6 else ("d", 8)
            packed = _bytes(value)
            if len(packed) % size:
                raise Malformed("it ends within a number")
            found += struct.unpack(f"<{len(packed) // size}{form}", packed)
        elif number == 8:
            found.append(bytes(_bytes(value)))
        elif number in (2, 3):
            found += map(_signed, _numbers(value))
        elif number in (1, 4, 5):
            found += _numbers(value)
    return found


def _decode_tensor(data: memoryview) -> OutputTensor:
    name = datatype = ""
    shape: list[int] = []
    contents: list[Any] = []
    for number, value in _fields(data):
        if number == 1:
            name = _string(value)
        elif number == 2:
            datatype = _string(value)
        elif number == 3:
            shape += map(_signed, _numbers(value))
        elif number == 5:
            contents = _decode_contents(_bytes(value))
    return OutputTensor(name, datatype, tuple(shape), contents)


def infer_response(message: bytes) -> InferResponse:
    """Decodes a ModelInferResponse; raw contents are views of the message."""
    texts = {1: "", 2: "", 3: ""}
    parameters: dict[str, Parameter] = {}
    outputs: list[OutputTensor] = []
    raw: list[memoryview] = []
    for number, value in _fields(message):
        if number in texts:
            texts[number] = _string(value)
        elif number == 4:
            name, parameter = _decode_entry(_bytes(value))
            parameters[name] = parameter
        elif number == 5:
            outputs.append(_decode_tensor(_bytes(value)))
        elif number == 6:
            raw.append(_bytes(value))
    if raw:
        if len(raw) != len(outputs):
            raise Malformed(f"it has {len(outputs)} outputs and {len(raw)} raw contents")
        outputs = [tensor._replace(contents=data) for tensor, data in zip(outputs, raw)]
    return InferResponse(texts[1], texts[2], texts[3], parameters, outputs)


class ModelMetadataResponse(NamedTuple):
    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[OutputTensor, ...]  # without contents
    outputs: tuple[OutputTensor, ...]


def model_metadata(message: bytes) -> ModelMetadataResponse:
    """Decodes a ModelMetadataResponse."""
    name = platform = ""
    versions, inputs, outputs = [], [], []
    for number, value in _fields(message):
        if number == 1:
            name = _string(value)
        elif number == 2:
            versions.append(_string(value))
        elif number == 3:
            platform = _string(value)
        elif number == 4:
            inputs.append(_decode_tensor(_bytes(value)))
        elif number == 5:
            outputs.append(_decode_tensor(_bytes(value)))
    return ModelMetadataResponse(name, tuple(versions), platform, tuple(inputs), tuple(outputs))


def server_metadata(message: bytes) -> tuple[str, str, tuple[str, ...]]:
    """Decodes a ServerMetadataResponse: name, version, extensions."""
    found: dict[int, list[str]] = {1: [""], 2: [""], 3: []}
    for number, value in _fields(message):
        if number in found:
            found[number].append(_string(value))
    return found[1][-1], found[2][-1], tuple(found[3])


def flag(message: bytes) -> bool:
    """Decodes a response whose only field is a bool: live, ready."""
    return any(bool(_number(value)) for number, value in _fields(message) if number == 1)
