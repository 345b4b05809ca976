# SPDX-License-Identifier: Apache-2.0
"""REST in other forms than plain v2: compressed bodies and KServe's v1 protocol.

A compressed body is inflated on the HTTP thread if it is small, and by the reader of large bodies
otherwise, up to message_mib: a bomb is refused, and costs memory of that order only, and so do
many that are just not refused.
ctest: timeout=120
"""

import concurrent.futures
import contextlib
import gzip
import json
import os
import pathlib
import re
import tempfile
import unittest
import zlib

import shoal_fixture
from shoal_attacks import NotPossible, bomb, stands_still
from shoal_fixture import EXAMPLES, Shoald, node, pipeline, read_proc, stage, wait_until
from shoal_rest import ANY_PORT, Rest, port_of, tensor

MIB = 1 << 20
GZIP, DEFLATE = {"Content-Encoding": "gzip"}, {"Content-Encoding": "deflate"}


class TestCompressed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shoald = cls.enterClassContext(Shoald(node(
            pipeline("echo", stage("libecho.so")), http=ANY_PORT, message_mib=2,
            http_large_kib=64)))
        cls.port = port_of(cls.shoald)

    def setUp(self):
        self.rest = self.enterContext(Rest(self.port))

    def refused(self, code, word, body, headers):
        answer = self.rest.post("echo", body, headers)
        self.assertEqual(answer.code, code, answer)
        self.assertIn(word, answer.error)

    def large_bodies(self):
        self.shoald.wait_published()
        return self.shoald.stat()["http_large_bodies"]

    def test_small_and_large(self):
        """The second is small as it comes and large as it is read; the third is large in any form."""
        before = self.large_bodies()
        for values in ([1, -2], [7] * 100_000, [i * i % 251 - 125 for i in range(100_000)]):
            body, _ = self.rest.infer_body([tensor("x", "INT8", [len(values)], values)])
            for headers, packed in ((GZIP, gzip.compress(body)), (DEFLATE, zlib.compress(body)),
                                    ({"Content-Encoding": "X-Gzip"}, gzip.compress(body))):
                self.assertEqual(self.rest.post("echo", packed, headers).data(), values)
        self.assertEqual(self.large_bodies() - before, 6)

    def test_binary_data(self):
        text = json.dumps({"inputs": [tensor("x", "INT8", [3], binary_data_size=3)],
                           "parameters": {"binary_data_output": True}}).encode()
        answer = self.rest.post("echo", gzip.compress(text + b"\1\2\3"), {
            **GZIP, "Inference-Header-Content-Length": str(len(text))})
        self.assertEqual((answer.code, answer.binary), (200, b"\1\2\3"))

    def test_refused(self):
        body, _ = self.rest.infer_body([tensor("x", "INT8", [1], [1])])
        good = gzip.compress(body)
        for packed, word in ((good[:-1], "truncated"), (b"", "truncated"), (body, "incorrect header"),
                             (good[:-5] + b"\0" + good[-4:], "incorrect data check"),
                             (good + b"x", "cannot be decompressed")):
            self.refused(400, word, packed, GZIP)
        self.refused(400, "the body is empty", gzip.compress(b""), GZIP)
        self.refused(400, "goes on after", zlib.compress(body) + b"x", DEFLATE)
        for value in ("br", "gzip, gzip", "gzip,deflate", "zstd"):
            self.refused(415, f'Content-Encoding "{value}" is not taken', good, {"Content-Encoding": value})
        self.assertEqual(self.rest.post("echo", good, GZIP).data(), [1])

    def peak_kib(self):
        status = pathlib.Path(f"/proc/{self.shoald.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])

    def test_bombs(self):
        """A hundred times half a gigabyte, eight at a time."""
        packed = bomb(512 * MIB)[5:]
        self.assertLess(len(packed), 2 * MIB)
        self.refused(413, "message_mib", packed, GZIP)
        before = self.peak_kib()

        def throw(_):
            with Rest(self.port) as rest:
                return [rest.post("echo", packed, GZIP).code for _ in range(12)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            codes = [code for some in pool.map(throw, range(8)) for code in some]
        self.assertEqual(set(codes), {413})
        if not shoal_fixture.sanitized():  # its quarantine keeps what was freed
            self.assertLess(self.peak_kib() - before, 64 * 1024)


    def sleeps(self, name):
        """Whether the daemon's thread of that name waits for another one."""
        for task in os.listdir(f"/proc/{self.shoald.pid}/task"):
            who, _, rest = read_proc(f"{self.shoald.pid}/task/{task}", "stat").rpartition(")")
            if who.endswith(f"({name}"):
                return rest.split()[0] == "S"
        raise AssertionError(f"there is no thread {name}")

    def test_bombs_below_the_limit(self):
        """However many wait, and however long the HTTP thread is busy, two are in memory."""
        body, _ = self.rest.infer_body([tensor("x", "INT8", [1], [1])])
        packed = gzip.compress(body + b" " * (2 * MIB - len(body)))
        before, peak_before = self.large_bodies(), self.peak_kib()
        crowd = [self.enterContext(Rest(self.port)) for _ in range(64)]
        try:
            with contextlib.ExitStack() as http_stops:
                with stands_still(self.shoald.pid, lambda name: name == "shoald:json"):
                    for rest in crowd:
                        rest.send("POST", "/v2/models/echo/infer", packed, GZIP)
                    wait_until(lambda: self.large_bodies() - before == len(crowd), "all to wait")
                    http_stops.enter_context(
                        stands_still(self.shoald.pid, lambda name: name == "shoald:http"))
                wait_until(lambda: all(self.sleeps("shoald:json") for _ in range(50)),
                           "the reader to wait for the HTTP thread")
                grown = self.peak_kib() - peak_before
        except NotPossible as why:
            self.skipTest(str(why))
        self.assertEqual({rest.receive().code for rest in crowd}, {200})
        if not shoal_fixture.sanitized():
            self.assertLess(grown, 16 * 1024)


def simple_models(root, *names):
    for name in names:
        (pathlib.Path(root) / name).mkdir()


class TestVersion1(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="shoal-test.")))
        root = folder / "models"
        root.mkdir()
        simple_models(root, "simple", "simple_string", "simple_identity", "a broken one")
        cls.shoald = cls.enterClassContext(Shoald(node(
            pipeline("simple-ones", stage("libsimple.so"), models={"root": "models", "memory_mib": 256}),
            pipeline("echo", stage("libecho.so")),
            pipeline("any", stage(EXAMPLES / "scale-shift/libscale.so", params={"factor": 2})),
            http=ANY_PORT), folder=folder))
        cls.port = port_of(cls.shoald)
        with Rest(cls.port) as rest:
            for name in ("simple", "simple_string", "simple_identity"):
                wait_until(lambda n=name, r=rest: r.get(f"/v2/models/{n}/ready").code == 200,
                                         f"{name} is not loaded")

    def setUp(self):
        self.rest = self.enterContext(Rest(self.port))

    def predict(self, model, instances, headers=None, **members):
        return self.rest.ask("POST", f"/v1/models/{model}:predict",
                             json.dumps({"instances": instances, **members}), headers)

    def test_several_inputs(self):
        ones, numbers = [1] * 16, list(range(16))
        answer = self.predict("simple", [{"INPUT0": numbers, "INPUT1": ones},
                                         {"INPUT1": numbers, "INPUT0": ones}], signature_name="x")
        self.assertEqual(answer.code, 200, answer)
        self.assertEqual(answer.json, {"predictions": [
            {"OUTPUT0": [n + 1 for n in numbers], "OUTPUT1": [n - 1 for n in numbers]},
            {"OUTPUT0": [n + 1 for n in numbers], "OUTPUT1": [1 - n for n in numbers]}]})
        strings = {"INPUT0": [str(n) for n in numbers], "INPUT1": ["1"] * 16}
        self.assertEqual(self.predict("simple_string", [strings]).json["predictions"][0]["OUTPUT0"],
                         [str(n + 1) for n in numbers])

    def test_one_input(self):
        rows = [["a", "ä\n"], ["", "]"]]
        self.assertEqual(self.predict("simple_identity", rows).json, {"predictions": rows})
        packed = gzip.compress(json.dumps({"instances": rows}).encode())
        answer = self.rest.ask("POST", "/v1/models/simple_identity:predict", packed, GZIP)
        self.assertEqual(answer.json, {"predictions": rows})

    def test_large(self):
        rows = [["x" * 10] * 100] * 600
        self.assertEqual(self.predict("simple_identity", rows).json, {"predictions": rows})
        self.shoald.wait_published()
        self.assertGreaterEqual(self.shoald.stat()["http_large_bodies"], 1)

    def test_model_by_header(self):
        """As with v2, it comes before the path's, and so do its tensors."""
        answer = self.predict("nobody", [["a"]], {"mm-model-id": "simple_identity"})
        self.assertEqual((answer.code, answer.json), (200, {"predictions": [["a"]]}))

    def test_status(self):
        answer = self.rest.get("/v1/models/simple")
        self.assertEqual((answer.code, answer.json), (200, {"name": "simple", "ready": True}))
        self.assertEqual(self.rest.get("/v1/models/nobody").code, 404)

    def test_refused(self):
        for model, instances, code, word in (
                ("nobody", [[1]], 404, '"nobody" is not known'),
                ("echo", [[1]], 501, "does not declare its inputs"),
                ("any", [[1]], 501, "takes any type"),
                ("a%20broken%20one", [[1]], 503, "broken"),
                ("simple", [[1]], 400, "has 2 inputs"),
                ("simple", [{"INPUT0": [1] * 16}], 400, 'input "INPUT1" is missing'),
                ("simple", [{"INPUT0": [1] * 15, "INPUT1": [1] * 15}], 400, "INPUT0"),
                ("simple_string", [{"INPUT0": ["x"] * 16, "INPUT1": ["1"] * 16}], 400, "no number"),
                ("simple_identity", [[1]], 400, "is no BYTES")):
            with self.subTest(model=model, instances=instances):
                answer = self.predict(model, instances)
                self.assertEqual(answer.code, code, answer)
                self.assertIn(word, answer.error)
        answer = self.rest.get("/v1/models/simple:predict")
        self.assertEqual((answer.code, answer.headers["Allow"]), (405, "POST"))
        self.assertEqual(self.rest.ask("POST", "/v1/models/simple:explain", "{}").code, 405)

    def test_not_loaded(self):
        """It is loaded for the next call."""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="shoal-test.")))
        (folder / "models/simple_identity").mkdir(parents=True)
        shoald = self.enterContext(Shoald(node(
            pipeline("p", stage("libsimple.so"),
                     models={"root": "models", "memory_mib": 64, "preload": "no"}),
            http=ANY_PORT), folder=folder))
        self.rest = self.enterContext(Rest(port_of(shoald)))
        answer = self.predict("simple_identity", [["a"]])
        self.assertEqual((answer.code, answer.headers["Retry-After"]), (503, "1"), answer)
        self.assertIn("is being loaded", answer.error)
        wait_until(lambda: self.predict("simple_identity", [["a"]]).code == 200, "it to be loaded")


if __name__ == "__main__":
    shoal_fixture.main()
