# SPDX-License-Identifier: Apache-2.0
"""The log says of what a worker crashed, where, and with which requests; the rest goes on as ever.

The modelet `crasher` crashes in functions of known names, in the whole sandbox. Each
frame in the log must be what addr2line finds there. With a sanitizer, which reports crashes itself, the
modelet would not get as far.

ctest: timeout=120 presets=release
"""

import json
import re
import subprocess
import unittest

import shoal_fixture
from shoal_client import Client, bytes_element, failure
from shoal_fixture import MODELETS, Json, Shoald, node, pipeline, stage

KEYS = {"quarantine_deaths": 0, "attempts_max": 1}
FRAME = re.compile(r'worker_frame pid=(\d+) frame=(\d+) at="(?:([^"]*)\+)?(0x[0-9a-f]+)"'
                   r'(?: in="(\w+)(?:\.\w+)*\+0x[0-9a-f]+")?')
# what is asked for -> the signal, the innermost function of the modelet, what else is said
WAYS = {
    "null": ("SIGSEGV", "crash_null", 'address=0x0 why="nothing is mapped there"'),
    "call": ("SIGSEGV", "crash_call", 'address=0x0 why="nothing is mapped there"'),
    "overflow": ("SIGSEGV", "crash_overflow", 'why="stack overflow"'),
    "abort": ("SIGABRT", "crash_abort", "sent_by="),
    "trap": ("SIGILL", "crash_trap", "address=0x"),
    "free": ("SIGSEGV", "crash", "address=0x"),  # crash_free ends with a jump
    "thread": ("SIGSEGV", "crash_null", "address=0x0"),
    "smash": ("SIGSEGV", "crash_smash", ""),
}


def ask(client, word, **fields):
    return client.start_raw("crasher", ("do", "BYTES", [1], bytes_element(word)), **fields)


class Report:
    """The log's report on the death of one process."""

    def __init__(self, shoald, number):
        died = shoald.wait_log(r'worker_died .* pid=(\d+) why="([^"]*)" held=\d+ requests="([^"]*)"',
                               number)
        pid, self.why, self.requests = died.groups()
        lines = [line for line in shoald.lines if f" pid={pid} " in line]
        self.head = next((line for line in lines if " worker_crashed " in line), "")
        self.batch = next((line for line in lines if " worker_crashed_batch " in line), "")
        self.frames = [match.groups()[1:] for match in map(FRAME.search, lines) if match]
        self.functions = [frame[3] for frame in self.frames]


class TestRun(unittest.TestCase):
    def start(self, **keys):
        config = node(pipeline("crasher", stage("libcrasher.so", **{**KEYS, **keys}), slots=8))
        shoald = self.enterContext(Shoald(config))
        return shoald, self.enterContext(Client(shoald.target))

    def test_every_way(self):
        shoald, client = self.start()
        for number, (word, (signal, function, said)) in enumerate(WAYS.items(), 1):
            with self.subTest(word=word):
                ask(client, "nothing").result()  # so that its successor starts without delay
                code, text = failure(ask(client, word, id=f"call {word}"))
                self.assertEqual(code.name, "UNAVAILABLE", text)
                report = Report(shoald, number)
                self.assertRegex(report.head, r' error shoal:crasher\.0 worker_crashed '
                                 r'pipeline="crasher" stage="crasher" worker=0 pid=\d+ '
                                 rf'thread="shoal:crasher\.0" signal="{signal}" .*during="run"$')
                self.assertIn(said, report.head)
                self.assertRegex(report.why, r"^killed by signal ")
                self.assertIn(function, report.functions)
                slot = re.search(r'items=1 slots="(\d+)"$', report.batch)[1]
                self.assertEqual(report.requests, f"{slot}:call?{word}")
                self.assertEqual([int(frame[0]) for frame in report.frames],
                                 [*range(len(report.frames))])
                self.check_lines(report, word)
        self.assertEqual(ask(client, "nothing").result().raw_output_contents,
                         [bytes_element("nothing")])
        self.assertEqual(shoald.wait_all_returned("crasher")["poison"], len(WAYS))

    def check_lines(self, report, word):
        """addr2line, which reads the debugging information, finds the same functions."""
        own = str(MODELETS / "libcrasher.so")
        for _, file, offset, function in report.frames:
            if file != own:
                continue
            found = subprocess.run(["addr2line", "-Cfie", file, offset], capture_output=True,
                                   text=True, check=True).stdout.splitlines()
            self.assertIn(function, found[0::2], (word, offset))
            self.assertRegex(found[1], r"/modelet_crasher\.c:\d+")

    def test_json(self):
        """For machines these are events like all others."""
        config = node(pipeline("crasher", stage("libcrasher.so", **KEYS), slots=8), log_format="json")
        with Json(config) as shoald, Client(shoald.target) as client:
            failure(ask(client, "null"))
            shoald.wait_log('"event":"worker_died"')
            events = [json.loads(line) for line in shoald.lines]
            head, = [one for one in events if one["event"] == "worker_crashed"]
            self.assertEqual((head["level"], head["program"], head["signal"], head["address"],
                              head["during"], head["worker"]),
                             ("error", "shoal:crasher.0", "SIGSEGV", "0x0", "run", 0))
            frames = [one for one in events if one["event"] == "worker_frame"]
            self.assertEqual({one["pid"] for one in frames}, {head["pid"]})
            self.assertIn("crash_null", frames[0]["in"])
            self.assertNotIn("worker_said", [one["event"] for one in events])

    def test_callers_are_found(self):
        shoald, client = self.start()
        failure(ask(client, "null"))
        functions = Report(shoald, 1).functions
        self.assertEqual(functions[:3], ["crash_null", "crash", "run"])
        self.assertIn("worker_serve", functions)
        self.assertIn("main", functions)

    def test_all_requests_of_a_batch_are_named(self):
        shoald, client = self.start(batch_size=3, batch_wait="fixed", batch_wait_ms=60000,
                                    attempts_max=2)
        calls = [ask(client, word, id=name)
                 for word, name in (("nothing", "a"), ("abort", 'b"\\'), ("nothing", "x" * 60))]
        self.assertEqual([call.code().name for call in calls], ["OK", "UNAVAILABLE", "OK"])
        report = Report(shoald, 1)
        slots = re.search(r'items=3 slots="([\d ]+)"$', report.batch)[1].split()
        named = dict(name.split(":", 1) for name in report.requests.split())
        self.assertEqual(sorted(named), sorted(slots))
        self.assertEqual(sorted(named.values()), ["a", "b??", "x" * 39])
        self.assertRegex(Report(shoald, 2).requests, r"^\d+:b\?\?$")


class TestModels(unittest.TestCase):
    def test_the_model_is_named(self):
        """In a load, and in the run of a model."""
        keys = {"good": "nothing", "bad": "null"}
        config = node(pipeline("crasher", stage("libcrasher.so", **KEYS),
                               models={"root": "models", "memory_mib": 64}, slots=8))
        shoald = Shoald(config)
        for name, word in keys.items():
            folder = shoald.folder / "models" / name
            folder.mkdir(parents=True)
            (folder / "key.json").write_text(json.dumps({"do": word}))
        with shoald, Client(shoald.target) as client:
            code, text = failure(client.start_raw("bad", ("do", "BYTES", [1], bytes_element("x"))))
            self.assertEqual(code.name, "INTERNAL", text)
            report = Report(shoald, 1)
            self.assertRegex(report.head, r'thread="shoal:loader" signal="SIGSEGV" .*'
                                          r'during="load" model="bad"$')
            self.assertEqual(report.functions[:3], ["crash_null", "crash", "load"])
            self.assertEqual((report.batch, report.requests), ("", ""))
            failure(client.start_raw("good", ("do", "BYTES", [1], bytes_element("abort"))))
            shoald.wait_log(r'signal="SIGABRT" .*during="run" model="good"$')


if __name__ == "__main__":
    shoal_fixture.main()
