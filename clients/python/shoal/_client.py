# SPDX-License-Identifier: Apache-2.0
"""Client and AsyncClient.

Each method is one generator, which yields calls and pauses and receives answers or errors; both
clients carry them out, one by waiting, one by awaiting.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import os
import time
from typing import Any, Generator, Iterable, Mapping, Optional, Sequence, TypeVar, Union

import grpc
import grpc.aio
import numpy as np

from . import _wire
from ._errors import (DeadlineExceeded, InvalidArgument, ResourceExhausted, ShoalError, Unavailable,
                      Unimplemented, error_for, invalid)
from ._tensors import TensorMetadata, decode, encode
from ._wire import Parameter

VERSION = "0.1.0"
PORT = 8033
TIMEOUT_SECONDS = 30.0
SCHEMAS_MAX = 1024
SERVICE = "/inference.GRPCInferenceService/"
LONE_INPUT = "input"  # the name of the only input of a model that declares none

# The size of messages is the node's to limit. A channel shares no connection, and no pause after a
# failed one, with others. A local node is not called through a web proxy.
OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1),
           ("grpc.use_local_subchannel_pool", 1),
           ("grpc.enable_http_proxy", 0), ("grpc.primary_user_agent", f"shoal-python/{VERSION}"))

Header = Union[str, bytes]
Pem = Union[bytes, str, "os.PathLike[str]"]
Result = Union[np.ndarray, "dict[str, np.ndarray]"]


@dataclasses.dataclass(frozen=True)
class ModelMetadata:
    """A model as the node describes it. One that is not loaded yet has no inputs and outputs."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]


@dataclasses.dataclass(frozen=True)
class ServerMetadata:
    """A node as it describes itself."""

    name: str
    version: str
    extensions: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Response:
    """An answer with all that came with it."""

    model: str
    version: str
    id: str
    parameters: dict[str, Parameter]
    outputs: dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class _Call:
    method: str
    message: bytes
    headers: tuple[tuple[str, Header], ...]
    timeout: Optional[float]


@dataclasses.dataclass(frozen=True)
class _Pause:
    seconds: float


@dataclasses.dataclass(frozen=True)
class _Model:
    """The model that a call names, in its messages and headers, and the call's deadline."""

    name: str
    version: str
    headers: tuple[tuple[str, Header], ...]
    deadline: float

    @property
    def key(self) -> tuple[Any, ...]:
        return self.name, self.version, tuple(h for h in self.headers if h[0].startswith("mm-"))


T = TypeVar("T")
Steps = Generator[Union[_Call, _Pause], bytes, T]
_UNDECLARED = ModelMetadata("", (), "", (), ())


class _Protocol:
    """Both clients, except how a call is carried out."""

    def __init__(self, target: str = f"localhost:{PORT}", *, timeout: float = TIMEOUT_SECONDS,
                 headers: Optional[Mapping[str, Header]] = None, tls: bool = False,
                 ca: Optional[Pem] = None, cert: Optional[Pem] = None, key: Optional[Pem] = None,
                 server_name: Optional[str] = None, retries: int = 0,
                 options: Iterable[tuple[str, Any]] = ()) -> None:
        self.target = _target(target)
        self.timeout = timeout
        self._headers = dict(headers or {})
        self._retries = retries
        self._schemas: dict[tuple[Any, ...], ModelMetadata] = {}
        self._credentials: Optional[grpc.ChannelCredentials] = None
        if tls or ca is not None or cert is not None or key is not None:
            if (cert is None) != (key is None):
                raise ValueError("cert and key belong together: give both, or neither")
            self._credentials = grpc.ssl_channel_credentials(_pem(ca), _pem(key), _pem(cert))
        name = [] if server_name is None else [("grpc.ssl_target_name_override", server_name)]
        self._options = [*OPTIONS, *name, *options]
        self._open()

    def _open(self) -> None:
        raise NotImplementedError

    def _model(self, model: str, version: Optional[str], headers: Optional[Mapping[str, Header]],
               vmodel: bool, timeout: Optional[float]) -> _Model:
        if not isinstance(model, str):
            raise invalid(f"expected the model's name first, not {type(model).__name__}")
        merged = {**self._headers, **(headers or {})}
        if vmodel:
            suffix, name = ("", model) if model.isascii() else ("-bin", model.encode())
            merged[f"mm-vmodel-id{suffix}"] = name
        timeout = self.timeout if timeout is None else timeout
        if not timeout >= 0:
            raise invalid(f"timeout is {timeout}: expected seconds, 0 or more")
        return _Model(model, version or "", tuple((k.lower(), v) for k, v in merged.items()),
                      time.monotonic() + timeout)

    def _ask(self, method: str, message: bytes, model: _Model) -> Steps[bytes]:
        """One call; a refused one again, at the time that the node gives, if retries are on."""
        retries = self._retries
        while True:
            left = model.deadline - time.monotonic()
            if left <= 0:
                raise error_for("DEADLINE_EXCEEDED", f"{self.target}: `timeout` was over before "
                                f"{method} was sent")
            try:
                return (yield _Call(method, message, model.headers,
                                    None if math.isinf(left) else left))
            except ResourceExhausted as error:
                pause = error.retry_after
                if retries <= 0 or pause is None or pause >= model.deadline - time.monotonic():
                    raise
            retries -= 1
            yield _Pause(pause)

    def _read_metadata(self, model: _Model) -> Steps[ModelMetadata]:
        message = yield from self._ask("ModelMetadata", _wire.model_request(model.name, model.version),
                                       model)
        found = _decoded(_wire.model_metadata, message)
        inputs, outputs = (tuple(TensorMetadata(t.name, t.datatype, t.shape) for t in tensors)
                           for tensors in (found.inputs, found.outputs))
        return ModelMetadata(found.name, found.versions, found.platform, inputs, outputs)

    def _read_schema(self, model: _Model) -> Steps[ModelMetadata]:
        try:
            return (yield from self._read_metadata(model))
        except Unimplemented:  # a runtime that is only called, never asked
            return _UNDECLARED

    def _request(self, model: _Model, inputs: Any, outputs: Iterable[str],
                 parameters: Mapping[str, Parameter], request_id: str) -> Steps[Response]:
        """A call with the inputs that the model is known to declare. If it is refused and the model
        declares others by now, because it has been loaded or replaced, it is sent once more."""
        def message(schema: ModelMetadata) -> bytes:
            try:
                return _wire.infer_request(model.name, model.version, request_id, parameters,
                                           _encode_all(inputs, schema, model.name), outputs)
            except (TypeError, ValueError) as error:
                raise error if isinstance(error, ShoalError) else invalid(str(error)) from error

        schema = self._schemas.get(model.key)
        if schema is None:
            schema = yield from self._read_schema(model)
        try:
            answer = yield from self._ask("ModelInfer", message(schema), model)
        except InvalidArgument:
            fresh = yield from self._read_schema(model)
            if fresh.inputs == schema.inputs:
                raise
            schema = fresh
            answer = yield from self._ask("ModelInfer", message(schema), model)
        self._remember(model.key, schema)
        found = _decoded(_wire.infer_response, answer)
        return Response(found.model, found.version, found.id, found.parameters,
                        {tensor.name: decode(tensor) for tensor in found.outputs})

    def _remember(self, key: tuple[Any, ...], schema: ModelMetadata) -> None:
        if key not in self._schemas and len(self._schemas) >= SCHEMAS_MAX:
            self._schemas.clear()
        self._schemas[key] = schema

    def _infer(self, model: _Model, inputs: Any, outputs: Union[None, str, Sequence[str]],
               parameters: Mapping[str, Parameter], request_id: str) -> Steps[Result]:
        wanted = (outputs,) if isinstance(outputs, str) else tuple(outputs or ())
        response = yield from self._request(model, inputs, wanted, parameters, request_id)
        found = response.outputs
        if isinstance(outputs, str):
            if outputs not in found:
                raise error_for("INTERNAL", f"model {model.name!r}: the answer has no output "
                                f"{outputs!r}, only {', '.join(found)}")
            return found[outputs]
        return next(iter(found.values())) if outputs is None and len(found) == 1 else found

    def _flag(self, method: str, message: bytes, model: _Model) -> Steps[bool]:
        try:
            answer = yield from self._ask(method, message, model)
        except (Unavailable, DeadlineExceeded):
            return False
        return bool(_decoded(_wire.flag, answer))

    def _ready(self, model: Optional[str], version: Optional[str], vmodel: bool,
               headers: Optional[Mapping[str, Header]], timeout: Optional[float]) -> Steps[bool]:
        if model is None:
            return self._flag("ServerReady", b"", self._model("", None, headers, False, timeout))
        named = self._model(model, version, headers, vmodel, timeout)
        return self._flag("ModelReady", _wire.model_request(model, named.version), named)

    def _live(self, timeout: Optional[float]) -> Steps[bool]:
        return self._flag("ServerLive", b"", self._model("", None, None, False, timeout))

    def _server(self, timeout: Optional[float]) -> Steps[ServerMetadata]:
        model = self._model("", None, None, False, timeout)
        answer = yield from self._ask("ServerMetadata", b"", model)
        return ServerMetadata(*_decoded(_wire.server_metadata, answer))

    def _error(self, error: grpc.RpcError, call: _Call) -> ShoalError:
        """The exception for a call that ended with a status."""
        code, text, retry_after = error.code().name, error.details() or "", None
        for name, value in error.trailing_metadata() or ():
            if name == "grpc-retry-pushback-ms" and str(value).isdigit():
                retry_after = int(value) / 1000
        if code == "DEADLINE_EXCEEDED" and text.startswith("Deadline Exceeded"):
            text = (f"{self.target}: no answer within {call.timeout:.3g} s; `timeout` of the call or "
                    "of the client sets the time")
        elif code == "UNAVAILABLE":
            unreached = "failed to connect" in text or "resolution" in text
            hint = "; is the node running, and does it `listen` there?" if unreached else ""
            text = f"{self.target}: {text}{hint}"
            if unreached:
                self._open()  # so that the next call connects: gRPC would refuse it for seconds
        failure = error_for(code, text, retry_after)
        failure.__cause__ = error
        return failure


def _target(target: str) -> str:
    """The target as gRPC has it. Port 8033 if none is named."""
    if target.startswith(("http://", "https://")):
        raise ValueError(f"{target}: this client speaks gRPC: give HOST:PORT of the node's `listen`, "
                         f"by default port {PORT}")
    if target.startswith("/"):
        return f"unix:{target}"
    if ":" not in target or target.startswith("[") and target.endswith("]"):
        return f"{target}:{PORT}"
    return target


def _pem(source: Optional[Pem]) -> Optional[bytes]:
    if source is None or isinstance(source, bytes):
        return source
    with open(source, "rb") as file:
        return file.read()


def _decoded(decoder: Any, message: bytes) -> Any:
    try:
        return decoder(message)
    except _wire.Malformed as error:
        raise error_for("INTERNAL", f"the server's answer is malformed: {error}") from error


def _encode_all(inputs: Any, schema: ModelMetadata, model: str) -> list[_wire.InputTensor]:
    declared = {tensor.name: tensor for tensor in schema.inputs}
    if not isinstance(inputs, Mapping):
        if len(declared) > 1:
            raise invalid(f"model {model!r} takes {len(declared)} inputs: give a dict of name -> array "
                          f"with {'; '.join(map(str, schema.inputs))}")
        inputs = {next(iter(declared), LONE_INPUT): inputs}
    for name in inputs:
        if not isinstance(name, str):
            raise invalid(f"the name of an input is {name!r}: it must be str")
    return [encode(name, value, declared.get(name)) for name, value in inputs.items()]


def _with_priority(parameters: Optional[Mapping[str, Parameter]],
                   priority: Optional[int]) -> Mapping[str, Parameter]:
    return {**(parameters or {}), **({} if priority is None else {"priority": priority})}


class Client(_Protocol):
    """A connection to a node, or to any server of the Open Inference Protocol; a context manager.

        with shoal.Client("localhost:8033") as client:
            y = client.infer("iris", X)

    `target`: HOST, HOST:PORT, unix:/PATH. `timeout`: seconds per call in all, retries included;
    math.inf: none. `headers` go with every call, for example {"shoal-caller": "me"}. TLS: `tls=True`
    with the system's authorities; `ca`, `cert`, `key`: PEM files, or their bytes; `server_name`: the
    name in the node's certificate if it is not the target's. `options`: gRPC channel arguments.

    `retries`: how often a call is repeated that the node refused for load and for which it named a
    time (ResourceExhausted with `retry_after`): such a request has not run. Nothing else is repeated,
    but for what gRPC knows has not reached the server.

    Threads may share a client. It remembers the inputs that each model declares. Failures raise
    ShoalError or a subclass.
    """

    def _open(self) -> None:
        if self._credentials is None:
            self._channel = grpc.insecure_channel(self.target, self._options)
        else:
            self._channel = grpc.secure_channel(self.target, self._credentials, self._options)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection; calls in flight raise Cancelled."""
        self._channel.close()

    def _carry_out(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                if isinstance(step, _Pause):
                    time.sleep(step.seconds)
                    step = next(steps)
                    continue
                try:
                    answer = self._channel.unary_unary(SERVICE + step.method)(
                        step.message, timeout=step.timeout, metadata=step.headers)
                except grpc.RpcError as error:
                    step = steps.throw(self._error(error, step))
                else:
                    step = steps.send(answer)
        except StopIteration as done:
            value: T = done.value
            return value

    def infer(self, model: str, inputs: Any, *, outputs: Union[None, str, Sequence[str]] = None,
              parameters: Optional[Mapping[str, Parameter]] = None, timeout: Optional[float] = None,
              priority: Optional[int] = None, version: Optional[str] = None, id: str = "",
              headers: Optional[Mapping[str, Header]] = None, vmodel: bool = False) -> Result:
        """Runs a model and returns its output, or name -> output if there are several.

        `inputs`: an array if the model has one input, else a dict of name -> array. An array is
        what numpy.asarray takes; text is str or bytes, which come back as bytes; `Tensor` chooses a
        datatype. Else an input is converted to the datatype that the model declares, if it fits.
        `outputs`: a name: only that output; a list of names: always a dict. `priority`: 1 (high), 2 or
        3. `vmodel`: the name is that of a mesh's vmodel.

        Outputs are views of the answer: read-only; `.copy()` for an array that is not. BF16 comes
        back as float32, which holds it exactly.
        """
        return self._carry_out(self._infer(
            self._model(model, version, headers, vmodel, timeout), inputs, outputs,
            _with_priority(parameters, priority), id))

    def request(self, model: str, inputs: Any, *, outputs: Sequence[str] = (),
                parameters: Optional[Mapping[str, Parameter]] = None,
                timeout: Optional[float] = None, priority: Optional[int] = None,
                version: Optional[str] = None, id: str = "",
                headers: Optional[Mapping[str, Header]] = None, vmodel: bool = False) -> Response:
        """The same as `infer`, with the version that answered, the id and the answer's parameters."""
        return self._carry_out(self._request(
            self._model(model, version, headers, vmodel, timeout), inputs, outputs,
            _with_priority(parameters, priority), id))

    def metadata(self, model: str, *, version: Optional[str] = None, vmodel: bool = False,
                 headers: Optional[Mapping[str, Header]] = None,
                 timeout: Optional[float] = None) -> ModelMetadata:
        """Inputs, outputs and versions of a model."""
        return self._carry_out(self._read_metadata(
            self._model(model, version, headers, vmodel, timeout)))

    def ready(self, model: Optional[str] = None, *, version: Optional[str] = None,
              vmodel: bool = False, headers: Optional[Mapping[str, Header]] = None,
              timeout: Optional[float] = None) -> bool:
        """Whether the node, or one model, can answer now; False also if nothing answers at all."""
        return self._carry_out(self._ready(model, version, vmodel, headers, timeout))

    def live(self, *, timeout: Optional[float] = None) -> bool:
        """Whether a node runs at the target."""
        return self._carry_out(self._live(timeout))

    def server(self, *, timeout: Optional[float] = None) -> ServerMetadata:
        """Name, version and extensions of the server."""
        return self._carry_out(self._server(timeout))


class AsyncClient(_Protocol):
    """Client for asyncio: the same settings and methods, awaited; cancelling a task cancels its call
    on the node. It belongs to the event loop in which it is first used.

        async with shoal.AsyncClient("localhost:8033") as client:
            y = await client.infer("iris", X)
    """

    def _open(self) -> None:
        self._channel: Optional[grpc.aio.Channel] = None
        self._loop: Optional[asyncio.AbstractEventLoop] = None

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection; calls in flight raise Cancelled."""
        if self._channel is not None:
            await self._channel.close()

    def _connected(self) -> grpc.aio.Channel:
        loop = asyncio.get_running_loop()
        if self._channel is None:
            self._loop = loop
            self._channel = (
                grpc.aio.insecure_channel(self.target, self._options) if self._credentials is None
                else grpc.aio.secure_channel(self.target, self._credentials, self._options))
        elif self._loop is not loop:
            raise RuntimeError("this AsyncClient belongs to another event loop: make one for each")
        return self._channel

    async def _carry_out(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                if isinstance(step, _Pause):
                    await asyncio.sleep(step.seconds)
                    step = next(steps)
                    continue
                try:
                    answer = await self._connected().unary_unary(SERVICE + step.method)(
                        step.message, timeout=step.timeout, metadata=step.headers)
                except grpc.RpcError as error:
                    step = steps.throw(self._error(error, step))
                else:
                    step = steps.send(answer)
        except StopIteration as done:
            value: T = done.value
            return value

    async def infer(self, model: str, inputs: Any, *,
                    outputs: Union[None, str, Sequence[str]] = None,
                    parameters: Optional[Mapping[str, Parameter]] = None,
                    timeout: Optional[float] = None, priority: Optional[int] = None,
                    version: Optional[str] = None, id: str = "",
                    headers: Optional[Mapping[str, Header]] = None, vmodel: bool = False) -> Result:
        """As Client.infer."""
        return await self._carry_out(self._infer(
            self._model(model, version, headers, vmodel, timeout), inputs, outputs,
            _with_priority(parameters, priority), id))

    async def request(self, model: str, inputs: Any, *, outputs: Sequence[str] = (),
                      parameters: Optional[Mapping[str, Parameter]] = None,
                      timeout: Optional[float] = None, priority: Optional[int] = None,
                      version: Optional[str] = None, id: str = "",
                      headers: Optional[Mapping[str, Header]] = None,
                      vmodel: bool = False) -> Response:
        """As Client.request."""
        return await self._carry_out(self._request(
            self._model(model, version, headers, vmodel, timeout), inputs, outputs,
            _with_priority(parameters, priority), id))

    async def metadata(self, model: str, *, version: Optional[str] = None, vmodel: bool = False,
                       headers: Optional[Mapping[str, Header]] = None,
                       timeout: Optional[float] = None) -> ModelMetadata:
        """As Client.metadata."""
        return await self._carry_out(self._read_metadata(
            self._model(model, version, headers, vmodel, timeout)))

    async def ready(self, model: Optional[str] = None, *, version: Optional[str] = None,
                    vmodel: bool = False, headers: Optional[Mapping[str, Header]] = None,
                    timeout: Optional[float] = None) -> bool:
        """As Client.ready."""
        return await self._carry_out(self._ready(model, version, vmodel, headers, timeout))

    async def live(self, *, timeout: Optional[float] = None) -> bool:
        """As Client.live."""
        return await self._carry_out(self._live(timeout))

    async def server(self, *, timeout: Optional[float] = None) -> ServerMetadata:
        """As Client.server."""
        return await self._carry_out(self._server(timeout))
