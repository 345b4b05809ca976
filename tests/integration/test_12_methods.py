# SPDX-License-Identifier: Apache-2.0
"""Pipelines that are bound to gRPC methods, and which model a call means.

Messages of all sizes come back byte by byte, nobody having looked into them; errors, cancelling,
deadlines, refusals, priorities and spans are as they are for inference. Ids in metadata name the
model before the request does; a pipeline is called in its own way and in no other.

ctest: timeout=180
"""

import json
import os
import random
import unittest

import grpc

import shoal_fixture
from shoal_client import CHANNEL_OPTIONS, Client, failure
from shoal_fixture import (WAIT_SECONDS, Shoald, draw_seed, node, pipeline, run_shoald, stage,
                           wait_until)
from shoal_rest import ANY_PORT, Rest, port_of, tensor

MIB = 1 << 20
X = ("x", "INT8", [1], b"\7")
FOLDER = {"folder": "."}
COLD = [f"cold{i}" for i in range(3)]  # after those that the node keeps calls ready for


def letters(name, method=None, **keys):
    params = keys.pop("params", {})
    return pipeline(name, stage("libletters.so", params={**FOLDER, **params}),
                    method=method or f"/test.Letters/{name}", **keys)


class Caller:
    """Calls any method with bytes."""

    def __init__(self, target):
        self.channel = grpc.insecure_channel(target, options=CHANNEL_OPTIONS)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def start(self, method, message=b"", timeout=WAIT_SECONDS, metadata=()):
        return self.channel.unary_unary(method).future(message, timeout=timeout, metadata=metadata)

    def call(self, *arguments, **named):
        return self.start(*arguments, **named).result()


class TestMethods(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.seed = draw_seed()
        config = node(
            letters("plain", slots=64),
            pipeline("pair", stage("libecho.so"), stage("libletters.so", params=FOLDER),
                     method="/Pair/Do", slots=8),
            letters("mute", params={"describe": "nothing"}, slots=8),
            letters("narrow", slots=2),
            letters("brief", slots=8, default_timeout_ms=500),
            *(pipeline(name, stage("libecho.so"), method=f"/cold.Service/{name}", slots=8)
              for name in COLD),
            pipeline("echo", stage("libecho.so"), slots=8),
            message_mib=5, http=ANY_PORT, traces="file:spans")
        cls.shoald = cls.enterClassContext(Shoald(config))
        cls.client = cls.enterClassContext(Client(cls.shoald.target))
        cls.caller = cls.enterClassContext(Caller(cls.shoald.target))
        cls.rest = cls.enterClassContext(Rest(port_of(cls.shoald)))

    def cue(self, name):
        return self.shoald.folder / name

    def wait_cue(self, name):
        wait_until(self.cue(name).exists, f"{name}; the log:\n{self.shoald.stderr}")

    def check_refused(self, future, code, *parts):
        got, text = failure(future)
        self.assertEqual(got.name, code, text)
        for part in parts:
            self.assertIn(part, text)

    # ---- messages ----

    def test_bytes(self):
        """Messages come back as sent: nothing, little, and more than fits a frame or a span."""
        draw = random.Random(self.seed)
        for method in ("/test.Letters/plain", "/Pair/Do", "/test.Letters/mute",
                       *(f"/cold.Service/{name}" for name in COLD)):
            for size in (0, 1, 2, 63, 64, 65, 16384, 100001, MIB, 4 * MIB):
                message = draw.randbytes(size)
                self.assertTrue(self.caller.call(method, message) == message, f"{method} {size}")
        # a message of protobuf is bytes like any other
        self.assertEqual(self.caller.call("/test.Letters/plain", b"\x0a\x03abc\xff"),
                         b"\x0a\x03abc\xff")
        for name in ("plain", "pair", "mute", *COLD):
            self.shoald.wait_all_returned(name)

    def test_answers_of_any_size(self):
        for size in (0, 1, 255, 4 * MIB):
            expected = (bytes(range(256)) * (size // 256 + 1))[:size]
            self.assertTrue(self.caller.call("/test.Letters/plain", f"bytes {size}".encode())
                            == expected, size)

    def test_many_at_once(self):
        messages = [f"message {i}".encode() * (i + 1) for i in range(48)]
        futures = [self.caller.start("/test.Letters/plain", message) for message in messages]
        self.assertEqual([future.result() for future in futures], messages)

    def test_too_large(self):
        self.check_refused(self.caller.start("/test.Letters/plain", bytes(6 * MIB)),
                           "RESOURCE_EXHAUSTED", "larger than max")

    # ---- errors ----

    def test_errors_go_through(self):
        for code in (3, 5, 9, 16):
            self.check_refused(self.caller.start("/test.Letters/plain", f"fail {code}".encode()),
                               {3: "INVALID_ARGUMENT", 5: "NOT_FOUND", 9: "FAILED_PRECONDITION",
                                16: "UNAUTHENTICATED"}[code], f"told to fail with {code}")

    def test_invalid_outputs_are_internal(self):
        for verb, part in (("other", "it gave 1, UINT8 of 1 dimensions"),
                           ("type", "INT8 of 1 dimensions"), ("rank", "UINT8 of 2 dimensions"),
                           ("two", "it gave 2")):
            self.check_refused(self.caller.start("/test.Letters/plain", verb.encode()), "INTERNAL",
                               'must give one output, "message" UINT8 of one dimension', part)
        self.check_refused(self.caller.start("/test.Letters/plain", b"none"), "INTERNAL",
                           "gave no output")
        self.shoald.wait_all_returned("plain")

    def test_unknown_methods(self):
        for method in ("/test.Letters/nobody", "/test.Letters/plain2", "/test.Letters/", "/Pair/do",
                       "/nobody"):
            self.check_refused(self.caller.start(method), "UNIMPLEMENTED")

    def test_stream(self):
        """A stream is taken for a call of one message, its first."""
        for path in ("/test.Letters/plain", "/cold.Service/cold2"):
            method = self.caller.channel.stream_stream(path)
            for messages in ([b"one"], [b"one", b"two"]):
                self.assertEqual(list(method(iter(messages), timeout=WAIT_SECONDS)), [b"one"])
        self.shoald.wait_all_returned("plain")

    # ---- no call waits forever, and abandoned calls are not run ----

    def test_deadline(self):
        def gave_up():
            """On a busy machine the deadline may come before the call has."""
            future = self.caller.start("/test.Letters/plain", b"linger late", timeout=0.5)
            self.check_refused(future, "DEADLINE_EXCEEDED")
            return self.cue("late.gave_up").exists()
        wait_until(gave_up, lambda: f"a call to run; the log:\n{self.shoald.stderr}")
        self.shoald.wait_all_returned("plain")

    def test_default_timeout(self):
        """A modelet that gives up at the deadline answers before a caller that has no timer."""
        def gave_up():
            future = self.caller.start("/test.Letters/brief", b"linger brief", timeout=None)
            self.check_refused(future, "DEADLINE_EXCEEDED")
            return self.cue("brief.gave_up").exists()
        wait_until(gave_up, lambda: f"a call to run; the log:\n{self.shoald.stderr}")
        self.shoald.wait_all_returned("brief")

    def test_cancel(self):
        before = self.shoald.pipeline_stat("plain")["cancelled"]
        future = self.caller.start("/test.Letters/plain", b"linger gone")
        self.wait_cue("gone.held")
        future.cancel()
        self.wait_cue("gone.gave_up")
        self.shoald.wait_stat("plain", lambda stat: stat["cancelled"] > before, "to be counted")
        self.shoald.wait_all_returned("plain")

    def test_overload(self):
        held = [self.caller.start("/test.Letters/narrow", b"linger a") for _ in range(2)]
        self.wait_cue("a.held")
        self.shoald.wait_stat("narrow", lambda stat: stat["slots_used"] == 2, "both slots in use")
        refused = self.caller.start("/test.Letters/narrow", b"more")
        self.check_refused(refused, "RESOURCE_EXHAUSTED", '"narrow"', "2 slots")
        self.assertIn("grpc-retry-pushback-ms", dict(refused.trailing_metadata()))
        self.cue("a.go").touch()
        self.assertEqual([future.result() for future in held], [b"linger a"] * 2)
        self.shoald.wait_all_returned("narrow")

    def test_priority(self):
        for value in ("1", "2", "3"):
            self.assertEqual(self.caller.call("/test.Letters/plain", b"x",
                                              metadata=(("shoal-priority", value),)), b"x")
        for value in ("0", "4", "high", "11", ""):
            self.check_refused(self.caller.start("/test.Letters/plain", b"x",
                                                 metadata=(("shoal-priority", value),)),
                               "INVALID_ARGUMENT", "metadata shoal-priority: must be 1 (high)")

    def test_dead_worker(self):
        """Its items are run again."""
        future = self.caller.start("/test.Letters/mute", b"linger twice")
        self.wait_cue("twice.held")
        self.cue("twice.held").unlink()
        os.kill(self.shoald.workers("mute")[0].pid, 9)
        self.wait_cue("twice.held")
        self.cue("twice.go").touch()
        self.assertEqual(future.result(), b"linger twice")

    # ---- each in its own way ----

    def test_not_by_the_other_way(self):
        self.check_refused(self.client.start_raw("plain", X), "INVALID_ARGUMENT",
                           '"plain" is called by /test.Letters/plain, not by the Open Inference '
                           "Protocol")
        answer = self.rest.infer("plain", tensor("x", "INT8", [1], [1]))
        self.assertEqual(answer.code, 400)
        self.assertIn("/test.Letters/plain", answer.error)
        self.check_refused(self.caller.start("/Pair/Do", metadata=(("mm-model-id", "plain"),)),
                           "INVALID_ARGUMENT", "is called by /test.Letters/plain, not by /Pair/Do")
        self.check_refused(self.caller.start("/Pair/Do", metadata=(("mm-model-id", "echo"),)),
                           "INVALID_ARGUMENT", '"echo" is called by the Open Inference Protocol')
        self.check_refused(self.caller.start("/Pair/Do", metadata=(("mm-model-id", "nobody"),)),
                           "NOT_FOUND", '"nobody" is not known to this node')
        self.assertEqual(self.caller.call("/Pair/Do", b"x", metadata=(("mm-model-id", "pair"),)),
                         b"x")

    def test_ready(self):
        self.assertTrue(self.client.call("ModelReady", name="plain").ready)
        self.assertEqual(self.rest.get("/v2/models/pair/ready").code, 200)

    def test_metadata(self):
        for name, method in (("plain", "/test.Letters/plain"), ("mute", "/test.Letters/mute"),
                             ("pair", "/Pair/Do")):
            told = self.client.call("ModelMetadata", name=name)
            self.assertEqual((told.name, told.platform), (name, method))
            for side in (told.inputs, told.outputs):
                self.assertEqual([(one.name, one.datatype, list(one.shape)) for one in side],
                                 [("message", "UINT8", [-1])])
        told = self.rest.get("/v2/models/plain").json
        self.assertEqual(told["platform"], "/test.Letters/plain")
        self.assertEqual(told["inputs"], [{"name": "message", "datatype": "UINT8", "shape": [-1]}])

    # ---- ids in metadata ----

    def infer(self, metadata, name="echo"):
        request, stub = self.client.stub("ModelInfer")
        fields = self.client.infer_fields(name, [X])
        return stub.future(request(**fields), timeout=WAIT_SECONDS, metadata=metadata)

    def test_metadata_names_the_model(self):
        for metadata in ((("mm-model-id", "echo"),), (("mm-model-id-bin", b"echo"),),
                         (("mm-model-id", "echo"), ("mm-model-id-bin", b"echo")),
                         (("mm-model-id", "echo"), ("mm-model-id", "echo"))):
            for name in ("echo", "", "nobody", "plain"):
                answer = self.infer(metadata, name).result()
                self.assertEqual((answer.model_name, list(answer.raw_output_contents)),
                                 ("echo", [b"\7"]), (metadata, name))
        self.check_refused(self.infer((("mm-model-id", "nobody"),)), "NOT_FOUND", '"nobody"')

    def test_metadata_refused(self):
        for metadata, parts in (
                ((("mm-model-id", "echo"), ("mm-model-id-bin", b"plain")),
                 ["name different models"]),
                ((("mm-model-id", "echo"), ("mm-model-id", "plain")), ["name different models"]),
                ((("mm-model-id", "echo"), ("mm-model-id-bin", b"ecco")),
                 ["name different models"]),
                ((("mm-model-id", "echo"), ("mm-model-id-bin", b"echo2")),
                 ["name different models"]),
                ((("mm-model-id", ""),), ["metadata mm-model-id is empty"]),
                ((("mm-model-id-bin", b""),), ["metadata mm-model-id-bin is empty"]),
                ((("mm-model-id", "n" * 128),), ["at most 127 bytes, not 128"]),
                ((("mm-model-id-bin", b"n" * 5000),), ["at most 127 bytes, not 5000"]),
                ((("mm-model-id-bin", b"a\0b"),), ["UTF-8 without a zero byte"]),
                ((("mm-model-id-bin", b"\xff"),), ["UTF-8 without a zero byte"])):
            self.check_refused(self.infer(metadata), "INVALID_ARGUMENT", *parts)
            request, stub = self.client.stub("ModelReady")
            self.check_refused(stub.future(request(name="echo"), metadata=metadata),
                               "INVALID_ARGUMENT", *parts)
            self.check_refused(self.caller.start("/Pair/Do", metadata=metadata), "INVALID_ARGUMENT",
                               *parts)
        self.check_refused(self.infer((("mm-model-id", "n" * 127),)), "NOT_FOUND")
        self.check_refused(self.infer((("mm-model-id-bin", "Fläche".encode()),)), "NOT_FOUND")

    def test_no_name(self):
        self.check_refused(self.infer((), ""), "INVALID_ARGUMENT", "no model is named")

    def test_metadata_of_the_small_methods(self):
        request, stub = self.client.stub("ModelMetadata")
        told = stub(request(name="echo"), metadata=(("mm-model-id", "plain"),),
                    timeout=WAIT_SECONDS)
        self.assertEqual(told.name, "plain")
        request, stub = self.client.stub("ModelReady")
        self.assertTrue(stub(request(), metadata=(("mm-model-id-bin", b"echo"),),
                             timeout=WAIT_SECONDS).ready)

    # ---- spans ----

    def test_span(self):
        trace = "ab" * 16
        self.caller.call("/Pair/Do", b"x",
                         metadata=(("traceparent", f"00-{trace}-{'cd' * 8}-01"),))

        def look():
            path = self.cue("spans")
            for line in path.read_text().splitlines() if path.exists() else []:
                for resource in json.loads(line)["resourceSpans"]:
                    for scope in resource["scopeSpans"]:
                        for span in scope["spans"]:
                            if span["traceId"] == trace and span["name"] == "Pair/Do":
                                return span
            return None
        span = wait_until(look, lambda: f"the span; the log:\n{self.shoald.stderr}")
        said = {one["key"]: one["value"].get("stringValue") for one in span["attributes"]}
        self.assertEqual((said["rpc.system"], said["rpc.service"], said["rpc.method"]),
                         ("grpc", "Pair", "Do"))


class TestConfiguration(unittest.TestCase):
    def test_modelet_of_tensors(self):
        """A modelet that says it takes something else is not started."""
        code, said = run_shoald(node(letters("plain", params={"describe": "tensor"}, slots=8)))
        self.assertEqual(code, 2, said)
        self.assertIn('a pipeline with a `method` has one input, "message" UINT8 of one dimension: '
                      'the modelet describes 1, the first of them "x" FP32', said)

    def test_reload(self):
        """A node's methods stay; all else of the pipeline changes."""
        before = node(letters("plain", slots=8), letters("other", slots=8))
        after = node(letters("plain", method="/new.Service/Do", slots=16),
                     pipeline("other", stage("libletters.so", params=FOLDER), slots=16))
        with Shoald(before) as shoald, Caller(shoald.target) as caller:
            shoald.write_config(after)
            shoald.signal(1)
            for name in ("plain", "other"):
                shoald.wait_log(f"reload_ignored pipeline={name} key=method needs=restart")
                shoald.wait_stat(name, lambda stat: stat["generation"] == 2, "the reload")
                self.assertEqual(caller.call(f"/test.Letters/{name}", b"x"), b"x")
            self.assertEqual(failure(caller.start("/new.Service/Do"))[0].name, "UNIMPLEMENTED")


if __name__ == "__main__":
    shoal_fixture.main()
