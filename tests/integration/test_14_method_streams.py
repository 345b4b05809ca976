# SPDX-License-Identifier: Apache-2.0
"""Methods of pipelines that answer with streams: grpcio's unary_stream against modelets in C (the
tests' `letters`) and in Python, a generator.

Each piece is a message of the method, what `run` leaves is the last; ends, deadlines, cancelling,
deaths of workers and callers that do not read are as for ModelStreamInfer. A method whose modelet
does not emit, or whose stage collects, answers a unary call with one message.

ctest: timeout=120 presets=release,tsan because a stream is written by the threads that gather
"""

import os
import pathlib
import signal
import struct
import tempfile
import unittest

import grpc

import shoal_fixture
from shoal_client import failure
from shoal_fixture import WAIT_SECONDS, Shoald, node, pipeline, stage, wait_until
from shoal_http2 import DATA, HEADERS, Http2
from test_12_methods import Caller

CODE = grpc.StatusCode
LETTERS = "/test.Letters/"
MIB, COST = 1 << 20, 256  # RPC_MESSAGE_COST
WIDE_BYTES = 100000  # modelet_letters.c
GENERATOR = """
import numpy, shoal

def run(message: shoal.UINT8[-1]) -> {"message": shoal.UINT8[-1]}:
    for word in message.tobytes().split():
        if word == b"raise":
            raise shoal.InvalidArgument("INVALID_ARGUMENT", "told to raise")
        if word == b"return":
            return {"message": numpy.frombuffer(b"the last", "u1")}
        yield {"message": numpy.frombuffer(word, "u1")}
"""


def numbers(messages):
    return [struct.unpack_from("<I", message)[0] for message in messages]


class Stream:
    """A call of unary_stream, whose messages are read one by one."""

    def __init__(self, channel, message, path=LETTERS + "letters", timeout=WAIT_SECONDS, metadata=()):
        self.call = channel.unary_stream(path)(message.encode(), timeout=timeout, metadata=metadata)

    def read(self):
        return next(self.call)

    def read_all(self):
        """The messages, and how the stream ended."""
        messages = []
        try:
            messages.extend(self.call)
        except grpc.RpcError:
            pass
        return messages, self.call.code(), self.call.details()


def run_late(start):
    """Starts calls whose modelet does not end before their deadlines, until one has had the time to send
    its first message; the name of that."""
    for seconds in (0.5, 4, WAIT_SECONDS):
        name = f"late-{id(start)}-{seconds}"
        messages, code, _ = start(f"emit 1 {name}", seconds).read_all()
        assert code is CODE.DEADLINE_EXCEEDED, code
        if messages:
            break
    assert numbers(messages) == [0], messages
    return name


class MethodStreams(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="shoal-test.")))
        (folder / "words.py").write_text(GENERATOR)
        letters = {"params": {"folder": "."}}
        cls.shoald = cls.enterClassContext(Shoald(node(
            pipeline("letters", stage("libletters.so", workers=3, attempts_max=8, **letters), method=LETTERS + "letters",
                     slots=32, stream_mib=1),
            pipeline("joined", stage("libletters.so", collect="concat", **letters), method=LETTERS + "joined",
                     slots=8),
            pipeline("unary", stage("libletters.so", **letters), method=LETTERS + "unary", slots=8, stream_mib=0),
            pipeline("words", stage("./words.py"), method="/test.Words/Split", slots=8),
            listen=["127.0.0.1:0"], send_timeout_ms=0), folder=folder))
        cls.channel = cls.enterClassContext(Caller(cls.shoald.target)).channel

    def stream(self, *arguments, **named):
        return Stream(self.channel, *arguments, **named)

    def check_serves(self):
        for _ in range(5):
            messages, code, _ = self.stream("emit 20 answer").read_all()
            self.assertEqual((numbers(messages), code), (list(range(21)), CODE.OK))

    # ---- answers ----

    def test_messages_and_ends(self):
        pieces = self.shoald.pipeline_stat("letters")["pieces"]
        for count in (1, 2, 3000):
            for end, more in (("answer", 1), ("nothing", 0)):
                messages, code, text = self.stream(f"emit {count} {end}").read_all()
                self.assertEqual((numbers(messages), code, text), (list(range(count + more)), CODE.OK, ""))
        self.assertEqual(numbers(self.stream("emit 0 answer").read_all()[0]), [0])
        messages, code, _ = self.stream("emit 1 empty").read_all()
        self.assertEqual((messages, code), ([bytes(4), b"", struct.pack("<I", 1)], CODE.OK))
        self.shoald.wait_stat("letters", lambda stat: stat["pieces"] - pieces == 2 * (1 + 2 + 3000) + 2,
                              "the pieces to be counted")

    def test_failures(self):
        said = "told to fail at last"
        for message, count, code, text in (
                ("emit 2 fail", 2, CODE.ABORTED, f"{said} (2 pieces of the answer were sent)"),
                ("emit 0 fail", 0, CODE.ABORTED, said), ("fail 5", 0, CODE.NOT_FOUND, "told to fail with 5"),
                ("emit 0 nothing", 0, CODE.INTERNAL, "modelet letters gave no output"),
                ("emit 3 other", 3, CODE.INTERNAL,
                 'each piece must be one output, "message" UINT8 of one dimension')):
            messages, *end = self.stream(message).read_all()
            self.assertEqual((numbers(messages), end), (list(range(count)), [code, text]), message)

    def test_python(self):
        for message, expected in (("a bc d", [b"a", b"bc", b"d"]), ("a return b", [b"a", b"the last"])):
            messages, code, _ = self.stream(message, "/test.Words/Split").read_all()
            self.assertEqual((messages, code), (expected, CODE.OK))
        messages, code, text = self.stream("a raise", "/test.Words/Split").read_all()
        self.assertEqual((messages, code), ([b"a"], CODE.INVALID_ARGUMENT))
        self.assertIn("told to raise (1 pieces", text)

    def test_unary(self):
        """One message is the same to callers of both kinds, and in the same frames as ever."""
        self.assertEqual(self.stream("bytes 3").read_all()[:2], ([b"\0\1\2"], CODE.OK))
        caller = self.channel.unary_unary(LETTERS + "joined")
        self.assertEqual(numbers(caller(b"emit 3 answer", timeout=WAIT_SECONDS)[i:] for i in range(0, 16, 4)),
                         [0, 1, 2, 3])
        code, text = failure(self.channel.unary_unary(LETTERS + "unary").future(
            b"emit 1 answer", timeout=WAIT_SECONDS))
        self.assertEqual(code, CODE.UNIMPLEMENTED)
        self.assertIn("`collect`", text)
        frames = {}
        for method in ("letters", "unary"):
            with Http2(str(self.shoald.socket)) as caller:
                stream = caller.ask(LETTERS + method, b"bytes 3")
                frames[method] = []
                while stream not in caller.ended:
                    kind, flags, of, payload = caller.read_frame()
                    if of == stream and kind in (HEADERS, DATA):
                        frames[method].append((kind, flags, payload))
        self.assertEqual(frames["letters"], frames["unary"])

    # ---- the end of patience ----

    def test_a_caller_that_goes(self):
        stream = self.stream("emit 2 left")
        self.assertEqual(numbers([stream.read(), stream.read()]), [0, 1])
        stream.call.cancel()
        wait_until((self.shoald.folder / "left.gave_up").exists, "the modelet to give up")

    def test_deadline(self):
        name = run_late(lambda message, seconds: self.stream(message, timeout=seconds))
        wait_until((self.shoald.folder / f"{name}.gave_up").exists, "the modelet to give up")

    def wait_slow(self, before):
        return self.shoald.wait_stat("letters", lambda stat: stat["streams_slow"] == before["streams_slow"] + 1,
                                     "the answer to be given up")

    def test_a_caller_that_does_not_read(self):
        """Its answer is given up when stream_mib is unread; what was sent can still be read."""
        before = self.shoald.pipeline_stat("letters")
        stream = self.stream("emit 0 wide")
        self.wait_slow(before)
        self.check_serves()
        messages, code, text = stream.read_all()
        self.assertEqual(code, CODE.RESOURCE_EXHAUSTED)
        self.assertIn("stream_mib", text)
        self.assertGreater(len(messages), MIB // WIDE_BYTES)
        self.assertEqual(numbers(messages), list(range(len(messages))))

    def test_small_messages_count_with_what_they_hold(self):
        before = self.shoald.pipeline_stat("letters")
        with Http2(str(self.shoald.socket)) as caller:
            caller.ask(LETTERS + "letters", b"emit 0 endless")
            pieces = self.wait_slow(before)["pieces"] - before["pieces"]
            self.check_serves()
        self.assertGreater(pieces, MIB // (COST + 4))
        self.assertLess(pieces, MIB // 16)  # a few windows of them lie with gRPC and the kernel

    def test_a_caller_that_vanishes(self):
        with Http2(str(self.shoald.socket), window=0) as caller:
            caller.ask(LETTERS + "letters", b"emit 0 wide")
            self.check_serves()

    # ---- workers that die ----

    def test_worker_dies(self):
        workers = self.shoald.workers("letters")
        messages, code, text = self.stream("emit 3 crash").read_all()
        self.assertEqual((numbers(messages), code), ([0, 1, 2], CODE.UNAVAILABLE))
        self.assertIn("after it had begun to answer this request (3 pieces of the answer were sent)", text)
        died, = wait_until(lambda: [worker for worker in workers if not pathlib.Path(f"/proc/{worker.pid}").exists()],
                           "the end of the worker")
        self.shoald.wait_successor(died)
        again = self.shoald.pipeline_stat("letters")["run_again"]
        stream = self.stream("linger on")
        wait_until((self.shoald.folder / "on.held").exists, "the modelet to have begun")
        for worker in self.shoald.workers("letters"):  # one after the other may have got it
            os.kill(worker.pid, signal.SIGKILL)
        (self.shoald.folder / "on.go").touch()
        self.assertEqual(stream.read_all()[:2], ([b"linger on"], CODE.OK))
        self.shoald.wait_stat("letters", lambda stat: stat["run_again"] > again, "the count of repeats")

    def test_everything_is_given_back(self):
        self.shoald.wait_all_returned("letters", "joined", "unary", "words")


if __name__ == "__main__":
    shoal_fixture.main()
