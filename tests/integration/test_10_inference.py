# SPDX-License-Identifier: Apache-2.0
"""A healthy node's answers are right, in every form of request.

A real daemon with the example modelets; every datatype raw and typed, shapes with nothing in them,
large and many at once; each answer is compared with what it must be, byte by byte.

ctest: timeout=180
"""

import array
import concurrent.futures
import csv
import math
import random
import struct
import threading
import unittest

import shoal_fixture
from shoal_client import Client, bytes_element, failure, open_inference
from shoal_fixture import (EXAMPLES, MODELETS, SOURCE, Shoald, draw_seed, free_port, node, pipeline,
                           stage)

MIB = 1 << 20
# Datatype: format of an element in struct, member of InferTensorContents, some values.
TYPES = {
    "BOOL": ("?", "bool_contents", [True, False, True]),
    "UINT8": ("B", "uint_contents", [0, 1, 255]),
    "UINT16": ("H", "uint_contents", [0, 256, 65535]),
    "UINT32": ("I", "uint_contents", [0, 65536, 2**32 - 1]),
    "UINT64": ("Q", "uint64_contents", [0, 2**32, 2**64 - 1]),
    "INT8": ("b", "int_contents", [-128, -1, 127]),
    "INT16": ("h", "int_contents", [-32768, -1, 32767]),
    "INT32": ("i", "int_contents", [-2**31, -1, 2**31 - 1]),
    "INT64": ("q", "int64_contents", [-2**63, -1, 2**63 - 1]),
    "FP16": ("e", None, [0.5, -2.0, 65504.0]),
    "FP32": ("f", "fp32_contents", [0.5, -3.25, 1e30]),
    "FP64": ("d", "fp64_contents", [0.1, -1e300, math.pi]),
    "BF16": ("H", None, [0x3f80, 0xc000, 0x7f7f]),
}


def packed(datatype, values):
    return struct.pack(f"<{len(values)}{TYPES[datatype][0]}", *values)


class TestEcho(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shoald = cls.enterClassContext(Shoald(node(
            pipeline("echo", stage("libecho.so"), slots=64, arena_mib=64), message_mib=16)))
        cls.client = cls.enterClassContext(Client(cls.shoald.target))

    def check_echo(self, *inputs, **fields):
        """Sends raw tensors and has them come back as they were; returns the answer."""
        answer = self.client.infer_raw("echo", *inputs, **fields)
        got = [(tensor.name, tensor.datatype, list(tensor.shape), contents) for tensor, contents
               in zip(answer.outputs, answer.raw_output_contents, strict=True)]
        self.assertEqual([tensor[:3] for tensor in got],
                         [(name, datatype, list(shape)) for name, datatype, shape, _ in inputs])
        for mine, theirs in zip(inputs, got):
            self.assertTrue(mine[3] == theirs[3], f"the contents of {mine[0]} came back changed")
        return answer

    def test_smallest(self):
        self.check_echo(("x", "INT32", [1], b"\x01\x02\x03\x04"))

    def test_raw_of_every_datatype(self):
        for datatype, (_, _, values) in TYPES.items():
            with self.subTest(datatype):
                self.check_echo(("x", datatype, [3], packed(datatype, values)))

    def test_typed_of_every_datatype(self):
        for datatype, (_, member, values) in TYPES.items():
            if member is None:
                continue
            with self.subTest(datatype):
                answer = self.client.infer_raw(
                    "echo", ("x", datatype, [3], {member: values}), raw=False)
                self.assertEqual(answer.outputs[0].datatype, datatype)
                self.assertEqual(answer.raw_output_contents[0], packed(datatype, values))

    def test_half_precision_is_raw_only(self):
        for datatype in ("FP16", "BF16"):
            with self.subTest(datatype):
                code, text = failure(self.client.start_raw(
                    "echo", ("x", datatype, [1], {"fp32_contents": [1]}), raw=False))
                self.assertEqual(code.name, "INVALID_ARGUMENT", text)
                self.assertIn(f'"x": {datatype} travels in raw_input_contents only', text)

    def test_bytes_raw_and_typed(self):
        elements = [b"", b"one", bytes(range(256)), "häns".encode()]
        raw = b"".join(map(bytes_element, elements))
        self.check_echo(("x", "BYTES", [2, 2], raw))
        answer = self.client.infer_raw(
            "echo", ("x", "BYTES", [2, 2], {"bytes_contents": elements}), raw=False)
        self.assertEqual(answer.raw_output_contents[0], raw)

    def test_empty_and_scalar(self):
        self.check_echo(("empty", "FP32", [0], b""))
        self.check_echo(("empty", "FP32", [3, 0, 5], b""))
        self.check_echo(("empty", "BYTES", [0], b""))
        self.check_echo(("scalar", "FP64", [], struct.pack("<d", 2.5)))
        self.check_echo(("empty", "INT8", [0], b""), ("full", "INT8", [2], b"ab"),
                        ("empty too", "INT64", [0, 7], b""))
        answer = self.client.infer_raw("echo", ("x", "INT32", [0], {}), raw=False)
        self.assertEqual(list(answer.raw_output_contents), [b""])

    def test_all_dimensions_and_many_tensors(self):
        self.check_echo(("x", "UINT8", [1, 2, 1, 2, 1, 2, 1, 2], bytes(16)))
        self.check_echo(*[(f"x{i}", "UINT8", [i + 1], bytes([i]) * (i + 1)) for i in range(64)])

    def test_large(self):
        seed = draw_seed()
        data = random.Random(seed).randbytes(15 * MIB)
        self.check_echo(("x", "UINT8", [15, MIB], data))
        self.check_echo(("x", "UINT8", [7 * MIB], data[:7 * MIB]), ("y", "INT8", [0], b""),
                        ("z", "FP32", [2 * MIB], data[7 * MIB:]))

    def test_identity_and_version(self):
        answer = self.check_echo(("x", "INT8", [1], b"a"), id="request 7/ä", model_version="1")
        self.assertEqual((answer.id, answer.model_name, answer.model_version),
                         ("request 7/ä", "echo", "1"))
        self.assertEqual(self.check_echo(("x", "INT8", [1], b"a")).id, "")

    def test_requested_outputs(self):
        inputs = [(name, "INT8", [1], name.encode()) for name in "abcd"]
        for wanted in ("dbca", "c", "ad"):
            with self.subTest(wanted):
                answer = self.client.infer_raw("echo", *inputs, outputs=wanted)
                self.assertEqual([tensor.name for tensor in answer.outputs], list(wanted))
                self.assertEqual(list(answer.raw_output_contents), [c.encode() for c in wanted])
        code, text = failure(self.client.start_raw("echo", *inputs, outputs=["a", "nope"]))
        self.assertEqual(code.name, "INVALID_ARGUMENT", text)
        self.assertIn('"nope"', text)

    def test_one_connection_after_the_other(self):
        for i in range(50):
            with Client(self.shoald.target) as client:
                answer = client.infer_raw("echo", ("x", "INT32", [1], struct.pack("<i", i)))
                self.assertEqual(answer.raw_output_contents[0], struct.pack("<i", i))


class TestParameters(unittest.TestCase):
    """Parameters of the request reach the modelet, and the stages after the first too."""

    def test_parameters(self):
        probe = MODELETS / "libprobe.so"
        config = node(pipeline("probe", stage(probe, "one"), stage(probe, "two"), slots=4),
                      message_mib=1)
        words = struct.pack("<3q", 0, 0, 0)
        with Shoald(config) as shoald, Client(shoald.target) as client:
            for value, due in (({"int64_param": -42}, -42), ({"bool_param": True}, 1)):
                answer = client.infer_raw("probe", ("probe", "INT64", [3], words),
                                          parameters={"probe": value, "other": {"int64_param": 9}})
                facts = struct.unpack(f"<{len(answer.raw_output_contents[0]) // 8}q",
                                      answer.raw_output_contents[0])
                self.assertEqual(facts[9], due, f"{value} did not reach the last stage: {facts}")


class TestScaleShift(unittest.TestCase):
    """y = x · 2 + 3 in two stages, the first with two workers."""

    @classmethod
    def setUpClass(cls):
        cls.shoald = cls.enterClassContext(
            Shoald(EXAMPLES / "scale-shift" / "scale-shift.yaml"))
        cls.client = cls.enterClassContext(Client(cls.shoald.target))

    def test_every_datatype_it_takes(self):
        for datatype in ("FP32", "FP64", "INT32", "INT64"):
            form = TYPES[datatype][0]
            values = [0, 1, 5, 60, -7]
            with self.subTest(datatype):
                answer = self.client.infer_raw(
                    "scale-shift", ("x", datatype, [len(values)], packed(datatype, values)))
                got = struct.unpack(f"<{len(values)}{form}", answer.raw_output_contents[0])
                self.assertEqual(list(got), [value * 2 + 3 for value in values])

    def test_64_at_once(self):
        """Each of 64 threads checks that it gets its own answers."""
        seed = draw_seed()

        def ask(number):
            draw = random.Random(seed * 64 + number)
            with Client(self.shoald.target) as client:
                for _ in range(30):
                    values = [draw.randrange(-10**6, 10**6) for _ in range(draw.randrange(1, 50))]
                    answer = client.infer_raw(
                        "scale-shift", ("x", "INT64", [len(values)], packed("INT64", values)))
                    got = struct.unpack(f"<{len(values)}q", answer.raw_output_contents[0])
                    if list(got) != [value * 2 + 3 for value in values]:
                        return f"thread {number}: {values} gave {got}"
            return None
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            wrong = [found for found in pool.map(ask, range(64)) if found]
        self.assertFalse(wrong, wrong[:3])

    def test_256_outstanding_on_one_connection(self):
        """As many as there are slots; what is beyond is refused, all others are right."""
        futures = [(i, self.client.start_raw("scale-shift", ("x", "INT32", [1], struct.pack("<i", i))))
                   for i in range(256)]
        for i, future in futures:
            self.assertEqual(future.result().raw_output_contents[0], struct.pack("<i", i * 2 + 3))


class TestThreeFrontThreads(TestScaleShift):
    """The same with calls that come in on three completion queues."""

    @classmethod
    def setUpClass(cls):
        cls.shoald = cls.enterClassContext(Shoald(node(
            pipeline("scale-shift", stage("libscale.so", workers=2), stage("libshift.so")),
            front_threads=3)))
        cls.client = cls.enterClassContext(Client(cls.shoald.target))


class TestDigits(unittest.TestCase):
    def test_held_out_digits(self):
        """At least 95 % of the held-out digits come back right, one request for each."""
        with (SOURCE / "examples/digits/data/digits.csv").open(newline="") as file:
            rows = [[int(value) for value in row] for row in csv.reader(file)][4::5]
        self.assertGreater(len(rows), 350)
        with Shoald(EXAMPLES / "digits" / "digits.yaml", ["--no-pin"]) as shoald, \
                Client(shoald.target) as client:
            futures = [client.start_raw(
                "digits", ("image", "FP32", [1, 64], array.array("f", row[:64]).tobytes()),
                outputs=["label"]) for row in rows]
            labels = [open_inference.decode(answer.outputs[0], answer.raw_output_contents[0])[0]
                      for answer in [future.result() for future in futures]]
        right = sum(label == row[64] for label, row in zip(labels, rows))
        self.assertGreaterEqual(right / len(rows), 0.95, f"{right} of {len(rows)}")


class TestNode(unittest.TestCase):
    """Two pipelines, two addresses, and what the node says of itself."""

    @classmethod
    def setUpClass(cls):
        cls.port = free_port()
        config = node(pipeline("puppet", stage("libpuppet.so", workers=2), slots=64),
                      pipeline("scale-shift", stage("libscale.so", params={"factor": 2}),
                               stage("libshift.so", params={"offset": 3}), slots=64), message_mib=1)
        cls.shoald = cls.enterClassContext(
            Shoald(config, ["--listen", f"127.0.0.1:{cls.port}"]))
        cls.client = cls.enterClassContext(Client(cls.shoald.target))

    def test_unix_and_tcp_at_the_same_time(self):
        wrong = []

        def ask(target, start):
            with Client(target) as client:
                for i in range(start, start + 200):
                    answer = client.infer_raw("scale-shift",
                                              ("x", "INT32", [1], struct.pack("<i", i)))
                    if answer.raw_output_contents[0] != struct.pack("<i", i * 2 + 3):
                        wrong.append((target, i))
        threads = [threading.Thread(target=ask, args=arguments) for arguments in
                   ((self.shoald.target, 0), (f"127.0.0.1:{self.port}", 1000),
                    (self.shoald.target, 2000), (f"localhost:{self.port}", 3000))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertFalse(wrong)

    def test_server(self):
        self.assertTrue(self.client.call("ServerLive").live)
        self.assertTrue(self.client.call("ServerReady").ready)
        metadata = self.client.call("ServerMetadata")
        self.assertEqual(metadata.name, "shoal")
        self.assertRegex(metadata.version, r"^\d+\.\d+\.\d+$")

    def test_model_ready(self):
        for fields in ({"name": "puppet"}, {"name": "puppet", "version": "1"}):
            self.assertTrue(self.client.call("ModelReady", **fields).ready)
        for fields in ({"name": "nobody"}, {"name": "puppet", "version": "2"}, {"name": ""}):
            with self.subTest(str(fields)):
                code, text = failure(self.client.start("ModelReady", **fields))
                self.assertEqual(code.name, "NOT_FOUND", text)

    def test_model_metadata(self):
        metadata = self.client.call("ModelMetadata", name="puppet")
        self.assertEqual((metadata.name, list(metadata.versions), metadata.platform),
                         ("puppet", ["1"], "puppet"))
        self.assertEqual([(t.name, t.datatype, list(t.shape)) for t in metadata.inputs],
                         [("say", "BYTES", [1])])
        self.assertEqual([(t.name, t.datatype, list(t.shape)) for t in metadata.outputs],
                         [("said", "BYTES", [1]), ("pid", "INT64", [1])])
        code, text = failure(self.client.start("ModelMetadata", name="nobody"))
        self.assertEqual(code.name, "NOT_FOUND", text)
        self.assertIn('"nobody"', text)


if __name__ == "__main__":
    shoal_fixture.main()
