# SPDX-License-Identifier: Apache-2.0
"""Answers in pieces over REST: Triton's generate and generate_stream, and `Accept:
text/event-stream`. Their events, ends and errors, as curl and http.client read them; and clients
that stop reading, or vanish, beside one that must not notice.

The modelets are the example `repeat` and the tests' probe (tests/modelets/probe.h).
ctest: timeout=120 presets=release,tsan because gRPC's threads make events that the HTTP thread writes
"""

import json
import pathlib
import socket
import subprocess
import tempfile
import unittest

import shoal_fixture
from shoal_fixture import EXAMPLES, WAIT_SECONDS, Shoald, node, pipeline, stage, wait_until
from shoal_rest import ANY_PORT, Rest, port_of, raw_answers, tensor

EMIT = 18  # enum probe_command
ANSWER, NOTHING, FAIL, _, _, ENDLESS = range(6)  # enum probe_ending
EVENTS = {"Accept": "text/event-stream"}
WHAT = {"repeat": "/v2/models/repeat/generate_stream", "probe": "/v2/models/probe/infer"}
HOUR_MS = 3600000
HTTP = [ANY_PORT, "unix:http.sock"]


def emission(pieces, ending=ANSWER):
    return tensor("probe", "INT64", [3], [EMIT, pieces | ending << 32, 0])


def repeat(values, delay=0, **more):
    return {"IN": values, "DELAY": [delay] * len(values), "WAIT": 0, **more}


def parse(body):
    """The objects of a body that is events and nothing else."""
    *events, rest = body.decode().split("\n\n")
    assert rest == "", body
    assert all(event.startswith("data: ") and "\n" not in event for event in events), body
    return [json.loads(event[len("data: "):]) for event in events]


class Events(Rest):
    """A connection whose answer is events."""

    def __init__(self, port, **options):
        super().__init__(port, **options)
        self.response = None

    def __exit__(self, *details):
        if self.response is not None:
            self.response.close()
        super().__exit__(*details)

    def begin(self, path, body, headers=None):
        self.send("POST", path, json.dumps(body), headers)
        self.response = self.connection.getresponse()
        assert self.response.status == 200, self.response.read()
        assert self.response.headers["Content-Type"] == "text/event-stream"
        return self

    def next(self):
        line = self.response.readline()
        assert self.response.readline() == b"\n", line
        return parse(line + b"\n")[0]


class TestRestStreams(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="shoal-test.")))
        (folder / "models" / "m").mkdir(parents=True)
        repeats = EXAMPLES / "stream" / "librepeat.so"
        cls.shoald = cls.enterClassContext(Shoald(node(
            pipeline("repeat", stage(repeats, workers=2), slots=8),
            pipeline("joined", stage(repeats, collect="concat"), slots=8),
            pipeline("probe", stage("libprobe.so", batch_size=4, workers=3), slots=8, stream_mib=1),
            pipeline("of-models", stage("libprobe.so"), slots=8,
                     models={"root": "models", "memory_mib": 64}),
            pipeline("echo", stage("libecho.so"), slots=8),
            http=HTTP, http_write_timeout_ms=HOUR_MS), folder=folder))
        cls.port = port_of(cls.shoald)

    def setUp(self):
        self.addCleanup(self.check_given_back)  # last, when the connections are closed
        self.rest = self.enterContext(Rest(self.port))

    def check_given_back(self):
        self.shoald.wait_all_returned("repeat", "probe")
        wait_until(lambda: self.shoald.stat()["streams"] == 0, "all streams to be gone")

    def events(self, **options):
        return self.enterContext(Events(self.port, **options))

    def ask(self, path, body, headers=None):
        return self.rest.ask("POST", path, json.dumps(body), headers)

    def ask_probe(self, *emitted, **more):
        return self.rest.infer("probe", emission(*emitted), headers=EVENTS, **more)

    # ---- answers ----

    def test_generate_stream(self):
        answer = self.ask(WHAT["repeat"], repeat([3, 1, 4], id="an id"))
        self.assertEqual((answer.code, answer.headers["Content-Type"], answer.headers["Transfer-Encoding"]),
                         (200, "text/event-stream", "chunked"))
        self.assertEqual(parse(answer.body), [
            {"model_name": "repeat", "model_version": "1", "id": "an id", "OUT": out, "IDX": index}
            for index, out in enumerate([3, 1, 4])])
        self.assertEqual(self.ask("/v2/models/repeat/versions/1/generate_stream", repeat([7])).code, 200)

    def test_curl(self):
        done = subprocess.run(
            ["curl", "-sN", f"127.0.0.1:{self.port}{WHAT['repeat']}", "--json", json.dumps(repeat([5, 6], 1))],
            capture_output=True, timeout=WAIT_SECONDS, check=True)
        self.assertEqual([event["OUT"] for event in parse(done.stdout)], [5, 6])

    def test_pieces_come_as_they_are_made(self):
        """The first is here, though the last is hours away."""
        reader = self.events().begin(WHAT["repeat"], {"IN": [1, 2], "DELAY": [0, HOUR_MS], "WAIT": 0})
        self.assertEqual(reader.next()["OUT"], 1)

    def test_infer(self):
        for pieces in (0, 1, 40):
            answer = self.ask_probe(pieces, id="7")
            events = parse(answer.body)
            self.assertEqual([event["outputs"][0]["data"][1] for event in events], list(range(pieces + 1)))
            self.assertEqual([event["parameters"]["triton_final_response"] for event in events],
                             [False] * pieces + [True])
            self.assertEqual({(event["id"], event["model_name"], event["outputs"][0]["name"])
                              for event in events}, {("7", "probe", "probe")})

    def test_end_without_outputs(self):
        for wanted in (False, True):
            parameters = {"triton_enable_empty_final_response": wanted}
            events = parse(self.ask_probe(2, NOTHING, parameters=parameters).body)
            self.assertEqual([len(event["outputs"]) for event in events], [1, 1] + [0] * wanted)
            self.assertEqual(events[-1]["parameters"]["triton_final_response"], wanted)

    def test_accept(self):
        """Only a client that names events gets them; others are answered as ever."""
        for accept, code in ((None, 501), ("*/*", 501), ("application/json", 501), ("text/event-stream-x", 501),
                             ("text/event-stream;q=0", 501), ("text/event-stream; v=1; Q=0.0, */*", 501),
                             ("application/json, text/event-stream", 200), ("TEXT/Event-Stream;q=0.5", 200)):
            answer = self.rest.infer("probe", emission(1), headers={"Accept": accept} if accept else None)
            self.assertEqual(answer.code, code, accept)
            if code == 501:
                self.assertIn("generate_stream", answer.error)
        both = {"Accept": "application/json", "accept": "text/event-stream"}  # one header each
        self.assertEqual(self.rest.infer("probe", emission(1), headers=both).code, 200)

    def test_one_answer(self):
        """Of a modelet that does not know pieces, and over generate."""
        x = tensor("x", "BYTES", [1], ["data: \n\n"])
        event, = parse(self.rest.infer("echo", x, headers=EVENTS).body)
        self.assertEqual((event["outputs"][0]["data"], event["parameters"]),
                         (["data: \n\n"], {"triton_final_response": True}))
        answer = self.ask("/v2/models/joined/generate", repeat([3, 1, 4]))
        self.assertEqual((answer.code, answer.json), (200, {
            "model_name": "joined", "model_version": "1", "OUT": [3, 1, 4], "IDX": [0, 1, 2]}))
        self.assertEqual(self.ask("/v2/models/repeat/generate", repeat([3])).code, 501)

    def test_models(self):
        events = parse(self.rest.infer("m", emission(3), headers=EVENTS).body)
        self.assertEqual([event["outputs"][0]["data"][1] for event in events], [0, 1, 2, 3])

    def test_http_1_0(self):
        body = json.dumps(repeat([8, 9])).encode()
        answer, = raw_answers(self.port, b"POST %s HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s"
                              % (WHAT["repeat"].encode(), len(body), body), 1)
        self.assertEqual(answer.headers.get("Transfer-Encoding"), None)
        self.assertEqual([event["OUT"] for event in parse(answer.body)], [8, 9])

    # ---- errors ----

    def test_errors_before_the_first_piece(self):
        for path, body, code, word in (
                (WHAT["repeat"], {"IN": [1]}, 400, "DELAY"),
                (WHAT["repeat"], [1], 400, "must be a JSON object"),
                (WHAT["repeat"], repeat([1], other=[2]), 400, '"other" is no input'),
                ("/v2/models/echo/generate_stream", {"x": 1}, 501, "does not declare its inputs"),
                ("/v2/models/nobody/generate_stream", {}, 404, "nobody")):
            answer = self.ask(path, body)
            self.assertEqual(answer.code, code, answer)
            self.assertIn(word, answer.error)
        answer = self.ask_probe(0, FAIL)
        self.assertEqual((answer.code, answer.error), (409, "told to fail at last"))
        binary = {"binary_data_output": True}
        self.assertIn("binary data", self.ask_probe(1, parameters=binary).error)
        self.assertEqual(self.rest.get(WHAT["repeat"]).code, 405)

    def test_error_after_pieces(self):
        answer = self.ask_probe(2, FAIL)
        *pieces, last = parse(answer.body)
        self.assertEqual((answer.code, len(pieces), list(last)), (200, 2, ["error"]))
        self.assertIn("told to fail at last (2 pieces", last["error"])
        self.assertEqual(self.ask_probe(0).code, 200)  # on the same connection

    def test_deadline(self):
        answer = self.ask(WHAT["repeat"], repeat([1], HOUR_MS), {"Grpc-Timeout": "300m"})
        self.assertEqual(answer.code, 504, answer)  # in the words of the first to notice
        body = {"IN": [1, 2], "DELAY": [0, HOUR_MS], "WAIT": 0}
        for timeout in "300m", "3000m", "30S":  # the first piece must be faster
            answer = self.ask(WHAT["repeat"], body, {"Grpc-Timeout": timeout})
            if answer.code == 200:
                break
        first, last = parse(answer.body)
        self.assertEqual(first["OUT"], 1)
        self.assertIn("deadline has passed", last["error"])

    # ---- hostile clients ----

    def check_serves(self):
        for _ in range(10):
            self.assertEqual(len(parse(self.ask_probe(5).body)), 6)

    def stalled(self, shoald, *emitted):
        """A client that asks for an endless answer, and reads nothing. A unix socket buffers less
        than stream_mib, however slowly the node writes."""
        body = json.dumps({"inputs": [emission(*emitted or (0, ENDLESS))]}).encode()
        client = self.enterContext(socket.socket(socket.AF_UNIX))
        client.settimeout(WAIT_SECONDS)
        client.connect(str(shoald.folder / "http.sock"))
        client.sendall(b"POST %s HTTP/1.0\r\nAccept: text/event-stream\r\nContent-Length: %d\r\n\r\n%s"
                       % (WHAT["probe"].encode(), len(body), body))
        shoald.wait_stat("probe", lambda stat: stat["pieces"] > 0, "the answer to begin")
        return client

    def test_client_that_does_not_read(self):
        """Its answer is given up when stream_mib is unread; it can still read what there is."""
        slow = self.shoald.pipeline_stat("probe")["streams_slow"]
        client = self.stalled(self.shoald)
        self.shoald.wait_stat("probe", lambda stat: stat["streams_slow"] == slow + 1, "the answer to be given up")
        self.shoald.wait_all_returned("probe")
        self.check_serves()
        with client.makefile("rb") as file:
            head, _, body = file.read().partition(b"\r\n\r\n")
        self.assertIn(b"200 OK", head)
        *pieces, last = parse(body)
        self.assertIn("stream_mib", last["error"])
        self.assertEqual([event["outputs"][0]["data"][1] for event in pieces], list(range(len(pieces))))

    def test_closed_window(self):
        """A client that never reads is disconnected."""
        with Shoald(node(pipeline("probe", stage("libprobe.so"), slots=4, stream_mib=1),
                         http=HTTP, http_write_timeout_ms=200)) as shoald:
            client = self.stalled(shoald)
            wait_until(lambda: shoald.stat()["http_timed_out"] == 1, "the client to be disconnected")
            shoald.wait_all_returned("probe")
            wait_until(lambda: shoald.stat()["streams"] == 0, "the stream to be gone")
            client.close()

    def test_stop_beside_a_client_that_does_not_read(self):
        """The node does not wait for it, and forgets nothing; a sanitizer would tell."""
        with Shoald(node(pipeline("probe", stage("libprobe.so"), slots=4, stream_mib=16),
                         http=HTTP, http_write_timeout_ms=HOUR_MS)) as shoald:
            self.stalled(shoald, 10000)
            shoald.wait_stat("probe", lambda stat: stat["replies_ok"] == 1, "the whole answer")

    def test_vanishing_clients(self):
        before = self.shoald.pipeline_stat("repeat")["cancelled"]
        for _ in range(3):
            with Events(self.port) as reader:
                reader.begin(WHAT["repeat"], {"IN": [1, 2], "DELAY": [0, HOUR_MS], "WAIT": 0})
                self.assertEqual(reader.next()["OUT"], 1)
        self.shoald.wait_stat("repeat", lambda stat: stat["cancelled"] == before + 3, "cancelling")
        self.check_serves()


if __name__ == "__main__":
    shoal_fixture.main()
