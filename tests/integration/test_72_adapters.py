# SPDX-License-Identifier: Apache-2.0
"""Built-in adapters: a node whose runtime is Triton, MLServer or TensorFlow Serving (strict ones,
shoal_model_server.py). That models are laid out as each server wants them, loaded, called, evicted and
unloaded; that errors say why and leave nothing in the folder; that a server that is killed under load, or a
node that is, begins anew with what serves; and that models which are not the node's stay.
ctest: timeout=240
"""

import json
import pathlib
import tempfile
import threading
import unittest

import grpc

from shoal_client import failure
from shoal_fixture import WAIT_SECONDS, Shoald, free_port, main, wait_until
from shoal_model_server import OIP, PREDICT, SERVICE, TF, ModelServer
from shoal_registry import LOADED, LOADING_FAILED, Registrar

Code = grpc.StatusCode
ODD = "ünsafe/../id of a model"


class Rig(unittest.TestCase):
    kind = "triton"
    format = "onnx"
    memory_mib = 64

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="shoal-test.")))
        self.files = self.folder / "files"
        self.files.mkdir()
        self.server = self.enterContext(ModelServer(self.kind, free_port(), self.folder))
        self.shoald = self.enterContext(self.node())
        self.registrar = self.enterContext(Registrar(self.shoald))

    def node(self):
        adapter = {"server_type": self.kind, "model_repository": str(self.server.repository),
                   "memory_mib": self.memory_mib, "buffer_mib": 0, "load_timeout_ms": 20000}
        return Shoald({"message_mib": 1, "files_root": str(self.files),
                       "mesh": {"instance": "node", "runtime": self.server.address, "adapter": adapter}})

    # ---- models ----

    def write(self, name, text):
        """A file, or a saved model; its path beneath `files_root`."""
        path = self.files / name
        if self.kind == "tfserving":
            path.mkdir(exist_ok=True)
            path = path / "saved_model.pb"
        path.write_text(text)
        return name

    def register(self, model, text=None, **key):
        path = self.write(f"file-{len(list(self.files.iterdir()))}", text or model)
        return self.registrar.register(model, path, json.dumps({"model_type": {"name": self.format}, **key}),
                                       "mt:whatever", loadNow=True, sync=True)

    def start(self, model, timeout=WAIT_SECONDS):
        metadata = (("mm-model-id-bin", model.encode()),)
        if self.kind == "tfserving":
            stub = self.registrar.channel.unary_unary(
                f"/{PREDICT}", request_serializer=TF["PredictRequest"].SerializeToString,
                response_deserializer=TF["PredictResponse"].FromString)
            return stub.future(TF["PredictRequest"](), timeout=timeout, metadata=metadata)
        return self.registrar.start_infer("", metadata, timeout=timeout)

    def ask(self, model):
        answer = self.start(model).result()
        return (answer.output if self.kind == "tfserving" else answer.raw_output_contents[0]).decode()

    def wait_laid_out(self, *names):
        wait_until(lambda: self.server.laid_out() == sorted(names),
                   lambda: f"{names} in the folder, not {self.server.laid_out()}\n{self.shoald.stderr}")


class Common:
    """For each server."""

    def test_register_call_unregister(self):
        for model in ("m", ODD):
            self.assertEqual(self.register(model, f"hello {model}").status, LOADED)
            self.assertEqual(self.ask(model), f"hello {model}")
        answer = self.register("bad", "broken")
        self.assertEqual(answer.status, LOADING_FAILED)
        self.assertRegex(answer.errors[0], f"FAILED_PRECONDITION: {self.kind}: .*broken")
        self.registrar.unregister(ODD)
        self.wait_laid_out("m")
        self.assertEqual(self.ask("m"), "hello m")
        self.registrar.unregister("m")
        self.wait_laid_out()

    def test_kill_under_load(self):
        """Calls fail while the server is away, and then succeed again, of the same models."""
        models = [f"m{number}" for number in range(4)]
        for model in models:
            self.assertEqual(self.register(model).status, LOADED)
        over = threading.Event()
        answers = dict.fromkeys(models, 0)

        def call(model):
            while not over.is_set():
                try:
                    assert self.ask(model) == model
                    answers[model] += 1
                except grpc.RpcError as error:
                    assert error.code() in (Code.UNAVAILABLE, Code.INTERNAL, Code.DEADLINE_EXCEEDED), error
        callers = [threading.Thread(target=call, args=(model,)) for model in models]
        for caller in callers:
            caller.start()
        try:
            self.server.kill()
            self.shoald.wait_log("external_lost")
            self.server.start()
            self.shoald.wait_log("external_ready", 2)
            before = dict(answers)
            wait_until(lambda: all(answers[model] > before[model] + 3 for model in models),
                       lambda: f"answers after {before}: {answers}\n{self.shoald.stderr}")
        finally:
            over.set()
            for caller in callers:
                caller.join()
        self.wait_laid_out(*models)

    def test_a_server_that_forgets(self):
        """The model is unloaded behind the node's back."""
        self.register("m")
        self.forget("m")
        wait_until(lambda: self.start("m").exception() is None, "an answer")
        self.assertEqual(self.ask("m"), "m")

    def forget(self, model):
        with grpc.insecure_channel(self.server.address) as channel:
            channel.unary_unary(f"/{SERVICE}/RepositoryModelUnload")(
                OIP["ModelRequest"](model_name=model).SerializeToString())

    def test_kill_of_the_node(self):
        """The next one finds a folder and a server that are full, and empties both."""
        for model in ("m", "n"):
            self.register(model)
        (self.server.repository / ".shoal-new-half").mkdir()
        self.shoald.kill()
        self.assertEqual(self.server.laid_out(), [".shoal-new-half", "m", "n"])
        with self.node() as second, Registrar(second) as registrar:
            second.wait_log("external_ready")
            self.assertEqual(self.server.laid_out(), [])
            self.registrar = registrar
            self.assertIs(failure(self.start("m"))[0], Code.NOT_FOUND)
            self.assertEqual(self.register("m", "again").status, LOADED)
            self.assertEqual(self.ask("m"), "again")


class Triton(Common, Rig):
    def test_ids_that_are_no_names_of_files(self):
        names = ["..", "-rf", "x" * 300, ".hidden", "id-sha256-" + "0" * 64]
        for name in names:
            self.assertEqual(self.register(name).status, LOADED, name)
        for name in names:
            self.assertEqual(self.ask(name), name)
        self.assertEqual(len(self.server.laid_out()), len(names))
        self.assertTrue(all(name.startswith("id-sha256-") for name in self.server.laid_out()))

    def test_paths(self):
        (self.folder / "secret").write_text("secret")
        (self.files / "link").symlink_to(self.folder / "secret")
        for number, (path, code) in enumerate((("missing", "NOT_FOUND"), ("../secret", "PERMISSION_DENIED"),
                                               (str(self.folder / "secret"), "PERMISSION_DENIED"),
                                               ("link", "PERMISSION_DENIED"), ("", "INVALID_ARGUMENT"),
                                               ("s3://bucket/model", "FAILED_PRECONDITION"))):
            answer = self.registrar.register(f"m{number}", path, "", self.format, loadNow=True, sync=True)
            self.assertEqual(answer.status, LOADING_FAILED, path)
            self.assertRegex(answer.errors[0], f"^{code}: ")
        self.wait_laid_out()

    def test_models_of_others_stay(self):
        other = self.server.repository / "other"
        other.mkdir()
        (other / "file").write_text("file")
        answer = self.register("other")
        self.assertEqual(answer.status, LOADING_FAILED)
        self.assertIn("ALREADY_EXISTS", answer.errors[0])
        self.assertEqual([one.name for one in other.iterdir()], ["file"])
        self.wait_laid_out("other")


    def test_kill_during_a_load(self):
        """The load fails, what it has laid out goes, and the next one is not affected."""
        path = self.write("endless", "endless")
        pending = self.registrar.start("registerModel", modelId="m", loadNow=True, sync=True,
                                       modelInfo={"type": self.format, "path": path, "key": ""})
        wait_until(lambda: "load m" in self.server.noted(), "the load")
        self.wait_laid_out("m")
        self.server.kill()
        self.assertEqual(pending.result().status, LOADING_FAILED)
        self.server.start()
        self.shoald.wait_log("external_ready", 2)
        self.assertEqual(self.server.laid_out(), [])
        self.assertEqual(self.register("n").status, LOADED)
        self.assertEqual(self.ask("n"), "n")


class Eviction(Rig):
    memory_mib = 16

    def test_least_recently_used(self):
        """Twelve models of 2 MiB each in 16 MiB: all answer, and the folder has what is loaded."""
        size = (2 << 20) * 100 // 125
        models = [f"m{number}" for number in range(12)]
        for model in models:
            self.register(model, disk_size_bytes=size)
        for model in models + models:
            self.assertEqual(self.ask(model), model)
        wait_until(lambda: 0 < len([one for one in self.server.laid_out() if one[0] == "m"]) <= 8,
                   lambda: f"at most eight, not {self.server.laid_out()}")
        self.assertIn("unload", {line.split()[0] for line in self.server.noted()})


class Mlserver(Common, Rig):
    kind = "mlserver"
    format = "sklearn"

    def test_settings(self):
        folder = self.files / "settings"
        folder.mkdir()
        (folder / "weights").write_text("mine")
        (folder / "model-settings.json").write_text(json.dumps(
            {"name": "theirs", "implementation": "my.Model", "parameters": {"uri": "./weights", "version": "v3"}}))
        answer = self.registrar.register("m", "settings", "", "whatever", loadNow=True, sync=True)
        self.assertEqual((answer.status, list(answer.errors)), (LOADED, []))
        self.assertEqual(self.ask("m"), "mine")
        settings = json.loads((self.server.repository / "m" / "model-settings.json").read_text())
        self.assertEqual(settings, {"name": "m", "implementation": "my.Model",
                                    "parameters": {"uri": "./weights", "version": "v3"}})

    def test_an_unknown_type(self):
        self.write("file", "x")
        answer = self.registrar.register("m", "file", "", "mt:unheard-of:1", loadNow=True, sync=True)
        self.assertRegex(answer.errors[0], 'FAILED_PRECONDITION: .*"unheard-of": put a model-settings.json')


class TritonFolders(Rig):
    def load(self, model, path, kind="onnx", key=""):
        answer = self.registrar.register(model, path, key, kind, loadNow=True, sync=True)
        self.assertEqual((answer.status, list(answer.errors)), (LOADED, []))
        return self.server.repository / model

    def test_config_pbtxt(self):
        folder = self.files / "native"
        (folder / "2").mkdir(parents=True)
        (folder / "2" / "model.onnx").write_text("two")
        (folder / "config.pbtxt").write_text(
            '# name: "in a comment"\nname: "theirs"\nbackend: "onnx" input [ { name: "x" data_type: TYPE_FP32 } ]\n')
        laid = self.load("m", "native")
        self.assertEqual(self.ask("m"), "two")
        self.assertEqual((laid / "config.pbtxt").read_text().split(),
                         '# name: "in a comment" backend: "onnx" input [ { name: "x" data_type: TYPE_FP32 } ]'.split())

    def test_versions_and_a_schema(self):
        folder = self.files / "versions"
        for version in ("2", "10"):
            (folder / version).mkdir(parents=True)
            (folder / version / "weights.onnx").write_text(version)
        (folder / "schema.json").write_text(json.dumps(
            {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 64]}],
             "outputs": [{"name": "y", "datatype": "BYTES", "shape": [1]}]}))
        laid = self.load("m", "versions", key=json.dumps({"schema_path": "schema.json"}))
        self.assertEqual(self.ask("m"), "10")
        self.assertEqual((laid / "config.pbtxt").read_text(),
                         'backend: "onnxruntime"\n'
                         'input { name: "x" data_type: TYPE_FP32 dims: [ -1, 64 ] }\n'
                         'output { name: "y" data_type: TYPE_STRING dims: [ 1 ] }\n')


class Tfserving(Common, Rig):
    kind = "tfserving"
    format = "tensorflow"

    def forget(self, model):
        with grpc.insecure_channel(self.server.address) as channel:
            channel.unary_unary("/tensorflow.serving.ModelService/HandleReloadConfigRequest")(
                TF["ReloadConfigRequest"](config={"model_config_list": {}}).SerializeToString())

    def test_each_reload_names_all_models(self):
        for model in ("a", "b", "c"):
            self.register(model)
        self.registrar.unregister("b")
        self.wait_laid_out("a", "c")
        self.assertEqual(self.server.noted(), ["reload", "reload a", "reload a b", "reload a b c", "reload a c"])


if __name__ == "__main__":
    main()
