# SPDX-License-Identifier: Apache-2.0
"""Supervision never blocks, and ends hanging parts: a log that nobody reads, a modelet that floods
it, SIGHUP while a reload is under way, a second SIGTERM, workers that are stopped or stuck outside
of a run. ctest: timeout=240 presets=dev
"""

import os
import re
import signal
import time
import unittest

import shoal_attacks
import shoal_fixture
from shoal_attacks import (NotPossible, Unread, library_stands_still, limit_descriptors, puppet,
                           rascal)
from shoal_client import Client, failure, said
from shoal_ctl import NEGATIVE, shoalctl
from shoal_fixture import Shoald, children, is_alive, node, pipeline, stage, wait_until

HOUR_MS = 3600 * 1000


class SupervisionTest(unittest.TestCase):
    def start(self, *stages, kind=Shoald, **keys):
        shoald = self.enterContext(kind(node(pipeline("p", *stages, slots=32), message_mib=1, **keys)))
        return shoald, self.enterContext(Client(shoald.target))

    def check_serves(self, client, text="echo x"):
        self.assertEqual(said(client.tell(text, "p").result()), text)


class TestLog(SupervisionTest):
    def kill(self, shoald, pids):
        """Kills these workers; returns when each has a successor. By /proc: the log says
        nothing."""
        count = len(children(shoald.pid))
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: len(set(children(shoald.pid)) - set(pids)) == count,
                   "successors of killed workers")

    def check_ends(self, shoald):
        shoald.signal(signal.SIGTERM)
        wait_until(lambda: shoald.process.poll() is not None, "the end of a node that nobody reads")
        shoald.reads.set()
        self.assertEqual(shoald.wait_exit(), 0)

    def test_nobody_reads(self):
        """Workers are replaced and requests served while the log's pipe is full; SIGTERM is
        heard."""
        shoald, client = self.start(rascal(workers=4), kind=Unread)
        self.check_serves(client)
        shoald.reads.clear()
        for _ in range(8):  # several lines for each death: more than the pipe takes
            self.kill(shoald, children(shoald.pid))
        wait_until(lambda: client.call("ModelReady", name="p").ready, "workers to be ready")
        self.check_serves(client)
        self.assertEqual(shoald.stat()["log_dropped"], 0, "it was to be kept until it is read")
        self.check_ends(shoald)

    def test_flood(self):
        """A modelet that fills stderr keeps nobody else from being replaced, served or stopped,
        even when nobody reads."""
        shoald, client = self.start(rascal(), stage("libpuppet.so", "other", params={"folder": "."}),
                                    kind=Unread)
        self.check_serves(client)
        flooding, other = [shoald.workers("p", name)[0].pid for name in ("rascal", "other")]
        shoald.reads.clear()
        self.assertIsNotNone(flood := client.tell("flood x", "p"))
        shoald.wait_stat("p", lambda stat: stat["stages"][0]["lines_dropped"] > 0, "dropped lines")
        for _ in range(8):
            self.kill(shoald, [other])
            other = (set(children(shoald.pid)) - {flooding}).pop()
        self.check_ends(shoald)
        flood.cancel()


class TestWorkerLog(SupervisionTest):
    """The workers' output on stderr: marked, bounded, and whole when they die of it."""
    SAID = r'worker_said pipeline=p stage={} worker=0 pid=\d+ text="{}"'

    def test_marked(self):
        shoald, client = self.start(rascal(), rascal(name="other"))
        said(client.tell("mutter something", "p").result())
        said(client.tell("print something", "p").result())
        for name in ("rascal", "other"):
            shoald.wait_log(self.SAID.format(name, "mutters something"))
            shoald.wait_log(self.SAID.format(name, "prints something"))

    def test_last_words(self):
        """Without the end of a line, and after a flood that has used up what is allowed."""
        shoald, client = self.start(rascal(attempts_max=1), worker_log_kib_per_s=1)
        flood = client.tell("flood x", "p")
        self.assertIsNotNone(flood)
        shoald.wait_stat("p", lambda stat: stat["stages"][0]["lines_dropped"] > 0, "dropped lines")
        worker, = shoald.workers("p")
        os.kill(worker.pid, signal.SIGKILL)
        worker = shoald.wait_successor(worker)
        self.check_serves(client)
        self.assertEqual(failure(client.tell("perish shame", "p"))[0].name, "UNAVAILABLE")
        shoald.wait_successor(worker)
        said_by = shoald.wait_log(self.SAID.format("rascal", "perishes of shame"))
        self.assertIn(f"pid={worker.pid}", said_by[0])

    def test_rate(self):
        """One floods: the log gets a burst and the rate of it, and all that the other one says."""
        kib = 4
        shoald, client = self.start(rascal(workers=1), rascal(name="other"), worker_log_kib_per_s=kib)
        self.check_serves(client)
        began = time.monotonic()
        flood = shoald.workers("p", "rascal")[0]
        said(client.tell("flood x", "p").result())  # both stages do
        shoald.wait_stat("p", lambda stat: all(one["lines_dropped"] > 1000 for one in stat["stages"]),
                         "many lines to be dropped")
        shoald.wait_log("worker_log_dropped pipeline=p stage=rascal")
        os.kill(flood.pid, signal.SIGKILL)
        shoald.wait_successor(flood)
        mark = f"pid={flood.pid} text="
        texts = [line.partition(mark)[2] for line in list(shoald.lines) if mark in line]
        allowed = 1024 * kib * (4 + time.monotonic() - began)
        # last words come on top: 16 KiB of text with each line's prefix, and two quotes
        last = (16 << 10) + 1024
        self.assertLess(sum(len(text) - 2 for text in texts), allowed + last)
        said(client.tell("mutter hello", "p").result())
        shoald.wait_log(self.SAID.format("rascal", "mutters hello"))

    def test_stopped_coordinator(self):
        """A worker whose pipe nobody reads goes on all the same."""
        shoald, client = self.start(rascal())
        self.check_serves(client)
        worker, = shoald.workers("p")
        os.kill(shoald.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, shoald.pid, signal.SIGCONT)
        os.kill(shoald.pid, signal.SIGCONT)
        said(client.tell("flood x", "p").result())
        os.kill(shoald.pid, signal.SIGSTOP)
        before = self.written(worker.pid)
        wait_until(lambda: self.written(worker.pid) > before + 1000, "further attempts to write")
        self.assertTrue(is_alive(worker.pid))
        os.kill(shoald.pid, signal.SIGCONT)

    @staticmethod
    def written(pid):
        """System calls that were to write something."""
        return int(re.search(r"syscw: (\d+)", shoal_fixture.read_proc(pid, "io"))[1])


class TestHangup(SupervisionTest):
    def test_during_a_reload(self):
        """However many come while one is under way: one more follows, and no third."""
        shoald, client = self.start(rascal(params={"gate": "shut"}))
        shoal_attacks.hang_up_amid_a_reload(shoald, shoald.folder / "shut")
        shoalctl("reload", "p", "--counters", shoald.counters)
        shoald.wait_log("pipeline_serving pipeline=p .*generation=4")
        self.assertEqual(shoald.stderr.count("reloading pipeline=p"), 3)
        self.assertNotIn("reload_failed", shoald.stderr)
        self.check_serves(client)


class TestTermination(SupervisionTest):
    def test_second_signal(self):
        """Whichever it is, it ends what would go on for an hour, and says so."""
        for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            with self.subTest(number):
                shoald, client = self.start(puppet(), drain_timeout_ms=HOUR_MS)
                held = client.tell("hold a", "p")
                wait_until((shoald.folder / "a.held").exists, "a request to be run")
                shoald.drain()
                shoald.signal(number)
                self.assertEqual(shoald.wait_exit(), code, shoald.stderr)
                self.assertIn("stopping_at_once", shoald.stderr)
                self.assertEqual(failure(held)[0].name, "UNAVAILABLE")

    def test_hung_loop(self):
        """The loop's thread hangs forever, in the opening of a file: two more signals end it."""
        shoald, _ = self.start(puppet())
        shoald.config.unlink()
        os.mkfifo(shoald.config)
        shoald.signal(signal.SIGHUP)
        wait_until(lambda: "wait_for_partner" in shoal_fixture.read_proc(shoald.pid, "wchan"), "the loop to hang")
        for _ in range(2):
            shoald.signal(signal.SIGTERM)
            wait_until(lambda: re.search(r"^ShdPnd:\s*0+$", shoal_fixture.read_proc(shoald.pid, "status"),
                                         re.MULTILINE), "the signal to be taken")
        self.assertEqual(shoald.wait_exit(), 143, shoald.stderr)
        self.assertIn("exit_forced code=143", shoald.stderr)

    def test_hung_library(self):
        """gRPC stands still when the node has drained: the node ends within its bound."""
        shoald, client = self.start(puppet(), drain_timeout_ms=1000)
        self.check_serves(client)
        try:
            with library_stands_still(shoald.pid):
                shoald.signal(signal.SIGTERM)
                shoald.wait_log("drained left_in_flight=0")
                shoald.wait_log("exit_forced code=3")
        except NotPossible as why:
            self.skipTest(why)
        self.assertEqual(shoald.wait_exit(), 3)


def descriptors(pid):
    return sorted(int(name) for name in os.listdir(f"/proc/{pid}/fd"))


class TestScarcity(SupervisionTest):
    """The node's own want of descriptors is not the modelet's fault."""

    def test_a_start_is_postponed(self):
        shoald, client = self.start(rascal(quarantine_deaths=3, quarantine_ms=HOUR_MS))
        self.check_serves(client)
        limit_descriptors(shoald.pid, 12)
        os.kill(shoald.workers("p")[0].pid, signal.SIGKILL)
        shoald.wait_log('worker_start_postponed pipeline=p stage=rascal worker=0 error=".*'
                        'Too many open files"')
        shoald.wait_stat("p", lambda stat: stat["stages"][0]["starts_postponed"] > 8, "further tries")
        code, text = failure(client.tell("echo x", "p"))
        self.assertEqual(code.name, "UNAVAILABLE")
        self.assertIn("not started, because shoald lacks resources", text)
        limit_descriptors(shoald.pid, 0)
        wait_until(lambda: client.call("ModelReady", name="p").ready, "the successor")
        self.check_serves(client)
        self.assertNotIn("stage_quarantined", shoald.stderr)
        self.assertEqual(shoald.stderr.count("worker_start_postponed"), 1, "one line for many tries")

    def test_successors_have_a_reserve(self):
        """All that is open stays open, and nothing else can be: successors start nevertheless."""
        shoald, client = self.start(rascal(workers=4))
        self.check_serves(client)
        used = descriptors(shoald.pid)
        limit_descriptors(shoald.pid, used[-1] + 1)
        holes = set(range(used[-1])) - set(used)
        self.assertLess(len(holes), 6, "the limit leaves room for a start")
        for worker in shoald.workers("p"):
            os.kill(worker.pid, signal.SIGKILL)
        for worker in shoald.workers("p"):
            shoald.wait_successor(worker)
        self.assertNotIn("worker_start_postponed", shoald.stderr)
        self.check_serves(client)


class TestSilence(SupervisionTest):
    """A worker that is stopped, or stuck, while no run of its own could be timed out."""

    def trouble(self, shoald, client, verb):
        self.assertEqual(said(client.tell(f"{verb} a", "p").result()), f"{verb} a")
        (shoald.folder / "a.now").touch()

    def test_a_stopped_worker_goes_on(self):
        shoald, client = self.start(rascal(run_timeout_ms=1000))
        self.trouble(shoald, client, "stop")
        shoald.wait_log("worker_silent pipeline=p .* action=continue")
        self.check_serves(client)
        self.assertEqual(len(shoald.all_workers()), 1, "it was to go on, not to be replaced")
        self.assertEqual(shoald.stage_stat("p", "rascal")["silences"], 0)

    def test_a_stuck_worker_is_replaced(self):
        """With an open batch: what waits in it is run by the successor."""
        shoald, client = self.start(rascal(run_timeout_ms=1000, batch_size=8, batch_wait="fixed",
                                           batch_wait_ms=60000))
        calls = [client.tell("wedge a", "p")] + [client.tell(f"echo {i}", "p") for i in range(7)]
        self.assertEqual(said(calls[0].result()), "wedge a")  # a full batch
        waiting = client.tell("echo waiting", "p")
        shoald.wait_stat("p", lambda stat: stat["slots_used"] == 1, "an open batch")
        (shoald.folder / "a.now").touch()
        worker, = shoald.workers("p")
        shoald.wait_log("worker_silent pipeline=p .* action=continue")
        shoald.wait_log("worker_silent pipeline=p .* action=kill")
        shoald.wait_successor(worker)
        self.assertEqual(said(waiting.result()), "echo waiting")
        self.assertEqual(shoald.stage_stat("p", "rascal")["silences"], 1)
        self.assertIn("gave no sign of life", shoald.stderr)


class TestEnvironment(SupervisionTest):
    def test_secrets_stay(self):
        """Workers see what says where and how to run, and what their stage is given."""
        ours = {"SHOAL_TEST_SECRET": "s3cr3t", "AWS_SECRET_ACCESS_KEY": "k", "OMP_NUM_THREADS": "3",
                "OPENBLAS_NUM_THREADS": "2", "LC_TIME": "C", "TZ": "Europe/Berlin", "OMPX": "1"}
        given = {"MODEL_TOKEN": "t0k3n", "TZ": "UTC"}
        shoald = self.enterContext(Shoald(node(pipeline("p", rascal(env=given), slots=32),
                                               message_mib=1), env=ours))
        client = self.enterContext(Client(shoald.target))
        seen = {name: said(client.tell(f"env {name}", "p").result())
                for name in [*ours, *given, "PATH", "SHOAL_MODELET_PATH"]}
        self.assertEqual(seen, {"SHOAL_TEST_SECRET": "none", "AWS_SECRET_ACCESS_KEY": "none",
                                "OMP_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "2", "LC_TIME": "C",
                                "TZ": "UTC", "OMPX": "none", "MODEL_TOKEN": "t0k3n",
                                "PATH": os.environ["PATH"], "SHOAL_MODELET_PATH": "none"})


class TestTakeOver(SupervisionTest):
    def test_a_generation_that_cannot_serve(self):
        """Its workers are ready, its region is destroyed: the old one serves on, the reload
        fails."""
        shoald, client = self.start(rascal(params={"zero": "zero"}))
        self.check_serves(client)
        (shoald.folder / "zero").touch()
        done = shoalctl("reload", "p", "--counters", shoald.counters, code=NEGATIVE)
        self.assertIn("p", done.err)
        shoald.wait_log("reload_failed pipeline=p")
        self.check_serves(client)
        self.assertTrue(client.call("ModelReady", name="p").ready)
        (shoald.folder / "zero").unlink()
        shoalctl("reload", "p", "--counters", shoald.counters)
        self.check_serves(client)

    def test_a_first_generation_that_cannot_serve(self):
        shoald = Shoald(node(pipeline("p", rascal(params={"zero": "shoald.yaml"}), slots=32),
                             message_mib=1))
        self.addCleanup(shoald.discard)
        self.assertEqual(shoald.start().wait_exit(), 2, shoald.stderr)


class TestOrphans(SupervisionTest):
    COUNT = 100

    def breed(self, client):
        pids = [int(pid) for pid in said(client.tell(f"breed {self.COUNT}", "p").result()).split()]
        self.assertEqual(len(pids), self.COUNT)
        self.assertTrue(all(map(is_alive, pids)))
        return pids

    def test_they_end_with_their_worker(self):
        shoald, client = self.start(rascal(sandbox_allow=["reading", "processes"]))
        for kill in (True, False):
            pids = self.breed(client)
            worker, = shoald.workers("p")
            if kill:
                os.kill(worker.pid, signal.SIGKILL)
                wait_until(lambda: not any(map(is_alive, pids)), "the end of what it had started")
                shoald.wait_successor(worker)
                self.check_serves(client)
        wait_until(lambda: shoald.stat()["orphans_killed"] == self.COUNT, "all to be counted")
        self.assertEqual(shoald.terminate(), 0)
        self.assertFalse(any(map(is_alive, pids)), "processes outlive the node")


if __name__ == "__main__":
    shoal_fixture.main()
