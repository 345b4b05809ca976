# SPDX-License-Identifier: Apache-2.0
"""Overload: which calls of which callers are refused, how soon, and that the rest is run.

Refusals do not depend on any speed: the modelet `puppet` first teaches the node
what a run takes, and then holds a request until the test lets it go, so the queue behind it stands
still while the test counts admissions. test_65_overload_burst.py judges the same under real load.
ctest: timeout=300
"""

import json
import time

import shoal_fixture
from shoal_client import Client, bytes_element, failure, said
from shoal_ctl import counted_refusals, refusals, shoalctl
from shoal_fixture import node, pipeline, stage, wait_until
from shoal_overload import Overload, sluggish

PUSHBACK = "grpc-retry-pushback-ms"
HIGH, NORMAL, LOW = 1, 2, 3
RUN_MS = 200  # what the node learns that a request takes


def pushback(future):
    """The trailers of a refused call; None: nothing."""
    trailers = dict(future.trailing_metadata() or ())
    return int(trailers[PUSHBACK]) if PUSHBACK in trailers else None


def puppet(name, **keys):
    return pipeline(name, stage("libpuppet.so", params={"folder": "."}), **keys)


class OverloadTest(Overload):
    def tell(self, model, text="echo x", **keys):
        return self.start(model, tensor=("say", "BYTES", [1], bytes_element(text)), **keys)

    def hold(self, model, name):
        """Keeps the only worker busy until `release`: nothing is done meanwhile."""
        future = self.tell(model, f"hold {name}")
        wait_until((self.shoald.folder / f"{name}.held").exists, "the puppet to hold")
        return future

    def release(self, name):
        (self.shoald.folder / f"{name}.go").touch()

    def learn(self, model):
        """A few runs, from which the cost is learned: of the first nothing is."""
        for _ in range(3):
            self.tell(model, f"slow {RUN_MS}").result()

    def offer(self, model, inside, count, **keys):
        """So many more at once; returns those that are refused. `inside`: all that are let in, to
        which the others are added; none of them is done meanwhile."""
        def rejected(stat):
            return sum(stat[key] for key in stat if key.startswith("rejected_"))

        def judged(stat):
            refused = rejected(stat) - rejected(before)
            return (stat["requests"] == before["requests"] + count
                    and stat["slots_used"] == len(inside) + count - refused
                    and sum(future.done() for future in futures) == refused)
        before = self.shoald.pipeline_stat(model)
        futures = [self.tell(model, **keys) for _ in range(count)]
        self.shoald.wait_stat(model, judged, f"{count} requests to be judged")
        inside += [future for future in futures if not future.done()]
        return [future for future in futures if future.done()]

    def check_table(self, model, stat):
        """The table for people has the same refusals."""
        out = shoalctl("stat", "--counters", self.shoald.counters).out
        self.assertEqual(refusals(out, model), counted_refusals(stat))

    def check_refused(self, future, *words):
        code, text = failure(future)
        self.assertEqual(code.name, "RESOURCE_EXHAUSTED", text)
        for word in words:
            self.assertIn(word, text)
        self.assertTrue(1 <= (pushback(future) or 0) <= 10000, future.trailing_metadata())


class TestForecast(OverloadTest):
    """Refusals by predicted time."""
    LIMIT_MS = 20000
    config = node(puppet("slow", slots=128), puppet("limited", slots=256, queue_limit_ms=LIMIT_MS),
                  pipeline("patient", sluggish(RUN_MS), slots=64, queue_limit_ms=8 * RUN_MS),
                  message_mib=1)

    def test_hopeless_deadline_is_refused_at_once(self):
        """With sixteen seconds of work before it, a request for ten is not even queued: it is
        refused while the first one is still held."""
        self.learn("slow")
        before = self.shoald.pipeline_stat("slow")
        inside = [self.hold("slow", "slow")]
        self.assertEqual(self.offer("slow", inside, 79), [])
        refused = self.offer("slow", inside, 3, timeout=10)
        self.assertEqual(len(refused), 3)
        for future in refused:
            self.check_refused(future, '"slow"', "would take about", "retry in")
        stat = self.shoald.pipeline_stat("slow")
        self.assertGreater(stat["forecast_item"], 0.8 * RUN_MS * 1e6)
        self.assertGreaterEqual(stat["forecast_base"], stat["forecast_item"])
        self.release("slow")
        for future in inside:
            future.result()
        stat = self.shoald.wait_all_returned("slow")
        self.assertEqual(stat["rejected_predicted"] - before["rejected_predicted"], 3)
        self.check_table("slow", stat)
        self.assertEqual(stat["stages"][0]["items"] - before["stages"][0]["items"], 80)
        self.tell("slow", timeout=10).result()  # and there is room again

    def test_low_goes_first_high_gets_in(self):
        """Without any hurry of the caller's the pipeline's own limit counts. Of the time until
        then, each priority may fill its part, and callers with little in flight five hundredths
        more."""
        self.learn("limited")
        before = self.shoald.pipeline_stat("limited")
        inside = [self.hold("limited", "limited")]
        for priority, percent in ((LOW, 65), (NORMAL, 85), (HIGH, 95)):
            refused = self.offer("limited", inside, 110,
                                 parameters={"priority": {"int64_param": priority}})
            stat = self.shoald.pipeline_stat("limited")
            room_ns = self.LIMIT_MS * 1e6 - stat["forecast_base"]
            self.assertAlmostEqual(len(inside), room_ns * percent / 100 / stat["forecast_item"] + 1,
                                   delta=1, msg=f"priority {priority}: {stat}")
            for future in refused:
                self.check_refused(future, "would take about", "retry in")
        large = len(inside)
        self.offer("limited", inside, 20, parameters={"priority": {"int64_param": HIGH}},
                   metadata=(("shoal-caller", "newcomer"),))
        self.assertAlmostEqual(len(inside), room_ns / stat["forecast_item"] + 1, delta=1)
        self.assertGreater(len(inside), large)
        self.release("limited")
        for future in inside:
            self.assertEqual(said(future.result())[:4], "hold" if future is inside[0] else "echo")
        stat = self.shoald.wait_all_returned("limited")
        self.assertEqual(stat["requests"] - before["requests"] - len(inside),
                         stat["rejected_predicted"] - before["rejected_predicted"])

    def test_refused_client_retries_when_told_to(self):
        """A client that retries does so when it was told to, not by its own back-off of ten
        minutes."""
        for _ in range(3):
            self.start("patient").result()
        policy = {"methodConfig": [{"name": [{}], "retryPolicy": {
            "maxAttempts": 5, "initialBackoff": "600s", "maxBackoff": "600s",
            "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}
        before = self.shoald.pipeline_stat("patient")
        sent = 0

        def was_refused():
            """A client that is slow to send meets no queue."""
            nonlocal sent
            for future in [self.start("patient", client=patient) for _ in range(11)]:
                future.result()
            sent += 11
            stat = self.shoald.pipeline_stat("patient")
            return stat["rejected_predicted"] > before["rejected_predicted"]
        with Client(self.shoald.target, [("grpc.enable_retries", 1),
                                         ("grpc.service_config", json.dumps(policy))]) as patient:
            wait_until(was_refused, "a request to be refused")
        stat = self.shoald.wait_all_returned("patient")
        self.assertGreater(stat["requests"] - before["requests"], sent)


class TestRightOfWay(OverloadTest):
    """Refusals by slots: the node has learned nothing of what a run takes."""
    config = node(puppet("priorities", slots=100), puppet("callers", slots=100), message_mib=1,
                  caller_metadata="x-tenant")

    def finish(self, model, inside):
        self.release(model)
        for future in inside:
            future.result()
        stat = self.shoald.wait_all_returned(model)
        self.check_table(model, stat)
        return stat

    def test_low_goes_first_high_gets_in(self):
        inside = [self.hold("priorities", "priorities")]
        for priority, slots in ((LOW, 65), (NORMAL, 85), (HIGH, 95)):
            refused = self.offer("priorities", inside, 80,
                                 parameters={"priority": {"int64_param": priority}})
            self.assertEqual(len(inside), slots, f"priority {priority}")
            for future in refused:
                self.check_refused(future, '"priorities"', f"{slots} of 100 slots")
        self.offer("priorities", inside, 80, parameters={"priority": {"int64_param": HIGH}},
                   metadata=(("x-tenant", "newcomer"),))
        self.assertEqual(len(inside), 100)
        stat = self.finish("priorities", inside)
        self.assertEqual(stat["rejected_share"], 0, "one caller shares with nobody")
        self.assertEqual(stat["rejected_full"], stat["requests"] - 100)

    def test_small_caller_beside_a_large_one(self):
        """The small one gives its name, the large one is known by its address. From then on the
        large one has more than its share, and the small one has not."""
        small = (("x-tenant", "small"),)
        inside = [self.hold("callers", "callers")]
        self.assertEqual(self.offer("callers", inside, 59), [])
        self.assertEqual(self.offer("callers", inside, 1, metadata=small), [])
        refused = self.offer("callers", inside, 10)
        self.assertEqual(len(refused), 10)
        for future in refused:
            self.check_refused(future, '"callers"', "its fair share in flight, 60 requests",
                               "2 callers share it")
        self.assertEqual(self.offer("callers", inside, 20, metadata=small), [])
        self.assertEqual(self.finish("callers", inside)["rejected_share"], 10)


class TestRefusals(OverloadTest):
    config = node(pipeline("puppet", stage("libpuppet.so", params={"folder": "."}), slots=2),
                  pipeline("slow", sluggish(1)), pipeline("long", sluggish(1000), slots=2),
                  message_mib=1, caller_metadata="x-tenant")

    def test_priority_is_checked(self):
        for value in ({"int64_param": 4}, {"int64_param": -1}, {"string_param": "high"},
                      {"bool_param": True}, {"double_param": 1.0}):
            future = self.start("slow", parameters={"priority": value})
            code, text = failure(future)
            self.assertEqual(code.name, "INVALID_ARGUMENT", value)
            self.assertIn('parameter "priority"', text)
            self.assertIsNone(pushback(future))
        for value in ({"int64_param": 0}, {"int64_param": 1}, {"uint64_param": 3},
                      {"string_param": "2"}):
            self.start("slow", parameters={"priority": value}).result()

    def test_full_is_pushed_back(self):
        held = self.client.tell("hold a")
        wait_until((self.shoald.folder / "a.held").exists, "the puppet to hold")
        second = self.client.tell("echo b")
        self.shoald.wait_stat("puppet", lambda stat: stat["slots_used"] == 2, "both slots in use")
        self.check_refused(self.client.tell("echo c"), '"puppet"', "full", "2 slots")
        (self.shoald.folder / "a.go").touch()
        held.result()
        second.result()
        self.shoald.wait_all_returned("puppet")


    def test_full_is_told_how_long_it_takes(self):
        """With runs of a second and both slots taken, a hint of some milliseconds would spend the
        attempts of a client that obeys it before a slot is free."""
        self.learn("long")
        policy = {"methodConfig": [{"name": [{}], "retryPolicy": {
            "maxAttempts": 4, "initialBackoff": "600s", "maxBackoff": "600s",
            "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}
        ahead = [self.start("long") for _ in range(2)]
        self.shoald.wait_stat("long", lambda stat: stat["slots_used"] == 2, "both slots in use")
        refused = self.start("long")
        self.check_refused(refused, "full")
        self.assertGreaterEqual(pushback(refused), 1000)
        with Client(self.shoald.target, [("grpc.enable_retries", 1),
                                         ("grpc.service_config", json.dumps(policy))]) as patient:
            self.start("long", client=patient).result()
        for future in ahead:
            future.result()
        self.shoald.wait_all_returned("long")


class TestUnavailable(OverloadTest):
    config = node(pipeline("puppet", stage("libpuppet.so", quarantine_deaths=0,
                                           params={"folder": ".", "open": "when-broken"})),
                  message_mib=1)

    def test_starting_is_pushed_back_draining_is_not(self):
        (self.shoald.folder / "broken").touch()
        code, text = failure(self.client.tell("crash"))
        self.assertEqual(code.name, "UNAVAILABLE", text)
        self.shoald.wait_stat("puppet", lambda stat: stat["stages"][0]["workers_live"] == 0,
                              "the stage to have no worker")

        def refused_with_pushback():
            future = self.client.tell("echo x")
            code, text = failure(future)
            self.assertEqual(code.name, "UNAVAILABLE", text)
            return pushback(future) is not None
        wait_until(refused_with_pushback, "a refusal that says when to come back")
        (self.shoald.folder / "broken").unlink()
        wait_until(lambda: self.client.call("ModelReady", name="puppet").ready, "recovery")
        held = self.client.tell("hold a")
        wait_until((self.shoald.folder / "a.held").exists, "the puppet to hold")
        self.shoald.drain()
        future = self.client.tell("echo y")
        code, text = failure(future)
        self.assertEqual(code.name, "UNAVAILABLE", text)
        self.assertIsNone(pushback(future))
        (self.shoald.folder / "a.go").touch()
        held.result()
        self.shoald.wait_exit()


if __name__ == "__main__":
    shoal_fixture.main()
