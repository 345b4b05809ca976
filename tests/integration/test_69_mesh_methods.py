# SPDX-License-Identifier: Apache-2.0
"""A pipeline's method that answers with a stream, called through nodes that do not have the model:
node-a, whose own pipeline is bound to the method and may not load models of this type, node-q, whose
own pipeline has a modelet that never emits, and node-x, which does not know the method. Real daemons and a real etcd (shoal_meshes.py).

Proves: messages, ends, errors, deadlines and cancelling are those of a node that has the model;
a caller that does not read ends its own answer; a node that is killed before the first message is
replaced by another, later the end says how many messages were sent; every slot and call is given
back.
ctest: timeout=180 presets=release,tsan because pieces, credit and ends come on several threads
"""

import json
import os
import signal
import unittest

import grpc

from shoal_fixture import main, pipeline, stage, wait_until
from shoal_meshes import Etcd, Nodes
from shoal_pupil import models
from test_14_method_streams import CODE, LETTERS, WAIT_SECONDS, Stream, numbers, run_late
from test_69_mesh_runtimes import Talk

METHOD = LETTERS + "letters"
MEMBERS = {"node-a": "none", "node-b": "there", "node-c": "there", "node-q": "none",
           "node-x": "none"}
RULES = json.dumps({"letters": {"required": ["there"]}})
M = (("mm-model-id", "m"),)


class Hop(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        etcd = cls.enterClassContext(Etcd())
        bound = pipeline("letters", stage("libletters.so", workers=3, params={"folder": "."}), method=METHOD,
                         slots=32, stream_mib=1, models=models())
        other = pipeline("letters", stage("libpupil.so", params={"folder": "."}), slots=8, models=models())
        silent = pipeline("letters", stage("libpupil.so", params={"folder": "."}), method=METHOD, slots=8,
                          stream_mib=1, models=models())
        own = {"node-q": silent, "node-x": other}
        each = {name: {"mesh": {"address": "127.0.0.1", "type_constraints": RULES, "labels": [label]},
                       "pipelines": [own.get(name, bound)]}
                for name, label in MEMBERS.items()}
        cls.nodes = cls.enterClassContext(Nodes(etcd, list(MEMBERS), each=each, send_timeout_ms=0,
                                                drain_timeout_ms=1000))
        cls.ways = {name: cls.nodes.registrars[name].channel for name in ("node-a", "node-q", "node-x")}
        cls.nodes.registrars["node-a"].register("m", kind="letters")
        for channel in cls.ways.values():
            wait_until(lambda channel=channel: Stream(channel, "emit 1 answer", METHOD, metadata=M).read_all()[1]
                       is CODE.OK, "the node to see who may load the model")

    def living(self):
        return [node for node in self.nodes.nodes.values() if node.process.poll() is None]

    def check_given_back(self):
        for node in self.living():
            node.wait_all_returned("letters")
            wait_until(lambda node=node: node.stat()["mesh_under_way"] == 0, "all calls to be gone")

    def server(self):
        """The node that has the model."""
        found, = [node for node in self.living() if node.pipeline_stat("letters")["requests"] > 0]
        return found

    def stream(self, message, way="node-a", **named):
        return Stream(self.ways[way], message, METHOD, metadata=M, **named)

    def each(self, message, **named):
        for way in self.ways:
            with self.subTest(message, way=way):
                yield self.stream(message, way, **named)

    # ---- answers ----

    def test_messages_and_ends(self):
        for count in (0, 1, 500):
            for stream in self.each(f"emit {count} answer"):
                messages, code, text = stream.read_all()
                self.assertEqual((numbers(messages), code, text), (list(range(count + 1)), CODE.OK, ""))
        for message, count, code, text in (
                ("emit 2 nothing", 2, CODE.OK, ""),
                ("emit 2 fail", 2, CODE.ABORTED, "told to fail at last (2 pieces of the answer were sent)"),
                ("fail 5", 0, CODE.NOT_FOUND, "told to fail with 5"),
                ("bytes 0", 1, CODE.OK, "")):
            for stream in self.each(message):
                messages, *end = stream.read_all()
                self.assertEqual((len(messages), end), (count, [code, text]))

    def test_message_is_awaited(self):
        for channel in self.ways.values():
            talk = Talk()
            call = channel.stream_stream(METHOD)(talk, timeout=WAIT_SECONDS, metadata=M)
            self.assertEqual(self.stream("emit 2 answer").read_all()[1], CODE.OK)  # behind it
            talk.say(b"emit 30 answer", None)
            self.assertEqual(numbers(call), list(range(31)))

    def test_unary_callers(self):
        for channel in self.ways.values():
            caller = channel.unary_unary(METHOD)
            futures = [caller.future(b"bytes %d" % i, timeout=WAIT_SECONDS, metadata=M) for i in range(20)]
            self.assertEqual([len(future.result()) for future in futures], list(range(20)))

    # ---- the end of patience ----

    def test_a_caller_that_goes(self):
        for way in self.ways:
            stream = self.stream(f"emit 2 left-{way}", way)
            self.assertEqual(numbers([stream.read(), stream.read()]), [0, 1])
            stream.call.cancel()
            wait_until((self.server().folder / f"left-{way}.gave_up").exists, "the modelet to give up")

    def test_deadline(self):
        for way in self.ways:
            name = run_late(lambda message, seconds, way=way: self.stream(message, way, timeout=seconds))
            wait_until((self.server().folder / f"{name}.gave_up").exists, "the modelet to give up")

    def test_a_caller_that_does_not_read(self):
        for way in self.ways:
            slow = self.server().pipeline_stat("letters")["streams_slow"]
            stream = self.stream("emit 0 wide", way)
            self.server().wait_stat("letters", lambda stat, slow=slow: stat["streams_slow"] == slow + 1,
                                    "the answer to be given up")
            for innocent in self.each("emit 40 answer"):
                self.assertEqual(numbers(innocent.read_all()[0]), list(range(41)))
            messages, code, text = stream.read_all()
            self.assertEqual(code, CODE.RESOURCE_EXHAUSTED)
            self.assertIn("stream_mib", text)
            self.assertEqual(numbers(messages), list(range(len(messages))))

    # ---- nodes that die ----

    def test_worker_dies(self):
        server = self.server()
        ready = len(server.all_workers())
        for stream in self.each("emit 3 crash"):
            messages, code, text = stream.read_all()
            self.assertEqual((numbers(messages), code), ([0, 1, 2], CODE.UNAVAILABLE))
            self.assertIn("(3 pieces of the answer were sent)", text)
        wait_until(lambda: len(server.all_workers()) == ready + len(self.ways), "their successors")

    def test_everything_is_given_back(self):
        self.check_given_back()

    def test_killed(self):
        self.addCleanup(self.check_given_back)
        server = self.server()
        for worker in server.workers("letters"):
            os.kill(worker.pid, signal.SIGSTOP)
        stream = self.stream("emit 3 answer")
        server.wait_stat("letters", lambda stat: stat["slots_used"] == 1, "the request")
        server.kill()
        self.assertEqual(numbers(stream.read_all()[0]), [0, 1, 2, 3])
        streams = [self.stream("emit 3 never", way) for way in self.ways]
        for stream in streams:
            self.assertEqual(numbers(stream.read() for _ in range(3)), [0, 1, 2])
        self.server().kill()
        for stream in streams:
            self.assertEqual(stream.read_all(), (
                [], CODE.UNAVAILABLE, "the stream was cut off: the serving node or runtime was lost "
                "(3 pieces of the answer were sent)"))


if __name__ == "__main__":
    main()
