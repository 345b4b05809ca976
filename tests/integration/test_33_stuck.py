# SPDX-License-Identifier: Apache-2.0
"""`shoalctl status` shows the oldest requests in flight: their age, stage and worker, of a live
node and of a dead one.

Requests are put where they are to be seen: run by a puppet, in an open batch, waiting behind a
stopped worker; then let go.

ctest: timeout=180
"""

import os
import signal
import unittest

import shoal_fixture
from shoal_client import Client, said
from shoal_ctl import NEGATIVE, OK, shoalctl
from shoal_fixture import Shoald, node, pipeline, stage, wait_until


class TestStuck(unittest.TestCase):
    def start(self, *stages):
        config = node(pipeline("puppet", *stages, slots=32), pipeline("echo", stage("libecho.so")),
                      message_mib=1)
        shoald = self.enterContext(Shoald(config))
        return shoald, self.enterContext(Client(shoald.target))

    def oldest(self, shoald, code=OK):
        return shoalctl("status", "--counters", shoald.counters, "--json", code=code).json["oldest"]

    def wait_oldest(self, shoald, where):
        """Waits until the requests are shown at these places, the oldest first; returns them."""
        seen = []

        def look():
            seen[:] = self.oldest(shoald)
            return [(one["where"], one.get("stage")) for one in seen] == where
        wait_until(look, lambda: f"{where}; there is {seen}")
        return seen

    def hold(self, shoald, client, name, timeout=60):
        future = client.tell(f"hold {name}", timeout=timeout)
        wait_until((shoald.folder / f"{name}.held").exists, "the request to be running")
        return future

    def test_where_they_are(self):
        shoald, client = self.start(
            stage("libpuppet.so", "one", workers=2, params={"folder": "."}),
            stage("libpuppet.so", "two", batch_size=8, batch_wait="fixed", batch_wait_ms=60000, params={"folder": "."}))
        self.assertEqual(self.oldest(shoald), [])
        in_batch = client.tell("echo x")
        self.wait_oldest(shoald, [("in a batch", "two")])
        running = [self.hold(shoald, client, "a"), self.hold(shoald, client, "b", timeout=3600)]
        waiting = [client.tell(f"echo {i}") for i in range(7)]
        shown = self.wait_oldest(shoald, [("in a batch", "two"), ("runs", "one"), ("runs", "one")] +
                                 [("waits", "one")] * 5)
        two, = shoald.workers("puppet", "two")
        self.assertEqual((shown[0]["worker"], shown[0]["pid"], shown[0]["deaths"]), (0, two.pid, 0))
        self.assertEqual({(one["worker"], one["pid"]) for one in shown[1:3]},
                         {(one.index, one.pid) for one in shoald.workers("puppet", "one")})
        self.assertNotIn("pid", shown[3])
        ages = [one["age_ns"] for one in shown]
        self.assertEqual(ages, sorted(ages, reverse=True))
        self.assertGreater(shown[2]["deadline_left_ns"], 3000e9)
        self.assertLess(shown[1]["deadline_left_ns"], 60.2e9, "gRPC rounds a minute up to a tenth of a second")
        text = shoalctl("status", "--counters", shoald.counters).out
        self.assertRegex(text, rf"(?m)^  puppet +in a batch +two +0 +{two.pid} +\S.* 0$")
        self.assertRegex(text, r"(?m)^  puppet +waits +one +- +- +\S.* 0$")
        stat = shoald.wait_stat("puppet", lambda stat: stat["slots_used"] >= 10, "ten in flight")
        self.assertEqual(stat["slots_used"], 10, "no more than there are")
        self.assertEqual([one["where"] for one in stat["oldest"]], [one["where"] for one in shown])
        # the eighth that comes to the second stage fills the batch; the rest waits for its time
        for name in "ab":
            (shoald.folder / f"{name}.go").touch()
        self.assertEqual(said(in_batch.result()), "echo x")
        self.wait_oldest(shoald, [("in a batch", "two")] * 2)
        os.kill(two.pid, signal.SIGTERM)  # runs what it has
        for future in running + waiting:
            future.result()
        shoald.wait_successor(two)
        shoald.wait_published()  # that there is a worker again
        self.wait_oldest(shoald, [])

    def test_deaths_are_shown(self):
        shoald, client = self.start(stage("libpuppet.so", params={"folder": "."}))
        future = self.hold(shoald, client, "a")
        (shoald.folder / "a.held").unlink()
        worker, = shoald.workers("puppet")
        os.kill(worker.pid, signal.SIGKILL)
        wait_until((shoald.folder / "a.held").exists, "the second run")
        successor = shoald.wait_successor(worker)
        shoald.wait_published()  # that there is a worker again
        wait_until(lambda: [(one["where"], one.get("pid"), one["deaths"]) for one in self.oldest(shoald)]
                   == [("runs", successor.pid, 1)], lambda: f"{self.oldest(shoald)}")
        (shoald.folder / "a.go").touch()
        self.assertEqual(said(future.result()), "hold a")

    def test_of_a_dead_node(self):
        shoald, client = self.start(stage("libpuppet.so", params={"folder": "."}))
        worker, = shoald.workers("puppet")
        future = self.hold(shoald, client, "a")
        self.wait_oldest(shoald, [("runs", "puppet")])
        shoald.kill()
        one, = self.oldest(shoald, code=NEGATIVE)
        self.assertEqual((one["pipeline"], one["where"], one["pid"]),
                         ("puppet", "runs", worker.pid))
        again, = self.oldest(shoald, code=NEGATIVE)
        self.assertEqual(one["age_ns"], again["age_ns"], "it grows no older in a dead node")
        self.assertEqual(future.code().name, "UNAVAILABLE")


if __name__ == "__main__":
    shoal_fixture.main()
