# SPDX-License-Identifier: Apache-2.0
"""Answers to bad input: for each kind its own status code, and a text that names the tensor and the
rule.

One class for requests that a running node refuses, where each class ends by finding that no slot
and no block was lost; one for what the node refuses to start with, always with exit code 2 and the
place in the text. Nothing is timed: that an answer came "at once" is seen from what had not been
answered yet.

ctest: timeout=180
"""

import pathlib
import random
import socket
import struct
import tempfile
import unittest

import shoal_fixture
from shoal_client import INFERENCE, Client, bytes_element, failure, said
from shoal_fixture import (MODELETS, Shoald, draw_seed, free_port, node, pipeline, run_shoald, stage,
                           wait_until)

HUGE = 2**40
INFER = f"/{INFERENCE}/ModelInfer"
X = ("x", "INT32", [1], bytes(4))


class ServiceTest(unittest.TestCase):
    """A daemon for all tests of a class, which survives all of their input."""

    @classmethod
    def setUpClass(cls):
        cls.shoald = cls.enterClassContext(Shoald(cls.config))
        cls.client = cls.enterClassContext(Client(cls.shoald.target))

    def tearDown(self):
        self.shoald.wait_all_returned(*(one["name"] for one in self.config["pipelines"]))

    def check_refused(self, future, code, *texts):
        got, text = failure(future)
        self.assertEqual(got.name, code, text)
        for wanted in texts:
            self.assertIn(wanted, text)

    def check_serves(self):
        self.assertEqual(self.client.infer_raw("echo", X).raw_output_contents[0], bytes(4))


class TestRequests(ServiceTest):
    config = node(pipeline("echo", stage("libecho.so"), slots=16),
                  pipeline("pair", stage("libpuppet.so"), slots=16),
                  pipeline("scale-shift", stage("libscale.so", params={"factor": 2}),
                           stage("libshift.so", params={"offset": 3}), slots=16),
                  message_mib=1)

    def check_echo_refused(self, *inputs, texts, raw=True, **fields):
        self.check_refused(self.client.start_raw("echo", *inputs, raw=raw, **fields),
                           "INVALID_ARGUMENT", *texts)
        self.check_serves()

    def test_unknown_model(self):
        before = self.shoald.stat()["calls_refused"]
        self.check_refused(self.client.start_raw("nobody", X), "NOT_FOUND", '"nobody"')
        self.assertEqual(self.shoald.stat()["calls_refused"], before + 1)
        self.check_refused(self.client.start_raw("echo", X, model_version="2"), "NOT_FOUND", '"2"')
        self.check_refused(self.client.start_raw("n" * 127, X), "NOT_FOUND")
        code, text = failure(self.client.start_raw("n" * 100000, X))
        self.assertIn(code.name, ("NOT_FOUND", "INVALID_ARGUMENT"), text)

    def test_wrong_datatype(self):
        self.check_echo_refused(("x", "INT128", [1], bytes(16)), texts=['"x"', '"INT128"'])
        self.check_refused(self.client.start_raw("pair", ("say", "INT32", [1], bytes(4))),
                           "INVALID_ARGUMENT", '"say"', "INT32", "BYTES")

    def test_wrong_shape(self):
        self.check_refused(
            self.client.start_raw("pair", ("say", "BYTES", [2], 2 * bytes_element("echo"))),
            "INVALID_ARGUMENT", '"say"', "[2]", "[1]")
        self.check_refused(
            self.client.start_raw("pair", ("say", "BYTES", [1, 1], bytes_element("echo"))),
            "INVALID_ARGUMENT", '"say"', "[1,1]", "[1]")
        self.check_echo_refused(("x", "INT8", [2, -1], b"ab"), texts=['"x"', "negative", "-1"])
        self.check_echo_refused(("x", "INT8", [1] * 9, b"a"), texts=['"x"', "9 dimensions", "8"])

    def test_wrong_byte_count(self):
        for count in (0, 7, 9, 100):
            self.check_echo_refused(("x", "INT32", [2], bytes(count)),
                                    texts=['"x"', f"{count} bytes", "8"])
        self.check_echo_refused(("x", "INT32", [2], {"int_contents": [1, 2, 3]}), raw=False,
                                texts=['"x"', "3", "2"])
        self.check_echo_refused(("x", "INT32", [2], {"fp32_contents": [1, 2]}), raw=False,
                                texts=['"x"', "int_contents", "fp32_contents"])
        self.check_echo_refused(("x", "INT8", [1], {"int_contents": [300]}), raw=False,
                                texts=['"x"', "300", "INT8"])

    def test_wrong_bytes_elements(self):
        for contents in (b"", b"\x01", b"\x05\0\0\0abcd", b"\x03\0\0\0abcdef",
                         struct.pack("<I", 2**32 - 1) + b"ab"):
            with self.subTest(contents):
                self.check_echo_refused(("x", "BYTES", [1], contents), texts=['"x"'])

    def test_duplicate_tensor(self):
        self.check_echo_refused(("x", "INT8", [1], b"a"), ("y", "INT8", [1], b"a"),
                                ("x", "INT8", [1], b"b"), texts=['"x"', "more than once"])
        self.check_echo_refused(X, outputs=["x", "x"], texts=['"x"', "more than once"])

    def test_missing_and_unknown_tensor(self):
        self.check_refused(self.client.start("ModelInfer", model_name="pair"),
                           "INVALID_ARGUMENT", '"say"', "missing")
        self.check_refused(self.client.start_raw("pair", ("sag", "BYTES", [1], bytes_element("a"))),
                           "INVALID_ARGUMENT", '"sag"', "no such input")
        self.check_refused(
            self.client.start_raw("pair", ("say", "BYTES", [1], bytes_element("echo a")),
                                  outputs=["sad"]), "INVALID_ARGUMENT", '"sad"', "no such output")

    def test_names(self):
        self.check_echo_refused(("", "INT8", [1], b"a"), texts=["input 0", "empty"])
        self.check_echo_refused(("n" * 128, "INT8", [1], b"a"), texts=["127", "128"])

    def test_overflowing_dimensions(self):
        for shape in ([HUGE, HUGE], [2**63 - 1, 2], [2**62, 2]):
            with self.subTest(str(shape)):
                self.check_echo_refused(("x", "INT64", shape, bytes(8)),
                                        texts=['"x"', "overflow"])
        self.check_echo_refused(("x", "INT8", [HUGE], b"a"), texts=['"x"', str(HUGE)])

    def test_raw_and_typed_mixed(self):
        fields = self.client.infer_fields("echo", [X, ("y", "INT32", [1], bytes(4))])
        fields["inputs"][1]["contents"] = {"int_contents": [1]}
        self.check_refused(self.client.start("ModelInfer", **fields), "INVALID_ARGUMENT", '"y"',
                           "raw_input_contents")
        fields = self.client.infer_fields("echo", [X, ("y", "INT32", [1], bytes(4))])
        fields["raw_input_contents"].pop()
        self.check_refused(self.client.start("ModelInfer", **fields), "INVALID_ARGUMENT",
                           "raw_input_contents", "1 for 2")

    def test_parameters_of_tensors(self):
        """Those that would change how a tensor travels are refused by name, if they are not whole
        (test_25_shared_memory has the others) or not supported; the rest is left."""
        for name, value, of in (("shared_memory_region", {"string_param": "r"}, "inputs"),
                                ("shared_memory_region", {"string_param": "r"}, "outputs"),
                                ("classification", {"int64_param": 3}, "outputs"),
                                ("classification_of_mine", {"int64_param": 3}, "outputs"),
                                ("binary_data", {"bool_param": True}, "outputs")):
            fields = self.client.infer_fields("echo", [X], outputs=["x"])
            fields[of][0]["parameters"] = {"a": self.client.type("inference.InferParameter")(),
                                           name: self.client.type("inference.InferParameter")(**value)}
            future = self.client.start("ModelInfer", **fields)
            with self.subTest(f"{of} {name}"):
                if name in ("shared_memory_region", "classification"):
                    whose = {"inputs": 'tensor "x"', "outputs": 'requested output "x"'}[of]
                    self.check_refused(future, "INVALID_ARGUMENT", f'parameter "{name}"',
                                       of if name == "classification" else whose)
                else:
                    self.assertEqual(future.result().raw_output_contents[0], bytes(4))

    def test_no_tensor(self):
        self.check_echo_refused(texts=["there is no input to echo"])

    def test_too_many_tensors(self):
        self.check_echo_refused(*[(f"x{i}", "INT8", [1], b"a") for i in range(65)], texts=["64"])

    def test_garbage(self):
        """Bytes that are no message, and messages that are cut or have bits flipped."""
        draw = random.Random(draw_seed())
        good = self.client.type("inference.ModelInferRequest")(
            **self.client.infer_fields("echo", [X], id="a")).SerializeToString()
        for bad in (b"\xff", b"\x0a\xff", b"\x0a", good[:-1], good + b"\x0a\x05ab"):
            self.check_refused(self.client.start_bytes(INFER, bad), "INVALID_ARGUMENT",
                               "ModelInferRequest")
        for _ in range(500):
            data = bytearray(good)
            for _ in range(draw.randrange(1, 8)):
                data[draw.randrange(len(data))] = draw.randrange(256)
            future = self.client.start_bytes(INFER, bytes(data))
            self.assertIn(future.code().name, ("OK", "INVALID_ARGUMENT", "NOT_FOUND"),
                          f"{bytes(data)!r}: {future.details()}")
        for _ in range(100):
            data = draw.randbytes(draw.randrange(200))
            self.assertIn(self.client.start_bytes(INFER, data).code().name,
                          ("INVALID_ARGUMENT", "NOT_FOUND"), repr(data))
        for method in ("ModelReady", "ModelMetadata"):
            self.check_refused(self.client.start_bytes(f"/{INFERENCE}/{method}", b"\x0a\xff"),
                               "INVALID_ARGUMENT", f"{method}Request")
        self.check_serves()

    def test_too_large(self):
        limit = 1 << 20
        future = self.client.start_raw("echo", ("x", "INT8", [limit], bytes(limit)))
        self.check_refused(future, "RESOURCE_EXHAUSTED", str(limit))
        self.check_serves()

    def test_unknown_method(self):
        for method in (f"/{INFERENCE}/ModelInvent", "/nobody.Service/Method", "/x"):
            self.check_refused(self.client.start_bytes(method, b""), "UNIMPLEMENTED")

    def test_no_http2(self):
        """A client that does not speak the protocol is disconnected and harms nobody."""
        for hello in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 1000, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nxx"):
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.settimeout(shoal_fixture.WAIT_SECONDS)
                stranger.connect(str(self.shoald.socket))
                stranger.sendall(hello)
                stranger.shutdown(socket.SHUT_WR)
                try:
                    while stranger.recv(4096):
                        pass
                except ConnectionResetError:
                    pass
        self.check_serves()


class TestModelets(ServiceTest):
    """Errors that the modelets make."""

    config = node(pipeline("echo", stage("libecho.so"), slots=4),
                  pipeline("puppet", stage("libpuppet.so", batch_size=8, params={"folder": "."}),
                           stage("libecho.so", "after"), slots=16),
                  message_mib=1)

    def held(self, name):
        """A request that keeps the only worker busy until `release`."""
        future = self.client.tell(f"hold {name}")
        wait_until((self.shoald.folder / f"{name}.held").exists, "the request to be running")
        return future

    def release(self, name):
        (self.shoald.folder / f"{name}.go").touch()

    def runs(self):
        return (self.shoald.folder / "runs").read_text().splitlines()

    def test_own_code_and_text(self):
        for code, name in ((9, "FAILED_PRECONDITION"), (3, "INVALID_ARGUMENT"), (10, "ABORTED"),
                           (13, "INTERNAL"), (4, "DEADLINE_EXCEEDED"), (77, "UNKNOWN")):
            with self.subTest(name):
                self.check_refused(self.client.tell(f"fail {code}"), name,
                                   f"the puppet was told to fail with {code}")

    def test_unset(self):
        self.check_refused(self.client.tell("unset x"), "INTERNAL", "puppet", "unset")

    def test_timeout_parameter(self):
        """Microseconds, as other servers of the protocol have it: the sooner of it and the
        deadline."""
        first = self.held("short")
        say = ("say", "BYTES", [1], bytes_element("echo too-short"))
        late = self.client.start_raw("puppet", say, parameters={"timeout": {"int64_param": 200_000}})
        self.shoald.wait_stat("puppet", lambda stat: stat["slots_used"] == 2, "two in flight")
        clock = self.client.tell("echo clock", timeout=0.3)  # admitted after it, and due after it
        self.check_refused(clock, "DEADLINE_EXCEEDED")
        self.release("short")
        first.result()
        self.check_refused(late, "DEADLINE_EXCEEDED")
        self.assertNotIn("echo too-short", self.runs())
        for bad in ({"string_param": "soon"}, {"bool_param": True}, {"int64_param": -1}):
            self.check_refused(self.client.start_raw("puppet", say, parameters={"timeout": bad}),
                               "INVALID_ARGUMENT", '"timeout"', "microseconds")
        say = ("say", "BYTES", [1], bytes_element("echo in-time"))
        for good in ({"int64_param": 0}, {"int64_param": 10**9}, {"string_param": "60000000"}):
            answer = self.client.infer_raw("puppet", say, parameters={"timeout": good})
            self.assertEqual(said(answer), "echo in-time")

    def test_batch_of_one_fails(self):
        self.check_refused(self.client.tell("fail-batch 10"), "ABORTED", "the whole act failed")

    def test_one_bad_item_spoils_no_other(self):
        """A batch that fails as a whole is run again in halves until the culprit stands alone."""
        for culprit in range(8):
            with self.subTest(culprit):
                first = self.held(f"half{culprit}")
                futures = [self.client.tell("fail-batch 9" if i == culprit else f"echo {i}")
                           for i in range(8)]
                self.shoald.wait_stat("puppet", lambda stat: stat["stages"][0]["depth"] == 8,
                                      "8 requests to wait for the worker")
                self.release(f"half{culprit}")
                first.result()
                for i, future in enumerate(futures):
                    if i == culprit:
                        self.check_refused(future, "FAILED_PRECONDITION", "the whole act failed")
                    else:
                        self.assertEqual(said(future.result()), f"echo {i}")
        self.assertEqual(self.shoald.stage_stat("puppet", "puppet")["batches_halved"], 8)

    def test_late_is_not_run(self):
        """A deadline that passes in the queue: the caller gets an error, the work is not done."""
        first = self.held("late")
        before = self.shoald.pipeline_stat("puppet")["cancelled"]
        late = self.client.tell("echo too-late", timeout=0.2)
        self.check_refused(late, "DEADLINE_EXCEEDED")
        # The client's clock starts first: the server may learn of the end a moment later.
        self.shoald.wait_stat("puppet", lambda stat: stat["cancelled"] == before + 1,
                              "the server to see the deadline pass")
        self.assertFalse(first.done())
        self.release("late")
        first.result()
        self.assertEqual(said(self.client.tell("echo after-the-late").result()),
                         "echo after-the-late")
        self.assertNotIn("echo too-late", self.runs(), "it was run although it was too late")


class TestFull(ServiceTest):
    config = node(pipeline("puppet", stage("libpuppet.so", params={"folder": "."}), slots=2),
                  pipeline("echo", stage("libecho.so"), slots=2), message_mib=1)

    def test_full(self):
        """With both slots in flight the third is refused while the two still run."""
        folder = self.shoald.folder
        futures = [self.client.tell("hold full"), self.client.tell("hold full")]
        wait_until((folder / "full.held").exists, "a request to be running")
        self.shoald.wait_stat("puppet", lambda stat: stat["slots_used"] == 2, "both slots in use")
        for _ in range(5):
            self.check_refused(self.client.tell("echo one-too-many"), "RESOURCE_EXHAUSTED",
                               '"puppet"', "full", "2 slots")
        self.check_serves()  # the other pipeline has slots of its own
        self.assertFalse(any(future.done() for future in futures))
        (folder / "full.go").touch()
        for future in futures:
            self.assertEqual(said(future.result()), "hold full")
        self.client.tell("echo again").result()
        self.assertEqual(self.shoald.wait_all_returned("puppet")["rejected_full"], 5)


class TestArenaFull(ServiceTest):
    config = node(pipeline("puppet", stage("libpuppet.so", params={"folder": "."}), slots=8),
                  message_mib=1)

    def hold(self, name):
        """Nearly as large as a message may be; the puppet reads as far as the first zero."""
        return self.client.tell(f"hold {name}".encode() + bytes(900_000))

    def test_arena_full(self):
        """Both blocks of the largest size are in use: what needs one is refused at once, although
        slots are free; what is small is not."""
        folder = self.shoald.folder
        futures = [self.hold("arena"), self.hold("arena")]
        wait_until((folder / "arena.held").exists, "a request to be running")
        self.shoald.wait_stat("puppet", lambda stat: stat["slots_used"] == 2, "two slots in use")
        for _ in range(5):
            self.check_refused(self.hold("arena"), "RESOURCE_EXHAUSTED", "arena full", "no block of")
        small = self.client.tell("echo small")
        self.assertFalse(any(future.done() for future in futures))
        (folder / "arena.go").touch()
        for future in futures:
            self.assertTrue(said(future.result()).startswith("hold arena"))
        self.assertEqual(said(small.result()), "echo small")
        stat = self.shoald.wait_all_returned("puppet")
        self.assertEqual((stat["rejected_full"], stat["region_resets"]), (5, 0))


class TestNeverFits(ServiceTest):
    """Contents that take more room in the arena than in the message: what no block can ever hold is
    the caller's mistake, and nothing that a client should try again."""

    config = node(pipeline("echo", stage("libecho.so"), slots=8), message_mib=1)
    COUNT = 500_000  # a byte each in the message, eight in the arena

    def test_tensors(self):
        future = self.client.start_raw(
            "echo", ("x", "INT64", [self.COUNT], {"int64_contents": [1] * self.COUNT}), raw=False)
        self.check_refused(future, "INVALID_ARGUMENT", str(8 * self.COUNT), "largest block")
        self.assertNotIn("grpc-retry-pushback-ms", dict(future.trailing_metadata()))
        self.check_serves()

    def test_parameters(self):
        texts = {f"p{i}": {"string_param": "a" * 2000} for i in range(16)}
        future = self.client.start_raw("echo", X, parameters=texts)
        self.check_refused(future, "INVALID_ARGUMENT", "parameter", "names and strings")
        self.assertNotIn("grpc-retry-pushback-ms", dict(future.trailing_metadata()))
        self.check_serves()


class TestStart(unittest.TestCase):
    """Reasons to refuse the start."""

    def check_refused(self, config, *texts, **options):
        code, said_text = run_shoald(config, **options)
        self.assertEqual(code, 2, said_text)
        self.assertNotIn(" ready pipelines=", said_text)
        for text in texts:
            self.assertIn(text, said_text)
        return said_text

    def test_bad_configuration(self):
        good = "pipelines:\n  - name: p\n    stages:\n      - { name: s, modelet: libecho.so }\n"
        for text, *wanted in (
                (good + "slotz: 3\n", ":5:", "slotz"),
                (good.replace("name: p\n", "name: p\n    slots: 0\n"), ":3:", "slots"),
                (good.replace("name: p\n", "name: p\n    slots: many\n"), ":3:", "slots", "many"),
                (good.replace("libecho", "libnobody"), ":4:", "libnobody.so"),
                (good.replace("libecho.so }", "libecho.so, cpus: [4095] }"), ":4:", "4095"),
                (good + "pipelines: []\n", ":5:", "pipelines"),
                (good.replace("name: p", "name: 'a b'"), ":2:", "a b"),
                ("pipelines: [\n", ":"),
                ("- just\n- a list\n", ":1:"),
                ("", ":1:")):
            with self.subTest(text):
                said_text = self.check_refused(text, *wanted)
                self.assertRegex(said_text, r"shoald\.yaml:\d+: ", "no FILE:LINE")

    def test_every_mistake_at_once(self):
        text = ("listen: 7\nslotz: 1\npipelines:\n  - name: p\n    slots: -1\n    stages:\n"
                "      - { name: s, modelet: libnobody.so, batch_size: x }\n")
        said_text = self.check_refused(text)
        for line in (1, 2, 5, 7):
            self.assertIn(f"shoald.yaml:{line}: ", said_text)

    def test_no_configuration(self):
        self.check_refused(pathlib.Path("/nowhere/shoald.yaml"), "/nowhere/shoald.yaml")
        with tempfile.TemporaryDirectory() as folder:
            self.check_refused(pathlib.Path(folder), folder)

    def test_wrong_plugins(self):
        """Refused before any function of the plug-in runs, naming the field that differs."""
        fields = {"abi_version": "abi_version", "batch_size": "batch_size",
                  "item_size": "item_size", "host_size": "host_size", "name": "name",
                  "run": "run", "tensor_size_newer": "tensor_size",
                  "struct_size_newer": "struct_size", "symbol": "shoal_modelet",
                  "workers_max": "workers_max", "abilities": "abilities"}
        for name, field in fields.items():
            with self.subTest(name):
                config = node(pipeline("p", stage(f"libwrong_{name}.so", "s", workers=2)),
                              message_mib=1)
                self.check_refused(config, 'pipeline "p"', 'stage "s"', f"libwrong_{name}.so",
                                   field)

    def test_no_plugin(self):
        with tempfile.TemporaryDirectory() as folder:
            text = pathlib.Path(folder) / "libtext.so"
            text.write_text("not a shared object\n")
            self.check_refused(node(pipeline("p", stage(text))), "libtext.so")

    def test_open_fails(self):
        for fails, wanted in (("fail", "the strings are tangled"), ("crash", "signal 6")):
            with self.subTest(fails):
                config = node(pipeline("fine", stage("libecho.so")),
                              pipeline("p", stage("libpuppet.so", "s", params={"open": fails})),
                              message_mib=1)
                self.check_refused(config, 'pipeline "p"', 'stage "s"', wanted)

    def test_open_hangs(self):
        config = node(pipeline("p", stage("libpuppet.so", "s", start_timeout_ms=300,
                                          params={"open": "hang"})), message_mib=1)
        self.check_refused(config, 'pipeline "p"', 'stage "s"', "300 ms", "start_timeout_ms")

    def test_region_lost_before_ready(self):
        """The constructor overwrites all of the region and never returns: no new one is tried."""
        with tempfile.TemporaryDirectory() as folder:
            start = pathlib.Path(folder) / "scribble-start"
            start.write_text("2 1")  # tests/modelets/scribble.h: everything; and stay
            said_text = self.check_refused(
                node(pipeline("p", stage("libscribble.so", "s",
                                         env={"SHOAL_SCRIBBLE_START": str(start)})), message_mib=1),
                'pipeline "p"', "shared memory was found corrupt", "before all workers were ready",
                folder=folder)
            self.assertEqual(said_text.count("region_corrupt "), 1, said_text)

    def test_model_that_cannot_be_loaded(self):
        config = node(pipeline("p", stage(MODELETS / "libprobe.so", "s", params={"fail": "load"},
                                          model={"id": "m", "path": "model.bin"})), message_mib=1)
        self.check_refused(config, 'stage "s"', "told to fail in load")


class TestPlaceTaken(unittest.TestCase):
    """A second node in the place of the first is refused, and the first goes on."""

    config = node(pipeline("echo", stage("libecho.so"), slots=4), message_mib=1)

    def check_second_refused(self, first, *texts, listen, counters):
        with tempfile.TemporaryDirectory(prefix="shoal-test.") as folder:
            second = Shoald(self.config, ["--counters", str(counters)], folder, listen=listen,
                            counters=False)
            try:
                code = second.start().wait_exit()
                second.check_log()
                self.assertEqual(code, 2, second.stderr)
                for text in texts:
                    self.assertIn(text, second.stderr)
            finally:
                second.discard()
        first.check_still_runs()
        with Client(first.target) as client:
            self.assertEqual(client.infer_raw("echo", X).raw_output_contents[0], bytes(4))
        self.assertTrue(first.stat()["live"])

    def test_socket(self):
        with Shoald(self.config) as first, tempfile.TemporaryDirectory() as folder:
            self.check_second_refused(first, str(first.socket), "in use", listen=[first.target],
                                      counters=f"{folder}/counters")

    def test_port(self):
        port = free_port()
        with Shoald(self.config, ["--listen", f"port:{port}"]) as first, \
                tempfile.TemporaryDirectory() as folder:
            for address in (f"port:{port}", f"127.0.0.1:{port}"):
                with self.subTest(address):
                    self.check_second_refused(first, str(port), listen=[address],
                                              counters=f"{folder}/counters")

    def test_pages(self):
        """The probes' address listens before a node serves, or the node does not start."""
        port = free_port()
        for key in ("http", "metrics", "probes", "prestop"):
            with self.subTest(key), Shoald({**self.config, key: f"127.0.0.1:{port}"}) as first:
                code, said_text = run_shoald({**self.config, key: f"127.0.0.1:{port}"})
                self.assertEqual(code, 2, said_text)
                self.assertRegex(said_text, rf"{port}.*in use")
                first.check_still_runs()

    def test_counters(self):
        with Shoald(self.config) as first, tempfile.TemporaryDirectory() as folder:
            self.check_second_refused(first, str(first.counters), f"pid {first.pid}",
                                      listen=[f"unix:{folder}/grpc.sock"],
                                      counters=first.counters)

    def test_no_place(self):
        for address in ("unix:/nowhere/grpc.sock", "unix:" + "/tmp/" + "x" * 200,
                        "256.256.256.256:1", "nonsense"):
            with self.subTest(address):
                code, said_text = run_shoald(self.config, listen=[address])
                self.assertEqual(code, 2, said_text)
                self.assertIn(address.removeprefix("unix:"), said_text)

    def test_file_that_is_no_socket(self):
        with tempfile.TemporaryDirectory(prefix="shoal-test.") as folder:
            file = pathlib.Path(folder) / "precious"
            file.write_text("do not touch")
            code, said_text = run_shoald(self.config, listen=[f"unix:{file}"])
            self.assertEqual(code, 2, said_text)
            self.assertEqual(file.read_text(), "do not touch")


if __name__ == "__main__":
    shoal_fixture.main()
