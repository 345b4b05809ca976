# SPDX-License-Identifier: Apache-2.0
"""A modelet that writes anything anywhere into its region harms its own pipeline and nobody else.

The modelet `scribble` (tests/modelets/scribble.h says in which ways) overwrites the region of its
pipeline while requests are under way in it and in another one: all of it, single words, other
requests' tickets; in `run`, in a thread that goes on afterwards, and in its constructor. shoald
must not crash, read out of bounds (the sanitizers watch), hang, or answer the wrong caller. Every
request carries a number of its own: an answer with the number of another request is a failure for
any write; where only tickets and hints are written, an answer with any other number is. Each
request of the hostile pipelines must get some answer, and after the region was built anew they must
serve again.

ctest: timeout=300 presets=dev

Longer: SHOAL_LOAD_SECONDS=600 python3 test_35_hostile_memory.py, or from another program:

    config = node(*hostile_pipelines(), pipeline("digits", ...))
    with Shoald(config, env=hostile_environment()) as shoald:
        report = attack(shoald, seed, seconds)     # blocks; a dict of numbers
        # report["crossed"] and report["unanswered"] must be 0
"""

import contextlib
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
from shoal_client import Client
from shoal_fixture import WAIT_SECONDS, Shoald, draw_seed, node, pipeline, stage, wait_until

ROUND_SECONDS = float(os.environ.get("SHOAL_LOAD_SECONDS", 8))
RECOVERY_SECONDS = 90
BURST = 16

(NOTHING, ANY_WORD, ALL, ZERO, PUNCH, HEADER, RINGS, OBJECTS, PAYLOADS, TICKETS, SEATS, TEXTS, STALE,
 COUNTERS, STAMPS) = range(15)
GO_ON = 64
NAMES = ("nothing any_word all zero punch header rings objects payloads tickets seats texts stale "
         "counters stamps").split()
# A pipeline for each kind of lie: what only tickets and hints are told must leave every number
# right.
WAYS = {"hostile-tickets": (TICKETS, TICKETS, STALE, RINGS, SEATS, TEXTS, HEADER,
                            STAMPS),
        "hostile-memory": (ANY_WORD, ALL, ZERO, PUNCH, OBJECTS, PAYLOADS, COUNTERS)}


def hostile_pipelines(**keys):
    """Without quarantine: what has been shut away harms nobody, and shows nothing. `keys`: of the
    stage that scribbles."""
    return [pipeline(name, stage("libecho.so", "before", quarantine_deaths=0),
                     stage("libscribble.so", workers=2, batch_size=4, quarantine_deaths=0, **keys),
                     stage("libecho.so", "after", quarantine_deaths=0),
                     slots=32, arena_mib=0) for name in WAYS]


def hostile_environment():
    """For sanitizers. A worker whose region is forged may crash, and dies of that as it would
    without them: shoald must not, which is seen without a report. TSan: tsan-hostile.supp says
    why."""
    supp = shoal_fixture.SOURCE / "cmake" / "sanitizers" / "tsan-hostile.supp"
    crash = "handle_segv=0:handle_sigbus=0"
    return {"ASAN_OPTIONS": f"{os.environ.get('ASAN_OPTIONS', '')}:{crash}",
            "TSAN_OPTIONS": f"{os.environ.get('TSAN_OPTIONS', '')}:{crash}:suppressions={supp}"}


class Attacker(threading.Thread):
    """Requests that scribble, and others between them; all must come back somehow. Each way is
    tried at least once, however long that takes."""

    def __init__(self, shoald, name, seed, seconds):
        super().__init__()
        self.shoald = shoald
        self.pipeline = name
        self.draw = random.Random(f"{seed} {name}")
        self.until = time.monotonic() + seconds
        self.issued = set()
        self.outcome = {}
        self.ways = {}
        self.crossed = []
        self.changed = 0
        self.unanswered = 0
        self.failure = None

    def run(self):
        try:
            ways = []
            with Client(self.shoald.target) as client:
                while len(self.ways) < len(set(WAYS[self.pipeline])) or time.monotonic() < self.until:
                    if not ways:
                        ways = list(WAYS[self.pipeline])
                        self.draw.shuffle(ways)
                    self.attack(client, ways.pop())
        except Exception as error:  # shown by the process that joins
            self.failure = error

    def attack(self, client, way):
        """Bursts in one way, until it has shown or has had its time. A write rarely shows at once,
        so there are many small attacks rather than few large ones."""
        self.ways[NAMES[way]] = self.ways.get(NAMES[way], 0) + 1
        until = time.monotonic() + 1
        while time.monotonic() < until:
            if not self.burst(client, way):
                self.wait_serving(client)
                return

    def burst(self, client, way):
        """False: the pipeline is being rebuilt."""
        began = time.monotonic()
        calls = []
        for _ in range(BURST):
            amount = self.draw.choice((0, 0, 1, 3, 10, 100))
            flags = GO_ON if amount and self.draw.random() < 0.05 else 0
            nonce = self.draw.randrange(1 << 62)
            self.issued.add(nonce)
            words = (nonce, way | flags, self.draw.randrange(1 << 62), amount)
            tensor = ("scribble", "INT64", [4], struct.pack("<4q", *words))
            calls.append((words, client.start_raw(self.pipeline, tensor)))
        for words, future in calls:
            end = future.code().name
            self.outcome[end] = self.outcome.get(end, 0) + 1
            if end == "OK":
                self.judge(words, future.result().raw_output_contents)
            # A deadline in scribbled memory may have passed: no answer is what takes all our time.
            elif end == "DEADLINE_EXCEEDED" and time.monotonic() - began >= WAIT_SECONDS:
                self.unanswered += 1
        return calls[-1][1].code().name != "UNAVAILABLE"

    def judge(self, words, contents):
        if list(contents) == [struct.pack("<4q", *words)]:
            return
        self.changed += 1
        got = struct.unpack_from("<q", contents[0])[0] if contents and len(contents[0]) >= 8 else None
        if got in self.issued and got != words[0]:
            self.crossed.append((words, got))

    def wait_serving(self, client):
        wait_until(lambda: client.call("ModelReady", name=self.pipeline).ready,
                   lambda: f"recovery; the log:\n{self.shoald.stderr}", RECOVERY_SECONDS)


def attack(shoald, seed, seconds):
    """Scribbles in every way for so long, in the pipelines of hostile_pipelines(); returns what
    came of it."""
    attackers = [Attacker(shoald, name, seed, seconds) for name in WAYS]
    for attacker in attackers:
        attacker.start()
    for attacker in attackers:
        attacker.join()
        if attacker.failure is not None:
            raise attacker.failure
    report = {"unanswered": sum(one.unanswered for one in attackers),
              "crossed": sum(len(one.crossed) for one in attackers),
              "changed_by_tickets": sum(one.changed for one in attackers
                                        if one.pipeline == "hostile-tickets"),
              "requests": sum(sum(one.outcome.values()) for one in attackers)}
    for one in attackers:
        report[one.pipeline] = {"outcome": one.outcome, "ways": one.ways, "changed": one.changed,
                                "crossed": one.crossed[:5],
                                "resets": shoald.pipeline_stat(one.pipeline)["region_resets"]}
    return report


class Friend(threading.Thread):
    """Traffic in the pipeline that nobody harms: every answer must be there and right."""

    def __init__(self, shoald, number):
        super().__init__()
        self.shoald = shoald
        self.draw = random.Random(number)
        self.over = threading.Event()
        self.right = 0
        self.wrong = []

    def run(self):
        with Client(self.shoald.target) as client:
            while not self.over.is_set():
                asked = [self.draw.randbytes(self.draw.randrange(1, 300)) for _ in range(8)]
                futures = [client.start_raw("friend", ("x", "UINT8", [len(data)], data))
                           for data in asked]
                for data, future in zip(asked, futures):
                    if future.code().name == "OK" and future.result().raw_output_contents[0] == data:
                        self.right += 1
                    else:
                        self.wrong.append((future.code().name, future.details()))


class Friends:
    """Some of them, for as long as the block lasts; then all must have been served, and right."""

    def __init__(self, shoald, seed):
        self.shoald = shoald
        self.friends = [Friend(shoald, seed + i) for i in range(2)]

    def __enter__(self):
        for friend in self.friends:
            friend.start()

    def __exit__(self, kind, *_):
        for friend in self.friends:
            friend.over.set()
        for friend in self.friends:
            friend.join()
        if kind is None:
            self.shoald.check_still_runs()
            for friend in self.friends:
                assert not friend.wrong, f"{friend.wrong[:5]}\n{self.shoald.stderr}"
                assert friend.right > 0
            print(f"friends={[friend.right for friend in self.friends]}", flush=True)
            self.shoald.wait_all_returned("friend")


FRIEND = pipeline("friend", stage("libecho.so", workers=2), slots=64)


class TestHostile(unittest.TestCase):
    def test_scribbling(self):
        seed = draw_seed()
        traced = {"traces": "file:spans.jsonl", "trace_sample": 1}
        with Shoald(node(*hostile_pipelines(), FRIEND, message_mib=1, **traced),
                    env=hostile_environment()) as shoald:
            with Friends(shoald, seed):
                report = attack(shoald, seed, ROUND_SECONDS)
            print(f"report={report}", flush=True)
            self.assertEqual(report["crossed"], 0, f"{report}\n{shoald.stderr}")
            self.assertEqual(report["changed_by_tickets"], 0, f"{report}\n{shoald.stderr}")
            self.assertEqual(report["unanswered"], 0, f"{report}\n{shoald.stderr}")
            for name in WAYS:
                self.assertGreater(report[name]["resets"], 0, f"never dropped:\n{shoald.stderr}")
                self.end_writers(shoald, name)
                self.check_recovers(shoald, name)

    def end_writers(self, shoald, name):
        """Threads that go on writing spoil their own pipeline for as long as they live."""
        for worker in shoald.workers(name, "scribble"):
            with contextlib.suppress(ProcessLookupError):  # a reset was faster
                os.kill(worker.pid, signal.SIGKILL)

    def test_before_ready(self):
        """The constructor writes, while the others serve; what it destroyed is found, the header
        too, which nobody reads before the next worker starts."""
        seed = draw_seed()
        name = "hostile-memory"
        start = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "scribble-start"
        pipelines = hostile_pipelines(env={"SHOAL_SCRIBBLE_START": str(start)})
        with Shoald(node(*pipelines, FRIEND, message_mib=1), env=hostile_environment()) as shoald:
            with Friends(shoald, seed):
                for way in (HEADER, ALL, OBJECTS):
                    self.scribble_at_start(shoald, name, start, way)
                    self.check_recovers(shoald, name)

    def scribble_at_start(self, shoald, name, start, way):
        resets = shoald.pipeline_stat(name)["region_resets"]
        start.write_text(str(way))
        victim = shoald.workers(name, "scribble")[0]
        os.kill(victim.pid, signal.SIGKILL)
        shoald.wait_log(rf"worker_died pipeline={name} .* pid={victim.pid}\b")

        def noticed():
            return (shoald.pipeline_stat(name)["region_resets"] > resets
                    or any(other.index == victim.index and other.pid != victim.pid
                           for other in shoald.workers(name, "scribble")))
        wait_until(noticed, lambda: f"a successor, or a reset:\n{shoald.stderr}", RECOVERY_SECONDS)
        start.unlink()
        if shoald.pipeline_stat(name)["region_resets"] == resets:  # nobody has met what was written
            for worker in shoald.workers(name, "before"):
                with contextlib.suppress(ProcessLookupError):  # it has been met just now
                    os.kill(worker.pid, signal.SIGKILL)

    def check_recovers(self, shoald, name):
        """Scribbled memory may still wait to be found: so serving is what counts, in the end."""
        with Client(shoald.target) as client:
            def served(i):
                words = struct.pack("<4q", i, NOTHING, 0, 0)
                future = client.start_raw(name, ("scribble", "INT64", [4], words))
                return future.code().name == "OK" and future.result().raw_output_contents[0] == words
            wait_until(lambda: all(served(i) for i in range(50)),
                       lambda: f"50 right answers in a row; the log:\n{shoald.stderr}",
                       RECOVERY_SECONDS)


if __name__ == "__main__":
    shoal_fixture.main()
