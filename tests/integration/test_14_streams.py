# SPDX-License-Identifier: Apache-2.0
"""Answers in pieces over ModelStreamInfer: ids, order, ends, errors of single requests; and callers
that read slowly, not at all, or vanish, beside others who must not notice.

The modelets are the example `repeat` and the tests' probe (tests/modelets/probe.h), which emits as
it is told.

ctest: timeout=180 presets=release,tsan because several threads put pieces on one stream
"""

import struct
import unittest

import grpc

import shoal_fixture
from shoal_client import Client, failure
from shoal_fixture import (EXAMPLES, WAIT_SECONDS, Shoald, node, pipeline, stage, wait_until)
from shoal_http2 import Http2
from shoal_metrics import Scrape, metrics_port
from shoal_streams import (ANSWER, ENDLESS, FAIL, PATH, WAIT, WIDE, Stream, emission, is_final, repeat,
                           words)

INNOCENTS = 20  # answers that others get meanwhile
TRICKLE_BYTES = 1024


def grpc_messages(data, kind):
    """The messages of a stream's whole data."""
    found = []
    while data:
        compressed, size = struct.unpack_from(">BI", data)
        assert not compressed
        found.append(kind.FromString(data[5:5 + size]))
        data = data[5 + size:]
    return found


class TestStreams(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        probe = {"batch_size": 4, "workers": 3}
        config = node(
            pipeline("repeat", stage(EXAMPLES / "stream" / "librepeat.so"), slots=16),
            pipeline("joined", stage(EXAMPLES / "stream" / "librepeat.so", collect="concat"), slots=16),
            pipeline("probe", stage("libprobe.so", **probe), slots=32, stream_mib=1),
            pipeline("bare", stage("libprobe.so"), slots=8, stream_mib=0),
            pipeline("brief", stage("libprobe.so"), slots=8, default_timeout_ms=500),
            pipeline("first", stage("libfirst_header.so"), slots=8),
            pipeline("undeclared", stage("libundeclared.so"), slots=8),
            pipeline("echo", stage("libecho.so"), slots=256),  # enough to be shared
            pipeline("two", stage("libprobe.so", "a", collect="last"), stage("libecho.so", "b"), slots=8),
            listen=["127.0.0.1:0"], metrics="127.0.0.1:0", send_timeout_ms=2000)
        cls.shoald = cls.enterClassContext(Shoald(config))
        cls.client = cls.enterClassContext(Client(cls.shoald.target))

    def stream(self, **named):
        return Stream(self.client, **named)

    def stat(self, name="probe"):
        return self.shoald.pipeline_stat(name)

    # ---- answers ----

    def test_pieces_and_end(self):
        stream = self.stream()
        stream.send("probe", emission(100), id="an id")
        messages = stream.read_all()
        self.assertEqual([words(message)[1] for message in messages], [*range(100), 100])
        self.assertEqual([is_final(message) for message in messages], [False] * 100 + [True])
        for message in messages:
            answer = message.infer_response
            self.assertEqual((answer.id, answer.model_name, message.error_message), ("an id", "probe", ""))
            self.assertEqual(answer.outputs[0].name, "probe")
        self.assertEqual(stream.call.code(), grpc.StatusCode.OK)
        self.shoald.wait_all_returned("probe")
        stage_stat = self.shoald.stage_stat("probe", "probe")
        self.assertEqual(sum(worker["pieces"] for worker in stage_stat["workers"]), self.stat()["pieces"])

    def test_end_without_outputs(self):
        """Only a caller that asks for it gets a message for it."""
        for wanted in (False, True):
            stream = self.stream()
            stream.send("repeat", *repeat([7, 8]), id="x", empty_final=wanted)
            messages = stream.read_all()
            self.assertEqual(len(messages), 2 + wanted)
            self.assertEqual([struct.unpack("<i", message.infer_response.raw_output_contents[0])[0]
                              for message in messages[:2]], [7, 8])
            self.assertEqual([is_final(message) for message in messages], [False, False, True][:2 + wanted])
            if wanted:
                self.assertEqual((messages[2].infer_response.id, len(messages[2].infer_response.outputs)),
                                 ("x", 0))

    def test_requested_outputs(self):
        stream = self.stream()
        stream.send("repeat", *repeat([5]), outputs=["IDX"])
        message, = stream.read_all()
        self.assertEqual([output.name for output in message.infer_response.outputs], ["IDX"])

    def test_modelets_without_pieces(self):
        """Also one that was compiled before there were pieces."""
        for name in ("echo", "first"):
            stream = self.stream()
            stream.send(name, ("x", "INT8", [3], b"abc"), id="1")
            message, = stream.read_all()
            self.assertEqual(message.infer_response.raw_output_contents, [b"abc"])
            self.assertTrue(is_final(message))

    def test_many_requests_at_once(self):
        """Each answer's pieces keep their order beside other messages."""
        stream = self.stream()
        for tag in range(24):
            stream.send("probe", emission(tag * 7, tag=tag), id=str(tag))
        stream.half_close()
        seen = {}
        for message in stream.call:
            number = seen.setdefault(message.infer_response.id, [])
            got = words(message)
            self.assertEqual(str(got[2]), message.infer_response.id)
            self.assertEqual(got[1], len(number))
            number.append(is_final(message))
        for tag in range(24):
            self.assertEqual(seen[str(tag)], [False] * (tag * 7) + [True])
        self.shoald.wait_all_returned("probe")

    def test_a_conversation(self):
        """A request that comes after answers; the stream stays open in between."""
        stream = self.stream()
        for i in range(3):
            stream.send("probe", emission(2, tag=i), id=str(i))
            self.assertEqual([(words(m)[2], is_final(m)) for m in (stream.read() for _ in range(3))],
                             [(i, False), (i, False), (i, True)])
        self.assertEqual(stream.read_all(), [])

    def test_no_request(self):
        self.assertEqual(self.stream().read_all(), [])

    def test_metrics(self):
        """Of a stream that lives, beside those that have ended."""
        pieces = self.stat()["pieces"] + 3
        stream = self.stream()
        stream.send("probe", emission(3, WAIT))
        self.shoald.wait_stat("probe", lambda stat: stat["streams"] == 1 and stat["pieces"] == pieces,
                              "stream and pieces to be counted")
        scrape = Scrape(metrics_port(self.shoald))
        name = frozenset({("pipeline", "probe")})
        self.assertEqual(scrape.samples["shoal_pipeline_streams", name], 1)
        self.assertEqual(scrape.samples["shoal_pipeline_pieces_total", name], pieces)
        stream.call.cancel()
        self.shoald.wait_all_returned("probe")

    # ---- errors ----

    def test_errors_are_their_requests_alone(self):
        stream = self.stream()
        stream.send("nobody", emission(1), id="unknown")
        stream.send("probe", ("probe", "INT64", [2], b"x"), id="malformed")
        stream.send("probe", emission(2, FAIL), id="fails")
        stream.send("probe", emission(2), id="well")
        errors, ends = {}, {}
        for message in stream.read_all():
            name = message.infer_response.id
            if message.error_message:
                self.assertTrue(is_final(message))
                self.assertEqual(len(message.infer_response.outputs), 0)
                errors[name] = message.error_message
            ends[name] = ends.get(name, 0) + is_final(message)
        self.assertEqual(ends, {name: 1 for name in ("unknown", "malformed", "fails", "well")})
        self.assertEqual(errors.keys(), {"unknown", "malformed", "fails"})
        self.assertIn("nobody", errors["unknown"])
        self.assertIn("raw contents", errors["malformed"])
        self.assertIn("told to fail at last (2 pieces", errors["fails"])
        self.shoald.wait_all_returned("probe")

    def test_a_modelet_that_does_not_declare_its_pieces(self):
        code, text = failure(self.client.start_raw("undeclared", ("x", "INT8", [1], b"a")))
        self.assertEqual(code.name, "FAILED_PRECONDITION", text)
        self.assertIn('modelet wrong emits without extension("stream")', text)
        stream = self.stream()
        stream.send("undeclared", ("x", "INT8", [1], b"a"))
        message, = stream.read_all()
        self.assertEqual((message.error_message, is_final(message)), (text, True))

    def test_garbage(self):
        """A request that is no message is refused like any other."""
        call = self.client.channel.stream_stream(PATH)(iter([b"\xff\xff", b""]), timeout=WAIT_SECONDS)
        type_ = self.client.type("inference.ModelStreamInferResponse")
        messages = [type_.FromString(data) for data in call]
        self.assertEqual(len(messages), 2)
        self.assertTrue(all(message.error_message for message in messages), messages)

    # ---- callers that take no pieces ----

    def test_unary_calls(self):
        code, text = failure(self.client.start_raw("probe", emission(3)))
        self.assertEqual(code.name, "UNIMPLEMENTED", text)
        self.assertIn("ModelStreamInfer", text)
        answer = self.client.infer_raw("joined", *repeat([3, 1, 4]))
        self.assertEqual([(output.name, list(output.shape)) for output in answer.outputs],
                         [("OUT", [3]), ("IDX", [3])])
        self.assertEqual(struct.unpack("<3i", answer.raw_output_contents[0]), (3, 1, 4))

    def test_pieces_for_nobody(self):
        """No pieces by configuration, and a stage that is not the last."""
        for name, expected in (("bare", "answers in pieces"), ("two", "")):
            stream = self.stream()
            stream.send(name, emission(3, ANSWER))
            message, = stream.read_all()
            self.assertIn(expected, message.error_message)
            self.assertTrue(is_final(message))
            if not expected:
                self.assertEqual(words(message)[1], 3)

    # ---- the end of patience ----

    def test_cancelling(self):
        before = self.stat("repeat")["cancelled"]
        stream = self.stream()
        for _ in range(3):
            stream.send("repeat", *repeat([0] * 10000, delay=20))
        for _ in range(2):
            stream.read()
        stream.call.cancel()
        self.shoald.wait_stat("repeat", lambda stat: stat["cancelled"] >= before + 1, "cancelling")
        self.shoald.wait_all_returned("repeat")
        self.check_serves()

    def test_deadline(self):
        stream = self.stream(timeout=0.5)
        stream.send("probe", emission(0, ENDLESS))
        with self.assertRaises(grpc.RpcError) as caught:
            list(stream.call)
        self.assertEqual(caught.exception.code().name, "DEADLINE_EXCEEDED")
        self.shoald.wait_all_returned("probe")

    def test_timeout_of_one_request(self):
        stream = self.stream()
        stream.send("repeat", *repeat([0] * 10000, delay=20), id="a",
                    parameters={"timeout": {"int64_param": 200000}})
        *_, last = stream.read_all()
        self.assertIn("deadline", last.error_message)
        self.assertEqual(stream.call.code(), grpc.StatusCode.OK)

    def test_timeout_of_the_pipeline(self):
        """Of a call without one, whose modelet would never end."""
        stream = self.stream(timeout=None)
        stream.send("brief", emission(1, WAIT))
        self.shoald.wait_stat("brief", lambda stat: stat["requests"] == 1, "the request")
        self.shoald.wait_all_returned("brief")
        *_, last = stream.read_all()
        self.assertIn("deadline", last.error_message)

    # ---- hostile readers ----

    def check_serves(self, client=None, requests=INNOCENTS):
        # No deadline: after answers that took seconds, a forecast refuses what it expects to be late.
        stream = Stream(client or self.client, timeout=None)
        for tag in range(requests):
            stream.send("probe", emission(5, tag=tag), id=str(tag))
        messages = stream.read_all()
        self.assertEqual([message.error_message for message in messages if message.error_message], [])
        self.assertEqual(len(messages), 6 * requests)

    def test_a_caller_that_does_not_read(self):
        """Its answer is given up when stream_mib is unread; the worker serves on."""
        shoald = self.enterContext(Shoald(node(  # that has all the patience in the world
            pipeline("probe", stage("libprobe.so", workers=2), slots=32, stream_mib=1), send_timeout_ms=0)))
        client = self.enterContext(Client(shoald.target))
        stream = Stream(client, timeout=None)  # which alone would end it
        stream.send("probe", emission(0, ENDLESS), id="endless")
        shoald.wait_stat("probe", lambda stat: stat["streams_slow"] == 1, "the answer to be given up")
        shoald.wait_all_returned("probe")
        self.check_serves(client)
        stream.half_close()
        messages = list(stream.call)  # it reads after all
        self.assertIn("stream_mib", messages[-1].error_message)
        self.assertTrue(is_final(messages[-1]))
        numbers = [words(message)[1] for message in messages[:-1]]
        self.assertEqual(numbers, list(range(len(numbers))))

    def test_a_caller_that_trickles(self):
        """Its window is 1 KiB, which it returns when at least 4 more pieces of 3 kB have come: it
        never stops reading, but is too slow."""
        shoald = self.enterContext(Shoald(node(
            pipeline("probe", stage("libprobe.so", workers=2), slots=32, stream_mib=1), send_timeout_ms=0)))
        client = self.enterContext(Client(shoald.target))
        request, _ = client.stub("ModelStreamInfer", kind="stream_stream")
        message = request(**client.infer_fields("probe", [emission(65535, WIDE, pause_ms=5)]))
        caller = self.enterContext(Http2(str(shoald.socket), window=TRICKLE_BYTES))
        stream = caller.ask(PATH, message.SerializeToString())
        data, stat = b"", shoald.pipeline_stat("probe")
        while stat["streams_slow"] == 0:
            data += caller.read_data(stream, TRICKLE_BYTES)
            before = stat["pieces"]
            stat = shoald.wait_stat("probe", lambda stat, least=before + 4:
                                    stat["pieces"] >= least or stat["streams_slow"] > 0, "more pieces")
            for which in (stream, 0):
                caller.open_window(which, TRICKLE_BYTES)
            self.check_serves(client, 1)
        shoald.wait_all_returned("probe")
        self.check_serves(client)
        for which in (stream, 0):
            caller.open_window(which, 2 << 20)
        data += caller.wait_end(stream)
        messages = grpc_messages(data, client.type("inference.ModelStreamInferResponse"))
        self.assertIn("stream_mib", messages[-1].error_message)
        self.assertTrue(is_final(messages[-1]))
        numbers = [struct.unpack("<2q", message.infer_response.raw_output_contents[-1][:16])[1]
                   for message in messages[:-1]]
        self.assertEqual(numbers, list(range(len(numbers))))

    def test_closed_windows(self):
        """Callers whose windows are 0 are disconnected; others are served meanwhile."""
        cut = self.shoald.stat()["grpc_cut"]
        request, _ = self.client.stub("ModelStreamInfer", kind="stream_stream")
        message = request(**self.client.infer_fields("probe", [emission(0, ENDLESS)]))
        callers = [self.enterContext(Http2(str(self.shoald.socket), window=0)) for _ in range(4)]
        for caller in callers:
            caller.ask(PATH, message.SerializeToString())
        self.check_serves()
        wait_until(lambda: self.shoald.stat()["grpc_cut"] >= cut + 4,
                   lambda: f"the callers to be cut off: {self.shoald.stat()['grpc_cut'] - cut} were")
        self.shoald.wait_all_returned("probe")

    def test_vanishing_callers(self):
        for _ in range(3):
            request, _ = self.client.stub("ModelStreamInfer", kind="stream_stream")
            message = request(**self.client.infer_fields("probe", [emission(0, ENDLESS)]))
            with Http2(str(self.shoald.socket)) as caller:
                caller.ask(PATH, message.SerializeToString())
                caller.read_frame()
            self.check_serves()
        self.shoald.wait_all_returned("probe")
        wait_until(lambda: self.shoald.stat()["streams"] == self.stat()["streams"] == 0,
                   "all streams to be gone")

    def test_requests_that_nobody_reads_the_answers_of(self):
        """No more of them are read than STREAM_UNREAD_MAX makes answers."""
        many = 2000
        blob = bytes(100_000)
        stream = self.stream()
        before = self.stat("echo")["requests"]
        for _ in range(many):
            stream.send("echo", ("x", "UINT8", [len(blob)], blob))
        answered = self.client.infer_raw("echo", ("x", "INT8", [1], b"y"))
        self.assertEqual(answered.raw_output_contents, [b"y"])
        self.check_serves()
        self.assertLess(self.stat("echo")["requests"] - before, many)
        stream.call.cancel()
        self.shoald.wait_all_returned("echo")


if __name__ == "__main__":
    shoal_fixture.main()
