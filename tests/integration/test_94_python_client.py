# SPDX-License-Identifier: Apache-2.0
"""The Python client: tensors arrive as they were sent, and each failure says why.

The package from clients/python, with Debian's gRPC and NumPy, against real daemons: tensors of every
datatype and form through the echo and back; a model that nobody has loaded or described before; each
status as its exception; deadlines, refusals for load, a node that is killed, TLS, a mesh; threads, and
asyncio, whose cancellations must reach the node. Messages that no node sends are encoded by protobuf.
"""

import asyncio
import concurrent.futures
import csv
import math
import pathlib
import pickle
import random
import shutil
import tempfile
import unittest

import numpy as np

import shoal_fixture
from shoal_certificates import NAME, Certificates
from shoal_client import Client as Other
from shoal_fixture import (EXAMPLES, SOURCE, WAIT_SECONDS, Shoald, draw_seed, free_port, node,
                           pipeline, stage, wait_until)
from shoal_pupil import prepare, pupil
from shoal_python import error_of, shoal
from shoal_registry import Registrar

from shoal import _tensors, _wire

MIB = 1 << 20
VALUES = {
    "BOOL": ("?", [True, False, True]),
    "UINT8": ("u1", [0, 1, 255]),
    "UINT16": ("u2", [0, 256, 65535]),
    "UINT32": ("u4", [0, 65536, 2**32 - 1]),
    "UINT64": ("u8", [0, 2**32, 2**64 - 1]),
    "INT8": ("i1", [-128, -1, 127]),
    "INT16": ("i2", [-32768, -1, 32767]),
    "INT32": ("i4", [-2**31, -1, 2**31 - 1]),
    "INT64": ("i8", [-2**63, -1, 2**63 - 1]),
    "FP16": ("f2", [0.5, -2.0, 65504.0]),
    "FP32": ("f4", [0.5, -3.25, 1e30]),
    "FP64": ("f8", [0.1, -1e300, math.pi]),
}


def connect(target, **settings):
    return shoal.Client(target, timeout=WAIT_SECONDS, **settings)


def held_out_digits():
    """Images, with values of 0 to 1, and the digits that they show."""
    with (SOURCE / "examples/digits/data/digits.csv").open(newline="") as file:
        rows = np.array([[int(value) for value in row] for row in csv.reader(file)][4::5])
    return rows[:, :64] / 16, rows[:, 64]


class TestTensors(unittest.TestCase):
    """Every datatype and form comes back from the echo as it was sent."""

    @classmethod
    def setUpClass(cls):
        cls.shoald = cls.enterClassContext(Shoald(node(
            pipeline("echo", stage("libecho.so"), slots=64, arena_mib=64), message_mib=16)))
        cls.client = cls.enterClassContext(connect(cls.shoald.target))

    def check(self, sent, want=None):
        want = sent if want is None else want
        got = self.client.infer("echo", sent)
        self.assertEqual(got.shape, want.shape)
        self.assertEqual(got.dtype, want.dtype.newbyteorder("="))
        np.testing.assert_array_equal(got, want)
        return got

    def seen(self, sent):
        """Datatype and shape of an input as the node got it, by another client."""
        encoded = _tensors.encode("x", sent, None)
        with Other(self.shoald.target) as other:
            answer = other.infer_raw("echo", ("x", encoded.datatype, encoded.shape,
                                              bytes(encoded.contents)))
        return answer.outputs[0].datatype, list(answer.outputs[0].shape)

    def test_every_datatype(self):
        for datatype, (code, values) in VALUES.items():
            with self.subTest(datatype):
                array = np.array(values, code)
                self.check(array)
                self.assertEqual(self.seen(array), (datatype, [3]))
                self.check(shoal.Tensor(values, datatype), array)
                self.check(array.reshape(1, 3, 1))
                self.check(array.astype(array.dtype.newbyteorder(">")), array)
                self.check(array[0:1].reshape(()))
                for shape in ([0], [3, 0, 5]):
                    self.check(np.zeros(shape, code))

    def test_memory_that_is_not_in_order(self):
        array = np.arange(24, dtype="f4").reshape(2, 3, 4)
        for other in (array.T, array[:, ::2], array[::-1], array[..., 1], np.asfortranarray(array),
                      np.broadcast_to(np.float32(7), (3, 2)), array.T.astype(">f4")):
            self.check(other)
        array.flags.writeable = False
        self.check(array)

    def test_python_values(self):
        for sent, want in (([1, 2], "INT64"), ([[1.5], [2]], "FP64"), (True, "BOOL"), (3, "INT64"),
                           ("häns", "BYTES"), (b"\xff\0", "BYTES"), ((1, 2), "INT64"),
                           (range(4), "INT64"), (np.float32(1), "FP32"), ([], "FP64")):
            with self.subTest(repr(sent)):
                self.assertEqual(self.seen(sent)[0], want)
        self.check([1, 2], np.array([1, 2]))
        self.assertEqual(self.client.infer("echo", "häns").item(), "häns".encode())

    def test_text(self):
        elements = [b"", b"one", bytes(range(256)), "häns".encode(), b"ends in NUL\0\0", b"\xff\xfe"]
        want = np.array(elements, dtype=object)
        for sent in (elements, want, [*elements[:3], "häns", *elements[4:]], tuple(elements)):
            self.check(sent, want)
        self.check([elements[:3], elements[3:]], want.reshape(2, 3))
        self.check(np.array([["ä", "bc"]]), np.array([["ä".encode(), b"bc"]], dtype=object))
        self.check(np.array([b"a", b"bc"]), np.array([b"a", b"bc"], dtype=object))
        self.check(np.zeros((0, 2), dtype=object))
        self.check(shoal.Tensor([], "BYTES"), np.zeros(0, dtype=object))

    def test_bfloat16(self):
        """Rounded to nearest, ties to even; 0x3f80 is 1.0, one more is 1.0078125."""
        step = 2.0**-7
        sent = [1, 1 + step, 1 + step / 2, 1 + 3 * step / 2, 1 + 0.51 * step, -2.5, 3.4e38, math.inf,
                -math.inf, 0.0, -0.0]
        want = [1, 1 + step, 1, 1 + 2 * step, 1 + step, -2.5, math.inf, math.inf, -math.inf, 0.0, -0.0]
        got = self.check(shoal.Tensor(sent, "BF16"), np.array(want, "f4"))
        self.assertEqual(math.copysign(1, got[-1]), -1)
        hidden = np.array([0x7f800001, 0xffffffff], "u4").view("f4")  # NaN in the lower half alone
        self.assertTrue(np.isnan(self.client.infer("echo", shoal.Tensor(hidden, "BF16"))).all())
        bits = np.array([[0x3f80, 0xc000], [0x7f7f, 0x0001]], "u2")
        got = self.client.infer("echo", shoal.Tensor(bits, "BF16"))
        np.testing.assert_array_equal(got.view("u4") >> 16, bits)
        for shape in ((0,), (2, 0)):
            self.check(shoal.Tensor(np.zeros(shape, "f4"), "BF16"), np.zeros(shape, "f4"))

    def test_large_and_without_copies(self):
        seed = draw_seed()
        sent = np.frombuffer(random.Random(seed).randbytes(15 * MIB), "u1").reshape(15, MIB)
        got = self.check(sent)
        self.assertFalse(got.flags.owndata or got.flags.writeable, "an output is a copy")
        self.assertTrue(np.shares_memory(_tensors.encode("x", sent, None).contents, sent))

    def test_several(self):
        inputs = {f"x{i}": np.full(i, i, "i4") for i in range(20)}
        got = self.client.infer("echo", inputs)
        self.assertEqual(list(got), list(inputs))
        for name, array in inputs.items():
            np.testing.assert_array_equal(got[name], array)
        self.assertEqual(list(self.client.infer("echo", inputs, outputs=["x3", "x1"])), ["x3", "x1"])
        self.assertEqual(list(self.client.infer("echo", inputs, outputs=["x3"])), ["x3"])
        np.testing.assert_array_equal(self.client.infer("echo", inputs, outputs="x2"), [2, 2])

    def test_what_cannot_be_sent(self):
        before = self.shoald.pipeline_stat("echo")["requests"]
        for sent, text in (([1, 2j], "complex128"), ([[1], [2, 3]], "'input'"), ([1, "a"], "mixed"),
                           ([None], "NoneType"), ({"x": object()}, "'x'"), ({1: 2}, "must be str"),
                           ([["a"], ["b", "c"]], "rows differ"), (np.datetime64("now"), "datetime64")):
            with self.subTest(repr(sent)):
                error = error_of(self.client.infer, "echo", sent)
                self.assertIsInstance(error, shoal.InvalidArgument)
                self.assertIn(text, str(error))
        self.assertIn("timeout is -1", str(error_of(self.client.infer, "echo", 1, timeout=-1)))
        for wrong in ({"parameters": {"p": None}}, {"parameters": {"p": 2**64}}):
            self.assertIn("'p'", str(error_of(self.client.infer, "echo", 1, **wrong)))
        self.assertIn("FP23", str(error_of(shoal.Tensor, [1], "FP23")))
        self.assertIn("name", str(error_of(self.client.infer, [1, 2], "echo")))
        self.assertEqual(self.shoald.pipeline_stat("echo")["requests"], before)

    def test_response(self):
        response = self.client.request("echo", [1], id="request 7/ä", version="1", priority=1,
                                       parameters={"a": True, "b": -1, "c": 2**63, "d": 0.5, "e": "ä"})
        self.assertEqual((response.model, response.version, response.id), ("echo", "1", "request 7/ä"))
        self.assertEqual(list(response.outputs), ["input"])

    def test_server(self):
        server = self.client.server()
        self.assertEqual((server.name, server.version), ("shoal", shoal.__version__))
        self.assertTrue(self.client.live() and self.client.ready() and self.client.ready("echo"))
        self.assertEqual(self.client.metadata("echo"),
                         shoal.ModelMetadata("echo", ("1",), "", (), ()))

    def test_8_threads(self):
        seed = draw_seed()

        def ask(number):
            draw = np.random.default_rng([seed, number])
            for _ in range(200):
                sent = draw.integers(-2**62, 2**62, draw.integers(1, 50))
                np.testing.assert_array_equal(self.client.infer("echo", sent), sent)
            return number
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            self.assertEqual(list(pool.map(ask, range(8))), list(range(8)))


class TestConversion(unittest.TestCase):
    """An input takes the declared datatype only if it keeps its meaning."""

    def encode(self, value, datatype, shape=(-1,)):
        return _tensors.encode("x", value, shoal.TensorMetadata("x", datatype, shape))

    def check(self, value, datatype, want):
        encoded = self.encode(value, datatype)
        self.assertEqual(encoded.datatype, datatype)
        np.testing.assert_array_equal(encoded.contents.view(want.dtype), want.reshape(-1))

    def test_what_fits(self):
        for value, datatype, want in (
                (np.array([0.1, 1e-3]), "FP32", np.array([0.1, 1e-3], "f4")),
                ([1, 2], "FP32", np.array([1, 2], "f4")), ([1, 255], "UINT8", np.array([1, 255], "u1")),
                (np.array([1, 0]), "BOOL", np.array([True, False])),
                ([True], "INT32", np.array([1], "i4")), ([True], "FP16", np.array([1], "f2")),
                (np.array([2**64 - 1], "u8"), "UINT64", np.array([2**64 - 1], "u8")),
                ([], "INT8", np.zeros(0, "i1")), ([1.0], "BF16", np.array([0x3f80], "u2")),
                (np.array([2**63 - 1]), "UINT64", np.array([2**63 - 1], "u8"))):
            with self.subTest(f"{value!r} {datatype}"):
                self.check(value, datatype, want)

    def test_what_does_not(self):
        for value, datatype in (([1.0], "INT32"), ([256], "UINT8"), ([-1], "UINT64"), ([2], "BOOL"),
                                ([2**63], "INT64"), ([-1, 2**63], "INT64"),
                                ([0, 2**64], "UINT64"), (["1"], "FP32"), ([1], "BYTES"),
                                ([-129], "INT8"), ([1j], "FP32"), ([1j], "BF16"), (["a"], "BF16")):
            with self.subTest(f"{value} {datatype}"):
                error = error_of(self.encode, value, datatype)
                self.assertIn(f"'x': expected {datatype}", error.text)

    def test_one_value(self):
        """It takes the rank that the model declares, if the model can take one element."""
        for shape, want in (((1,), (1,)), ((-1, 1), (1, 1)), ((), ()), ((-1, 64), ())):
            self.assertEqual(self.encode(2.5, "FP32", shape).shape, want)
            self.assertEqual(self.encode(np.array(2.5), "FP32", shape).shape, ())


class TestMessages(unittest.TestCase):
    """Messages as protobuf writes and reads them, and what is none."""

    @classmethod
    def setUpClass(cls):
        cls.other = cls.enterClassContext(Other("unix:/nowhere"))

    def answer(self, **fields):
        return self.other.type("inference.ModelInferResponse")(**fields).SerializeToString()

    def test_request(self):
        parameters = {"b": True, "i": -5, "u": 2**64 - 1, "d": 0.25, "s": "ä"}
        message = _wire.infer_request(
            "m" * 200, "3", "id", parameters,
            [_wire.InputTensor("x", "FP32", (2, 300), np.zeros(600, "f4")),
             _wire.InputTensor("y", "BYTES", (), b"\1\0\0\0a")], ["o"])
        read = self.other.type("inference.ModelInferRequest").FromString(message)
        again = self.other.type("inference.ModelInferRequest")(**self.other.infer_fields(
            "m" * 200, [("x", "FP32", [2, 300], bytes(2400)), ("y", "BYTES", [], b"\1\0\0\0a")],
            outputs="o", model_version="3", id="id", parameters={
                "b": {"bool_param": True}, "i": {"int64_param": -5}, "u": {"uint64_param": 2**64 - 1},
                "d": {"double_param": 0.25}, "s": {"string_param": "ä"}}))
        self.assertEqual(read, again)

    def test_typed_contents(self):
        """An external runtime of a mesh may answer with them."""
        members = {"BOOL": "bool", "INT8": "int", "INT64": "int64", "UINT8": "uint", "UINT64": "uint64",
                   "FP32": "fp32", "FP64": "fp64", "INT32": "int"}
        for datatype, member in members.items():
            code, values = VALUES[datatype]
            message = self.answer(outputs=[{"name": "y", "datatype": datatype, "shape": [3, 1],
                                            "contents": {f"{member}_contents": values}}])
            got = _tensors.decode(_wire.infer_response(message).outputs[0])
            np.testing.assert_array_equal(got, np.array(values, code).reshape(3, 1))
        message = self.answer(outputs=[{"name": "y", "datatype": "BYTES", "shape": [2],
                                        "contents": {"bytes_contents": [b"\0", b"\xff"]}}])
        self.assertEqual(list(_tensors.decode(_wire.infer_response(message).outputs[0])),
                         [b"\0", b"\xff"])

    def test_parameters_of_an_answer(self):
        values = {"b": {"bool_param": True}, "i": {"int64_param": -5}, "u": {"uint64_param": 2**64 - 1},
                  "d": {"double_param": 0.25}, "s": {"string_param": "ä"}, "none": {}}
        parameter = self.other.type("inference.InferParameter")
        message = self.answer(parameters={name: parameter(**value) for name, value in values.items()})
        self.assertEqual(_wire.infer_response(message).parameters, {
            "b": True, "i": -5, "u": 2**64 - 1, "d": 0.25, "s": "ä", "none": False})

    def test_malformed_tensors(self):
        for fields, raw in (({"datatype": "FP32", "shape": [3]}, b"1234"),
                            ({"datatype": "FP33", "shape": [1]}, b"1234"),
                            ({"datatype": "FP32", "shape": [-1]}, b""),
                            ({"datatype": "FP32", "shape": [2**62, 4]}, b""),
                            ({"datatype": "FP32", "shape": [1] * 100}, b"1234"),
                            ({"datatype": "BYTES", "shape": [1]}, b"\5\0\0\0abcd"),
                            ({"datatype": "BYTES", "shape": [1]}, b"\1\0"),
                            ({"datatype": "BYTES", "shape": [3]}, b"\1\0\0\0a")):
            message = self.answer(outputs=[{"name": "y", **fields}], raw_output_contents=[raw])
            error = error_of(_tensors.decode, _wire.infer_response(message).outputs[0])
            self.assertIsInstance(error, shoal.Internal)
            self.assertIn("'y' is malformed", error.text)
        with self.assertRaises(_wire.Malformed):
            _wire.infer_response(self.answer(raw_output_contents=[b""]))

    def test_malformed_messages(self):
        """Any bytes are decoded or refused as Malformed, without another exception."""
        draw = random.Random(draw_seed())
        valid = self.answer(
            model_name="m", outputs=[{"name": "y", "datatype": "FP32", "shape": [2, 300]},
                                     {"name": "z", "datatype": "INT8", "shape": [1],
                                      "contents": {"int_contents": [-1]}}],
            parameters={"a": self.other.type("inference.InferParameter")(double_param=1)})
        with self.assertRaisesRegex(_wire.Malformed, "ends within a field"):
            _wire.infer_response(valid[:-1])
        refused = 0
        for _ in range(5000):
            message = bytearray(valid)
            for _ in range(draw.randrange(1, 4)):
                message[draw.randrange(len(message))] = draw.randrange(256)
            try:
                _wire.infer_response(bytes(message[:draw.randrange(len(message) + 1)]))
                _wire.model_metadata(bytes(message))
            except _wire.Malformed:
                refused += 1
        self.assertGreater(refused, 100)


class TestModels(unittest.TestCase):
    """Models that the client meets for the first time, or that have been replaced."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def test_digits(self):
        """The model is not loaded, so nobody knows its inputs; float64 is not what it takes."""
        images, digits = held_out_digits()
        (self.folder / "digits").mkdir()
        shutil.copy(EXAMPLES / "digits" / "digits.ubj", self.folder / "digits")
        models = pipeline("xgboost", stage("libxgboost_modelet.so", batch_size=64),
                          models={"root": str(self.folder), "memory_mib": 256, "preload": "no"})
        with Shoald(node(models)) as shoald, connect(shoald.target) as client:
            self.assertEqual(client.metadata("digits").inputs, ())
            self.assertFalse(client.ready("digits"))
            probabilities = client.infer("digits", images)
            self.assertEqual((probabilities.shape, probabilities.dtype), ((len(digits), 10), "f4"))
            right = np.mean(probabilities.argmax(axis=1) == digits)
            self.assertGreaterEqual(right, 0.95)
            np.testing.assert_array_equal(client.infer("digits", images.tolist()), probabilities)
            np.testing.assert_array_equal(
                client.infer("any", {"features": images}, headers={"MM-Model-Id": "digits"}),
                probabilities)
            self.assertTrue(client.ready("digits"))
            self.assertEqual(client.metadata("digits").inputs,
                             (shoal.TensorMetadata("features", "FP32", (-1, 64)),))
            error = error_of(client.infer, "digits", images[:, :5])
            self.assertIsInstance(error, shoal.InvalidArgument)
            self.assertIn("features", error.text)

    def test_replaced(self):
        """The client corrects the inputs that it remembers of a model when they do not fit any more."""
        text = pipeline("m", stage("libpuppet.so", params={"folder": "."}))
        numbers = pipeline("m", stage("libscale.so", params={"factor": 2}),
                           stage("libshift.so", params={"offset": 3}))
        listen = [f"unix:{self.folder}/s"]
        client = self.enterContext(connect(listen[0]))
        for _ in range(2):
            with Shoald(node(text), listen=listen):
                wait_until(client.live, "the client to find the node")
                self.assertEqual(client.infer("m", "echo a", outputs="said").tolist(), [b"echo a"])
                error = error_of(client.infer, "m", 2.5)
                self.assertIn("'say': expected BYTES, float64 given", error.text)
            with Shoald(node(numbers), listen=listen):
                wait_until(client.live, "the client to find the node")
                np.testing.assert_array_equal(client.infer("m", [1.0, 2.0]), [5, 7])

    def test_vmodel(self):
        with prepare(pupil(), mesh={"instance": "one"}) as shoald, Registrar(shoald) as registrar, \
                connect(shoald.target) as client:
            for model in ("first", "second"):
                registrar.register(model)
                registrar.call("setVModel", vModelId="steady", targetModelId=model, sync=True)
                x = {"x": np.array([7], "u1")}
                self.assertEqual(client.infer("steady", x, vmodel=True)["id"].tolist(),
                                 [model.encode()])
                self.assertTrue(client.ready("steady", vmodel=True))
                self.assertEqual(
                    client.infer("", x, headers={"mm-vmodel-id": "steady"})["id"].tolist(),
                    [model.encode()])
            self.assertIsInstance(error_of(client.infer, "steady", x), shoal.NotFound)
            self.assertIsInstance(error_of(client.infer, "ä", x, vmodel=True), shoal.NotFound)


class Puppets(unittest.TestCase):
    """A node whose model does as it is told."""

    def start(self, **keys):
        self.port = free_port()
        self.shoald = self.enterContext(Shoald(
            node(pipeline("puppet", stage("libpuppet.so", params={"folder": "."}), **keys)),
            ["--listen", f"127.0.0.1:{self.port}"]))
        self.client = self.enterContext(connect(self.shoald.target))
        self.pool = self.enterContext(concurrent.futures.ThreadPoolExecutor(8))

    def say(self, text, **keys):
        return self.client.infer("puppet", text, **{"outputs": "said", **keys}).tolist()

    def hold(self, name):
        """A call that the model holds; a future."""
        future = self.pool.submit(self.say, f"hold {name}")
        wait_until((self.shoald.folder / f"{name}.held").exists, f"{name} to be held")
        return future

    def give(self, name):
        (self.shoald.folder / f"{name}.go").touch()


class TestErrors(Puppets):
    def test_statuses(self):
        self.start(slots=8)
        for code, number in (("NOT_FOUND", 5), ("INVALID_ARGUMENT", 3), ("UNAVAILABLE", 14),
                             ("INTERNAL", 13), ("FAILED_PRECONDITION", 9), ("UNIMPLEMENTED", 12),
                             ("PERMISSION_DENIED", 7), ("DATA_LOSS", 15)):
            with self.subTest(code):
                error = error_of(self.say, f"fail {number}")
                self.assertEqual((error.code, error.retry_after), (code, None))
                self.assertEqual(type(error).__name__, {"DATA_LOSS": "ShoalError"}.get(
                    code, code.title().replace("_", "")))
                again = pickle.loads(pickle.dumps(error))
                self.assertEqual((type(again), str(again)), (type(error), str(error)))
        for function in (self.client.infer, self.client.metadata, self.client.ready):
            error = error_of(function, "nobody", *([[1]] if function == self.client.infer else []))
            self.assertIsInstance(error, shoal.NotFound)
            self.assertIn('"nobody"', str(error))
        self.assertIsInstance(error_of(self.say, "echo x", version="9"), shoal.NotFound)
        self.assertIn("priority", str(error_of(self.say, "echo x", priority=9)))
        self.assertIn('"sad"', str(error_of(self.say, "echo x", outputs="sad")))
        self.assertIsInstance(shoal.DeadlineExceeded("", ""), TimeoutError)
        self.assertIsInstance(shoal.Unavailable("", ""), ConnectionError)
        self.assertIsInstance(shoal.InvalidArgument("", ""), ValueError)

    def test_deadline(self):
        self.start(slots=8)
        for text, timeout in (("linger deadline", 0.3), ("echo late", 0)):  # no forecast refuses the first
            error = error_of(self.say, text, timeout=timeout)
            self.assertIsInstance(error, shoal.DeadlineExceeded)
        with shoal.Client(self.shoald.target, timeout=0) as hasty:
            error = error_of(hasty.server)
        self.assertIsInstance(error, shoal.DeadlineExceeded)
        self.assertIn("`timeout`", str(error))
        self.assertEqual(self.say("echo a", timeout=math.inf), [b"echo a"])

    def test_refused_for_load(self):
        """The node names a time; with retries the client calls again then, and gets its answer."""
        self.start(slots=1)
        self.assertEqual(self.say("echo first"), [b"echo first"])
        held = self.hold("full")
        error = error_of(self.say, "echo refused")
        self.assertIsInstance(error, shoal.ResourceExhausted)
        self.assertGreater(error.retry_after, 0)
        before = self.shoald.pipeline_stat("puppet")["rejected_full"]
        with connect(self.shoald.target, retries=10000) as patient:
            future = self.pool.submit(patient.infer, "puppet", "echo again", outputs="said")
            self.shoald.wait_stat("puppet", lambda stat: stat["rejected_full"] > before + 1,
                                  "it to be refused twice")
            self.assertFalse(future.done())
            self.give("full")
            self.assertEqual(future.result().tolist(), [b"echo again"])
        held.result()

    def test_killed_node(self):
        """The call in flight fails at once; the first one after the next start is answered."""
        self.start(slots=8)
        with connect(f"127.0.0.1:{self.port}") as other:
            self.assertTrue(other.live())
            held = self.hold("killed")
            self.shoald.kill()
            self.assertIsInstance(held.exception(), shoal.Unavailable)
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                answers = pool.map(lambda _: error_of(other.server).code, range(100))
                self.assertEqual(set(answers), {"UNAVAILABLE"})
            self.assertFalse(other.live() or other.ready())
            for client in (self.client, other):
                error = error_of(client.infer, "puppet", "echo a")
                self.assertIsInstance(error, shoal.Unavailable)
                self.assertIn(client.target, str(error))
                self.assertIn("`listen`", str(error))
            self.shoald.start().wait_ready()
            for client in (self.client, other):
                self.assertEqual(client.infer("puppet", "echo b", outputs="said").tolist(), [b"echo b"])
        self.shoald.terminate()

    def test_closed(self):
        self.start(slots=8)
        held = self.hold("closed")
        self.client.close()
        self.assertIsInstance(held.exception(), shoal.Cancelled)
        self.shoald.wait_stat("puppet", lambda stat: stat["cancelled"] == 1, "the cancellation")
        self.give("closed")

    def test_targets(self):
        for given, want in (("example", "example:8033"), ("/run/s", "unix:/run/s"), ("[::1]", "[::1]:8033"),
                            ("a:1", "a:1"), ("unix:s", "unix:s"), ("dns:///a:1", "dns:///a:1")):
            with connect(given) as client:
                self.assertEqual(client.target, want)
        with self.assertRaisesRegex(ValueError, "speaks gRPC"):
            connect("http://localhost:8008")
        with self.assertRaisesRegex(ValueError, "cert and key"):
            connect("localhost", cert=b"")

    def test_tls(self):
        certificates = self.enterContext(Certificates("ca", "stranger"))
        for name, authority in (("server", "ca"), ("client", "ca")):
            certificates.sign(name, authority)
        port = free_port()
        keys = {"tls": certificates.pair("server", client_ca="ca"), "listen": [f"127.0.0.1:{port}"]}
        own = {"cert": certificates.pem("client"), "key": certificates.key("client")}
        with Shoald(node(pipeline("echo", stage("libecho.so")), **keys), listen=[]):
            ca, target = certificates.pem("ca"), f"127.0.0.1:{port}"
            with connect(target, ca=ca, **own) as client:
                self.assertEqual(client.infer("echo", [1]).tolist(), [1])
            read = {name: pathlib.Path(path).read_bytes() for name, path in own.items()}
            with connect(target, ca=pathlib.Path(ca).read_bytes(), server_name=NAME, **read) as client:
                self.assertEqual(client.infer("echo", [1]).tolist(), [1])
            for wrong in ({"ca": ca}, {"ca": certificates.pem("stranger"), **own}, {"tls": True}, {},
                          {"ca": ca, "server_name": "other.example", **own}):
                with connect(target, **wrong) as client:
                    self.assertIsInstance(error_of(client.server), shoal.Unavailable)


class TestAsyncio(Puppets):
    def run_with(self, test, **keys):
        self.start(**keys)

        async def run():
            async with shoal.AsyncClient(self.shoald.target, timeout=WAIT_SECONDS) as client:
                return await test(client)
        return asyncio.run(run())

    def test_methods(self):
        async def test(client):
            with self.assertRaises(shoal.DeadlineExceeded):
                await client.infer("puppet", "linger deadline", timeout=0.3)
            self.assertTrue(await client.live() and await client.ready()
                            and await client.ready("puppet"))
            self.assertEqual((await client.server()).name, "shoal")
            self.assertEqual((await client.metadata("puppet")).inputs[0].name, "say")
            self.assertEqual((await client.request("puppet", "echo x", id="7")).id, "7")
            answers = await asyncio.gather(*(client.infer("puppet", f"echo {i}", outputs="said")
                                             for i in range(20)))
            self.assertEqual([a.tolist() for a in answers], [[f"echo {i}".encode()] for i in range(20)])
            with self.assertRaises(shoal.NotFound):
                await client.metadata("nobody")
            return client
        client = self.run_with(test, slots=32)
        with self.assertRaisesRegex(RuntimeError, "another event loop"):
            asyncio.run(client.live())

    def test_cancelled(self):
        """A task that is cancelled cancels its call: the model is notified and its slot comes back."""
        async def test(client):
            task = asyncio.create_task(client.infer("puppet", "linger run"))
            held = self.shoald.folder / "run.held"
            await asyncio.to_thread(wait_until, held.exists, "the call to run")
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            gave_up = self.shoald.folder / "run.gave_up"
            await asyncio.to_thread(wait_until, gave_up.exists, "the model to be told")
            self.assertEqual((await client.infer("puppet", "echo x", outputs="said")).tolist(), [b"echo x"])
        self.run_with(test, slots=8)
        stat = self.shoald.wait_all_returned("puppet")
        self.assertEqual(stat["cancelled"], 1)

    def test_refused_for_load(self):
        async def test(client):
            await client.infer("puppet", "echo first")
            held = await asyncio.to_thread(self.hold, "full")
            with self.assertRaises(shoal.ResourceExhausted):
                await client.infer("puppet", "echo refused")
            before = self.shoald.pipeline_stat("puppet")["rejected_full"]
            async with shoal.AsyncClient(self.shoald.target, timeout=WAIT_SECONDS,
                                         retries=10000) as patient:
                task = asyncio.create_task(patient.infer("puppet", "echo again", outputs="said"))
                await asyncio.to_thread(self.shoald.wait_stat, "puppet",
                                        lambda stat: stat["rejected_full"] > before + 1, "two refusals")
                self.give("full")
                self.assertEqual((await task).tolist(), [b"echo again"])
            held.result()
        self.run_with(test, slots=1)


if __name__ == "__main__":
    shoal_fixture.main()
