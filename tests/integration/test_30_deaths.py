# SPDX-License-Identifier: Apache-2.0
"""After any death every request is answered rightly; nothing is left behind or leaked.

Real SIGKILLs and SIGSTOPs to workers and to shoald: idle, while a request is being run (the modelet
says so through a file, so no test has to guess), over and over under load, and modelets that kill
their own worker.

ctest: timeout=240 presets=dev
"""

import os
import pathlib
import random
import signal
import struct
import tempfile
import threading
import time
import unittest

import shoal_fixture
from shoal_client import Client, failure, said, said_pid
from shoal_fixture import (Shoald, children, draw_seed, is_alive, node, pipeline, stage,
                           wait_until)

LOAD_SECONDS = float(os.environ.get("SHOAL_LOAD_SECONDS", 5))
KILLS_MIN = 80  # under load, however long they take


def puppet_node(workers=1, modelet="libpuppet.so", **keys):
    return node(pipeline("puppet", stage(modelet, workers=workers, params={"folder": "."}, **keys),
                         slots=32),
                pipeline("echo", stage("libecho.so"), slots=32), message_mib=1)


class DeathTest(unittest.TestCase):
    def start(self, config):
        shoald = self.enterContext(Shoald(config))
        return shoald, self.enterContext(Client(shoald.target))

    def hold(self, shoald, client, name):
        """A request that is being run, and stays so until NAME.go is made."""
        future = client.tell(f"hold {name}")
        wait_until((shoald.folder / f"{name}.held").exists, "the request to be running")
        return future

    def check_fails(self, future, code, *texts):
        got, text = failure(future)
        self.assertEqual(got.name, code, text)
        for wanted in texts:
            self.assertIn(wanted, text)

    def check_serves(self, client):
        self.assertEqual(said(client.tell("echo x").result()), "echo x")


class TestWorker(DeathTest):
    def test_idle_worker(self):
        """Its successor serves, and it was counted."""
        shoald, client = self.start(puppet_node())
        worker, = shoald.workers("puppet")
        os.kill(worker.pid, signal.SIGKILL)
        successor = shoald.wait_successor(worker)
        answer = client.tell("echo x").result()
        self.assertEqual(said_pid(answer), successor.pid)
        self.assertEqual(shoald.stage_stat("puppet", "puppet")["restarts"], 1)
        self.assertFalse(is_alive(worker.pid))
        self.assertEqual(len(children(shoald.pid)), 2)

    def test_running_goes_to_the_other_worker(self):
        shoald, client = self.start(puppet_node(workers=2))
        future = self.hold(shoald, client, "a")
        (shoald.folder / "a.held").unlink()
        busy = next(worker for worker in shoald.workers("puppet")
                    if shoald.stage_stat("puppet", "puppet")["workers"][worker.index]["items"] == 1)
        os.kill(busy.pid, signal.SIGKILL)
        wait_until((shoald.folder / "a.held").exists, "the request to be run again")
        (shoald.folder / "a.go").touch()
        answer = future.result()
        self.assertEqual(said(answer), "hold a")
        self.assertNotEqual(said_pid(answer), busy.pid)
        self.assertEqual((shoald.folder / "runs").read_text().splitlines(), ["hold a"] * 2)
        self.assertEqual(shoald.wait_all_returned("puppet")["run_again"], 1)

    def test_running_goes_to_the_successor(self):
        """With one worker, what it ran and what waited is done by the next."""
        shoald, client = self.start(puppet_node())
        worker, = shoald.workers("puppet")
        running = client.tell("crash-once a")
        waiting = [client.tell(f"echo {i}") for i in range(10)]
        self.assertNotEqual(said_pid(running.result()), worker.pid)
        self.assertEqual([said(future.result()) for future in waiting],
                         [f"echo {i}" for i in range(10)])
        self.assertEqual(shoald.wait_all_returned("puppet")["run_again"], 1)

    def test_whole_batch_is_run_again(self):
        shoald, client = self.start(puppet_node(batch_size=8))
        first = self.hold(shoald, client, "a")
        futures = [client.tell(f"crash-once x{i}" if i == 5 else f"echo {i}") for i in range(8)]
        shoald.wait_stat("puppet", lambda stat: stat["stages"][0]["depth"] == 8, "8 to wait")
        (shoald.folder / "a.go").touch()
        first.result()
        for i, future in enumerate(futures):
            self.assertEqual(said(future.result()), "crash-once x5" if i == 5 else f"echo {i}")
        self.assertEqual(shoald.wait_all_returned("puppet")["run_again"], 8)

    def test_poison(self):
        """A request of which workers die is failed, not tried forever; the others are served."""
        shoald, client = self.start(puppet_node(workers=2, attempts_max=2))
        self.check_fails(client.tell("crash now"), "UNAVAILABLE", "2 workers died",
                         'stage "puppet"', "libpuppet.so")
        self.check_serves(client)
        runs = (shoald.folder / "runs").read_text().splitlines()
        self.assertEqual(runs.count("crash now"), 2, "attempts_max is 2")
        stat = shoald.wait_all_returned("puppet")
        self.assertEqual((stat["poison"], stat["run_again"]), (1, 1))

    def test_poison_in_a_batch_takes_nobody_with_it(self):
        """Requests of a batch of which a worker died run alone after that: seven of eight succeed,
        and the second death is charged to the culprit alone."""
        shoald, client = self.start(puppet_node(batch_size=8))
        first = self.hold(shoald, client, "a")
        futures = [client.tell("crash now" if i == 3 else f"echo {i}") for i in range(8)]
        shoald.wait_stat("puppet", lambda stat: stat["stages"][0]["depth"] == 8, "8 to wait")
        (shoald.folder / "a.go").touch()
        first.result()
        for i, future in enumerate(futures):
            if i == 3:
                self.check_fails(future, "UNAVAILABLE", "2 workers died", "libpuppet.so")
            else:
                self.assertEqual(said(future.result()), f"echo {i}")
        stat = shoald.wait_all_returned("puppet")
        self.assertEqual((stat["poison"], stat["run_again"]), (1, 8))
        only = stat["stages"][0]
        self.assertEqual((only["restarts"], only["reclaim"]["count"]), (2, 2))
        self.assertEqual(only["closed_full"], 1, "the batch of eight")
        self.check_serves(client)

    def test_alone_in_every_stage_after_a_death(self):
        """A request that a worker died of in one stage is company for nobody in the next."""
        config = node(pipeline("puppet", stage("libpuppet.so", "one", params={"folder": "."}),
                               stage("libpuppet.so", "two", batch_size=8, batch_wait="fixed", batch_wait_ms=60000,
                                     params={"folder": "."}), slots=32), message_mib=1)
        shoald, client = self.start(config)
        waiting = client.tell("echo x")
        shoald.wait_log("worker_ready .*stage=two")
        shoald.wait_stat("puppet", lambda stat: stat["stages"][1]["items"] == 1, "the batch to open")
        # It makes the open batch close, and does not wait for company itself.
        marked = client.tell("crash-once b")
        self.assertEqual(said(marked.result()), "crash-once b")
        self.assertEqual(said(waiting.result()), "echo x")
        two = shoald.wait_all_returned("puppet")["stages"][1]
        self.assertEqual((two["batches"], two["closed_single"], two["closed_full"]), (2, 1, 1))

    def test_one_attempt(self):
        shoald, client = self.start(puppet_node(attempts_max=1))
        self.check_fails(client.tell("crash-once a"), "UNAVAILABLE", "1 worker died")
        self.check_serves(client)
        self.assertEqual(shoald.wait_all_returned("puppet")["run_again"], 0)

    def test_changed_inputs_are_not_run_again(self):
        shoald, client = self.start(puppet_node(modelet="libpuppet_once.so"))
        self.check_fails(client.tell("crash-once a"), "UNAVAILABLE", "changes its inputs")
        self.assertEqual((shoald.folder / "runs").read_text().splitlines(), ["crash-once a"])
        stat = shoald.wait_all_returned("puppet")
        self.assertEqual((stat["poison"], stat["run_again"]), (0, 0))

    def test_crash_loop(self):
        """While every worker of a stage dies, requests fail fast; when they stop dying, it
        serves."""
        config = node(pipeline("puppet", stage("libecho.so", "before"),
                               stage("libpuppet.so", workers=2, quarantine_deaths=0,
                                     params={"folder": ".", "open": "when-broken"}), slots=32),
                      message_mib=1)
        shoald, client = self.start(config)
        self.check_serves(client)
        (shoald.folder / "broken").touch()
        self.check_fails(client.tell("echo y"), "UNAVAILABLE")
        shoald.wait_stat("puppet", lambda stat: stat["stages"][1]["workers_live"] == 0,
                         "the stage to have no worker")

        def refused_without_a_worker():
            code, text = failure(client.tell("echo z"))
            self.assertEqual(code.name, "UNAVAILABLE", text)
            return "no worker: the last one was killed by signal 6 (Aborted)" in text
        wait_until(refused_without_a_worker, "a text that says that there is no worker")
        self.assertFalse(client.call("ModelReady", name="puppet").ready)
        before = shoald.wait_stat("puppet", lambda stat: stat["stages"][1]["restarts"] > 3,
                                  "more than the first few deaths")["stages"][1]["restarts"]
        (shoald.folder / "broken").unlink()
        wait_until(lambda: client.call("ModelReady", name="puppet").ready,
                   lambda: f"recovery; the log:\n{shoald.stderr}")
        self.check_serves(client)
        self.assertLess(before, 200, "there is no back-off")

    def test_stopped_worker(self):
        """A worker that does not run for a while delays what it has, and loses nothing."""
        shoald, client = self.start(puppet_node(workers=2))
        future = self.hold(shoald, client, "a")
        workers = shoald.workers("puppet")
        for worker in workers:
            os.kill(worker.pid, signal.SIGSTOP)
        (shoald.folder / "a.go").touch()
        waiting = [client.tell(f"echo {i}") for i in range(20)]
        self.assertEqual(client.infer_raw("echo", ("x", "INT8", [1], b"a")).raw_output_contents[0],
                         b"a", "the other pipeline")
        self.assertFalse(any(one.done() for one in [future, *waiting]))
        for worker in workers:
            os.kill(worker.pid, signal.SIGCONT)
        self.assertEqual(said(future.result()), "hold a")
        self.assertEqual([said(one.result()) for one in waiting], [f"echo {i}" for i in range(20)])
        self.assertEqual(shoald.workers("puppet"), workers, "nobody was to be replaced")
        shoald.wait_all_returned("puppet")

    def test_stopped_worker_does_not_hold_up_the_end(self):
        shoald, client = self.start(puppet_node(workers=2))
        self.check_serves(client)
        os.kill(shoald.workers("puppet")[0].pid, signal.SIGSTOP)
        self.assertEqual(shoald.terminate(), 0, shoald.stderr)
        shoald.check_nothing_left()

    def test_exit_by_itself(self):
        """A worker that simply ends (here: by SIGTERM from outside) is replaced too."""
        shoald, client = self.start(puppet_node())
        worker, = shoald.workers("puppet")
        os.kill(worker.pid, signal.SIGTERM)
        shoald.wait_successor(worker)
        self.check_serves(client)


class TestCoordinator(unittest.TestCase):
    def test_sigkill(self):
        """No worker outlives it, and the next start finds nothing in its way."""
        with tempfile.TemporaryDirectory(prefix="shoal-test.") as folder:
            for round_number in range(3):
                shoald = Shoald(puppet_node(workers=2), folder=folder).start().wait_ready()
                workers = children(shoald.pid)
                self.assertEqual(len(workers), 3, shoald.stderr)
                with Client(shoald.target) as client:
                    held = client.tell(f"hold r{round_number}")
                    wait_until((pathlib.Path(folder) / f"r{round_number}.held").exists,
                               "the request to be running")
                    self.assertEqual(shoald.kill(), -signal.SIGKILL)
                    code, text = failure(held)
                    self.assertEqual(code.name, "UNAVAILABLE", text)
                wait_until(lambda: not any(map(is_alive, workers)),
                           lambda: f"the death of {list(filter(is_alive, workers))}")
                self.assertTrue(shoald.socket.exists(), "SIGKILL leaves the socket's file")
                self.assertFalse(shoald.stat()["live"], "its counters can be read, and are a dead node's")
            with Shoald(puppet_node(), folder=folder) as shoald, Client(shoald.target) as client:
                self.assertEqual(said(client.tell("echo x").result()), "echo x")
                self.assertTrue(shoald.stat()["live"])


class TestUnderLoad(unittest.TestCase):
    """Workers of a three-stage pipeline die and stop at random under load."""

    def test_random_kills(self):
        draw = random.Random(draw_seed())
        config = node(pipeline("sum", stage("libscale.so", "a", workers=3, batch_size=8,
                                            params={"factor": 3}),
                               stage("libshift.so", "b", workers=2, params={"offset": 4}),
                               stage("libecho.so", "c", workers=2), slots=64), message_mib=1)
        with Shoald(config) as shoald:
            over = threading.Event()
            outcomes = [{} for _ in range(4)]
            threads = [threading.Thread(target=self.ask, args=(shoald, over, outcomes[i], i))
                       for i in range(4)]
            for thread in threads:
                thread.start()
            try:
                kills = self.kill_at_random(shoald, draw, outcomes)
            finally:
                over.set()
                for thread in threads:
                    thread.join()
            total = {}
            for outcome in outcomes:
                for key, count in outcome.items():
                    total[key] = total.get(key, 0) + count
            print(f"kills={kills} outcomes={total}", flush=True)
            self.assertEqual(set(total) - {"OK", "UNAVAILABLE"}, set(),
                             f"{total}\n{shoald.stderr}")
            self.assertGreater(total["OK"], 10 * kills, "hardly anything got through")
            stat = shoald.wait_all_returned("sum")
            self.assertEqual(stat["requests"], sum(total.values()))
            self.assertEqual(stat["replies_ok"], total["OK"])
            self.assertEqual(stat["region_resets"], 0, shoald.stderr)
            self.assertEqual([one["quarantines"] for one in stat["stages"]], [0, 0, 0],
                             "every worker has finished something: nobody is to be quarantined")
            for one in stat["stages"]:
                print(f"stage={one['name']} deaths={one['reclaim']['count']} "
                      f"reclaim_us p50={one['reclaim']['p50'] / 1000:.0f} "
                      f"recovery_us p50={one['recovery']['p50'] / 1000:.0f}", flush=True)
            self.assertGreater(sum(one["restarts"] for one in stat["stages"]), kills / 2)
            wait_until(lambda: all(one["workers_live"] == one["workers_wanted"]
                                   for one in shoald.pipeline_stat("sum")["stages"]),
                       "all workers to be back")

    def ask(self, shoald, over, outcome, number):
        """Keeps eight requests outstanding, and counts how they end."""
        draw = random.Random(number)
        with Client(shoald.target) as client:
            while not over.is_set():
                asked = []
                for _ in range(8):
                    values = [draw.randrange(-10**6, 10**6) for _ in range(draw.randrange(1, 40))]
                    data = struct.pack(f"<{len(values)}q", *values)
                    asked.append((values, client.start_raw(
                        "sum", ("x", "INT64", [len(values)], data))))
                for values, future in asked:
                    end = future.code().name
                    if end == "OK":
                        got = struct.unpack(f"<{len(values)}q",
                                            future.result().raw_output_contents[0])
                        if list(got) != [value * 3 + 4 for value in values]:
                            end = "WRONG ANSWER"
                    outcome[end] = outcome.get(end, 0) + 1

    def kill_at_random(self, shoald, draw, outcomes):
        """SIGKILL to one worker after the other, some while another is stopped, with a few answers
        in between. A stage is rarely left without any worker: then its requests are only
        refused."""
        kills = 0
        until = time.monotonic() + LOAD_SECONDS
        while kills < KILLS_MIN or time.monotonic() < until:
            mark = sum(outcome.get("OK", 0) for outcome in outcomes) + draw.randrange(200)
            wait_until(lambda: sum(outcome.get("OK", 0) for outcome in outcomes) >= mark,
                       "answers after a kill")
            alive = [worker for worker in shoald.workers() if is_alive(worker.pid)]
            victim = draw.choice(alive)
            others = [worker for worker in alive if worker != victim]
            if victim.stage not in [worker.stage for worker in others] and draw.random() < 0.9:
                continue
            stopped = draw.choice(others) if draw.random() < 0.3 else None
            self.send(stopped, signal.SIGSTOP)
            self.send(victim, signal.SIGKILL)
            kills += 1
            shoald.wait_log(rf"worker_died .* pid={victim.pid} ")
            self.send(stopped, signal.SIGCONT)
        return kills

    def send(self, worker, number):
        if worker is not None:
            try:
                os.kill(worker.pid, number)
            except ProcessLookupError:
                pass  # its own back-off or an earlier kill was faster


if __name__ == "__main__":
    shoal_fixture.main()
