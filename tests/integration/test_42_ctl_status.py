# SPDX-License-Identifier: Apache-2.0
"""shoalctl status distinguishes a node that is ready from one that starts, drains, is dead or is not there.

A real node is looked at by its counters file and over gRPC, while it starts (its modelet hangs until
told), while it serves, while it drains, and after SIGKILL. ctest: timeout=180
"""

import datetime
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

import shoal_fixture
from shoal_ctl import LATE, NEGATIVE, OK, UNREACHABLE, environment, shoalctl
from shoal_fixture import (BIN, MODELETS, WAIT_SECONDS, Shoald, is_alive, node, pipeline, stage,
                           wait_until)

ECHO = node(pipeline("echo", stage("libecho.so", name="first", workers=2),
                     stage("libecho.so", name="second"), slots=16),
            pipeline("other", stage("libecho.so"), slots=16))


class TestReady(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shoald = cls.enterClassContext(Shoald(ECHO))

    def test_by_the_file(self):
        done = shoalctl("status", "--counters", self.shoald.counters, "--wait-ready", 60, "--json")
        self.assertTrue(done.json["ready"])
        self.assertEqual(done.json["node"]["pid"], self.shoald.pid)
        self.assertEqual(done.json["node"]["state"], "ready")
        self.assertLess(abs(done.json["node"]["started_unix_ns"] - time.time_ns()), 600e9)
        self.assertNotIn("target", done.json)
        self.assertEqual(done.json["models"], [{"name": "echo", "ready": True},
                                               {"name": "other", "ready": True}])
        workers = {(one["pipeline"], one["stage"], int(one["worker"])): one
                   for one in done.json["workers"]}
        self.assertEqual({seat: one["pid"] for seat, one in workers.items()},
                         {(one.pipeline, one.stage, one.index): one.pid
                          for one in self.shoald.workers()})
        for one in workers.values():
            self.assertEqual((one["state"], one["stage_restarts"]), ("up", 0))
            self.assertLess(one["heartbeat_age_ns"], 60e9)

    def test_by_the_file_for_people(self):
        done = shoalctl("status", "--counters", self.shoald.counters, "--wait-ready", 60)
        self.assertRegex(done.out, rf"(?m)^node   ready, pid {self.shoald.pid}, up .*heartbeat ")
        self.assertRegex(done.out, r"(?m)^model  echo  ready$")
        for worker in self.shoald.workers():
            self.assertRegex(done.out, rf"(?m)^  {worker.pipeline} +{worker.stage} +{worker.index}"
                                       rf" +up +{worker.pid} ")

    def test_over_grpc(self):
        done = shoalctl("status", "echo", "--target", self.shoald.target, "--counters",
                        self.shoald.counters, "--wait-ready", 60, "--json")
        target = done.json["target"]
        self.assertEqual((target["live"], target["ready"], target["name"]), (True, True, "shoal"))
        own = subprocess.run([BIN / "shoald", "--version"], capture_output=True, text=True, check=True)
        self.assertEqual(f"shoald {target['version']}\n", own.stdout)
        self.assertEqual(done.json["models"], [{"name": "echo", "ready": True}])
        done = shoalctl("status", "echo", env=environment(SHOAL_TARGET=self.shoald.target))
        self.assertRegex(done.out, r'(?m)^target unix:\S+  live, ready, server "shoal" version "\d')

    def test_a_model_that_is_not_there(self):
        done = shoalctl("status", "nobody", "--target", self.shoald.target, "--json", code=NEGATIVE)
        self.assertIn("NOT_FOUND", done.json["models"][0]["why"])
        done = shoalctl("status", "nobody", "--counters", self.shoald.counters, code=NEGATIVE)
        self.assertIn("model  nobody  not configured", done.out)

    def test_a_node_that_does_not_answer(self):
        self.shoald.signal(signal.SIGSTOP)
        try:
            done = shoalctl("status", "--target", self.shoald.target, "--timeout-ms", 300,
                            "--json", "--counters", self.shoald.counters, code=UNREACHABLE)
            self.assertFalse(done.json["target"]["live"])
            self.assertTrue(done.json["node"]["live"])  # it holds its lock all the same
        finally:
            self.shoald.signal(signal.SIGCONT)
        shoalctl("status", "--target", self.shoald.target, "--wait-ready", 60)


class TestLife(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.puppet = stage(MODELETS / "libpuppet.so", params={"folder": str(self.folder)})

    def test_wait_ready_is_there_before_the_node(self):
        shoald = Shoald(ECHO)
        self.addCleanup(shoald.discard)
        counters = shoald.counters
        done = shoalctl("status", "--counters", counters, "--wait-ready", 0.1, code=LATE)
        self.assertIn("not ready after 0.1 s", done.err)
        waiting = subprocess.Popen(
            [BIN / "shoalctl", "status", "--counters", counters, "--target", shoald.target,
             "--wait-ready", "60", "--json"], stdout=subprocess.PIPE, env=environment())
        with shoald:
            out, _ = waiting.communicate(timeout=shoal_fixture.WAIT_SECONDS)
            self.assertEqual(waiting.returncode, OK, out)
            self.assertIn(b'"ready": true', out)

    def test_starting_draining_and_a_worker_that_died(self):
        hang = stage(MODELETS / "libpuppet.so", name="hang",
                     params={"folder": str(self.folder), "open": "hang"})
        shoald = Shoald(node(pipeline("slow", hang, slots=4)))
        self.addCleanup(shoald.discard)
        shoald.start()
        wait_until(shoald.counters.exists, "the counters file")
        done = shoalctl("status", "--counters", shoald.counters, "--json", code=NEGATIVE)
        self.assertEqual(done.json["node"]["state"], "starting")
        self.assertEqual(done.json["models"][0]["ready"], False)
        wait_until(shoald.socket.exists, "the socket")
        done = shoalctl("status", "slow", "--target", shoald.target, "--json", code=NEGATIVE)
        self.assertEqual((done.json["target"]["live"], done.json["target"]["ready"]), (True, False))
        self.assertEqual(done.json["models"][0]["ready"], False)
        done = shoalctl("status", "--target", shoald.target, code=NEGATIVE)
        self.assertIn("live, not ready", done.out)
        shoald.kill()
        with Shoald(node(pipeline("puppet", self.puppet, slots=4))) as shoald:
            old, = shoald.workers()
            busy = subprocess.Popen(
                [BIN / "shoalctl", "infer", "puppet", "--target", shoald.target, "--input",
                 "say=BYTES[1]:crash-once a"], stdout=subprocess.DEVNULL, env=environment())
            new = shoald.wait_successor(old)
            busy.wait(shoal_fixture.WAIT_SECONDS)
            self.assertEqual(busy.returncode, OK)
            worker, = shoalctl("status", "--counters", shoald.counters, "--wait-ready", 60,
                               "--json").json["workers"]
            self.assertEqual((worker["pid"], worker["stage_restarts"]), (new.pid, 1))
            busy = subprocess.Popen(
                [BIN / "shoalctl", "infer", "puppet", "--target", shoald.target, "--input",
                 "say=BYTES[1]:hold b"], stdout=subprocess.DEVNULL, env=environment())
            wait_until((self.folder / "b.held").exists, "the puppet to hold the request")
            shoald.signal(signal.SIGTERM)
            shoald.wait_log(r"\bdraining\b")
            done = shoalctl("status", "--counters", shoald.counters, "--json", code=NEGATIVE)
            self.assertEqual(done.json["node"]["state"], "draining")
            (self.folder / "b.go").touch()
            busy.wait(shoal_fixture.WAIT_SECONDS)
            self.assertEqual(busy.returncode, OK)
            self.assertEqual(shoald.wait_exit(), 0)
            shoalctl("status", "--counters", shoald.counters, code=UNREACHABLE)

    def test_dead(self):
        shoald = Shoald(ECHO)
        self.addCleanup(shoald.discard)
        shoald.start().wait_ready()
        workers = shoald.workers()
        killed_ns = time.time_ns()
        shoald.kill()
        wait_until(lambda: not any(is_alive(one.pid) for one in workers), "the workers' end")
        done = shoalctl("status", "--counters", shoald.counters, "--json", code=NEGATIVE)
        self.assertEqual((done.json["ready"], done.json["node"]["live"]), (False, False))
        self.assertLess(abs(done.json["node"]["dead_since_unix_ns"] - killed_ns), 30e9)
        self.assertEqual({one["state"] for one in done.json["workers"]}, {"gone"})
        self.assertEqual([one["why"] for one in done.json["models"]], ["the node is dead"] * 2)
        done = shoalctl("status", "--counters", shoald.counters, code=NEGATIVE)
        today = datetime.date.fromtimestamp(killed_ns / 1e9).isoformat()[:4]
        self.assertRegex(done.out, rf"(?m)^node   dead, was ready with pid {shoald.pid}, since "
                                   rf"{today}-\d\d-\d\d \d\d:\d\d:\d\d \(.* ago\)$")


NOBODY = 65534
IN_A_MOUNT_NAMESPACE = ["unshare", "--mount", "--propagation", "private"]


def may_mount():
    return subprocess.run([*IN_A_MOUNT_NAMESPACE, "mount", "-t", "tmpfs", "none", "/run"],
                          stderr=subprocess.DEVNULL, check=False).returncode == 0


class Service(Shoald):
    """A node as the service unit runs it: by a user of its own, below /run/shoal, which is private to
    the node and those that look at it."""

    def __init__(self, config):
        super().__init__(config, counters=False)
        for path in (self.folder, *self.folder.iterdir()):
            os.chown(path, NOBODY, NOBODY)
        self.command = [*IN_A_MOUNT_NAMESPACE, "sh", "-ec",
                        "mount -t tmpfs none /run; install -d -o $0 -g $0 -m 0755 /run/shoal; "
                        'exec setpriv --reuid $0 --regid $0 --clear-groups "$@"', str(NOBODY), *self.command]

    def shoalctl(self, *arguments, user=0, code=OK):
        """As that user, with no word of where the node is."""
        command = ["nsenter", "--mount", "--target", str(self.pid), "setpriv", "--reuid", str(user),
                   "--regid", str(user), "--clear-groups", BIN / "shoalctl", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS,
                              env=environment(), check=False)
        assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done


@unittest.skipUnless(os.geteuid() == 0 and may_mount(), "only root can be two users with a /run of their own")
class TestServiceUser(unittest.TestCase):
    """Without --counters: the node of the service is found, by its user, by root and by others."""

    def test_found_by_everybody(self):
        with Service({**ECHO, "counters": "/run/shoal/counters"}) as service:
            for user in (NOBODY, 0, 12345):
                with self.subTest(user=user):
                    done = service.shoalctl("status", "--json", user=user)
                    self.assertEqual(json.loads(done.stdout)["node"]["pid"], service.pid)
                    stat = json.loads(service.shoalctl("stat", "--json", user=user).stdout)
                    self.assertEqual([one["name"] for one in stat["pipelines"]], ["echo", "other"])
            service.shoalctl("reload", "--all")
            done = service.shoalctl("reload", "--all", user=12345, code=UNREACHABLE)
            self.assertIn("/run/shoal/counters", done.stderr)


if __name__ == "__main__":
    shoal_fixture.main()
