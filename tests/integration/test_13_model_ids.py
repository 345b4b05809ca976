# SPDX-License-Identifier: Apache-2.0
"""Which model a call means, where models come and go: by metadata, by the request's name, by a
field of any message, in a path of HTTP; and what is said of a model, by its id.

Models answer with their own ids, so a call that went to another one is seen. Every way to be
refused is taken, and after that each model can be unloaded: nothing that was refused still holds
one. ctest: timeout=180
"""

import json
import unittest
import urllib.parse

import grpc

import shoal_fixture
from shoal_client import CHANNEL_OPTIONS, Client, failure
from shoal_fixture import WAIT_SECONDS, Shoald, node, pipeline, stage, wait_until
from shoal_rest import ANY_PORT, Rest, port_of, tensor

RUNTIME = "mmesh.ModelRuntime"
HEALTH = "grpc.health.v1.Health"
MODEL = b"model"  # what letters answers with the model's id
UMLAUT = "Fläche/größer"
BY_NAME, BY_HEADER, BY_FIELD = "by-name", "by-header", "by-field"


def varint(value):
    out = bytearray()
    while True:
        value, low = value >> 7, value & 0x7f
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def named(*ids):
    """A message with ids where `id_path` is."""
    return b"".join(field(1, field(20, one)) for one in ids)


def store(name, root="models", watch="no", **keys):
    models = {"root": root, "memory_mib": 64, "types": [name], "watch": watch,
              "preload": "no"}
    return pipeline(name, stage("libletters.so", params={"folder": "."}), models=models, slots=64,
                    **keys)


class TestModelIds(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        config = node(store(BY_NAME), store(BY_HEADER, method="/test.Header/Do"),
                      store(BY_FIELD, method="/test.Field/Do", id_path=[1, 20]),
                      store("shelf", root="shelf", watch="yes", method="/test.Shelf/Do"),
                      pipeline("echo", stage("libecho.so"), slots=8), message_mib=1, http=ANY_PORT,
                      runtime=["unix:runtime.sock"])
        cls.shoald = Shoald(config)
        (cls.shoald.folder / "models").mkdir()
        (cls.shoald.folder / "models" / "file").write_text("a model\n")
        (cls.shoald.folder / "shelf" / "lazy").mkdir(parents=True)
        cls.enterClassContext(cls.shoald)
        cls.client = cls.enterClassContext(Client(cls.shoald.target))
        cls.loader = cls.enterClassContext(
            Client(f"unix:{cls.shoald.folder / 'runtime.sock'}"))
        cls.rest = cls.enterClassContext(Rest(port_of(cls.shoald)))
        cls.channel = grpc.insecure_channel(cls.shoald.target, options=CHANNEL_OPTIONS)
        for model, kind, more in (("one", BY_NAME, {}), ("two", BY_NAME, {}),
                                  ("seven", BY_NAME, {"bytes": 7}), (UMLAUT, BY_NAME, {}),
                                  ("head", BY_HEADER, {}), ("head-seven", BY_HEADER, {"bytes": 7}),
                                  ("field", BY_FIELD, {}), ("field2", BY_FIELD, {}),
                                  ("Feld-ü", BY_FIELD, {})):
            cls.load(model, kind, **more)

    @classmethod
    def load(cls, model, kind, **more):
        key = json.dumps({"model_type": {"name": kind}, **more}, separators=(",", ":"))
        cls.loader.call("loadModel", service=RUNTIME, modelId=model, modelPath="file", modelKey=key)

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        super().tearDownClass()

    # ---- calls ----

    def infer(self, name, metadata=(), message=MODEL, **fields):
        request, stub = self.client.stub("ModelInfer")
        inputs = [("message", "UINT8", [len(message)], message)]
        return stub.future(request(**self.client.infer_fields(name, inputs, **fields)),
                           timeout=WAIT_SECONDS, metadata=metadata)

    def call(self, method, message, metadata=()):
        return self.channel.unary_unary(method).future(message, timeout=WAIT_SECONDS,
                                                       metadata=metadata)

    def check_answer(self, future, model):
        answer = future.result()
        self.assertEqual((answer.model_name, answer.raw_output_contents[0].decode()),
                         (model, model))

    def check_refused(self, future, code, *parts):
        got, text = failure(future)
        self.assertEqual(got.name, code, text)
        for part in parts:
            self.assertIn(part, text)

    # ---- the Open Inference Protocol ----

    def test_by_name(self):
        for model in ("one", "two", UMLAUT):
            self.check_answer(self.infer(model), model)

    def test_by_metadata(self):
        for name in ("", "one", "nobody", BY_NAME):
            self.check_answer(self.infer(name, (("mm-model-id", "two"),)), "two")
            self.check_answer(self.infer(name, (("mm-model-id-bin", UMLAUT.encode()),)), UMLAUT)
            self.check_answer(self.infer(name, (("mm-model-id", "two"),
                                                ("mm-model-id-bin", b"two"))), "two")
        self.check_refused(self.infer("one", (("mm-model-id", "one"),
                                              ("mm-model-id-bin", b"two"))),
                           "INVALID_ARGUMENT", "name different models")
        self.check_refused(self.infer("one", (("mm-model-id", "nobody"),)), "NOT_FOUND", "nobody")
        # a pipeline that serves no models is called as ever
        answer = self.infer("one", (("mm-model-id", "echo"),)).result()
        self.assertEqual((answer.model_name, answer.raw_output_contents[0]), ("echo", MODEL))

    def test_pipelines_are_not_models(self):
        for name in (BY_NAME, BY_HEADER, BY_FIELD):
            self.check_refused(self.infer(name), "INVALID_ARGUMENT",
                               f'pipeline "{name}" serves models: name one of them')
            self.check_refused(self.call("/test.Header/Do", MODEL, (("mm-model-id", name),)),
                               "INVALID_ARGUMENT", "serves models")
        self.assertEqual(self.rest.infer(BY_NAME, tensor("message", "UINT8", [1], [1])).code, 400)

    def test_own_inputs(self):
        """Models differ in what they accept."""
        answer = self.infer("seven", message=b"1234567").result()
        self.assertEqual(answer.raw_output_contents[0], b"1234567")
        self.check_refused(self.infer("seven", message=b"123"), "INVALID_ARGUMENT",
                           "shape [3], the model takes [7]")
        self.assertEqual(self.call("/test.Header/Do", b"1234567",
                                   (("mm-model-id", "head-seven"),)).result(), b"1234567")
        self.check_refused(self.call("/test.Header/Do", b"123", (("mm-model-id", "head-seven"),)),
                           "INVALID_ARGUMENT", "shape [3], the model takes [7]")

    # ---- methods ----

    def test_method_by_header(self):
        self.assertEqual(self.call("/test.Header/Do", MODEL,
                                   (("mm-model-id", "head"),)).result(), b"head")
        self.check_refused(self.call("/test.Header/Do", MODEL), "INVALID_ARGUMENT",
                           "no model is named: /test.Header/Do needs its id in metadata mm-model-id")
        self.check_refused(self.call("/test.Header/Do", named(b"head")), "INVALID_ARGUMENT",
                           "no model is named")

    def test_method_by_field(self):
        """Each id goes to the model of that name: the answer is the message, or else the id."""
        for message in (named(b"field2"), named(b"field", b"field2"),
                        field(7, b"x") + named(b"nobody") + field(1, b"") + named(b"field2")):
            self.assertEqual(self.call("/test.Field/Do", message).result(), message)
        for model in ("field", "field2", "Feld-ü"):
            self.assertEqual(self.call("/test.Field/Do", MODEL,
                                       (("mm-model-id-bin", model.encode()),)).result(),
                             model.encode())
        self.check_refused(self.call("/test.Field/Do", named(b"nobody")), "NOT_FOUND", '"nobody"')
        self.assertEqual(self.call("/test.Field/Do", named(b"nobody"),
                                   (("mm-model-id", "field"),)).result(), named(b"nobody"))
        for message in (b"", field(2, b"field"), field(1, b""), named(b"")):
            self.check_refused(self.call("/test.Field/Do", message), "INVALID_ARGUMENT",
                               "or in the request's field 1.20")
        for message in (named(b"field")[:-1], b"\x0b\x0c", named(b"field") + b"\xff"):
            self.check_refused(self.call("/test.Field/Do", message), "INVALID_ARGUMENT",
                               "looking for the model's id in the request", "malformed")
        self.check_refused(self.call("/test.Field/Do", b"\x08\x01"), "INVALID_ARGUMENT",
                           "field 1 has wire type 0")
        self.check_refused(self.call("/test.Field/Do", named(b"n" * 128)), "INVALID_ARGUMENT",
                           "at most 127 bytes")

    def test_not_by_the_other_way(self):
        self.check_refused(self.infer("head"), "INVALID_ARGUMENT",
                           '"head" is called by /test.Header/Do')
        self.check_refused(self.call("/test.Header/Do", MODEL, (("mm-model-id", "one"),)),
                           "INVALID_ARGUMENT", '"one" is called by the Open Inference Protocol')
        self.check_refused(self.call("/test.Field/Do", MODEL, (("mm-model-id", "head"),)),
                           "INVALID_ARGUMENT", '"head" is called by /test.Header/Do')
        self.assertEqual(self.rest.infer("head", tensor("message", "UINT8", [1], [1])).code, 400)

    # ---- what is said of a model ----

    def test_ready_and_metadata(self):
        for model, shape in (("one", -1), ("seven", 7), (UMLAUT, -1), ("head-seven", 7)):
            self.assertTrue(self.client.call("ModelReady", name=model).ready, model)
            told = self.client.call("ModelMetadata", name=model)
            self.assertEqual(told.name, model)
            self.assertEqual([(one.name, one.datatype, list(one.shape)) for one in told.inputs],
                             [("message", "UINT8", [shape])])
        request, stub = self.client.stub("ModelMetadata")
        told = stub(request(name="one"), metadata=(("mm-model-id", "seven"),), timeout=WAIT_SECONDS)
        self.assertEqual((told.name, list(told.inputs[0].shape)), ("seven", [7]))
        self.check_refused(self.client.start("ModelReady", name="nobody"), "NOT_FOUND")

    def test_health(self):
        request, stub = self.client.stub("Check", HEALTH)
        for model in ("one", UMLAUT, "head"):
            self.assertEqual(stub(request(service=model), timeout=WAIT_SECONDS).status, 1, model)
        self.check_refused(stub.future(request(service="nobody"), timeout=WAIT_SECONDS),
                           "NOT_FOUND")

    def test_listed(self):
        """A model that lies in a directory is known, and loaded by the first call that means it."""
        request, stub = self.client.stub("Check", HEALTH)

        def state():
            return stub(request(service="lazy"), timeout=WAIT_SECONDS).status

        def is_known():
            return self.rest.get("/v2/models/lazy").code == 200
        wait_until(is_known, lambda: f"the listed model; the log:\n{self.shoald.stderr}")
        self.assertEqual((state(), self.client.call("ModelReady", name="lazy").ready), (2, False))
        self.assertEqual(self.rest.get("/v2/models/lazy/ready").code, 503)
        self.assertEqual(self.call("/test.Shelf/Do", MODEL, (("mm-model-id", "lazy"),)).result(),
                         b"lazy")
        self.assertEqual((state(), self.client.call("ModelReady", name="lazy").ready), (1, True))

    def test_rest(self):
        for model, shape in (("one", -1), ("seven", 7), (UMLAUT, -1)):
            name = urllib.parse.quote(model, safe="")
            self.assertEqual(self.rest.get(f"/v2/models/{name}/ready").code, 200)
            told = self.rest.get(f"/v2/models/{name}").json
            self.assertEqual((told["name"], told["inputs"][0]["shape"]), (model, [shape]))
            message = list(b"1234567" if shape == 7 else MODEL)
            answer = self.rest.infer(name, tensor("message", "UINT8", [len(message)], message)).json
            self.assertEqual(answer["model_name"], model)
            self.assertEqual(bytes(answer["outputs"][0]["data"]).decode(),
                             "1234567" if shape == 7 else model)
        self.assertEqual(self.rest.get("/v2/models/nobody/ready").code, 404)

    # ---- nothing is kept ----

    def test_refused_requests_hold_no_model(self):
        """Each way to be refused after the model was found; then it can be unloaded."""
        self.load("held", BY_NAME)
        self.load("held-head", BY_HEADER)
        header = (("mm-model-id", "held-head"),)
        for _ in range(5):
            self.check_refused(self.infer("held", parameters={"priority": {"int64_param": 9}}),
                               "INVALID_ARGUMENT", "priority")
            self.check_refused(self.infer("held", model_version="2"), "NOT_FOUND")
            self.check_refused(self.client.start_raw("held", ("x", "INT8", [1], b"x")),
                               "INVALID_ARGUMENT")
            self.check_refused(self.call("/test.Header/Do", b"", header + (("shoal-priority", "9"),)),
                               "INVALID_ARGUMENT", "shoal-priority")
            self.check_refused(self.call("/test.Field/Do", b"", header), "INVALID_ARGUMENT")
            self.check_refused(self.call("/test.Header/Do", b"", (("mm-model-id", "held"),)),
                               "INVALID_ARGUMENT")
            late = self.client.start_raw("held", ("x", "INT8", [1], b"x"), timeout=0.000001)
            self.assertIn(failure(late)[0].name, ("DEADLINE_EXCEEDED", "INVALID_ARGUMENT"))
            self.assertEqual(self.rest.post("held", b"{", {}).code, 400)
            self.assertEqual(self.rest.post("held", b"{}", {"Content-Type": "text/plain"}).code, 415)
            self.assertEqual(self.rest.get("/v2/models/held/versions/9").code, 404)
            self.check_refused(self.client.start("ModelMetadata", name="held", version="9"),
                               "NOT_FOUND")
        for model in ("held", "held-head"):
            self.loader.call("unloadModel", service=RUNTIME, modelId=model)
            self.check_refused(self.client.start("ModelReady", name=model), "NOT_FOUND")
        self.check_refused(self.infer("held"), "NOT_FOUND")


if __name__ == "__main__":
    shoal_fixture.main()
