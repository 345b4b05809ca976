# SPDX-License-Identifier: Apache-2.0
"""Calls that wait for a slot (`queue_wait_ms`): which are served, in which order, and which are
refused.

The only worker is held at the puppet's gate, so nothing becomes free until the test says so; how
many wait is read from the counters. The wait is an hour where calls are to be served, and a few
milliseconds where it is to run out.

ctest: timeout=240 presets=dev,release because it races reloads and drains against its own thread
"""

import contextlib
import os
import pathlib
import signal
import struct
import tempfile
import threading
import unittest

import shoal_fixture
from shoal_client import Client, bytes_element, failure, said
from shoal_fixture import Shoald, node, pipeline, stage, wait_until
from shoal_loads import LOAD, UNLOAD, ask_node
from shoal_rest import ANY_PORT, Rest, port_of

PUSHBACK = "grpc-retry-pushback-ms"
HOUR_MS = 3600 * 1000


def puppet_node(grace_ms=HOUR_MS, http=False, of_stage=None, **keys):
    puppet = stage("libpuppet.so", params={"folder": "."}, **(of_stage or {}))
    keys = {"slots": 1, "queue_wait_ms": HOUR_MS, **keys}
    extra = {"http": ANY_PORT} if http else {}
    return node(pipeline("puppet", puppet, **keys), message_mib=1, drain_timeout_ms=grace_ms, **extra)


class QueueTest(unittest.TestCase):
    def start(self, config):
        self.shoald = self.enterContext(Shoald(config))
        self.client = self.enterContext(Client(self.shoald.target))
        self.futures = []  # one that nobody keeps is cancelled

    def tell(self, text, caller=None, **more):
        request, stub = self.client.stub("ModelInfer")
        fields = self.client.infer_fields("puppet", [("say", "BYTES", [1], bytes_element(text))],
                                          **more)
        metadata = () if caller is None else (("shoal-caller", caller),)
        self.futures.append(stub.future(request(**fields), timeout=shoal_fixture.WAIT_SECONDS,
                                        metadata=metadata))
        return self.futures[-1]

    def hold(self, name="gate"):
        """Keeps the only worker, and with one slot the only slot, until `release`."""
        self.addCleanup(self.release, name)  # a test that fails must not leave it draining
        future = self.tell(f"hold {name}", "holder")
        wait_until((self.shoald.folder / f"{name}.held").exists, "the puppet to hold")
        return future

    def release(self, name="gate"):
        (self.shoald.folder / f"{name}.go").touch()

    def wait_waiting(self, count):
        return self.shoald.wait_stat("puppet", lambda stat: stat["waiting"] == count,
                                     f"{count} calls to wait")

    def queue(self, *texts, caller=None, first=0):
        """Has one call after the other wait, so that their order is known."""
        futures = []
        for text in texts:
            futures.append(self.tell(text, caller))
            self.wait_waiting(first + len(futures))
        return futures

    def runs(self):
        return (self.shoald.folder / "runs").read_text().splitlines()

    def wait_all_gone(self):
        """No place, byte or slot is left behind."""
        return self.shoald.wait_stat(
            "puppet", lambda stat: stat["waiting"] == stat["waiting_bytes"] == stat["slots_used"]
            == stat["blocks_used"] == 0,
            "all to be given back")

    def check_exhausted(self, future, *words):
        code, text = failure(future)
        self.assertEqual(code.name, "RESOURCE_EXHAUSTED", text)
        for word in words:
            self.assertIn(word, text)
        trailers = dict(future.trailing_metadata() or ())
        self.assertTrue(1 <= int(trailers[PUSHBACK]) <= 10000, trailers)


class TestServed(QueueTest):
    def test_in_order_when_the_gate_opens(self):
        self.start(puppet_node())
        held = self.hold()
        texts = [f"echo {i}" for i in range(8)]
        futures = self.queue(*texts)
        stat = self.shoald.pipeline_stat("puppet")
        self.assertGreater(stat["waiting_bytes"], 8 * 8192)
        self.assertFalse(any(future.done() for future in futures))
        self.release()
        self.assertEqual(said(held.result()), "hold gate")
        self.assertEqual([said(future.result()) for future in futures], texts)
        self.assertEqual(self.runs(), ["hold gate", *texts])
        stat = self.wait_all_gone()
        self.assertEqual((stat["requests"], stat["replies_ok"], stat["waited"]), (9, 9, 8))
        self.assertEqual((stat["rejected_full"], stat["wait_expired"]), (0, 0))

    def test_many_slots_and_many_callers(self):
        """A call that comes while others wait goes behind them; all are served, none twice."""
        self.start(puppet_node(slots=4, queue_wait_max=1024))
        self.hold()
        texts = [f"echo {i}" for i in range(200)]
        futures = [self.tell(text, f"caller-{i % 7}") for i, text in enumerate(texts)]
        self.wait_waiting(197)
        self.release()
        more = [self.tell(f"echo more-{i}", f"caller-{i % 7}") for i in range(100)]
        for future in [*futures, *more]:
            future.result()
        self.assertEqual(len(set(self.runs())), 301)
        stat = self.wait_all_gone()
        self.assertEqual(stat["replies_ok"], 301)

    def test_without_the_key_refused_at_once(self):
        self.start(puppet_node(queue_wait_ms=0))
        self.hold()
        self.check_exhausted(self.tell("echo x"), "is full: all 1 slots are in flight")
        self.release()
        self.assertEqual(self.shoald.pipeline_stat("puppet")["waited"], 0)

    def test_invalid_call_does_not_wait(self):
        """A call that no slot would help is refused when its turn comes, and those behind it go
        on."""
        self.start(puppet_node())
        self.hold()
        wrong = self.client.start_raw("puppet", ("say", "INT32", [1], bytes(4)))
        self.wait_waiting(1)
        right, = self.queue("echo right", first=1)
        self.release()
        self.assertEqual(failure(wrong)[0].name, "INVALID_ARGUMENT")
        self.assertEqual(said(right.result()), "echo right")
        self.assertEqual(self.wait_all_gone()["rejected_invalid"], 1)


class TestBounds(QueueTest):
    def test_one_too_many_is_refused(self):
        self.start(puppet_node(queue_wait_max=2))
        self.hold()
        self.queue("echo 1", "echo 2")
        self.check_exhausted(self.tell("echo 3"), "2 calls", "wait for a slot", "retry in")
        self.release()
        stat = self.wait_all_gone()
        self.assertEqual((stat["rejected_full"], stat["waited"]), (1, 2))

    def test_bytes_are_bounded(self):
        self.start(puppet_node(queue_wait_mib=1))
        self.hold()
        large = "echo " + "x" * 600000
        futures = self.queue(large)
        self.check_exhausted(self.tell(large), "1 calls of 6", "wait for a slot")
        futures += self.queue("echo small", first=1)
        self.release()
        self.assertEqual(said(futures[1].result()), "echo small")
        self.wait_all_gone()

    def test_one_caller_does_not_get_all_places(self):
        """Above half of the places nobody has more than a fair share of them."""
        self.start(puppet_node(queue_wait_max=4))
        self.hold()
        self.queue("echo a1", "echo a2", caller="a")
        self.queue("echo b1", caller="b", first=2)
        self.check_exhausted(self.tell("echo a3", "a"), "fair share of the calls that wait", "2 of 3")
        b2, = self.queue("echo b2", caller="b", first=3)
        self.release()
        self.assertEqual(said(b2.result()), "echo b2")
        self.assertEqual(self.runs()[1:], ["echo a1", "echo a2", "echo b1", "echo b2"])
        self.assertEqual(self.wait_all_gone()["rejected_share"], 1)

    def test_caller_at_its_share_waits_and_others_pass(self):
        """With two callers and four slots the third call of one waits while a slot is free, and
        does not hold up the other's."""
        self.start(puppet_node(slots=4))
        self.hold()
        first = [self.tell("echo a1", "a"), self.tell("echo a2", "a")]
        self.shoald.wait_stat("puppet", lambda stat: stat["slots_used"] == 3, "three to be let in")
        third, = self.queue("echo a3", caller="a")
        other = self.tell("echo b1", "b")
        self.shoald.wait_stat("puppet", lambda stat: stat["slots_used"] == 4, "the other to pass")
        self.assertEqual(self.shoald.pipeline_stat("puppet")["waiting"], 1)
        self.release()
        for future in (*first, third, other):
            future.result()
        self.assertEqual(self.runs()[1:], ["echo a1", "echo a2", "echo b1", "echo a3"])
        self.assertEqual(self.wait_all_gone()["rejected_share"], 0)

    def test_wait_runs_out(self):
        self.start(puppet_node(queue_wait_ms=30))
        self.hold()
        self.check_exhausted(self.tell("echo x"), '"puppet"', "waited", "retry in")
        stat = self.shoald.pipeline_stat("puppet")
        self.assertEqual((stat["waiting"], stat["wait_expired"], stat["rejected_full"]), (0, 1, 1))
        self.release()

    def test_earlier_deadline(self):
        self.start(puppet_node())
        self.hold()
        soon = {"timeout": {"int64_param": 50_000}}  # which the node keeps: the client is patient
        code, text = failure(self.tell("echo x", parameters=soon))
        self.assertEqual(code.name, "DEADLINE_EXCEEDED", text)
        stat = self.shoald.pipeline_stat("puppet")
        self.assertEqual((stat["waiting"], stat["wait_expired"], stat["rejected_late"]), (0, 0, 1))
        self.release()
        self.assertEqual(said(self.tell("echo y").result()), "echo y")
        self.assertNotIn("echo x", self.runs())

    def test_cancelled(self):
        """Its place is free at once, and those behind it move up."""
        self.start(puppet_node(queue_wait_max=2))
        self.hold()
        first, second = self.queue("echo 1", "echo 2")
        first.cancel()
        self.wait_waiting(1)
        third, = self.queue("echo 3", first=1)
        self.release()
        self.assertEqual([said(second.result()), said(third.result())], ["echo 2", "echo 3"])
        self.assertEqual(self.runs(), ["hold gate", "echo 2", "echo 3"])
        self.assertEqual(self.wait_all_gone()["cancelled"], 1)


class TestArena(QueueTest):
    """Slots are free, and memory for the tensors is not."""
    LARGE = 900_000

    def fill(self, **keys):
        """Calls that fit, and behind them one that waits for memory."""
        self.start(puppet_node(slots=64, arena_mib=8, **keys))
        self.hold()
        texts = []
        stat = {"waiting": 0, "wait_expired": 0}
        while stat["waiting"] + stat["wait_expired"] == 0:
            texts.append(f"echo {len(texts)} " + "x" * self.LARGE)
            self.tell(texts[-1], f"caller-{len(texts)}")
            stat = self.shoald.wait_stat(
                "puppet", lambda stat: stat["slots_used"] + stat["waiting"]
                + stat["wait_expired"] == 1 + len(texts), "the call to be let in, or to wait")
        self.assertLess(stat["slots_used"], 64 // 2, "slots are not what is missing")
        self.assertGreater(len(texts), 1)
        return texts

    def test_served_when_memory_is_free(self):
        texts = self.fill()
        small = self.queue("echo small", caller="small", first=1)  # would fit, and does not pass
        self.release()
        self.assertEqual([said(future.result()) for future in self.futures[1:]],
                         [*texts, "echo small"])
        self.assertEqual(said(small[0].result()), "echo small")
        self.assertEqual([run[:8] for run in self.runs()],
                         ["hold gate"[:8], *(text[:8] for text in texts), "echo small"[:8]])
        stat = self.wait_all_gone()
        self.assertEqual((stat["waited"], stat["rejected_full"], stat["replies_failed"]), (2, 0, 0))
        self.assertEqual(stat["blocks_used"], 0)

    def test_wait_for_memory_runs_out(self):
        self.fill(queue_wait_ms=30)
        self.check_exhausted(self.futures[-1], '"puppet"', "waited", "retry in")
        self.release()
        for future in self.futures[:-1]:
            future.result()
        stat = self.wait_all_gone()
        self.assertEqual((stat["wait_expired"], stat["waited"], stat["blocks_used"]), (1, 0, 0))

    def test_cancelled_while_memory_is_short(self):
        """The one at the head goes, and the small one behind it fits."""
        self.fill()
        small, = self.queue("echo small", caller="small", first=1)
        self.futures[-2].cancel()
        self.shoald.wait_stat("puppet", lambda stat: stat["waiting"] == 0, "the small one to fit")
        self.release()
        self.assertEqual(said(small.result()), "echo small")
        self.wait_all_gone()


class TestModels(QueueTest):
    """Calls for models wait as others do, and hold on to no model that they do not get to."""
    ECHO = 0
    WORDS, FACTS = struct.Struct("<3q"), struct.Struct("<10q")
    FACT_MODEL = 8  # of the answer: tests/modelets/probe.h
    MODELS = ("m1", "m2", "m3")

    def serve(self, **keys):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="shoal-test.")))
        (folder / "models").mkdir()
        for name in self.MODELS:
            (folder / "models" / name).write_text(name[1:])
        keys = {"slots": 1, "queue_wait_ms": HOUR_MS, **keys}
        models = {"root": "models", "memory_mib": 64, "watch": "no"}
        config = node(pipeline("puppet", stage("libshelf.so"), models=models, **keys))
        self.shoald = self.enterContext(Shoald(config, folder=folder))
        self.client = self.enterContext(Client(self.shoald.target))
        self.control = f"{self.shoald.counters}.control"
        for name in self.MODELS:
            ask_node(self.control, LOAD, name, name)
        self.worker = self.shoald.workers("puppet")[0].pid
        self.addCleanup(self.go_on)

    def go_on(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.worker, signal.SIGCONT)

    def ask(self, name):
        return self.client.start_raw(name, ("probe", "INT64", [3], self.WORDS.pack(self.ECHO, 0, 0)))

    def hold_models(self):
        """Keeps the only worker, and the only slot by a call for m1, until `go_on`."""
        os.kill(self.worker, signal.SIGSTOP)
        future = self.ask("m1")
        self.shoald.wait_stat("puppet", lambda stat: stat["slots_used"] == 1, "the slot to be used")
        return future

    def queue_models(self, *names):
        futures = []
        for name in names:
            futures.append(self.ask(name))
            self.wait_waiting(len(futures))
        return futures

    def models_of(self, futures):
        return [f"m{self.FACTS.unpack(one.result().raw_output_contents[0])[self.FACT_MODEL]}"
                for one in futures]

    def wait_known(self, count):
        self.shoald.wait_stat("puppet", lambda stat: stat["models_known"] == count,
                              f"{count} models to be known")

    def test_served_each_by_its_model(self):
        self.serve()
        names = ["m2", "m1", "m3", "m2"]
        futures = [self.hold_models(), *self.queue_models(*names)]
        self.go_on()
        self.assertEqual(self.models_of(futures), ["m1", *names])
        self.assertEqual(self.wait_all_gone()["waited"], 4)

    def test_wait_runs_out(self):
        """The model of a call whose wait has timed out can be unloaded."""
        self.serve(queue_wait_ms=30)
        held = self.hold_models()
        self.check_exhausted(self.ask("m2"), "waited", "retry in")
        self.go_on()
        self.assertEqual(self.models_of([held]), ["m1"])
        ask_node(self.control, UNLOAD, "m2")
        self.wait_known(2)
        self.wait_all_gone()

    def test_cancelled(self):
        self.serve()
        held = self.hold_models()
        gone, kept = self.queue_models("m2", "m3")
        gone.cancel()
        self.wait_waiting(1)
        self.go_on()
        self.assertEqual(self.models_of([held, kept]), ["m1", "m3"])
        ask_node(self.control, UNLOAD, "m2")
        self.wait_known(2)
        self.assertEqual(self.wait_all_gone()["cancelled"], 1)

    def test_unloaded_while_its_call_waits(self):
        """Whether it is still served is a race; that it ends, and the model goes, is not."""
        self.serve()
        held = self.hold_models()
        waits, other = self.queue_models("m2", "m3")
        thread = threading.Thread(target=ask_node, args=(self.control, UNLOAD, "m2"))
        thread.start()
        self.go_on()
        thread.join()
        self.assertEqual(self.models_of([held, other]), ["m1", "m3"])
        if waits.exception() is not None:
            self.assertIn(failure(waits)[0].name, ("NOT_FOUND", "UNAVAILABLE"), failure(waits)[1])
        self.wait_known(2)
        self.wait_all_gone()


class TestChanges(QueueTest):
    def test_drain_serves_those_that_wait(self):
        self.start(puppet_node())
        held = self.hold()
        futures = self.queue("echo 1", "echo 2")
        self.shoald.drain()
        code, text = failure(self.tell("echo late"))
        self.assertEqual(code.name, "UNAVAILABLE", text)
        self.release()
        self.assertEqual([said(future.result()) for future in (held, *futures)],
                         ["hold gate", "echo 1", "echo 2"])
        self.shoald.check_end()
        self.assertIn("left_in_flight=0", self.shoald.stderr)

    def test_drain_that_runs_out_refuses_them(self):
        self.start(puppet_node(grace_ms=100))
        held = self.hold()
        futures = self.queue("echo 1", "echo 2")
        self.shoald.drain()
        for future in (held, *futures):
            code, text = failure(future)
            self.assertEqual(code.name, "UNAVAILABLE", text)
        self.shoald.check_end()
        self.assertIn("left_in_flight=3", self.shoald.stderr)

    def reload(self, config):
        generation = self.shoald.pipeline_stat("puppet")["generation"]
        self.shoald.write_config(config)
        self.shoald.signal(signal.SIGHUP)
        self.shoald.wait_stat("puppet", lambda stat: stat["generation"] == generation + 1,
                              "the next generation")

    def test_reload_serves_those_that_wait(self):
        """The new generation has a slot of its own, so they are served while the old one's is
        held."""
        self.start(puppet_node())
        held = self.hold()
        futures = self.queue("echo 1", "echo 2")
        self.reload(puppet_node(queue_wait_ms=0))
        self.assertEqual([said(future.result()) for future in futures], ["echo 1", "echo 2"])
        self.release()
        self.assertEqual(said(held.result()), "hold gate")
        self.hold("again")
        self.check_exhausted(self.tell("echo x"), "is full")  # the key is gone
        self.release("again")
        self.wait_all_gone()

    def test_reload_turns_it_on(self):
        self.start(puppet_node(queue_wait_ms=0))
        self.reload(puppet_node())
        self.hold()
        future, = self.queue("echo 1")
        self.release()
        self.assertEqual(said(future.result()), "echo 1")
        self.wait_all_gone()

    def test_workers_that_are_gone(self):
        """A stage in quarantine refuses those that wait, as it does those that come."""
        self.start(puppet_node(of_stage={"quarantine_deaths": 1, "quarantine_ms": HOUR_MS,
                                         "attempts_max": 1}))
        self.hold()
        futures = self.queue("crash 1", "crash 2", "echo 3")  # the first death is forgiven
        self.release()
        for future in futures:
            code, text = failure(future)
            self.assertEqual(code.name, "UNAVAILABLE", text)
        self.shoald.wait_log("stage_quarantined pipeline=puppet")
        self.wait_all_gone()


class TestRest(QueueTest):
    def ask(self, answers, headers=None, text="echo rest"):
        def run():
            with Rest(self.port) as rest:
                answers.append(rest.tell(text, headers=headers))
        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def begin(self, **keys):
        self.start(puppet_node(http=True, **keys))
        self.port = port_of(self.shoald)
        self.hold()

    def test_served(self):
        self.begin()
        answers = []
        threads = []
        for i in range(3):
            threads.append(self.ask(answers, text=f"echo {i}"))
            self.wait_waiting(i + 1)
        self.release()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(answer.data("said") for answer in answers),
                         [[f"echo {i}"] for i in range(3)])
        self.assertEqual(self.runs()[1:], [f"echo {i}" for i in range(3)])
        self.wait_all_gone()

    def test_wait_runs_out(self):
        self.begin(queue_wait_ms=30)
        answers = []
        self.ask(answers).join()
        self.assertEqual(answers[0].code, 429)
        self.assertIn("waited", answers[0].error)
        self.assertGreaterEqual(int(answers[0].headers["Retry-After"]), 1)
        self.release()

    def test_deadline_and_client_that_leaves(self):
        self.begin()
        answers = []
        self.ask(answers, {"Grpc-Timeout": "50m"}).join()
        self.assertEqual(answers[0].code, 504)
        self.wait_waiting(0)
        with Rest(self.port) as rest:
            rest.start_tell("echo rest")
            self.wait_waiting(1)
        self.wait_waiting(0)
        self.release()
        self.assertEqual(said(self.tell("echo y").result()), "echo y")
        self.assertEqual(self.runs(), ["hold gate", "echo y"])
        self.wait_all_gone()


if __name__ == "__main__":
    shoal_fixture.main()
