#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Triton, MLServer and TensorFlow Serving as their management APIs and folders are documented: strict, and
without any machine learning. And what starts one as a process, for tests (ModelServer).

    shoal_model_server.py TYPE PORT REPOSITORY JOURNAL

A model is a file whose text is its answer to every call; "broken" cannot be loaded, "endless" takes forever,
"wait PATH" answers when a line comes out of that pipe, and a model whose folder the server would not take is an error.
Each call of such a model, and each management request is a line of the journal. Loaded models
are lost with the process.
"""

import contextlib
import json
import pathlib
import re
import subprocess
import sys
import threading
from concurrent import futures

import grpc

from shoal_contract import BOOL, BYTES, STRING, U32, File

Code = grpc.StatusCode
OIP = File("inference", {
    "Ready": [("ready", 1, BOOL)],
    "IndexRequest": [("repository_name", 1, STRING), ("ready", 2, BOOL)],
    "IndexResponse.Model": [("name", 1, STRING), ("version", 2, STRING), ("state", 3, STRING)],
    "IndexResponse": [("models", 1, ["IndexResponse.Model"])],
    "ModelRequest": [("repository_name", 1, STRING), ("model_name", 2, STRING)],
    "InferRequest": [("model_name", 1, STRING), ("raw_input_contents", 7, [BYTES])],
    "InferResponse": [("model_name", 1, STRING), ("raw_output_contents", 6, [BYTES])],
    "Empty": [],
}).classes()
TF = File("tensorflow.serving", {
    "ModelConfig": [("name", 1, STRING), ("base_path", 2, STRING), ("model_platform", 4, STRING)],
    "ModelConfigList": [("config", 1, ["ModelConfig"])],
    "ModelServerConfig": [("model_config_list", 1, "ModelConfigList")],
    "ReloadConfigRequest": [("config", 1, "ModelServerConfig")],
    "StatusProto": [("error_code", 1, U32), ("error_message", 2, STRING)],
    "ReloadConfigResponse": [("status", 1, "StatusProto")],
    "ModelSpec": [("name", 1, STRING)],
    "PredictRequest": [("model_spec", 1, "ModelSpec"), ("input", 2, BYTES)],
    "PredictResponse": [("output", 1, BYTES)],
}).classes()
PREDICT = "tensorflow.serving.PredictionService/Predict"
RELOAD = "tensorflow.serving.ModelService/HandleReloadConfigRequest"
SERVICE = "inference.GRPCInferenceService"


class Refusal(Exception):
    def __init__(self, code, text):
        super().__init__(text)
        self.code, self.text = code, text


# ---- folders ----

def versions(folder):
    found = sorted((one for one in folder.iterdir() if one.name.isdigit()), key=lambda one: int(one.name))
    if not found:
        raise Refusal(Code.INTERNAL, f"failed to load '{folder.name}', no version is available")
    return found


def text_of(path):
    text = path.read_text()
    if text == "broken":
        raise Refusal(Code.INTERNAL, "broken")
    if text == "endless":
        threading.Event().wait()
    return text


def triton(folder):
    config = folder / "config.pbtxt"
    if config.exists() and re.search("^ *name *:", config.read_text(), re.MULTILINE):
        raise Refusal(Code.INVALID_ARGUMENT, "the name of the configuration is not the folder's")
    return text_of(next(one for one in versions(folder)[-1].iterdir() if one.name.startswith("model.")))


def mlserver(folder):
    settings = json.loads((folder / "model-settings.json").read_text())
    if settings["name"] != folder.name or not settings["implementation"]:
        raise Refusal(Code.FAILED_PRECONDITION, f"{settings}")
    return text_of(folder / settings["parameters"]["uri"])


def tfserving(folder):
    return text_of(versions(folder)[-1] / "saved_model.pb")


READERS = {"triton": triton, "mlserver": mlserver, "tfserving": tfserving}


# ---- the server ----

@contextlib.contextmanager
def unlocked(lock):
    lock.release()
    try:
        yield
    finally:
        lock.acquire()


class Server(grpc.GenericRpcHandler):
    def __init__(self, kind, repository, journal):
        self.kind, self.repository, self.journal = kind, pathlib.Path(repository), journal
        self.models = {}  # name -> text
        self.lock = threading.Lock()

    def note(self, *words):
        self.journal.write(" ".join(words) + "\n")
        self.journal.flush()

    def read(self, name):
        if not (self.repository / name).is_dir():
            code = Code.NOT_FOUND if self.kind == "mlserver" else Code.INTERNAL
            raise Refusal(code, f"Model {name} not found" if self.kind == "mlserver" else
                          f"failed to load '{name}', failed to poll from model repository")
        try:
            return READERS[self.kind](self.repository / name)
        except Refusal as refusal:
            if self.kind != "tfserving":
                raise
            raise Refusal(Code.UNKNOWN, refusal.text) from None

    def ready(self, _request):
        return OIP["Ready"](ready=True)

    def index(self, _request):
        names = set(self.models) | {one.name for one in self.repository.iterdir() if one.name[0] != "."}
        return OIP["IndexResponse"](models=[
            {"name": name, "version": "1", "state": "READY" if name in self.models else ""}
            for name in sorted(names)])

    def load(self, request):
        self.note("load", request.model_name)
        with unlocked(self.lock):
            text = self.read(request.model_name)
        self.models[request.model_name] = text
        return OIP["Empty"]()

    def unload(self, request):
        self.note("unload", request.model_name)
        if self.models.pop(request.model_name, None) is None and self.kind == "mlserver":
            raise Refusal(Code.NOT_FOUND, f"Model {request.model_name} not found")
        return OIP["Empty"]()

    def infer(self, request):
        name = request.model_name
        if name not in self.models:
            if self.kind == "mlserver":
                raise Refusal(Code.NOT_FOUND, f"Model {name} not found")
            raise Refusal(Code.UNAVAILABLE, f"Request for unknown model: '{name}' is not found")
        text = self.models[name]
        if text.startswith("wait "):
            self.note("call", name)
            with unlocked(self.lock), open(text.removeprefix("wait "), encoding="utf-8") as pipe:
                pipe.readline()
        return OIP["InferResponse"](model_name=name, raw_output_contents=[text.encode()])

    def reload(self, request):
        """Of a list that lacks a loaded model, that model is gone; one that cannot be loaded is an error."""
        if not request.config.HasField("model_config_list"):
            return TF["ReloadConfigResponse"]()  # no action
        wanted = {}
        self.note("reload", *sorted(one.name for one in request.config.model_config_list.config))
        for one in request.config.model_config_list.config:
            if pathlib.Path(one.base_path) != self.repository / one.name or one.model_platform != "tensorflow":
                raise Refusal(Code.INVALID_ARGUMENT, f"{one}")
            wanted[one.name] = self.models.get(one.name) or self.read(one.name)
        self.models = wanted
        return TF["ReloadConfigResponse"]()

    def predict(self, request):
        name = request.model_spec.name
        if name not in self.models:
            raise Refusal(Code.NOT_FOUND, f"Servable not found for request: Latest({name})")
        return TF["PredictResponse"](output=self.models[name].encode())

    def service(self, details):
        known = {
            f"{SERVICE}/ServerReady": (self.ready, OIP["Empty"]), f"{SERVICE}/ServerLive": (self.ready, OIP["Empty"]),
            f"{SERVICE}/RepositoryIndex": (self.index, OIP["IndexRequest"]),
            f"{SERVICE}/RepositoryModelLoad": (self.load, OIP["ModelRequest"]),
            f"{SERVICE}/RepositoryModelUnload": (self.unload, OIP["ModelRequest"]),
            f"{SERVICE}/ModelInfer": (self.infer, OIP["InferRequest"]),
        } if self.kind != "tfserving" else {
            RELOAD: (self.reload, TF["ReloadConfigRequest"]), PREDICT: (self.predict, TF["PredictRequest"])}
        answer, request = known.get(details.method[1:], (None, None))
        if answer is None:
            return None

        def say(message, context):
            try:
                with self.lock:
                    return answer(message)
            except Refusal as refusal:
                return context.abort(refusal.code, refusal.text)
        return grpc.unary_unary_rpc_method_handler(
            say, request_deserializer=request.FromString,
            response_serializer=lambda message: message.SerializeToString())


def serve(kind, port, repository, journal):
    with open(journal, "a", encoding="utf-8") as file:
        server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
        server.add_generic_rpc_handlers((Server(kind, repository, file),))
        server.add_insecure_port(f"127.0.0.1:{port}")
        server.start()
        print("serves", flush=True)
        server.wait_for_termination()


class ModelServer:
    """That program as a process, which can be killed and started again at its port."""

    def __init__(self, kind, port, folder):
        self.kind, self.port = kind, port
        self.repository, self.journal = folder / "repository", folder / "journal"
        self.address = f"127.0.0.1:{port}"
        self.process = None

    def start(self):
        self.repository.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", sys.executable, __file__, self.kind, str(self.port),
             str(self.repository), str(self.journal)], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "serves\n"
        return self

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.kill()

    def noted(self):
        """The management requests so far."""
        return self.journal.read_text().splitlines() if self.journal.exists() else []

    def laid_out(self):
        return sorted(one.name for one in self.repository.iterdir())


if __name__ == "__main__":
    serve(*sys.argv[1:])
