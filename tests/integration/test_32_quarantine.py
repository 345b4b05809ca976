# SPDX-License-Identifier: Apache-2.0
"""A modelet whose workers keep dying is quarantined, and nothing else is.

The puppet dies of requests that tell it to, or of every one while a file is there. Beside it:
deaths that must not lead to quarantine, however many: of a poison among good requests, by kill -9
from outside, idle or in the middle of work.

ctest: timeout=240 presets=dev
"""

import os
import re
import signal
import unittest

import shoal_fixture
from shoal_client import Client, failure, said
from shoal_ctl import NEGATIVE, shoalctl
from shoal_fixture import Shoald, node, pipeline, stage, wait_until

DEATHS = 4
HEALTH = "grpc.health.v1.Health"
NOT_SERVING = 2


def puppet(**keys):
    keys = {"quarantine_deaths": DEATHS, "attempts_max": 1, **keys}
    params = {"folder": ".", **keys.pop("params", {})}
    return stage("libpuppet.so", params=params, **keys)


class QuarantineTest(unittest.TestCase):
    def start(self, *stages):
        config = node(pipeline("puppet", *stages, slots=32),
                      pipeline("echo", stage("libecho.so"), slots=32), message_mib=1)
        shoald = self.enterContext(Shoald(config))
        return shoald, self.enterContext(Client(shoald.target))

    def stat(self, shoald):
        return shoald.stage_stat("puppet", "puppet")

    def wait_ready(self, shoald, client):
        """Beyond the back-off after quick deaths."""
        wait_until(lambda: client.call("ModelReady", name="puppet").ready,
                   lambda: f"the next worker; the log:\n{shoald.stderr}")

    def check_serves(self, client):
        self.assertEqual(said(client.tell("echo x").result()), "echo x")

    def die(self, shoald, client, times=DEATHS):
        """So many deaths, one after the other, each of a request of its own."""
        for _ in range(times):
            self.wait_ready(shoald, client)
            died = len(re.findall("worker_died pipeline=puppet", shoald.stderr))
            code, text = failure(client.tell("crash now"))
            self.assertEqual(code.name, "UNAVAILABLE", text)
            self.assertIn("1 worker died", text)
            shoald.wait_log("worker_died pipeline=puppet", died + 1)

    def check_quarantined(self, shoald, client, deaths=DEATHS):
        shoald.wait_log(rf'stage_quarantined pipeline=puppet stage=puppet modelet=libpuppet.so '
                        rf'deaths={deaths} ')
        code, text = failure(client.tell("echo x"))
        self.assertEqual(code.name, "UNAVAILABLE", text)
        self.assertRegex(text, r'^pipeline "puppet": stage "puppet" is quarantined: modelet '
                         rf"libpuppet\.so died {deaths} times in a row, last: killed by signal 6 "
                         r"\(Aborted\); next try in \d+ s, or `shoalctl reload puppet`$")


class TestQuarantine(QuarantineTest):
    def test_a_modelet_that_keeps_dying(self):
        shoald, client = self.start(puppet())
        self.check_serves(client)
        self.die(shoald, client, DEATHS)  # the first was fruitful: it has answered x before
        self.assertNotIn("stage_quarantined", shoald.stderr)
        self.die(shoald, client, 1)
        self.check_quarantined(shoald, client)
        self.assertFalse(client.call("ModelReady", name="puppet").ready)
        self.assertEqual(client.call("Check", service=HEALTH).status, NOT_SERVING)
        self.assertTrue(client.call("ModelReady", name="echo").ready)
        self.assertEqual(client.infer_raw("echo", ("x", "INT8", [1], b"a")).raw_output_contents[0],
                         b"a", "the other pipeline")
        shoald.wait_stat("puppet", lambda stat: stat["stages"][0]["quarantined"] == 1,
                         "the quarantine to be shown")
        only = self.stat(shoald)
        self.assertEqual((only["quarantines"], only["workers_live"]), (1, 0))
        done = shoalctl("status", "--counters", shoald.counters, "--json", code=NEGATIVE)
        self.assertIn({"name": "puppet", "ready": False, "why": 'stage "puppet" is quarantined'},
                      done.json["models"])
        self.assertIn("quarantined", [one["state"] for one in done.json["workers"]])
        done = shoalctl("status", "--counters", shoald.counters, code=NEGATIVE)
        self.assertIn('model  puppet  stage "puppet" is quarantined', done.out)
        done = shoalctl("stat", "--counters", shoald.counters)
        self.assertIn("0/1 QUARANTINED", done.out)
        # nobody is started any more
        self.assertEqual(len(shoald.workers("puppet")), 1)
        self.assertEqual(only["restarts"], DEATHS + 1)

    def test_waiting_requests_fail_with_the_reason(self):
        """Requests that wait at the stage, and those that come there from the stage before."""
        shoald, client = self.start(stage("libpuppet.so", "before", params={"folder": "."},
                                          workers=2), puppet(params={"open": "when-broken"}))
        on_the_way = client.tell("hold a")
        wait_until((shoald.folder / "a.held").exists, "a request in the stage before")
        (shoald.folder / "broken").touch()
        os.kill(shoald.workers("puppet", "puppet")[0].pid, signal.SIGABRT)
        shoald.wait_log("stage_quarantined")
        (shoald.folder / "a.go").touch()
        code, text = failure(on_the_way)
        self.assertEqual(code.name, "UNAVAILABLE", text)
        self.assertIn("is quarantined", text)

    def test_it_ends_with_a_trial(self):
        """After its time one worker is tried; its death leads back, its life restores the stage."""
        shoald, client = self.start(puppet(workers=2, quarantine_ms=400,
                                           params={"open": "when-broken"}))
        (shoald.folder / "broken").touch()
        for worker in shoald.workers("puppet"):
            os.kill(worker.pid, signal.SIGABRT)
        shoald.wait_log("stage_quarantined", 3)
        log = shoald.stderr
        quarantines = [match.start() for match in re.finditer("stage_quarantined", log)]
        tried = log[quarantines[1]:quarantines[2]]
        self.assertEqual((tried.count("stage_tried"), tried.count("worker_died")), (1, 1),
                         "one single worker is tried")
        (shoald.folder / "broken").unlink()
        wait_until(lambda: client.call("ModelReady", name="puppet").ready,
                   lambda: f"recovery; the log:\n{shoald.stderr}")
        self.check_serves(client)
        shoald.wait_log("stage_restored pipeline=puppet stage=puppet")
        stat = shoald.wait_stat("puppet", lambda stat: stat["stages"][0]["workers_live"] == 2,
                                "both workers")
        only = stat["stages"][0]
        self.assertEqual(only["quarantined"], 0)
        self.assertEqual(only["quarantines"], shoald.stderr.count("stage_quarantined"))
        self.die(shoald, client, DEATHS)  # and it has forgotten: the first one of these is fruitful
        self.wait_ready(shoald, client)
        self.check_serves(client)

    def test_a_reload_starts_clean(self):
        shoald, client = self.start(puppet())
        self.die(shoald, client)
        self.check_quarantined(shoald, client)
        shoalctl("reload", "puppet", "--counters", shoald.counters)
        self.check_serves(client)
        self.assertTrue(client.call("ModelReady", name="puppet").ready)
        shoald.wait_stat("puppet", lambda stat: stat["stages"][0]["quarantined"] == 0,
                         "the quarantine to be gone")


class TestNoQuarantine(QuarantineTest):
    def tearDown(self):
        self.assertNotIn("stage_quarantined", self.shoald.stderr)

    def start(self, *stages):
        self.shoald, client = super().start(*stages)
        return self.shoald, client

    def test_poison_among_good_requests(self):
        shoald, client = self.start(puppet())
        for _ in range(DEATHS + 2):
            self.wait_ready(shoald, client)
            self.check_serves(client)
            self.die(shoald, client, 1)

    def test_never_when_it_is_off(self):
        shoald, client = self.start(puppet(quarantine_deaths=0))
        self.die(shoald, client, DEATHS + 2)
        self.wait_ready(shoald, client)
        self.check_serves(client)

    def test_idle_workers_killed_from_outside(self):
        shoald, client = self.start(puppet())
        for number in [signal.SIGKILL, signal.SIGTERM] * DEATHS:
            worker, = shoald.workers("puppet")
            os.kill(worker.pid, number)
            shoald.wait_successor(worker)
        self.check_serves(client)

    def test_busy_workers_killed_from_outside(self):
        """All at once, each with a request in hand, again and again: in the life of each the stage
        has finished something."""
        shoald, client = self.start(puppet(workers=3))
        for turn in range(3):
            self.wait_ready(shoald, client)
            self.check_serves(client)
            workers = shoald.workers("puppet")
            held = [client.tell(f"hold {turn}.{i}") for i in range(len(workers))]
            for i in range(len(workers)):
                wait_until((shoald.folder / f"{turn}.{i}.held").exists, "all to be busy")
            for worker in workers:
                os.kill(worker.pid, signal.SIGKILL)
            for future in held:
                self.assertEqual(failure(future)[0].name, "UNAVAILABLE")
            for worker in workers:
                shoald.wait_successor(worker)
        self.check_serves(client)

    def test_a_slow_stage_behind(self):
        """No answer comes back meanwhile: what stands beyond the stage counts as finished."""
        shoald, client = self.start(puppet(), stage("libpuppet.so", "behind", workers=1,
                                                    params={"folder": "."}))
        blocked = client.tell("hold b")
        wait_until((shoald.folder / "b.held").exists, "the first stage")
        (shoald.folder / "b.go").touch()
        blocked.result()
        waiting = []
        os.kill(shoald.workers("puppet", "behind")[0].pid, signal.SIGSTOP)
        for i in range(DEATHS + 2):
            self.wait_ready(shoald, client)
            waiting.append(client.tell(f"echo {i}"))
            shoald.wait_stat("puppet", lambda stat: stat["stages"][0]["items_ok"] >= i + 2,
                             "the request to be passed on")
            self.die(shoald, client, 1)
        os.kill(shoald.workers("puppet", "behind")[0].pid, signal.SIGCONT)
        self.assertEqual([said(one.result()) for one in waiting],
                         [f"echo {i}" for i in range(DEATHS + 2)])


if __name__ == "__main__":
    shoal_fixture.main()
