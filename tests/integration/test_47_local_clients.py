# SPDX-License-Identifier: Apache-2.0
"""Local clients of a real daemon, beside gRPC: figures, reloads, adaptive batches, old kernels.

The clients are threads of local_load.c. Under load from both sides a pipeline is reloaded over and
over: nobody's request fails, every answer is one that the old or the new generation gives, and
after the reload only the new one's. tests/unit/test_client*.c covers libshoal alone.
ctest: timeout=240 presets=dev
"""

import contextlib
import os
import subprocess
import unittest

import shoal_fixture
from shoal_client import Client
from shoal_ctl import shoalctl
from shoal_fixture import BIN, BUILD, WAIT_SECONDS, Shoald, node, pipeline, stage, wait_until
from shoal_metrics import Scrape, metrics_port
from test_75_reload import Load

LOCAL_LOAD = BUILD / "tests" / "integration" / "local_load"
LACKING = BUILD / "tests" / "integration" / "lacking"
ENOSYS = 38
RELOADS = int(os.environ.get("SHOAL_RELOADS", "10"))


class Locals:
    """Clients at work until the block is left; then none of their requests may have failed."""

    def __init__(self, shoald, pipeline_name, clients=1, depth=1):
        self.factors = set()
        self.command = [LOCAL_LOAD, f"{shoald.counters}.local", pipeline_name, str(clients), str(depth)]

    def look(self):
        """How many were answered so far; notes the factors."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answered, wrong, least, most = map(int, self.process.stdout.readline().split())
        assert wrong == 0, f"{wrong} requests failed"
        self.factors |= {least, most} - {0}
        return answered

    def wait_more(self, count=100):
        wanted = self.look() + count
        wait_until(lambda: self.look() >= wanted, f"{count} more answers")

    def taken(self):
        """The factors seen since this was asked last."""
        seen, self.factors = self.factors, set()
        return seen

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        return self

    def __exit__(self, kind, *_):
        try:
            _, text = self.process.communicate(timeout=WAIT_SECONDS)
            assert kind is not None or self.process.returncode == 0, text
        finally:
            self.process.kill()


def times(factor, workers=1, name="times", **keys):
    return pipeline("times", stage("libscale.so", name, workers=workers, params={"factor": factor}),
                    local_clients=8, local_mib=1, **keys)


class Case(unittest.TestCase):
    def start(self, *pipelines, launcher=(), **keys):
        shoald = Shoald(node(*pipelines, **keys))
        shoald.command[:0] = [str(word) for word in launcher]
        self.shoald = self.enterContext(shoald)

    def reload(self, *pipelines):
        self.shoald.write_config(node(*pipelines))
        shoalctl("reload", "--counters", self.shoald.counters, "times", code=0)

    def wait_stat(self, wanted):
        return self.shoald.wait_stat(
            "times", lambda stat: all(stat[key] == value for key, value in wanted.items()), str(wanted))


class TestLocalClients(Case):
    def test_example(self):
        self.start(pipeline("echo", stage("libecho.so"), local_clients=1, local_mib=1))
        done = subprocess.run([BIN / "shoal-local-client", "1", "2.5"],
                              env={**os.environ, "SHOAL_LOCAL": f"{self.shoald.counters}.local"},
                              capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "1\n2.5\n", ""))

    def test_figures(self):
        self.start(times(2), metrics="127.0.0.1:0")
        with Locals(self.shoald, "times", clients=2) as clients:
            clients.wait_more()
            self.wait_stat({"local_clients": 2, "local_welcomed": 2, "local_left": 0})
            with contextlib.ExitStack() as stack:  # all places are taken
                stack.enter_context(Locals(self.shoald, "times", clients=6)).wait_more()
                refused = subprocess.run([LOCAL_LOAD, f"{self.shoald.counters}.local", "times", "1", "1"],
                                         stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                         timeout=WAIT_SECONDS, check=False)
                self.assertIn('pipeline "times" has its 8 local clients', refused.stderr)
        self.wait_stat({"local_clients": 0, "local_welcomed": 8, "local_refused": 1, "local_left": 8,
                        "local_dropped_deaf": 0})
        answered = self.shoald.stage_stat("times", "times")["items_local"]
        self.assertGreaterEqual(answered, 200)
        scrape = Scrape(metrics_port(self.shoald))
        self.assertEqual(scrape.sum("shoal_pipeline_local_welcomed_total", pipeline="times"), 8)
        self.assertEqual(scrape.sum("shoal_worker_items_local_total", pipeline="times"), answered)

    def test_reloads_under_load(self):
        """Two clients that wait for each answer, two with eight in flight, and gRPC."""
        self.start(times(1))
        with Load(self.shoald.target, threads=1) as remote, contextlib.ExitStack() as stack:
            clients = [stack.enter_context(Locals(self.shoald, "times", depth=depth))
                       for depth in (1, 1, 8, 8)]
            for factor in range(2, 2 + RELOADS):
                remote.wait_more(20)
                self.reload(times(factor, 1 + factor % 3))
                self.shoald.wait_log(f"generation_ends pipeline=times generation={factor - 1} "
                                     "left_in_flight=0")
                for client in clients:
                    client.wait_more()  # those that were in flight among them
                    self.assertLessEqual(client.taken(), {factor - 1, factor})
                    client.wait_more()
                    self.assertEqual(client.taken(), {factor})
            self.assertEqual(self.shoald.pipeline_stat("times")["local_moved"], 4 * RELOADS)
        self.assertEqual(remote.failures, [])
        self.shoald.wait_all_returned("times")
        self.wait_stat({"local_clients": 0, "local_left": 4, "local_ended": 0})

    def test_tracing_is_for_others(self):
        """Requests of local clients are not traced; those of callers beside them are."""
        self.start(times(3), traces="file:spans.jsonl", trace_sample=1.0)
        with Locals(self.shoald, "times") as clients, Client(self.shoald.target) as client:
            clients.wait_more()
            client.infer_raw("times", ("x", "INT32", [1], bytes(4)))
            clients.wait_more()
        wait_until(lambda: self.shoald.stat()["spans_exported"] == 2, "the spans of one request")
        self.assertEqual(self.shoald.stat()["traces"], 1)

    def test_adaptive_batches(self):
        """Client regions' arrivals count as the lane's do. batch_wait_ms is a minute: nobody waits
        so long."""
        keys = {"batch_size": 8, "batch_wait_ms": 60000, "batch_wait": "adaptive",
                "params": {"fixed_us": 10000, "item_us": 0, "sigma": 0}}
        self.start(pipeline("lone", stage("libsluggish.so", "only", **keys), local_clients=1),
                   pipeline("crowd", stage("libsluggish.so", "only", **keys), local_clients=1))
        with Locals(self.shoald, "lone") as lone:
            lone.wait_more(20)
        stat = self.shoald.stage_stat("lone", "only")
        self.assertEqual(stat["closed_adaptive"], stat["batches"])
        self.assertEqual([worker["company_wait"] for worker in stat["workers"]], [0])
        last = {"batches": 0, "closed_full": 0}

        def all_full():
            """Of the batches since the last look that had some."""
            stat = self.shoald.stage_stat("crowd", "only")
            batches = stat["batches"] - last["batches"]
            full = stat["closed_full"] - last["closed_full"]
            if batches >= 20:
                last.update(stat)
            return batches >= 20 and batches == full
        with Locals(self.shoald, "crowd", depth=8):
            wait_until(all_full, lambda: f"full batches only: {self.shoald.stage_stat('crowd', 'only')}")

    def test_without_futex_waitv(self):
        """Workers look every millisecond then, and each says so once."""
        self.start(times(2, workers=2), launcher=[LACKING, "futex_waitv", ENOSYS])
        for _ in range(2):
            with Locals(self.shoald, "times") as clients:
                clients.wait_more()
            self.wait_stat({"local_clients": 0})
        polled = [line for line in self.shoald.lines if "local_clients_polled" in line]
        self.assertEqual(len(polled), 2, polled)
        self.assertIn("futex_waitv: Function not implemented", polled[0])


if __name__ == "__main__":
    shoal_fixture.main()
