# SPDX-License-Identifier: Apache-2.0
"""Hot reload: new parameters, code, limits and shapes of a pipeline, and not one failed request.

Under load every answer must be one that the old or the new generation gives, and after the reload
only the new one's. A generation that does not come up, for each reason there is, leaves the old one
serving and says why. The seed draws what changes when.

ctest: timeout=240 presets=dev
"""

import contextlib
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import struct
import threading
import unittest

import shoal_fixture
from shoal_client import Client, failure, said
from shoal_ctl import LATE, NEGATIVE, UNREACHABLE, USAGE, shoalctl
from shoal_fixture import BUILD, WAIT_SECONDS, Shoald, is_alive, node, pipeline, stage, wait_until

LIBRARIES = BUILD / "lib" / "shoal"
ROUNDS = int(os.environ.get("SHOAL_RELOADS", "12"))


def scale(factor, workers=1, **keys):
    return stage("libscale.so", workers=workers, params={"factor": factor}, **keys)


def puppet(**keys):
    return stage("libpuppet.so", params={"folder": ".", **keys.pop("params", {})}, **keys)


def times(client, value):
    """The pipeline `times`'s answer for a number."""
    answer = client.infer_raw("times", ("x", "INT32", [1], struct.pack("<i", value)))
    return struct.unpack("<i", answer.raw_output_contents[0])[0]


class Load:
    """Requests without a pause, from several threads; every answer and every failure is kept."""

    def __init__(self, target, threads=3):
        self.ended = threading.Event()
        self.factors = set()
        self.count = 0
        self.failures = []
        self.lock = threading.Lock()
        self.rounds = [0] * threads
        self.threads = [threading.Thread(target=self.run, args=(target, i)) for i in range(threads)]

    def run(self, target, seed):
        with Client(target) as client:
            value = 1 + seed
            while not self.ended.is_set():
                value = value % 9973 + 1
                futures = [(value + i, client.start_raw("times", ("x", "INT32", [1],
                                                                  struct.pack("<i", value + i))))
                           for i in range(8)]
                for asked, future in futures:
                    self.keep(asked, future)
                self.rounds[seed] += 1

    def keep(self, asked, future):
        try:
            got = struct.unpack("<i", future.result().raw_output_contents[0])[0]
        except Exception as error:  # pylint: disable=broad-except
            with self.lock:
                self.failures.append(str(error))
            return
        with self.lock:
            self.count += 1
            if got % asked:
                self.failures.append(f"{asked} gave {got}")
            else:
                self.factors.add(got // asked)

    def taken(self):
        """The factors seen since the last look."""
        with self.lock:
            seen, self.factors = self.factors, set()
            return seen

    def wait_more(self, count=100):
        wanted = self.count + count
        wait_until(lambda: self.count >= wanted or self.failures, f"{count} more answers")

    def forget(self):
        """The requests of each thread so far, some of them unchecked."""
        before = list(self.rounds)
        wait_until(lambda: all(now > then for now, then in zip(self.rounds, before)),
                   "every thread to end its round")
        self.taken()

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        for thread in self.threads:
            thread.join()


class Case(unittest.TestCase):
    def start(self, *pipelines, **keys):
        self.keys = keys
        self.shoald = self.enterContext(Shoald(node(*pipelines, **keys)))
        self.client = self.enterContext(Client(self.shoald.target))

    def configure(self, *pipelines, **keys):
        self.shoald.write_config(node(*pipelines, **{**self.keys, **keys}))

    def reload(self, name, **options):
        return shoalctl("reload", "--counters", self.shoald.counters, name, **options)

    def stat(self, name):
        return self.shoald.pipeline_stat(name)

    def wait_gone(self, workers):
        wait_until(lambda: not any(is_alive(worker.pid) for worker in workers),
                   lambda: f"the old workers to end; the log:\n{self.shoald.stderr}")


class TestReload(Case):
    def test_parameters(self):
        self.start(pipeline("times", scale(2)))
        before = self.shoald.workers("times")
        self.assertEqual(times(self.client, 7), 14)
        self.configure(pipeline("times", scale(5)))
        done = self.reload("times", code=0)
        self.assertEqual(done.out, "1 pipeline reloaded\n")
        self.assertEqual(times(self.client, 7), 35)
        self.wait_gone(before)
        stat = self.shoald.wait_stat("times", lambda stat: stat["generation"] == 2, "generation 2")
        self.assertEqual((stat["reloads"], stat["reloads_failed"]), (1, 0))
        self.shoald.wait_all_returned("times")

    def test_under_load(self):
        """Parameters, workers, batches, slots and stages change, over and over."""
        draw = random.Random(shoal_fixture.draw_seed())
        self.start(pipeline("times", scale(1), slots=256), pipeline("echo", stage("libecho.so")))
        with Load(self.shoald.target) as load:
            for factor in range(2, 2 + ROUNDS):
                stages = [scale(factor, draw.randint(1, 3), **draw.choice(
                    [{}, {"batch_size": 16}, {"batch_size": 8, "batch_wait_ms": 1}]))]
                if draw.random() < 0.5:
                    stages.append(stage("libshift.so", params={"offset": 0}))
                self.configure(pipeline("times", *stages, slots=draw.choice([64, 256, 1024])),
                               pipeline("echo", stage("libecho.so")))
                load.wait_more()
                self.assertEqual(load.taken(), {factor - 1})
                self.reload("times", code=0)
                self.shoald.wait_log(f"generation_ends pipeline=times generation={factor - 1} "
                                     "left_in_flight=0")
                load.forget()
                load.wait_more()
                self.assertEqual(load.taken(), {factor})
        self.assertEqual(load.failures, [])
        self.assertEqual(self.stat("times")["reloads"], ROUNDS)
        self.shoald.wait_all_returned("times")

    def test_nothing_is_left_of_old_generations(self):
        self.start(pipeline("times", scale(1)))
        fds = pathlib.Path(f"/proc/{self.shoald.pid}/fd")

        def regions():
            count = 0
            for fd in list(fds.iterdir()):
                with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                    count += "memfd:" in os.readlink(fd)
            return count

        def rest():
            wait_until(lambda: len(shoal_fixture.children(self.shoald.pid)) == 1 and regions() == 1,
                       lambda: f"one worker and one region: {regions()}")
            return len(list(fds.iterdir()))
        for _ in range(2):
            self.reload("times", code=0)
        before = rest()
        for _ in range(10):
            self.reload("times", code=0)
        # one may still be there: the connection of the last shoalctl
        wait_until(lambda: rest() <= before, lambda: f"{before} descriptors, there are {rest()}")

    def test_faster_than_old_generations_end(self):
        """When all lanes are taken a reload waits for one."""
        self.start(pipeline("times", scale(2)))
        for factor in range(3, 9):
            worker = self.shoald.workers("times")[0]
            os.kill(worker.pid, signal.SIGSTOP)  # it will not hear SIGTERM
            self.configure(pipeline("times", scale(factor)))
            self.reload("times", code=0)
            self.assertEqual(times(self.client, 7), 7 * factor)
        self.shoald.wait_all_returned("times")

    def test_code(self):
        """A new file under the old name, as `install` or `mv` leave it."""
        self.start(pipeline("times", scale(2)))
        own = self.shoald.folder / "libown.so"
        shutil.copy(LIBRARIES / "libecho.so", own)
        self.configure(pipeline("times", stage("libown.so", name="scale")))
        self.reload("times", code=0)
        self.assertEqual(times(self.client, 7), 7)
        shutil.copy(LIBRARIES / "libscale.so", f"{own}.new")
        os.rename(f"{own}.new", own)
        self.configure(pipeline("times", stage("libown.so", name="scale", params={"factor": 3})))
        with Load(self.shoald.target) as load:
            load.wait_more()
            self.reload("times", code=0)
            self.shoald.wait_log("generation_ends pipeline=times generation=2 left_in_flight=0")
            load.forget()
            load.wait_more()
        self.assertEqual((load.failures, load.taken()), ([], {3}))

    def test_requests_in_the_old_generation_are_finished(self):
        self.start(pipeline("puppet", puppet(batch_size=4, batch_wait="fixed", batch_wait_ms=60000)))
        waiting = self.client.tell("hold a")  # for company, an hour if need be
        self.shoald.wait_stat("puppet", lambda stat: stat["slots_used"] == 1, "the request")
        old = self.shoald.workers("puppet")
        self.configure(pipeline("puppet", puppet()))
        self.reload("puppet", code=0)
        wait_until((self.shoald.folder / "a.held").exists, "its batch to close")
        self.assertEqual(said(self.client.tell("echo new").result()), "echo new")
        self.assertTrue(is_alive(old[0].pid) and not waiting.done())
        (self.shoald.folder / "a.go").touch()
        self.assertEqual(said(waiting.result()), "hold a")
        self.wait_gone(old)
        self.shoald.wait_all_returned("puppet")

    def test_old_worker_dies(self):
        """Its items are run again in its own generation."""
        self.start(pipeline("puppet", puppet()))
        held = self.client.tell("hold a")
        wait_until((self.shoald.folder / "a.held").exists, "the request to be running")
        old = self.shoald.workers("puppet")
        self.reload("puppet", code=0)
        os.kill(old[0].pid, signal.SIGKILL)
        (self.shoald.folder / "a.go").touch()
        self.assertEqual(said(held.result()), "hold a")
        self.shoald.wait_log("generation_ends pipeline=puppet generation=1 left_in_flight=0")

    def test_drain_runs_out(self):
        self.start(pipeline("puppet", puppet()), drain_timeout_ms=200)
        held = self.client.tell("hold a")
        wait_until((self.shoald.folder / "a.held").exists, "the request to be running")
        old = self.shoald.workers("puppet")
        self.reload("puppet", code=0)
        code, text = failure(held)
        self.assertEqual(code.name, "UNAVAILABLE", text)
        self.assertIn("generation", text)
        self.wait_gone(old)
        self.shoald.wait_log("generation_ends pipeline=puppet generation=1 left_in_flight=1")
        self.assertEqual(said(self.client.tell("echo new").result()), "echo new")
        self.shoald.wait_all_returned("puppet")

    def test_hangup(self):
        """SIGHUP reloads every pipeline and says what it can't change."""
        self.start(pipeline("times", scale(2)), pipeline("puppet", puppet()))
        old = self.shoald.workers()
        self.configure(pipeline("times", scale(4)), pipeline("puppet", puppet()),
                       pipeline("more", stage("libecho.so")), message_mib=32,
                       cpus=[min(os.sched_getaffinity(0))])
        self.shoald.signal(signal.SIGHUP)
        self.wait_gone(old)
        self.assertEqual(times(self.client, 3), 12)
        for what in ("key=message_mib", "key=cpus", "pipeline=more"):
            self.shoald.wait_log(f"reload_ignored {what} needs=restart")

    def test_all(self):
        self.start(pipeline("times", scale(2)), pipeline("puppet", puppet()))
        done = self.reload("--all", code=0)
        self.assertEqual(done.out, "2 pipelines reloaded\n")
        self.assertEqual(self.reload("--all", code=0).out, done.out)

    def test_counters_go_on(self):
        self.start(pipeline("times", scale(2, workers=2)))
        for value in range(10):
            times(self.client, 1 + value)
        for round_number in range(3):
            self.reload("times", code=0)
            times(self.client, 5)
            stage_stat = self.shoald.wait_stat(
                "times", lambda stat, n=round_number: stat["stages"][0]["items"] == 11 + n,
                "the items of all generations")["stages"][0]
            self.assertEqual(len(stage_stat["workers"]), 2)


class TestRefusals(Case):
    def check_still(self, factor, words):
        """The reload fails with these words, and the old generation goes on."""
        done = self.reload("times", code=NEGATIVE)
        for word in words:
            self.assertIn(word, done.err)
        self.assertEqual(times(self.client, 7), 7 * factor)
        return done

    def test_generation_that_does_not_come_up(self):
        self.start(pipeline("times", scale(2)))
        with Load(self.shoald.target, threads=1) as load:
            self.configure(pipeline("times", stage("libpuppet.so", params={"open": "fail",
                                                                          "folder": "."})))
            self.check_still(2, ["times", "stage \"puppet\""])
            self.configure(pipeline("times", stage("libpuppet.so", params={"open": "crash",
                                                                          "folder": "."})))
            self.check_still(2, ["times", "stage \"puppet\"", "signal 6"])
            self.configure(pipeline("times", stage("libpuppet.so", start_timeout_ms=300,
                                                   params={"open": "hang", "folder": "."})))
            self.check_still(2, ["times", "start_timeout_ms"])
            self.configure(pipeline("times", stage("libwrong_symbol.so")))
            self.check_still(2, ["times", "libwrong_symbol.so"])
            self.configure(pipeline("times", scale(2), stage("libpuppet.so", params={
                "open": "fail", "folder": "."})))
            self.check_still(2, ["stage \"puppet\""])
        self.assertEqual((load.failures, load.taken()), ([], {2}))
        stat = self.shoald.wait_stat("times", lambda stat: stat["reloads_failed"] == 5, "5 failures")
        self.assertEqual((stat["generation"], stat["reloads"]), (1, 0))
        wait_until(lambda: len(shoal_fixture.children(self.shoald.pid)) == 1, "its workers to end")
        self.configure(pipeline("times", scale(3)))
        self.reload("times", code=0)
        self.assertEqual(times(self.client, 7), 21)

    def test_configuration(self):
        self.start(pipeline("times", scale(2)))
        self.shoald.write_config("pipelines: [ { name: times, stages: [ { nmae: x } ] } ]\n")
        self.check_still(2, ["shoald.yaml:1", "nmae"])
        self.configure(pipeline("times", stage("libnothere.so")))
        self.check_still(2, ["libnothere.so"])
        self.shoald.config.unlink()
        self.check_still(2, ["shoald.yaml"])
        self.configure(pipeline("others", scale(2)))
        self.check_still(2, ["no longer in the configuration"])
        done = self.reload("nobody", code=NEGATIVE)
        self.assertIn('"nobody"', done.err)

    def test_one_at_a_time(self):
        self.start(pipeline("times", scale(2)))
        self.configure(pipeline("times", stage("libpuppet.so", params={"open": "hang",
                                                                      "folder": "."})))
        late = shoalctl("reload", "--counters", self.shoald.counters, "--timeout-ms", "300",
                        "times", code=LATE)
        self.assertIn("300 ms", late.err)
        self.check_still(2, ["under way"])

    def test_child_of_a_worker_that_died(self):
        """It keeps the worker's end of the socket open and says nothing: nobody waits for it, and
        it does not outlive the node."""
        self.start(pipeline("times", scale(2)))
        self.configure(pipeline("times", puppet(params={"open": "orphan"},
                                                sandbox_allow=["files", "processes"])))
        self.check_still(2, ["stage \"puppet\"", "signal 6"])
        lives = self.shoald.folder / "orphan.lives"
        child = int(lives.read_text())
        self.assertEqual(self.shoald.terminate(), 0, self.shoald.stderr)
        self.shoald.check_nothing_left()
        wait_until(lambda: not is_alive(child), "the child to end")

    def test_stop_during_a_reload(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number.name):
                self.start(pipeline("times", scale(2)))
                self.configure(pipeline("times", stage("libpuppet.so", params={
                    "open": "hang", "folder": "."})))
                told = []
                asker = threading.Thread(target=lambda told=told: told.append(
                    self.reload("times", code=NEGATIVE)))
                asker.start()
                self.shoald.wait_log("reloading pipeline=times")
                self.shoald.signal(number)
                self.assertEqual(self.shoald.wait_exit(), 0, self.shoald.stderr)
                asker.join()
                self.assertIn("stopping", told[0].err)
                self.shoald.check_nothing_left()

    def test_region_lost_during_a_reload(self):
        """Either comes first, the rebuilt region or the new generation: requests go on."""
        self.start(pipeline("times", stage("libscribble.so", name="x")))
        self.configure(pipeline("times", scale(3)))
        everything = struct.pack("<4q", 1, 2, 3, 1)  # tests/modelets/scribble.h
        spoil = self.client.start_raw("times", ("scribble", "INT64", [4], everything))
        self.reload("times", code=0)
        spoil.exception()
        wait_until(lambda: times(self.client, 7) == 21, "the new generation")

    def test_nobody_there(self):
        self.start(pipeline("times", scale(2)))
        done = shoalctl("reload", "--counters", self.shoald.folder / "other", "times",
                        code=UNREACHABLE)
        self.assertIn("is it running", done.err)
        shoalctl("reload", "--counters", self.shoald.counters, code=USAGE)
        shoalctl("reload", "--counters", self.shoald.counters, "times", "echo", code=USAGE)
        shoalctl("reload", "--counters", "/tmp/" + "x" * 120, "times", code=UNREACHABLE)

    def call(self):
        """A connection to the control socket that says nothing."""
        call = self.enterContext(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        call.connect(f"{self.shoald.counters}.control")
        call.settimeout(WAIT_SECONDS)
        return call

    def test_silent_callers_make_room(self):
        self.start(pipeline("times", scale(2)))
        silent = [self.call() for _ in range(80)]
        self.reload("times", code=0)
        self.assertEqual(silent[0].recv(1), b"", "the one that was silent longest is closed")
        silent[-1].send(b"nonsense")
        self.assertIn(b"not a request", silent[-1].recv(4096))

    def test_no_descriptor_for_a_caller(self):
        """The node goes on, and accepts waiting connections as soon as it has one."""
        self.start(pipeline("times", scale(2)))
        pid = self.shoald.process.pid
        self.assertEqual(times(self.client, 5), 10)
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
        first_free = min(set(range(len(used) + 1)) - used)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (first_free, limits[1]))
        holder = self.call()
        self.shoald.wait_log("control_paused")
        self.assertEqual(times(self.client, 7), 14)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        holder.send(b"nonsense")
        self.assertIn(b"not a request", holder.recv(4096))
        paused = self.shoald.stderr.count("control_paused")
        self.assertLess(paused, 40, "it looks again once a second, not at once")

    def test_killed_node_leaves_nothing_in_the_way(self):
        self.start(pipeline("times", scale(2)))
        self.shoald.kill()
        self.assertTrue(pathlib.Path(f"{self.shoald.counters}.control").exists())
        self.reload("times", code=UNREACHABLE)
        self.shoald.start().wait_ready()
        with Client(self.shoald.target) as client:
            self.assertEqual(times(client, 7), 14)
        self.reload("times", code=0)
        self.assertEqual(self.shoald.terminate(), 0)


if __name__ == "__main__":
    shoal_fixture.main()
