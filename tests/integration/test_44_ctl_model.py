# SPDX-License-Identifier: Apache-2.0
"""shoalctl model: models come and go by name, and the user gets the outcome.

A real node serves XGBoost models that answer with their number. Loaded, listed and unloaded is by
shoalctl alone; that it was true is seen by asking the models. Loads that take long are made by
stopping the workers. Older versions of shoalctl are played by what they sent.
ctest: timeout=180
"""

import os
import pathlib
import shutil
import signal
import struct
import subprocess
import tempfile
import unittest

import shoal_boosters
import shoal_fixture
from shoal_client import Client, failure
from shoal_ctl import LATE, NEGATIVE, OK, UNREACHABLE, USAGE, environment, shoalctl
from shoal_fixture import BIN, Shoald, node, pipeline, stage, wait_until
from shoal_loads import VERSION, request, say_node

MODELS = 6


def boosters(name="boosters", root="models", **keys):
    return pipeline(name, stage("libxgboost_modelet.so", workers=2),
                    models={"root": str(root), "memory_mib": 256, "watch": "no", **keys}, slots=64)


def is_stopped(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(
            tempfile.TemporaryDirectory(prefix="shoal-test.")))
        cls.root = cls.folder / "models"
        cls.root.mkdir()
        shoal_boosters.write_many(cls.root, MODELS)
        cls.shoald = cls.enterClassContext(Shoald(cls.configuration(), folder=cls.folder))
        cls.client = cls.enterClassContext(Client(cls.shoald.target))

    @classmethod
    def configuration(cls):
        return node(boosters())

    def model(self, verb, *arguments, **options):
        return shoalctl("model", verb, "--counters", self.shoald.counters, *arguments, **options)

    def rows(self, *arguments):
        return {row["id"]: row for row in self.model("list", "--json", *arguments).json_lines}

    def ask(self, name, side=0):
        return shoal_boosters.value_of(self.client.infer_raw(name, shoal_boosters.tensor(side)))

    def refused(self, name):
        return failure(self.client.start_raw(name, shoal_boosters.tensor(0)))[0].name

    def path(self, number):
        return shoal_boosters.name(number)


class TestModel(Case):
    def tearDown(self):
        for name in self.rows():
            self.model("unload", name)

    def test_load_list_unload(self):
        self.assertEqual(self.rows(), {})
        done = self.model("load", "one", self.path(1))
        self.assertRegex(done.out, r"^one is loaded: \d+\.\d+ MiB\n$")
        self.assertEqual((self.ask("one", 0), self.ask("one", 1)), shoal_boosters.answers(1))
        row = self.rows()["one"]
        self.assertEqual((row["pipeline"], row["state"], row["path"], row["key"], row["listed"],
                          row["ordered"], row["users"], row["error"]),
                         ("boosters", "loaded", self.path(1), "", False, True, 0, ""))
        self.assertGreater(row["bytes"], 0)
        self.assertLess(row["idle_ns"], 60e9)
        self.assertEqual(self.model("unload", "one").out, "one is unloaded\n")
        self.assertEqual(self.rows(), {})
        self.assertEqual(self.refused("one"), "NOT_FOUND")

    def test_for_people(self):
        self.model("load", "Zwölf Boote", self.path(2))
        self.model("load", "m" * 127, self.path(3), "--key", '{"a": 1}')
        self.ask("Zwölf Boote")
        out = self.model("list").out
        self.assertRegex(out, r"(?m)^  MODEL +PIPELINE +STATE +BY +PATH +SIZE +USERS +IDLE$")
        self.assertRegex(out, rf"(?m)^  Zwölf Boote +boosters  loaded  ordered  {self.path(2)} +\S+ \wiB +0 "
                              r"+\d\S* \w+$")
        self.assertRegex(out, rf"(?m)^  m{{127}}  boosters  loaded  ordered  {self.path(3)} +\S+ \wiB +0 +\S+( \w+)?$")
        self.assertRegex(out, r"(?m)^2 models, 2 loaded \(\S+ \wiB\), 0 failed$")
        columns = {line.index("boosters") for line in out.splitlines() if "boosters" in line}
        self.assertEqual(len(columns), 1)
        self.assertEqual(self.model("list", "--state", "failed").out,
                         "0 models, 0 loaded (0 B), 0 failed\n")
        self.assertEqual(set(self.rows("--state", "loaded")), {"Zwölf Boote", "m" * 127})

    def test_json(self):
        self.assertEqual(self.model("load", "j", self.path(1), "--json").json["status"], "OK")
        self.assertEqual(self.model("unload", "j", "--json").json["text"], "j is unloaded")
        done = self.model("unload", "j", "--json", code=NEGATIVE)
        self.assertEqual(done.json["status"], "NOT_FOUND")

    def test_key(self):
        key = '{"words": "as they were given"}'
        self.model("load", "k", self.path(1), "--key", key)
        self.assertEqual(self.rows()["k"]["key"], key)
        file = self.folder / "key"
        file.write_text(key)
        self.model("load", "f", self.path(1), "--key", f"@{file}")
        self.assertEqual(self.rows()["f"]["key"], key)
        file.write_text("x" * 4096)
        done = self.model("load", "g", self.path(1), "--key", f"@{file}", code=USAGE)
        self.assertIn("a key is a string of at most 4095 bytes", done.err)
        self.model("load", "g", self.path(1), "--key", "@/nowhere", code=USAGE)

    def test_paths(self):
        self.model("load", "a", self.root / self.path(1))
        self.assertEqual(self.ask("a"), shoal_boosters.answers(1)[0])
        self.model("load", "b", f"{self.path(2)}/model.json")
        self.assertEqual(self.ask("b"), shoal_boosters.answers(2)[0])
        for path in ("..", "../counters", "/etc/passwd", f"{self.path(1)}/../../grpc.sock"):
            done = self.model("load", "c", path, "--json", code=NEGATIVE)
            self.assertIn(done.json["status"], ("INVALID_ARGUMENT", "NOT_FOUND"), path)
        done = self.model("load", "c", "nothing", "--json", code=NEGATIVE)
        self.assertEqual(done.json["status"], "NOT_FOUND", done.told)
        self.assertIn("nothing", done.err)
        self.assertEqual(set(self.rows()), {"a", "b"})

    def test_an_id_is_no_path(self):
        for name in ("../up", "/etc/passwd", "a/b", "."):
            self.model("load", name, self.path(4))
            self.assertEqual(self.ask(name), shoal_boosters.answers(4)[0])
        self.model("load", "boosters", self.path(4), code=NEGATIVE)

    def test_again(self):
        self.model("load", "same", self.path(1))
        self.model("load", "same", self.path(1))
        done = self.model("load", "same", self.path(2), "--json", code=NEGATIVE)
        self.assertEqual(done.json["status"], "ALREADY_EXISTS", done.told)
        self.assertEqual(self.ask("same"), shoal_boosters.answers(1)[0])

    def test_a_broken_one(self):
        (self.root / "broken").mkdir()
        (self.root / "broken" / "model.json").write_text('{"learner": 1')
        self.addCleanup(shutil.rmtree, self.root / "broken")
        done = self.model("load", "broken", "broken", code=NEGATIVE)
        self.assertIn("broken/model.json", done.err)
        self.assertEqual(self.rows(), {})
        self.assertEqual(self.refused("broken"), "NOT_FOUND")

    def test_order_outlives_its_client(self):
        workers = self.shoald.workers()
        for worker in workers:
            os.kill(worker.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: all(is_stopped(worker.pid) for worker in workers),
                       "the workers have stopped: a signal takes a moment")
            asking = subprocess.Popen(
                [BIN / "shoalctl", "model", "load", "--counters", self.shoald.counters, "slow",
                 self.path(5)], stderr=subprocess.DEVNULL, env=environment())
            wait_until(lambda: self.rows().get("slow", {}).get("state") == "loading",
                       lambda: f"a load under way: {self.rows()}")
            asking.send_signal(signal.SIGINT)
            self.assertEqual(asking.wait(shoal_fixture.WAIT_SECONDS), -signal.SIGINT)
            done = self.model("load", "slow", self.path(5), "--timeout-ms", 50, "--json", code=LATE)
            self.assertIn("the node continues", done.json["error"])
            self.assertEqual(list(self.rows("--state", "loading")), ["slow"])
        finally:
            for worker in workers:
                os.kill(worker.pid, signal.SIGCONT)
        wait_until(lambda: self.rows()["slow"]["state"] == "loaded",
                   lambda: f"the load that nobody waits for: {self.rows()}")
        self.assertEqual(self.ask("slow"), shoal_boosters.answers(5)[0])

    def test_many_at_once(self):
        asking = [subprocess.Popen([BIN / "shoalctl", "model", "load", "--counters",
                                    self.shoald.counters, f"n{i}", self.path(i % MODELS)],
                                   stdout=subprocess.DEVNULL, env=environment()) for i in range(12)]
        self.assertEqual([one.wait(shoal_fixture.WAIT_SECONDS) for one in asking], [OK] * 12)
        self.assertEqual([self.ask(f"n{i}") for i in range(12)],
                         [shoal_boosters.answers(i % MODELS)[0] for i in range(12)])


class TestUsage(unittest.TestCase):
    def test_help(self):
        for words in (("model",), ("model", "load"), ("model", "unload"), ("model", "rollback"),
                      ("model", "list")):
            done = shoalctl(*words, "--help")
            self.assertIn(f"usage: shoalctl {' '.join(words)} ", done.out)
        self.assertIn("  model    ", shoalctl("--help").out)

    def test_wrong_use(self):
        for words, said in ((("model",), "a command is missing"),
                            (("model", "lod"), "did you mean load"),
                            (("model", "--json"), "unknown option"),
                            (("model", "load", "m"), "ID PATH"),
                            (("model", "load", "m", "p", "q"), "unexpected argument"),
                            (("model", "load", "m" * 128, "p"), "has 1 to 127 bytes, not 128"),
                            (("model", "load", "", "p"), "has 1 to 127 bytes, not 0"),
                            (("model", "load", "m", "p" * 1024), "has 1 to 1023 bytes, not 1024"),
                            (("model", "unload"), "id is missing"),
                            (("model", "rollback"), "id is missing"),
                            (("model", "list", "m"), "unexpected argument"),
                            (("model", "list", "--state", "lodaed"), "did you mean loaded")):
            done = shoalctl(*words, code=USAGE)
            self.assertIn(said, done.err, words)

    def test_nobody_there(self):
        with tempfile.TemporaryDirectory(prefix="shoal-test.") as folder:
            done = shoalctl("model", "list", "--counters", f"{folder}/counters", code=UNREACHABLE)
            self.assertIn("is it running", done.err)


class TestSeveralPipelines(Case):
    @classmethod
    def configuration(cls):
        return node(boosters("left"), boosters("right"), pipeline("plain", stage("libecho.so")))

    def test_which(self):
        done = self.model("load", "m", self.path(1), code=NEGATIVE)
        self.assertIn("--pipeline: left, right", done.err)
        self.model("load", "m", self.path(1), "--pipeline", "right")
        self.assertEqual(self.rows()["m"]["pipeline"], "right")
        self.assertEqual(self.ask("m"), shoal_boosters.answers(1)[0])
        done = self.model("load", "n", self.path(1), "--pipeline", "plain", code=NEGATIVE)
        self.assertIn('pipeline "plain" has no `models`', done.err)
        done = self.model("rollback", "m", code=NEGATIVE)
        self.assertIn('model "m" has no numbered versions', done.err)
        done = self.model("load", "n", self.path(1), "--pipeline", "none", code=NEGATIVE)
        self.assertIn('no pipeline "none"', done.err)


class TestProtocol(Case):
    """The socket's answers to a shoalctl of another version, and to malformed requests."""

    def say(self, message):
        return say_node(f"{self.shoald.counters}.control", message)

    def test_other_versions(self):
        for message in (struct.pack("<II64s", 1, 1, b""), struct.pack("<IIIIQ5312s", 4, 4, 0, 0, 0, b""),
                        b'{"version": 6, "verb": "model list"}'):
            answer = self.say(message)
            self.assertEqual((answer["version"], answer["status"], answer["code"]),
                             (VERSION, "INVALID_ARGUMENT", 3))
            self.assertIn("use the shoalctl that came with", answer["error"])

    def test_malformed_requests(self):
        """Each is refused with its reason, and the node goes on."""
        for message, told in (
                (b"x", "not a request"), (b"[" * 3000, "maximum parsing depth"),
                (request("model list", prefix="x" * 40000), "at most 32768 are read"),
                (b'{"version": 5, "version": 5}', "duplicate object key"),
                (b'{"version": 5, "verb": "\xff"}', "unable to decode byte 0xff"),
                (request("models"), 'unknown verb "models"'),
                (request("model load", id="n" * 128), "id has 128 bytes, more than 127"),
                (request("model load", key=7), "key is not a string")):
            answer = self.say(message)
            self.assertIn(told, answer["error"])
            self.assertNotEqual(answer["status"], "OK")
        self.assertEqual(self.say(request("model list", later=[{"a": None}])),
                         {"version": VERSION, "status": "OK", "list": {"rows": []}})


if __name__ == "__main__":
    shoal_fixture.main()
