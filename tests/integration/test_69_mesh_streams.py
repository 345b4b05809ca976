# SPDX-License-Identifier: Apache-2.0
"""Answers in pieces through a node that does not have the model, over gRPC and REST: real daemons and
a real etcd (shoal_meshes.py), of which node-a may load no model of this type.

Proves: pieces come as they are made, in their order, with the ends and errors of a node that has the
model; deadline, going and slow reading of a caller end its own answer, at the node that makes it; a
node that is killed before the first piece is replaced by another, later the end says how many
pieces were sent; and every slot and call is given back.
ctest: timeout=300 presets=release,tsan because pieces, credit and ends come on several threads
"""

import json
import os
import signal
import socket
import unittest

import grpc

from shoal_client import Client, failure
from shoal_fixture import WAIT_SECONDS, main, pipeline, sanitized, stage, wait_until
from shoal_meshes import Etcd, Nodes
from shoal_pupil import models
from shoal_registry import Registrar
from shoal_rest import ANY_PORT, port_of, tensor
from shoal_streams import (ANSWER, EMIT, ENDLESS, FAIL, LARGE, NOTHING, WAIT, WIDE, Stream, argument, emission,
                           is_final, words)
from test_14_rest_streams import EVENTS, Events, parse

HOUR_MS = 3600000
MEMBERS = {"node-a": "none", "node-b": "there", "node-c": "there"}
RULES = json.dumps({kind: {"required": ["there"]} for kind in ("probe", "declared")})


class Hop(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        etcd = cls.enterClassContext(Etcd())
        each = {name: {"mesh": {"address": "127.0.0.1", "type_constraints": RULES, "labels": [label]}}
                for name, label in MEMBERS.items()}
        probe = pipeline("probe", stage("libprobe.so", workers=2, batch_size=4), slots=32, stream_mib=1,
                         models=models(types=["probe"]))
        declared = pipeline("declared", stage("libprobe.so", params={"describe": "inputs"}), slots=8,
                            models=models(types=["declared"]))
        cls.nodes = cls.enterClassContext(Nodes(
            etcd, list(MEMBERS), each=each, http=[ANY_PORT, "unix:http.sock"], pipelines=[probe, declared],
            http_write_timeout_ms=HOUR_MS, send_timeout_ms=0, drain_timeout_ms=1000))
        cls.entry = cls.nodes["node-a"]
        cls.client = cls.enterClassContext(Client(cls.entry.target))
        cls.registrar = cls.enterClassContext(Registrar(cls.entry))
        cls.registrar.register("m", kind="probe")
        wait_until(cls.is_seen, "node-a to see who may load the model")

    @classmethod
    def is_seen(cls):
        stream = Stream(cls.client)
        stream.send("m", emission(1))
        return not stream.read_all()[0].error_message

    def setUp(self):
        self.addCleanup(self.check_given_back)

    def living(self):
        return [node for node in self.nodes.nodes.values() if node.process.poll() is None]

    def check_given_back(self):
        for node in self.living():
            node.wait_all_returned("probe")
            wait_until(lambda node=node: node.stat()["streams"] == node.stat()["mesh_under_way"] == 0,
                       "all streams and calls to be gone")

    def server(self):
        """The node that has the model."""
        found, = [node for node in self.living() if node.pipeline_stat("probe")["requests"] > 0]
        self.assertIsNot(found, self.entry)
        return found

    def stream(self, *emitted, **named):
        stream = Stream(self.client, **named)
        if emitted:
            stream.send("m", emission(*emitted), id="an id")
        return stream

    def events(self):
        return self.enterContext(Events(port_of(self.entry)))

    @staticmethod
    def body(*emitted):
        return {"inputs": [tensor("probe", "INT64", [3], [EMIT, argument(*emitted), 0])], "id": "7"}

    def ask(self, *emitted, model="m", **headers):
        return self.events().ask("POST", f"/v2/models/{model}/infer", json.dumps(self.body(*emitted)),
                                 {**EVENTS, **headers})

    # ---- answers ----

    def test_grpc(self):
        for pieces in (0, 1, 100):
            messages = self.stream(pieces).read_all()
            self.assertEqual([words(message)[1] for message in messages[:-1]], list(range(pieces)))
            self.assertEqual([is_final(message) for message in messages], [False] * pieces + [True])
            self.assertEqual({(message.infer_response.id, message.error_message) for message in messages},
                             {("an id", "")})

    def test_rest(self):
        for pieces in (0, 1, 40):
            events = parse(self.ask(pieces).body)
            self.assertEqual([event["outputs"][0]["data"][1] for event in events[:-1]], list(range(pieces)))
            self.assertEqual([event["parameters"]["triton_final_response"] for event in events],
                             [False] * pieces + [True])

    def test_generate_stream(self):
        """Which needs the declared tensors of a model that the node does not have."""
        self.registrar.register("d", kind="declared")
        inputs = {"probe": [EMIT, argument(3), 0], "id": "7"}
        rest = self.events()

        def ask(path):
            return rest.ask("POST", f"/v2/models/d/{path}", json.dumps(inputs))
        answer = ask("generate_stream")
        events = parse(answer.body)
        self.assertEqual([event["probe"][1] for event in events], [0, 1, 2, 3])
        self.assertEqual({(event["model_name"], event["id"]) for event in events}, {("d", "7")})
        self.assertEqual(ask("generate").code, 501)
        self.assertEqual(self.entry.pipeline_stat("declared")["requests"], 0)

    def test_named_by_metadata(self):
        request, stub = self.client.stub("ModelStreamInfer", kind="stream_stream")
        message = request(**self.client.infer_fields("any", [emission(2)]))
        answers = stub(iter([message] * 2), timeout=WAIT_SECONDS, metadata=(("mm-model-id", "m"),))
        self.assertEqual(len([answer for answer in answers if not answer.error_message]), 6)
        self.assertEqual(len(parse(self.ask(2, model="any", **{"mm-model-id": "m"}).body)), 3)

    def test_many_requests_at_once(self):
        stream = self.stream()
        for tag in range(8):
            stream.send("nobody", emission(1), id="unknown")
            stream.send("m", emission(40 * tag, tag=tag), id=str(tag))
        messages = stream.read_all()
        for tag in range(8):
            numbers = [words(m)[1] for m in messages if m.infer_response.id == str(tag)]
            self.assertEqual(numbers[:-1], list(range(40 * tag)))
        self.assertEqual([m.infer_response.id for m in messages if m.error_message], ["unknown"] * 8)

    def test_large_pieces(self):
        """Each is larger than the window of a hop."""
        for _ in range(5):
            first, second, last = self.stream(2, LARGE).read_all()
            for number, message in enumerate((first, second)):
                large = message.infer_response.raw_output_contents[0]
                self.assertEqual((len(large), set(large)), (600 << 10, {number}))
            self.assertTrue(is_final(last))

    def test_ends(self):
        stream = self.stream()
        stream.send("m", emission(2, FAIL), id="fails")
        stream.send("m", emission(2, NOTHING), id="ends")
        stream.send("m", emission(2, NOTHING), id="told", empty_final=True)
        stream.send("m", ("probe", "INT64", [2], b"x"), id="malformed")
        seen = {}
        for message in stream.read_all():
            name = message.infer_response.id
            seen.setdefault(name, []).append((is_final(message), message.error_message))
        self.assertEqual(seen["ends"], [(False, ""), (False, "")])
        self.assertEqual(seen["told"], [(False, ""), (False, ""), (True, "")])
        self.assertEqual(len(seen["fails"]), 3)
        self.assertIn("told to fail at last (2 pieces", seen["fails"][-1][1])
        self.assertIn("raw contents", seen["malformed"][0][1])
        *pieces, last = parse(self.ask(2, FAIL).body)
        self.assertEqual(len(pieces), 2)
        self.assertIn("told to fail at last (2 pieces", last["error"])
        answer = self.ask(0, FAIL)
        self.assertEqual((answer.code, answer.error), (409, "told to fail at last"))

    def test_unary_calls_are_refused_as_ever(self):
        code, text = failure(self.client.start_raw("m", emission(2)))
        self.assertEqual(code.name, "UNIMPLEMENTED")
        self.assertIn("ModelStreamInfer", text)

    # ---- the end of patience ----

    def test_a_caller_that_goes(self):
        """It has the first pieces, though the modelet waits for it to go."""
        stream = self.stream(2, WAIT)
        self.assertEqual([words(stream.read())[1] for _ in range(2)], [0, 1])
        stream.call.cancel()
        self.server().wait_all_returned("probe")
        with Events(port_of(self.entry)) as reader:
            reader.begin("/v2/models/m/infer", self.body(1, WAIT), EVENTS)
            self.assertEqual(reader.next()["outputs"][0]["data"][1], 0)
        self.server().wait_all_returned("probe")

    def test_deadline(self):
        stream = self.stream(timeout=0.5)
        stream.send("m", emission(1, WAIT))
        with self.assertRaises(grpc.RpcError) as caught:
            list(stream.call)
        self.assertIs(caught.exception.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        self.server().wait_all_returned("probe")
        stream = self.stream()
        stream.send("m", emission(1, WAIT), parameters={"timeout": {"int64_param": 500000}})
        *_, last = stream.read_all()
        self.assertIn("deadline", last.error_message)

    def test_a_caller_that_does_not_read(self):
        """stream_mib of the node that has the model bounds what waits; others are served meanwhile, and
        what was kept can still be read."""
        server = self.server()
        slow = server.pipeline_stat("probe")["streams_slow"]
        body = json.dumps(self.body(0, ENDLESS)).encode()
        client = self.enterContext(socket.socket(socket.AF_UNIX))
        client.settimeout(WAIT_SECONDS)
        client.connect(str(self.entry.folder / "http.sock"))
        client.sendall(b"POST /v2/models/m/infer HTTP/1.0\r\nAccept: text/event-stream\r\n"
                       b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        server.wait_stat("probe", lambda stat: stat["streams_slow"] == slow + 1, "the answer to be given up")
        self.assertEqual(len(parse(self.ask(40).body)), 41)
        with client.makefile("rb") as file:
            _, _, rest = file.read().partition(b"\r\n\r\n")
        *pieces, last = parse(rest)
        self.assertIn("stream_mib", last["error"])
        self.assertEqual([event["outputs"][0]["data"][1] for event in pieces], list(range(len(pieces))))

    def test_a_caller_that_vanishes_unread(self):
        """The end waits behind pieces that nobody will read."""
        server = self.server()
        slow = server.pipeline_stat("probe")["streams_slow"]
        stream = self.stream(0, ENDLESS)
        server.wait_stat("probe", lambda stat: stat["streams_slow"] == slow + 1, "the answer to be given up")
        stream.call.cancel()

    # ---- nodes that die ----

    def test_killed(self):
        """Before the first piece another node answers; after the third the end says so."""
        server = self.server()
        for worker in server.workers("probe"):
            os.kill(worker.pid, signal.SIGSTOP)
        stream = self.stream(3)
        server.wait_stat("probe", lambda stat: stat["slots_used"] == 1, "the request")
        server.kill()
        self.assertEqual([message.error_message for message in stream.read_all()], [""] * 4)
        stream = self.stream(3, WAIT)
        for number in range(3):
            self.assertEqual(words(stream.read())[1], number)
        self.server().kill()
        last = stream.read()
        self.assertTrue(is_final(last))
        self.assertEqual(last.error_message, "the stream was cut off: the serving node or runtime was lost "
                                             "(3 pieces of the answer were sent)")


@unittest.skipIf(sanitized(), "it fills 256 MiB with small pieces, which takes a sanitizer a minute")
class Crowd(unittest.TestCase):
    """Callers that do not read, each within `stream_mib`, fill what the serving node has for all."""

    def test_reason(self):
        etcd = self.enterContext(Etcd())
        each = {name: {"mesh": {"address": "127.0.0.1", "type_constraints": RULES, "labels": [label]}}
                for name, label in (("node-a", "none"), ("node-b", "there"))}
        probe = pipeline("probe", stage("libprobe.so", workers=3), slots=8, stream_mib=240, models=models())
        nodes = self.enterContext(Nodes(etcd, list(each), each=each, pipelines=[probe], send_timeout_ms=0))
        nodes.at("node-a").register("m", kind="probe")
        client = self.enterContext(Client(nodes["node-a"].target))

        def ask(*emitted):
            stream = Stream(client)
            stream.send("m", emission(*emitted))
            return stream
        wait_until(lambda: not ask(1).read_all()[0].error_message, "node-a to see who may load the model")
        streams = [ask(45000, WIDE) for _ in range(3)]  # of 3 kB
        nodes["node-b"].wait_stat("probe", lambda stat: stat["streams_slow"] > 0, "an answer to be given up")
        for stream in streams:  # those that are whole make room as they are read
            stream.last = stream.read_all()[-1]
        errors = {stream.last.error_message for stream in streams if stream.last.error_message}
        self.assertEqual(errors, {"the caller reads too slowly, and unread answers fill the 256 MiB that the "
                                  "serving node has for them"})


if __name__ == "__main__":
    main()
