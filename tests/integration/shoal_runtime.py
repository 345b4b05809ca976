# SPDX-License-Identifier: Apache-2.0
"""A runtime, for tests: a server of mmesh.ModelRuntime and of any other method, that says what a test has told
it to say and notes what it was asked. And the node of one that is its mesh (external_drive.c)."""

import queue
import subprocess
import threading
from concurrent import futures

import grpc

from shoal_fixture import BUILD, WAIT_SECONDS, wait_until
from shoal_mesh import MMESH, READY, SERVICE, STARTING

MIB = 1 << 20


def when_over(context, then):
    """Calls `then` once the call is over, which it may be already: grpc forgets a late callback."""
    if not context.add_callback(then):
        then()


class Refusal(Exception):
    def __init__(self, code, text=""):
        super().__init__(text)
        self.code, self.text = code, text


class Runtime(grpc.GenericRpcHandler):
    """Knows what it was asked (`asked`: method, request), and what it holds. A test sets what it says."""

    def __init__(self, address="127.0.0.1:0", serves=True, threads=32, options=(), **status):
        self.serves = serves
        self.asked = []
        self.metadata = []
        self.held = set()
        self.states = [READY]  # the last one stays
        self.fields = {"capacityInBytes": 64 * MIB, "maxLoadingConcurrency": 2, "modelLoadingTimeoutMs": 20000,
                       "defaultModelSizeInBytes": MIB, "runtimeVersion": "v1", **status}
        self.methods = {}
        self.says = {}  # by method: a function of the request and the context
        self.streams = {}  # by method: a function of the requests and the context, which yields answers
        self.cancelled = threading.Event()
        self.server = grpc.server(futures.ThreadPoolExecutor(threads),
                                  options=[("grpc.so_reuseport", 0), *options])
        self.server.add_generic_rpc_handlers((self,))
        port = self.server.add_insecure_port(address)
        self.address = address if address.startswith("unix:") else f"127.0.0.1:{port}"
        self.server.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.server.stop(None).wait()

    def hang(self, _request, context):
        """Something to say: nothing, until the other side gives this call up."""
        given_up = threading.Event()

        def give_up():
            self.cancelled.set()
            given_up.set()
        when_over(context, give_up)
        given_up.wait(WAIT_SECONDS)
        raise Refusal(grpc.StatusCode.CANCELLED)

    def count(self, method):
        return sum(1 for one, _ in self.asked if one == method)

    def requests(self, method):
        return [request for one, request in self.asked if one == method]

    def service(self, details):
        service, _, method = details.method[1:].partition("/")
        if service == SERVICE:
            if not self.serves:
                return None
            return grpc.unary_unary_rpc_method_handler(
                lambda request, context: self.answer(method, request, context),
                request_deserializer=MMESH[f"{method[0].upper()}{method[1:]}Request"].FromString,
                response_serializer=lambda response: response.SerializeToString())
        if details.method[1:] in self.streams:
            return grpc.stream_stream_rpc_method_handler(
                lambda requests, context: self.stream(details.method[1:], requests, context))
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self.answer(details.method[1:], request, context))

    def stream(self, method, requests, context):
        """As infer, for any number of messages."""
        self.asked.append((method, None))
        metadata = dict(context.invocation_metadata())
        self.metadata.append(metadata)
        if metadata["mm-model-id-bin"].decode() not in self.held:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such model")
        context.send_initial_metadata((("x-first", "one"),))
        context.set_trailing_metadata((("x-last", "two"),))
        yield from self.streams[method](requests, context)

    def answer(self, method, request, context):
        self.asked.append((method, request))
        try:
            if method in self.says:
                return self.says[method](request, context)
            return getattr(self, method, self.infer)(request, context)
        except Refusal as refusal:
            context.abort(refusal.code, refusal.text)

    # ---- what it says if a test does not ----

    def runtimeStatus(self, _request, _context):
        self.held.clear()
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        status = MMESH["RuntimeStatusResponse"](status=state, **self.fields)
        for name, path in self.methods.items():
            status.methodInfos[name].idInjectionPath.extend(path)
        return status

    def predictModelSize(self, _request, _context):
        return MMESH["PredictModelSizeResponse"](sizeInBytes=3 * MIB)

    def loadModel(self, request, _context):
        self.held.add(request.modelId)
        return MMESH["LoadModelResponse"](sizeInBytes=2 * MIB)

    def modelSize(self, _request, _context):
        return MMESH["ModelSizeResponse"](sizeInBytes=5 * MIB)

    def unloadModel(self, request, _context):
        self.held.discard(request.modelId)
        return MMESH["UnloadModelResponse"]()

    def infer(self, request, context):
        metadata = dict(context.invocation_metadata())
        self.metadata.append(metadata)
        if metadata["mm-model-id-bin"].decode() not in self.held:
            raise Refusal(grpc.StatusCode.NOT_FOUND, "no such model")
        context.send_initial_metadata((("x-first", "one"),))
        context.set_trailing_metadata((("x-last", "two"),))
        return b"answer:" + request


class Node:
    """external_drive, by its commands."""

    def __init__(self, *targets, serving="-", poll_ms=20, start_ms=30000):
        self.process = subprocess.Popen(
            [BUILD / "tests" / "integration" / "external_drive", str(poll_ms), str(start_ms), serving, *targets],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines = {}  # by their first words
        self.more = threading.Condition()
        self.log = []
        self.readers = [threading.Thread(target=self.read_lines), threading.Thread(target=self.read_log)]
        for reader in self.readers:
            reader.start()
        self.tags = 0

    def read_lines(self):
        for line in self.process.stdout:
            words = line.rstrip("\n").split(" ")
            key = " ".join(words[:2]) if words[0] in ("answer", "registered", "ensured", "unregistered",
                                                      "cancelled") else words[0]
            with self.more:
                self.lines.setdefault(key, queue.SimpleQueue()).put(words)
                self.more.notify_all()
        with self.more:
            self.more.notify_all()

    def read_log(self):
        for line in self.process.stderr:
            self.log.append(line)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.process.stdin.close()
        code = self.process.wait(WAIT_SECONDS)
        for reader in self.readers:
            reader.join()
        self.process.stdout.close()
        self.process.stderr.close()
        if kind is None and code != 0:
            raise AssertionError(f"exit code {code}\n{''.join(self.log)}")

    def send(self, *words):
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()

    def line(self, key):
        with self.more:
            self.more.wait_for(lambda: key in self.lines or self.process.poll() is not None, WAIT_SECONDS)
            if key not in self.lines:
                raise AssertionError(f"no \"{key}\"\n{''.join(self.log)}")
        return self.lines[key].get(timeout=WAIT_SECONDS)

    def ask(self, *words):
        self.send(*words)
        return self.line(words[0])

    # ---- commands ----

    def look(self):
        """Ready, how often it was, version, bytes that are free."""
        _, ready, starts, version, units = self.ask("look")
        return ready == "1", int(starts), version, int(units) * 8192

    def wait_ready(self, starts=1):
        def is_ready():
            ready, count, _, _ = self.look()
            return ready and count == starts
        wait_until(is_ready,
                   lambda: f"start {starts}, {self.look()}\n{''.join(self.log)}")

    def register(self, model, kind="type", path="path", key="key"):
        self.send("register", model, kind, path, key)
        return int(self.line(f"registered {model}")[2])

    def ensure(self, model):
        """Outcome, state, number of copies, why the first has failed."""
        self.send("ensure", model)
        _, _, outcome, state, copies, *reason = self.line(f"ensured {model}")
        return int(outcome), int(state), int(copies), " ".join(reason)

    def unregister(self, model):
        self.send("unregister", model)
        return int(self.line(f"unregistered {model}")[2])

    def start(self, model, method="x.Y/Z", message=b"hello", timeout_ms=0, metadata=""):
        self.tags += 1
        tag = f"t{self.tags}"
        self.send("call", tag, model, f"/{method}", str(timeout_ms), message.hex() or "-", metadata)
        return tag

    def end(self, tag):
        """How the call ended, its status, message, initial and trailing metadata, text."""
        _, _, end, status, message, initial, trailing, *text = self.line(f"answer {tag}")
        content = None if message == "-" else bytes.fromhex(message.strip("."))
        return int(end), int(status), content, initial, trailing, " ".join(text)

    def call(self, model, **keys):
        return self.end(self.start(model, **keys))

    def cancel(self, tag):
        self.send("cancel", tag)
        self.line(f"cancelled {tag}")


__all__ = ["MIB", "Node", "READY", "Refusal", "Runtime", "STARTING"]
