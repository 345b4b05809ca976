# SPDX-License-Identifier: Apache-2.0
"""A worker that does not come back from a run is killed after `run_timeout_ms`, and only then.

The puppet hangs in `run` until it is told to go on, or stops its own process there. No test has to
do anything before a run has lasted that long. A worker that must not be killed is shown beside one
that began later and was.

ctest: timeout=180 presets=dev
"""

import os
import signal
import unittest

import shoal_fixture
from shoal_client import Client, failure, said, said_pid
from shoal_ctl import shoalctl
from shoal_fixture import Shoald, is_alive, node, pipeline, stage, wait_until

LIMIT_MS = 300


def puppet(name="puppet", stages=None, **keys):
    keys = {"run_timeout_ms": LIMIT_MS, "params": {"folder": "."}, **keys}
    return pipeline(name, *(stages or [stage("libpuppet.so", **keys)]), slots=32)


class HangTest(unittest.TestCase):
    def start(self, *pipelines, **keys):
        shoald = self.enterContext(Shoald(node(*pipelines, message_mib=1, **keys)))
        return shoald, self.enterContext(Client(shoald.target))

    def hold(self, shoald, client, name, model="puppet"):
        """A request that is being run, and stays so until NAME.go is made."""
        future = client.tell(f"hold {name}", model)
        wait_until((shoald.folder / f"{name}.held").exists, "the request to be running")
        return future

    def batch(self, shoald, client, texts):
        """These in one batch: they come while the only worker is stopped, idle."""
        worker, = shoald.workers("puppet")
        self.check_serves(client)
        shoald.wait_all_returned("puppet")
        os.kill(worker.pid, signal.SIGSTOP)
        futures = [client.tell(text) for text in texts]
        shoald.wait_stat("puppet", lambda stat: stat["stages"][0]["depth"] == len(texts),
                         f"{len(texts)} to wait")
        os.kill(worker.pid, signal.SIGCONT)
        return futures

    def check_poison(self, future):
        code, text = failure(future)
        self.assertEqual(code.name, "UNAVAILABLE", text)
        self.assertIn('stage "puppet" (modelet libpuppet.so) did not finish this request within '
                      f"run_timeout_ms ({LIMIT_MS}); 2 workers were lost with it", text)
        self.assertNotIn("died", text)

    def check_serves(self, client, model="puppet"):
        self.assertEqual(said(client.tell("echo x", model).result()), "echo x")


class TestHang(HangTest):
    def test_killed_twice_is_poison(self):
        shoald, client = self.start(puppet())
        self.check_poison(client.tell("hold a"))
        hung = shoald.wait_log(r"worker_hung pipeline=puppet stage=puppet worker=0 pid=(\d+) "
                               r"ran_ms=(\d+) items=1$", count=2)
        self.assertGreaterEqual(int(hung[2]), LIMIT_MS)
        shoald.wait_log(rf'worker_died .*pid={hung[1]} why="killed because it did not finish a run '
                        rf'within run_timeout_ms \({LIMIT_MS}\)" held=1 ')
        self.check_serves(client)
        stat = shoald.wait_all_returned("puppet")
        only = stat["stages"][0]
        self.assertEqual((stat["poison"], stat["run_again"]), (1, 1))
        self.assertEqual((only["run_timeouts"], only["restarts"]), (2, 2))
        self.assertEqual((only["reclaim"]["count"], only["recovery"]["count"]), (2, 2))
        self.assertRegex(shoalctl("stat", "--counters", shoald.counters).out,
                         r"(?m)^ +stage +deaths +run timeouts +quarantines +reclaim p50 .*\n"
                         r"  puppet +2 +2 +0 +\d")

    def test_runs_again_after_the_first(self):
        """A request that hung once may succeed the second time."""
        shoald, client = self.start(puppet(workers=2))
        answer = client.tell("hold-once a").result()
        self.assertEqual(said(answer), "hold-once a")
        hung = shoald.wait_log(r"worker_hung .*pid=(\d+) ")
        self.assertNotEqual(said_pid(answer), int(hung[1]))
        stat = shoald.wait_all_returned("puppet")
        self.assertEqual((stat["poison"], stat["run_again"]), (0, 1))

    def test_the_rest_of_the_batch_survives(self):
        shoald, client = self.start(puppet(batch_size=8))
        futures = self.batch(shoald, client,
                             ["hold b" if i == 5 else f"echo {i}" for i in range(8)])
        for i, future in enumerate(futures):
            if i == 5:
                code, text = failure(future)
                self.assertEqual(code.name, "UNAVAILABLE", text)
                self.assertIn("did not finish", text)
            else:
                self.assertEqual(said(future.result()), f"echo {i}")
        self.assertEqual(shoald.wait_all_returned("puppet")["poison"], 1)
        shoald.wait_log(r"worker_hung .* items=8$")

    def test_stopped_within_a_run(self):
        shoald, client = self.start(puppet())
        worker, = shoald.workers("puppet")
        answer = client.tell("stop-once a").result()
        self.assertEqual(said(answer), "stop-once a")
        self.assertNotEqual(said_pid(answer), worker.pid)
        self.assertFalse(is_alive(worker.pid))
        self.assertEqual(shoald.stage_stat("puppet", "puppet")["run_timeouts"], 1)

    def test_only_runs_count(self):
        """Not: a worker that is stopped while it is idle; a run of a stage without the key. Both
        have lasted longer than the run that is killed."""
        free = [stage("libpuppet.so", params={"folder": "."}),
                stage("libecho.so", "after", run_timeout_ms=LIMIT_MS)]
        shoald, client = self.start(puppet(), puppet("idle"), puppet("free", free))
        idle, = shoald.workers("idle")
        self.check_serves(client, "idle")
        os.kill(idle.pid, signal.SIGSTOP)
        free = self.hold(shoald, client, "f", "free")
        for _ in range(2):
            self.check_poison(client.tell("hold a"))
        self.assertEqual(sorted(one.pipeline for one in shoald.all_workers()
                                if one.pipeline != "puppet"),
                         ["free", "free", "idle"], "nobody else was to be replaced")
        os.kill(idle.pid, signal.SIGCONT)
        (shoald.folder / "f.go").touch()
        self.assertEqual(said(free.result()), "hold f")
        self.check_serves(client, "idle")

    def test_each_half_counts_for_itself(self):
        """A batch that fails as a whole is run in halves: together they take longer than the limit,
        none of them does."""
        shoald, client = self.start(puppet(batch_size=4, run_timeout_ms=3300))
        futures = self.batch(shoald, client, ["slow 500"] * 3 + ["fail-batch 3"])
        for future in futures[:3]:
            self.assertEqual(said(future.result()), "slow 500")
        self.assertEqual(failure(futures[3])[0].name, "INVALID_ARGUMENT")
        only = shoald.wait_all_returned("puppet")["stages"][0]
        self.assertEqual(only["run_timeouts"], 0)
        runs = (shoald.folder / "runs").read_text().splitlines().count("slow 500")
        self.assertGreaterEqual(runs * 500, 3300, "it did not last long enough to prove anything")

    def test_while_it_drains(self):
        """The end waits for what is in flight; what hangs does not hold it up."""
        shoald, client = self.start(puppet(), drain_timeout_ms=3600 * 1000)
        future = self.hold(shoald, client, "a")
        shoald.signal(signal.SIGTERM)
        self.check_poison(future)
        self.assertEqual(shoald.wait_exit(), 0, shoald.stderr)
        self.assertIn("drained left_in_flight=0", shoald.stderr)
        shoald.check_nothing_left()


if __name__ == "__main__":
    shoal_fixture.main()
