# SPDX-License-Identifier: Apache-2.0
"""The protocol over HTTP: the same pipelines, the same answers, the same refusals as over gRPC.

Each defect of the proxy that clusters of this protocol have had for REST is a test here, by its
name. Then overload, time-outs, deaths, callers that go away, drain.

ctest: timeout=240 presets=tsan
"""

import array
import base64
import concurrent.futures
import csv
import json
import math
import os
import signal
import struct
import subprocess
import unittest

import shoal_fixture
from shoal_client import Client, bytes_element, failure
from shoal_fixture import (EXAMPLES, SOURCE, WAIT_SECONDS, Shoald, children, node, pipeline, stage,
                           wait_until)
from shoal_rest import ANY_PORT, Rest, port_of, raw_answers, tensor

MIB = 1 << 20
HOUR_MS = 3600 * 1000

# Datatype: how struct packs it, and values up to the ends of its range.
NUMBERS = {
    "BOOL": ("?", [True, False, True]), "UINT8": ("B", [0, 7, 255]),
    "UINT16": ("H", [0, 7, 2**16 - 1]), "UINT32": ("I", [0, 7, 2**32 - 1]),
    "UINT64": ("Q", [0, 2**63, 2**64 - 1]), "INT8": ("b", [-128, 0, 127]),
    "INT16": ("h", [-2**15, 0, 2**15 - 1]), "INT32": ("i", [-2**31, 0, 2**31 - 1]),
    "INT64": ("q", [-2**63, 2**53 + 1, 2**63 - 1]), "FP32": ("f", [0.5, -1.25, 16777216.0]),
    "FP64": ("d", [0.1, -1e300, 5e-324]),
}


def puppet(name="puppet", slots=8, **keys):
    return pipeline(name, stage("libpuppet.so", params={"folder": "."}, **keys), slots=slots)


class RestTest(unittest.TestCase):
    """One daemon and one connection for the tests of a class; `config` is its own."""

    @classmethod
    def setUpClass(cls):
        cls.shoald = cls.enterClassContext(Shoald(cls.config))
        cls.port = port_of(cls.shoald)
        cls.client = cls.enterClassContext(Client(cls.shoald.target))

    def setUp(self):
        self.rest = self.enterContext(Rest(self.port))

    def check_refused(self, answer, code, *words):
        self.assertEqual(answer.code, code, answer)
        for word in words:
            self.assertIn(word, answer.error)


class TestProtocol(RestTest):
    config = node(pipeline("echo", stage("libecho.so")), puppet(),
                  pipeline("probe", stage("libprobe.so"), slots=4), http=ANY_PORT, message_mib=2)

    def test_health(self):
        self.assertEqual(self.rest.get("/v2/health/live").json, {"live": True})
        self.assertEqual(self.rest.get("/v2/health/ready").json, {"live": True, "ready": True})
        answer = self.rest.ask("HEAD", "/v2/health/ready")
        self.assertEqual((answer.code, answer.body), (200, b""))

    def test_server_metadata(self):
        answer = self.rest.get("/v2").json
        grpc = self.client.call("ServerMetadata")
        self.assertEqual(answer, {"name": grpc.name, "version": grpc.version,
                                  "extensions": ["binary_tensor_data"]})

    def test_server_name(self):
        with Shoald(node(pipeline("echo", stage("libecho.so")), http=ANY_PORT,
                         server_name="triton")) as shoald:
            self.assertEqual(Rest(port_of(shoald)).get("/v2").json["name"], "triton")
            with Client(shoald.target) as client:
                self.assertEqual(client.call("ServerMetadata").name, "triton")

    def test_model_metadata(self):
        for path in ("/v2/models/puppet", "/v2/models/puppet/versions/1", "/v2/models/puppet/"):
            answer = self.rest.get(path).json
            grpc = self.client.call("ModelMetadata", name="puppet")
            self.assertEqual(answer, {
                "name": grpc.name, "versions": list(grpc.versions), "platform": grpc.platform,
                **{side: [{"name": one.name, "datatype": one.datatype, "shape": list(one.shape)}
                          for one in getattr(grpc, side)] for side in ("inputs", "outputs")}})
        self.assertEqual([one["name"] for one in answer["outputs"]], ["said", "pid"])

    def test_model_ready(self):
        for path in ("/v2/models/echo/ready", "/v2/models/echo/versions/1/ready"):
            answer = self.rest.get(path)
            self.assertEqual((answer.code, answer.json), (200, {"name": "echo", "ready": True}))

    def test_not_found(self):
        for path in ("/v2/models/nobody", "/v2/models/nobody/ready", "/v2/models/no%22body"):
            self.check_refused(self.rest.get(path), 404, "body", "is not known to this node")
        self.check_refused(self.rest.infer("nobody"), 404, '"nobody" is not known to this node')
        self.check_refused(self.rest.get("/v2/models/echo/versions/2"), 404, 'no version "2"')
        self.check_refused(self.rest.get("/v2/models/echo/versions/2/ready"), 404, 'no version "2"')
        self.check_refused(self.rest.infer("echo/versions/2"), 404, 'no version "2"')
        for path in ("/", "/v1/models/echo/x", "/v2/models/echo/x", "/metrics"):
            self.check_refused(self.rest.get(path), 404, "no such path")

    def test_methods(self):
        for method, path, allowed in (("GET", "/v2/models/echo/infer", "POST"),
                                      ("POST", "/v2/health/live", "GET, HEAD"),
                                      ("PUT", "/v2/models/echo", "GET, HEAD"),
                                      ("DELETE", "/v2/models/echo/infer", "POST")):
            answer = self.rest.ask(method, path)
            self.check_refused(answer, 405, allowed)
            self.assertEqual(answer.headers["Allow"], allowed)

    def test_every_datatype(self):
        """In JSON and as binary data, in each direction, and the same bytes as over gRPC."""
        for datatype, (form, values) in NUMBERS.items():
            with self.subTest(datatype):
                raw = struct.pack(f"<3{form}", *values)
                answer = self.rest.infer("echo", tensor("x", datatype, [3], values))
                self.assertEqual(answer.data(), values)
                self.assertEqual(list(map(type, answer.data())), list(map(type, values)))
                answer = self.rest.infer("echo", tensor("x", datatype, [3], values),
                                         parameters={"binary_data_output": True})
                self.assertEqual(answer.binary, raw)
                self.assertEqual(answer.headers["Content-Type"], "application/octet-stream")
                answer = self.rest.infer(
                    "echo", tensor("x", datatype, [3], binary_data_size=len(raw)), binary=raw)
                self.assertEqual(answer.data(), values)
                over_grpc = self.client.infer_raw("echo", ("x", datatype, [3], raw))
                self.assertEqual(over_grpc.raw_output_contents[0], raw)

    def test_whole_answer(self):
        answer = self.rest.infer("echo", tensor("x", "INT8", [2, 2], [[1, 2], [3, 4]]),
                                 tensor("y", "BYTES", [1], ["häns"]), id="7 ä",
                                 outputs=[{"name": "y"}, {"name": "x"}])
        self.assertEqual(answer.json, {
            "model_name": "echo", "model_version": "1", "id": "7 ä", "outputs": [
                tensor("y", "BYTES", [1], ["häns"]), tensor("x", "INT8", [2, 2], [1, 2, 3, 4])]})
        self.assertNotIn("id", self.rest.infer("echo", tensor("x", "INT8", [0], [])).json)

    def test_words_for_what_json_lacks(self):
        values = ["NaN", "Infinity", "-Infinity"]
        answer = self.rest.infer("echo", tensor("x", "FP32", [3], values),
                                 parameters={"binary_data_output": True})
        numbers = struct.unpack("<3f", answer.binary)
        self.assertTrue(math.isnan(numbers[0]))
        self.assertEqual(numbers[1:], (math.inf, -math.inf))
        self.assertEqual(self.rest.infer("echo", tensor("x", "FP32", [3], values)).data(), values)
        self.check_refused(self.rest.post("echo", json.dumps({"inputs": [
            tensor("x", "FP32", [1], [math.nan])]})), 400, "NaN", "write them as strings")

    def test_mixed_binary_and_json(self):
        answer = self.rest.infer(
            "echo", tensor("a", "FP16", [2], binary_data_size=4), tensor("b", "INT8", [1], [5]),
            tensor("c", "BYTES", [1], binary_data_size=6), binary=b"\x00\x3c\x00\x40" +
            bytes_element("hi"), outputs=[{"name": "b"}, {"name": "c"},
                                          {"name": "a", "parameters": {"binary_data": True}}])
        self.assertEqual(answer.data("b"), [5])
        self.assertEqual(answer.data("c"), ["hi"])
        self.assertEqual(answer.json["outputs"][2],
                         tensor("a", "FP16", [2], binary_data_size=4))
        self.assertEqual(answer.binary, b"\x00\x3c\x00\x40")

    def test_large(self):
        raw = os.urandom(MIB)
        for _ in range(8):  # one after the other on one connection: what is lent comes back
            answer = self.rest.infer("echo", tensor("x", "UINT8", [MIB], binary_data_size=MIB),
                                     binary=raw, parameters={"binary_data_output": True})
            self.assertEqual(answer.binary, raw)
        values = list(raw[:MIB // 8])
        self.assertEqual(self.rest.infer("echo", tensor("x", "UINT8", [MIB // 8], values)).data(),
                         values)
        self.shoald.wait_all_returned("echo")

    def test_content_headers(self):
        good = json.dumps({"inputs": [tensor("x", "INT8", [1], [1])]})
        for value in (None, "application/json", "Application/JSON; charset=utf-8",
                      "application/octet-stream", "application/x-www-form-urlencoded"):
            answer = self.rest.post("echo", good, {"Content-Type": value} if value else {})
            self.assertEqual(answer.data(), [1])
        for value in ("text/plain", "multipart/form-data", "application/jsonx", ""):
            self.check_refused(self.rest.post("echo", good, {"Content-Type": value}), 415,
                               f'Content-Type "{value}" is not taken')
        self.assertEqual(
            self.rest.post("echo", good, {"Content-Encoding": "identity"}).data(), [1])
        for value in ("br", "compress"):
            self.check_refused(self.rest.post("echo", good, {"Content-Encoding": value}), 415,
                               f'Content-Encoding "{value}" is not taken')

    def test_inference_header_length(self):
        good = json.dumps({"inputs": [tensor("x", "INT8", [1], [1])]})
        for value in ("-1", "x", "", " ", "1x", str(len(good) + 1), "99999999999999999999"):
            with self.subTest(value):
                self.check_refused(self.rest.post(
                    "echo", good, {"Inference-Header-Content-Length": value}), 400,
                    "Inference-Header-Content-Length")
        self.check_refused(self.rest.post("echo", good, {"Inference-Header-Content-Length": "0"}),
                           400, "the body is empty")
        answer = self.rest.post("echo", good, {"Inference-Header-Content-Length": str(len(good))})
        self.assertEqual(answer.data(), [1])

    def test_refusals(self):
        """Each with its code, in the words that gRPC has for it."""
        bad = tensor("say", "INT8", [1], [1])
        self.check_refused(self.rest.infer("puppet", bad), 400,
                           '"say": datatype INT8, the model takes BYTES')
        code, text = failure(self.client.start_raw("puppet", ("say", "INT8", [1], b"1")))
        self.assertEqual(self.rest.infer("puppet", bad).error, text)
        self.check_refused(self.rest.infer("puppet"), 400, '"say": missing')
        self.check_refused(self.rest.post("echo", b""), 400, "the body is empty")
        self.check_refused(self.rest.post("echo", b"{"), 400, "not valid JSON")
        self.check_refused(self.rest.post("echo", b"\xff"), 400, "not valid JSON")
        self.check_refused(self.rest.infer("echo", parameters={"priority": 4}), 400, "priority")
        there = tensor("x", "INT8", [1], [1], shared_memory_region="mine")
        self.check_refused(self.rest.infer("echo", there), 400, "one or the other")
        x = tensor("x", "INT8", [1], [1])
        outputs = [{"name": "x", "parameters": {"classification": 3}}]
        self.check_refused(self.rest.infer("echo", x, outputs=outputs), 400, "classification")
        for number, code in ((3, 400), (5, 404), (6, 409), (7, 403), (8, 429), (9, 503), (10, 409),
                             (11, 400), (12, 501), (13, 500), (14, 503), (15, 500), (16, 401),
                             (2, 500)):
            self.check_refused(self.rest.tell(f"fail {number}"), code)

    def test_limits(self):
        """Of the body, of headers, of depth and count; the connection of a good request lives
        on."""
        answer = self.rest.post("echo", b" " * (2 * MIB + 1))
        self.check_refused(answer, 413)
        with Rest(self.port) as other:
            self.check_refused(other.ask("GET", "/v2", headers={"x": "y" * 40000}), 431)
        with Rest(self.port) as other:
            deep = b'{"inputs":[{"name":"x","datatype":"INT8","shape":[1],"data":'
            self.check_refused(other.post("echo", deep + b"[" * 500000 + b"]" * 500000 + b"}]}"), 400,
                               "nested deeper")
            self.check_refused(other.post("echo", b"[" * MIB), 400, "nested arrays and objects")
            self.check_refused(other.post("echo", b'{"a":[' + b"1," * (MIB // 2) + b"1]}"), 400,
                               "take more than 131072 bytes")
            many = b"0," * (MIB // 2) + b"0"
            shape = str(MIB // 2 + 1).encode()
            answer = other.post("echo", b'{"inputs":[{"name":"x","datatype":"FP64","shape":[' +
                                shape + b'],"data":[' + many + b"]}]}")
            self.check_refused(answer, 413, "message_mib")
            self.assertEqual(other.infer("echo", tensor("x", "INT8", [1], [1])).data(), [1])

    def test_keep_alive(self):
        self.rest.infer("echo", tensor("x", "INT32", [1], [0]))
        socket = self.rest.connection.sock
        for i in range(200):
            answer = self.rest.infer("echo", tensor("x", "INT32", [1], [i]))
            self.assertEqual(answer.data(), [i])
            self.check_refused(self.rest.get("/nowhere"), 404)
        self.assertIs(self.rest.connection.sock, socket, "the connection was closed in between")

    def test_pipelined(self):
        """Requests sent without waiting: the answers come in their order."""
        request = b""
        for i in range(20):
            body, _ = self.rest.infer_body([tensor("x", "INT32", [1], [i])])
            request += (f"POST /v2/models/echo/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                        f"{len(body)}\r\n\r\n").encode() + body
            request += b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
        answers = raw_answers(self.port, request, 40)
        self.assertEqual([answer.data() for answer in answers[::2]], [[i] for i in range(20)])
        self.assertEqual({answer.code for answer in answers[1::2]}, {200})

    def test_chunked(self):
        body, headers = self.rest.infer_body([tensor("x", "INT8", [3], [1, 2, 3])])
        pieces = (body[i:i + 7] for i in range(0, len(body), 7))
        answer = self.rest.ask("POST", "/v2/models/echo/infer", pieces, headers)
        self.assertEqual(answer.data(), [1, 2, 3])

    def test_malformed(self):
        """The server's own errors have the protocol's form, too."""
        answer, = raw_answers(self.port, b"GET /v2 HTTP/1.1\r\nno header\r\n\r\n", 1)
        self.check_refused(answer, 400)
        answer, = raw_answers(self.port, b"GET /v2 HTTP/1.1\r\nContent-Length: x\r\n\r\n", 1)
        self.check_refused(answer, 400)

    def test_64_at_once(self):
        def ask(number):
            with Rest(self.port) as rest:
                for i in range(30):
                    values = [number, i, number * i]
                    if rest.infer("echo", tensor("x", "INT64", [3], values)).data() != values:
                        return f"{number}, {i}: wrong"
            return None
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            self.assertEqual({None}, set(pool.map(ask, range(64))))

    def test_counted(self):
        before = self.shoald.stat()
        self.rest.get("/v2")
        self.rest.get("/nowhere")
        self.rest.infer("echo", tensor("x", "INT8", [1], [1]))
        after = self.shoald.stat()
        self.assertEqual(after["calls"] - before["calls"], 3)
        self.assertEqual(after["calls_refused"] - before["calls_refused"], 1)


class TestDefectsOfTheProxyBefore(RestTest):
    """Known defects of this protocol's REST proxy, one by one."""

    config = node(pipeline("echo", stage("libecho.so")), puppet(),
                  pipeline("probe", stage("libprobe.so"), slots=4), http=[ANY_PORT], message_mib=2)

    def test_four_routes_only(self):
        for path in ("/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/echo",
                     "/v2/models/echo/ready"):
            self.assertEqual(self.rest.get(path).code, 200, path)

    def test_port_closed_until_the_models_are_up(self):
        config = node(puppet("stuck", start_timeout_ms=HOUR_MS), http=ANY_PORT)
        config["pipelines"][0]["stages"][0]["params"]["open"] = "hang"
        shoald = Shoald(config)
        try:
            shoald.start()
            with Rest(port_of(shoald)) as rest:
                self.assertEqual(rest.get("/v2/health/live").code, 200)
                answer = rest.get("/v2/health/ready")
                self.assertEqual((answer.code, answer.json), (503, {"live": False, "ready": False}))
                answer = rest.get("/v2/models/stuck/ready")
                self.assertEqual((answer.code, answer.json),
                                 (503, {"name": "stuck", "ready": False}))
                answer = rest.tell("echo x", "stuck")
                self.check_refused(answer, 503, "is starting: try again")
                self.assertEqual(answer.headers["Retry-After"], "1")
        finally:
            shoald.discard()

    def test_errors_of_another_form(self):
        self.assertEqual(list(self.rest.get("/v2/models/nobody").json), ["error"])
        self.assertEqual(list(self.rest.tell("fail 13").json), ["error"])

    def test_no_half_precision(self):
        for datatype in ("FP16", "BF16"):
            one = tensor("x", datatype, [2], binary_data_size=4)
            answer = self.rest.infer("echo", one, binary=b"\x01\x02\x03\x04",
                                     parameters={"binary_data_output": True})
            self.assertEqual(answer.binary, b"\x01\x02\x03\x04")
            self.check_refused(self.rest.infer("echo", one, binary=b"\x01\x02\x03\x04"), 400,
                               datatype, "binary_data_output")
            self.check_refused(self.rest.infer("echo", tensor("x", datatype, [1], [1.0])), 400,
                               datatype, "binary_data_size")

    def test_strings_always_come_back_as_base64(self):
        self.assertEqual(self.rest.infer("echo", tensor("x", "BYTES", [1], ["text"])).data(),
                         ["text"])
        text = base64.b64encode(b"\x00\xff").decode()
        sent = tensor("x", "BYTES", [1], [text], content_type="base64")
        self.check_refused(self.rest.infer("echo", sent), 400, "not UTF-8", "binary_data_output")
        wanted = {"name": "x", "parameters": {"content_type": "base64"}}
        answer = self.rest.infer("echo", sent, outputs=[wanted])
        self.assertEqual(answer.json["outputs"], [sent])
        answer = self.rest.infer("echo", sent, parameters={"binary_data_output": True})
        self.assertEqual(answer.binary, bytes_element(b"\x00\xff"))

    def test_numeric_parameters_lose_their_fraction(self):
        words = struct.pack("<3q", 0, 0, 0)
        for value, due in ((-42, -42), (True, 1), (1.5, struct.unpack("<q", struct.pack("<d", 1.5))[0])):
            answer = self.rest.infer("probe", tensor("probe", "INT64", [3], binary_data_size=24),
                                     binary=words, parameters={"probe": value, "other": "x"})
            self.assertEqual(answer.data()[9], due)

    def test_escapes_decoded_wrongly(self):
        body = (b'{"inputs":[{"name":"x","datatype":"BYTES","shape":[4],"data":'
                b'["\\u00e4\\u0031","\\ud83d\\ude00","\\"\\\\\\/\\b\\f\\n\\r\\t","\\u0000"]}]}')
        self.assertEqual(self.rest.post("echo", body).data(),
                         ["ä1", "\U0001f600", "\"\\/\b\f\n\r\t", "\0"])

    def test_short_raw_bytes_panic(self):
        for raw in (b"", b"\x01", b"\x01\x00", b"\x01\x00\x00", b"\x01\x00\x00\x00",
                    b"\xff\xff\xff\xff", b"\x00\x00\x00\x00\x01"):
            answer = self.rest.infer("echo", tensor("x", "BYTES", [1], binary_data_size=len(raw)),
                                     binary=raw)
            self.check_refused(answer, 400, '"x"')
        self.assertEqual(self.rest.infer("echo", tensor("x", "BYTES", [1], binary_data_size=4),
                                         binary=bytes(4)).data(), [""])

    def test_another_name_than_the_one_asked_for(self):
        answer = self.rest.infer("echo", tensor("x", "INT8", [1], [1]), model_name="other")
        self.assertEqual(answer.json["model_name"], "echo")

    def test_requests_write_nothing_into_the_log(self):
        before = len(self.shoald.lines)
        for _ in range(100):
            self.rest.infer("echo", tensor("x", "INT8", [1], [1]))
            self.rest.get("/nowhere")
        self.assertLess(len(self.shoald.lines) - before, 100)  # lines of the node itself may come


def packed(output):
    """The data of an output as gRPC would have them."""
    form, _ = NUMBERS[output["datatype"]]
    return struct.pack(f"<{len(output['data'])}{form}", *output["data"])


class TestDigits(unittest.TestCase):
    def test_same_answers_as_over_grpc(self):
        """Every held-out digit, in JSON and as binary data."""
        with (SOURCE / "examples/digits/data/digits.csv").open(newline="") as file:
            rows = [[int(value) for value in row] for row in csv.reader(file)][4::5]
        config = (EXAMPLES / "digits" / "digits.yaml").read_text()
        path = EXAMPLES / "digits" / "rest-test.yaml"
        path.write_text(f"http: ['{ANY_PORT}']\n{config}")
        self.addCleanup(path.unlink)
        with Shoald(path, ["--no-pin"]) as shoald, Client(shoald.target) as client, \
                Rest(port_of(shoald)) as rest:
            right = 0
            for row in rows:
                raw = array.array("f", row[:64]).tobytes()
                answer = client.infer_raw("digits", ("image", "FP32", [1, 64], raw))
                wanted = list(answer.raw_output_contents)
                for got in (rest.infer("digits", tensor("image", "FP32", [1, 64], [row[:64]])),
                            rest.infer("digits",
                                       tensor("image", "FP32", [1, 64], binary_data_size=len(raw)),
                                       binary=raw)):
                    self.assertEqual([packed(one) for one in got.json["outputs"]], wanted)
                right += got.data("label") == [row[64]]
            self.assertGreaterEqual(right / len(rows), 0.95)


class LoadTest(RestTest):
    config = node(puppet(slots=4), http=ANY_PORT, message_mib=1)

    def hold(self, name, verb="hold", **more):
        """A request of its own connection that is being run."""
        rest = self.enterContext(Rest(self.port))
        rest.start_tell(f"{verb} {name}", **more)
        wait_until((self.shoald.folder / f"{name}.held").exists, "the request to be running")
        return rest

    def go(self, name):
        (self.shoald.folder / f"{name}.go").touch()

    def queue(self, count, **more):
        queued = [self.enterContext(Rest(self.port)) for _ in range(count)]
        for rest in queued:
            rest.start_tell("echo x", **more)
        return queued

    def wait_in(self, count):
        self.shoald.wait_stat("puppet", lambda stat: stat["slots_used"] == count, f"{count} to be in")


class TestLateInTheQueue(LoadTest):
    """In a node that does not know yet how long a run takes: one that does may refuse at once."""

    def test_late_in_the_queue(self):
        """Told at the deadline, though the worker is busy; and never run."""
        held = self.hold("late")
        for more in ({"parameters": {"timeout": 50000}}, {"headers": {"Grpc-Timeout": "50m"}},
                     {"headers": {"Grpc-Timeout": "50000u"}, "parameters": {"timeout": 3600000000}}):
            answer = self.rest.tell("echo never", **more)
            self.check_refused(answer, 504, "deadline")
        self.go("late")
        self.assertEqual(held.receive().code, 200)
        self.shoald.wait_all_returned("puppet")
        self.assertNotIn("never", (self.shoald.folder / "runs").read_text())


class TestLateWhileItRuns(LoadTest):
    """Likewise."""

    def test_late_while_it_runs(self):
        """A modelet that asks learns that nobody waits."""
        def gave_up():
            """On a busy machine the deadline may come before the call has."""
            answer = self.rest.tell("linger slow", parameters={"timeout": 100000})
            self.check_refused(answer, 504, "deadline")
            self.shoald.wait_all_returned("puppet")
            return (self.shoald.folder / "slow.gave_up").exists()
        wait_until(gave_up, "the modelet to give up")


class TestLoad(LoadTest):
    """More than there is room for, or than there is time for."""

    def test_full(self):
        """429 with Retry-After at once, in JSON and over gRPC in the same words."""
        held = self.hold("full")
        queued = self.queue(3)
        self.wait_in(4)
        answer = self.rest.tell("echo x")
        self.check_refused(answer, 429, '"puppet" is full')
        self.assertGreaterEqual(int(answer.headers["Retry-After"]), 1)
        self.go("full")
        for rest in [held, *queued]:
            self.assertEqual(rest.receive().code, 200)
        self.shoald.wait_all_returned("puppet")

    def test_time_enough(self):
        for more in ({"parameters": {"timeout": 3600000000}}, {"parameters": {"timeout": 0}},
                     {"parameters": {"timeout": 2**63 - 1}}, {"headers": {"Grpc-Timeout": "1H"}},
                     {"headers": {"Grpc-Timeout": "99999999H"}}):
            self.assertEqual(self.rest.tell("echo x", **more).data("said"), ["echo x"])
        for value in ("", "m", "1", "1x", "123456789m", "-1m", "1mm", "1.5S"):
            self.check_refused(self.rest.tell("echo x", headers={"Grpc-Timeout": value}), 400,
                               "Grpc-Timeout")
        self.check_refused(self.rest.tell("echo x", parameters={"timeout": "5"}), 400, "timeout")

    def test_client_gone(self):
        """Its slot is free again, and the modelet is notified."""
        gone = self.hold("gone", "linger")
        queued = self.queue(2)
        self.wait_in(3)
        for rest in [gone, *queued]:
            rest.connection.close()
        wait_until((self.shoald.folder / "gone.gave_up").exists, "the modelet to give up")
        self.shoald.wait_all_returned("puppet")
        self.assertEqual(self.rest.tell("echo x").code, 200)

    def test_worker_death(self):
        answer = self.rest.tell("crash x")
        self.check_refused(answer, 503, "puppet")
        self.assertEqual(self.rest.tell("crash-once x").data("said"), ["crash-once x"])

    def test_worker_killed(self):
        held = self.hold("killed")
        worker, = children(self.shoald.pid)
        (self.shoald.folder / "killed.held").unlink()
        os.kill(worker, signal.SIGKILL)
        wait_until((self.shoald.folder / "killed.held").exists, "the request to run again")
        self.go("killed")
        self.assertEqual(held.receive().data("said"), ["hold killed"])


class TestShares(RestTest):
    """Callers get equal shares over both protocols; the header names them. (In the proxy
    before, only headers with a prefix of its own arrived.)"""

    config = node(puppet(slots=64), http=ANY_PORT, message_mib=1)

    def test_shares(self):
        connections = []

        def start(text, caller):
            rest = self.enterContext(Rest(self.port))
            connections.append(rest)
            rest.start_tell(text, headers={"Shoal-Caller": caller})

        start("hold it", "greedy")
        wait_until((self.shoald.folder / "it.held").exists, "the request to be running")
        start("echo modest", "modest")  # from now on there are two
        for _ in range(62):
            start("echo x", "greedy")
        self.shoald.wait_stat("puppet", lambda stat: stat["requests"] == 64, "all to have come")
        refused = self.shoald.pipeline_stat("puppet")
        self.assertGreater(refused["rejected_share"] + refused["rejected_full"], 0)
        answer = self.rest.tell("echo x", headers={"shoal-caller": "greedy"})
        self.check_refused(answer, 429, "retry in")
        start("echo modest", "modest")
        future = self.client.stub("ModelInfer")[1].future(
            self.client.stub("ModelInfer")[0](**self.client.infer_fields(
                "puppet", [("say", "BYTES", [1], bytes_element("echo x"))])),
            timeout=WAIT_SECONDS, metadata=(("shoal-caller", "greedy"),))
        code, text = failure(future)
        self.assertEqual(code.name, "RESOURCE_EXHAUSTED", text)
        (self.shoald.folder / "it.go").touch()
        answers = [rest.receive() for rest in connections]
        for fair in (answers[0], answers[1], answers[-1]):
            self.assertEqual(fair.code, 200, fair)
        self.assertEqual({answer.code for answer in answers}, {200, 429})


class TestDrain(unittest.TestCase):
    def start(self, *pipelines, **keys):
        self.shoald = self.enterContext(Shoald(node(*pipelines, http=ANY_PORT, message_mib=4, **keys)))
        self.port = port_of(self.shoald)

    def connect(self):
        return self.enterContext(Rest(self.port))

    def test_in_flight_is_finished(self):
        self.start(puppet(slots=32), drain_timeout_ms=HOUR_MS)
        held, *waiting = [self.connect() for _ in range(11)]
        held.start_tell("hold a")
        wait_until((self.shoald.folder / "a.held").exists, "the request to be running")
        for i, rest in enumerate(waiting):
            rest.start_tell(f"echo {i}")
        self.shoald.wait_stat("puppet", lambda stat: stat["stages"][0]["depth"] == 10, "10 to wait")
        self.shoald.drain()
        late = self.connect()
        answer = late.tell("echo too-late")
        self.assertEqual(answer.code, 503)
        self.assertIn("draining", answer.error)
        self.assertEqual(late.get("/v2/health/live").code, 200)
        self.assertEqual(late.get("/v2/health/ready").code, 503)
        self.assertEqual(late.get("/v2/models/puppet/ready").code, 503)
        (self.shoald.folder / "a.go").touch()
        self.assertEqual(held.receive().data("said"), ["hold a"])
        self.assertEqual([rest.receive().data("said") for rest in waiting],
                         [[f"echo {i}"] for i in range(10)])
        self.shoald.check_end()

    def test_drain_timeout_fails_requests_in_flight(self):
        self.start(puppet(), drain_timeout_ms=100)
        held = self.connect()
        held.start_tell("hold b")
        wait_until((self.shoald.folder / "b.held").exists, "the request to be running")
        self.shoald.drain()
        answer = held.receive()
        self.assertEqual(answer.code, 503)
        self.shoald.check_end()

    def test_client_that_does_not_read(self):
        """Megabytes that nobody takes: when the grace is over the end comes all the same."""
        self.start(pipeline("echo", stage("libecho.so"), slots=8), drain_timeout_ms=100)
        raw = bytes(3 * MIB)
        for _ in range(2):
            deaf = self.connect()
            body, headers = deaf.infer_body(
                [tensor("x", "UINT8", [len(raw)], binary_data_size=len(raw))], raw,
                parameters={"binary_data_output": True})
            deaf.send("POST", "/v2/models/echo/infer", body, headers)
        self.shoald.wait_stat("echo", lambda stat: stat["replies_ok"] == 2, "two answers")
        self.shoald.drain()
        self.shoald.check_end()

    def test_json_keeps_no_slot(self):
        """An answer in JSON releases the arena before it is read."""
        self.start(pipeline("echo", stage("libecho.so"), slots=8), drain_timeout_ms=HOUR_MS)
        raw = b"\xff" * (3 * MIB)
        deaf = self.connect()
        body, headers = deaf.infer_body(
            [tensor("x", "UINT8", [len(raw)], binary_data_size=len(raw))], raw)
        deaf.send("POST", "/v2/models/echo/infer", body, headers)
        self.shoald.wait_stat("echo", lambda stat: stat["replies_ok"] == 1, "the answer")
        self.shoald.wait_all_returned("echo")
        self.shoald.drain()
        self.shoald.check_end()

    def test_second_interrupt(self):
        self.start(puppet(), drain_timeout_ms=HOUR_MS)
        held = self.connect()
        held.start_tell("hold c")
        wait_until((self.shoald.folder / "c.held").exists, "the request to be running")
        self.shoald.signal(signal.SIGINT)
        self.shoald.wait_log("draining why=SIGINT")
        self.shoald.signal(signal.SIGINT)
        self.assertEqual(self.shoald.wait_exit(), 130, self.shoald.stderr)
        self.shoald.check_log()


class TestStart(unittest.TestCase):
    def test_address_in_use(self):
        with Shoald(node(pipeline("echo", stage("libecho.so")), http=ANY_PORT)) as shoald:
            port = port_of(shoald)
            code, said = shoal_fixture.run_shoald(
                node(pipeline("echo", stage("libecho.so")), http=f"127.0.0.1:{port}"))
            self.assertEqual(code, 2, said)
            self.assertRegex(said, rf"http: .*{port}")

    def test_several_addresses(self):
        with Shoald(node(pipeline("echo", stage("libecho.so")),
                         http=["127.0.0.1:0", "[::1]:0"])) as shoald:
            with Rest(port_of(shoald)) as rest:
                self.assertEqual(rest.get("/v2").code, 200)
            done = subprocess.run(["curl", "-sf", f"http://[::1]:{port_of(shoald, 2)}/v2"],
                                  capture_output=True, timeout=WAIT_SECONDS)
            self.assertEqual(json.loads(done.stdout)["name"], "shoal")


if __name__ == "__main__":
    shoal_fixture.main()
