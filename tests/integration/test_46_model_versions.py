# SPDX-License-Identifier: Apache-2.0
"""Numbered versions of a model, MODEL/1, MODEL/2, …, in a real node.

The highest is served, over gRPC and HTTP under its number; a higher one replaces it, and does not if it
cannot be loaded; `shoalctl model rollback` goes back by one, until the files change. `config.pbtxt` may
have several served at once, and it and `model-settings.json` are refused if they contradict the model.
ctest: timeout=120
"""

import json
import os
import pathlib
import signal
import tempfile
import unittest
import urllib.error
import urllib.request

import shoal_boosters
import shoal_fixture
from shoal_client import Client, failure, outcome
from shoal_ctl import NEGATIVE, shoalctl
from shoal_fixture import Shoald, free_port, node, pipeline, stage, wait_until


class TestVersions(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory(prefix="shoal-test.")))
        self.root = self.folder / "models"
        (self.root / "m").mkdir(parents=True)
        self.made = 0

    def put(self, name, number, content=None):
        """As one should: made elsewhere, then renamed into place."""
        self.made += 1
        making = self.folder / f"making-{self.made}"
        shoal_boosters.write(making, number)
        if content is not None:
            (making / "model.json").write_text(content)
        for path in (*making.iterdir(), making):
            os.utime(path, (1e9 + self.made, 1e9 + self.made))
        making.rename(self.root / name)
        self.touch()

    def touch(self):
        """An event in the root: sub-directories are looked at every ten seconds only."""
        os.utime(self.root / "m", (1e9, 1e9 + self.made))
        (self.root / ".look").touch()
        (self.root / ".look").unlink()

    def start(self, control="off", **models):
        self.http = f"127.0.0.1:{free_port()}"
        config = node(pipeline("boosters", stage("libxgboost_modelet.so", workers=2), slots=64,
                               models={"root": "models", "memory_mib": 256, **models}), http=self.http,
                      http_control=control)
        self.shoald = self.enterContext(Shoald(config, folder=self.folder))
        self.client = self.enterContext(Client(self.shoald.target))

    def ask(self, version=""):
        """The number of the booster that answers, and the version that it has."""
        answer = self.client.infer_raw("m", shoal_boosters.tensor(0), model_version=version)
        return (shoal_boosters.value_of(answer) - 1) / 2, answer.model_version

    def refused(self, version):
        return failure(self.client.start_raw("m", shoal_boosters.tensor(0), model_version=version))

    def rest(self, path, body=None, under="models"):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.http}/v2/{under}/{path}", data,
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=shoal_fixture.WAIT_SECONDS) as answer:
                text = answer.read()
                return json.loads(text) if text else {}
        except urllib.error.HTTPError as error:
            return error.code

    def versions(self, name="m", version=""):
        answer = self.client.call("ModelMetadata", name=name, version=version)
        self.assertEqual(answer.name, "m")
        return list(answer.versions)

    def row(self):
        done = shoalctl("model", "list", "--json", "--counters", self.shoald.counters)
        row, = (row for row in done.json_lines if row["id"] == "m")
        return row

    def rollback(self, **more):
        return shoalctl("model", "rollback", "m", "--counters", self.shoald.counters, **more)

    def wait_answer(self, wanted):
        wait_until(lambda: self.ask() == wanted, lambda: f"{wanted}, not {self.ask()}: {self.row()}")

    def test_the_highest_is_served(self):
        (self.root / "m/notes").mkdir()
        (self.root / "m/007").mkdir()
        (self.root / "m/99").touch()
        (self.root / "m/100").mkdir()  # empty
        (self.root / "m/101").symlink_to("/etc")
        self.put("m/9", 9)
        self.put("m/10", 10)
        self.start()
        self.assertEqual(self.ask(), (10, "10"))
        self.assertEqual(self.ask("10"), (10, "10"))
        self.assertEqual(self.versions(), ["10"])
        self.assertEqual(self.versions(version="10"), ["10"])
        for version in "9", "11", "x", "1" * 40, "../m":
            code, text = self.refused(version)
            self.assertEqual(code.name, "NOT_FOUND", text)
            self.assertIn('but "10"', text)
        body = {"inputs": [{"name": "features", "datatype": "FP32", "shape": [1, 1], "data": [0]}]}
        for path in "m", "m/versions/10":
            answer = self.rest(f"{path}/infer", body)
            self.assertEqual((answer["model_name"], answer["model_version"]), ("m", "10"))
            self.assertEqual(self.rest(path)["versions"], ["10"])
            self.assertTrue(self.rest(f"{path}/ready")["ready"])
        self.assertEqual(self.rest("m/versions/9/infer", body), 404)

    def test_a_higher_one_replaces_it(self):
        self.put("m/1", 1)
        self.start()
        self.assertEqual(self.ask(), (1, "1"))
        self.put("m/2", 2)
        self.wait_answer((2, "2"))
        self.put("m/3", 3, content="{}")
        self.shoald.wait_log('model_kept pipeline=boosters model="m" error=')
        self.assertEqual(self.ask(), (2, "2"))
        self.assertEqual((self.row()["path"], self.row()["state"]), ("m/2", "loaded"))
        self.assertNotEqual(self.row()["error"], "")
        worker = self.shoald.workers()[0]
        os.kill(worker.pid, 9)  # its successor can load version 2
        self.shoald.wait_log("worker_died")
        wait_until(lambda: len(self.shoald.workers()) == 2, "a successor")
        self.assertEqual(self.ask(), (2, "2"))
        self.assertEqual(self.row()["state"], "loaded")
        (self.root / "m/3/model.json").unlink()
        (self.root / "m/3").rmdir()
        self.touch()
        wait_until(lambda: self.row()["error"] == "", lambda: f"{self.row()}")
        self.assertEqual(self.ask(), (2, "2"))

    def settings(self, text, name="config.pbtxt"):
        self.made += 1
        (self.root / "m" / name).write_text(text)
        os.utime(self.root / "m" / name, (1e9, 1e9 + self.made))
        self.touch()

    def test_policy(self):
        for number in 1, 2, 3, 4:
            self.put(f"m/{number}", number)
        self.settings('name: "m" platform: "fil"\nmax_batch_size: 8\n'
                      'version_policy: { latest { num_versions: 2 } } dynamic_batching {}')
        self.start()
        self.shoald.wait_log('model_settings_ignored pipeline=boosters model="m" file=config.pbtxt '
                             'members="dynamic_batching"')
        self.assertEqual([self.ask(), self.ask("4"), self.ask("3")],
                         [(4, "4"), (4, "4"), (3, "3")])
        self.assertEqual(self.versions(), ["3", "4"])
        self.assertEqual(self.versions(version="3"), ["3", "4"])
        code, text = self.refused("2")
        self.assertEqual(code.name, "NOT_FOUND", text)
        self.assertEqual(self.rest("m/versions/3")["versions"], ["3", "4"])
        body = {"inputs": [{"name": "features", "datatype": "FP32", "shape": [1, 1], "data": [0]}]}
        answer = self.rest("m/versions/3/infer", body)
        self.assertEqual((answer["model_name"], answer["model_version"]), ("m", "3"))
        self.put("m/5", 5)
        self.wait_answer((5, "5"))
        self.assertEqual(self.ask("4"), (4, "4"))
        self.assertEqual(self.refused("3")[0].name, "NOT_FOUND")
        self.settings("version_policy { specific { versions: [1, 3] } }")
        self.wait_answer((3, "3"))
        self.assertEqual((self.ask("1"), self.versions()), ((1, "1"), ["1", "3"]))
        self.settings("version_policy { all {} }")
        self.wait_answer((5, "5"))
        self.assertEqual(self.versions(), ["1", "2", "3", "4", "5"])
        self.assertEqual([self.ask(str(number)) for number in range(1, 6)],
                         [(number, str(number)) for number in range(1, 6)])
        self.rollback()
        self.wait_answer((4, "4"))
        self.assertEqual(self.versions(), ["1", "2", "3", "4"])
        (self.root / "m").rename(self.folder / "gone")
        wait_until(lambda: shoalctl("model", "list", "--json", "--counters",
                                    self.shoald.counters).out == "", "all are gone")

    def load(self, config=None):
        """Loads by an order of Triton's, whose config stands for that of the files."""
        body = {} if config is None else {"parameters": {"config": json.dumps(config)}}
        return self.rest("models/m/load", body, "repository")

    def test_policy_of_an_order(self):
        for number in 1, 2, 3:
            self.put(f"m/{number}", number, "{\"learner\": 7}" if number == 2 else None)
        self.start(control="on")
        self.assertEqual(self.ask(), (3, "3"))
        specific = {"version_policy": {"specific": {"versions": [1]}}, "max_batch_size": 4}
        self.assertEqual(self.load(specific), {})
        self.assertEqual((self.ask(), self.versions()), ((1, "1"), ["1"]))
        self.assertEqual(self.rest("m/config")["max_batch_size"], 4)
        self.assertEqual(self.load({"version_policy": {"specific": {"versions": [7]}}}), 404)
        self.assertEqual(self.ask(), (1, "1"))
        self.assertEqual(self.load({"version_policy": {"specific": {"versions": [2]}}}), 503)
        self.assertEqual(self.ask(), (3, "3"))  # as the files say
        self.assertEqual(self.load({"versionPolicy": {"specific": {"versions": ["3", "1"]}}}), {})
        self.assertEqual([self.ask(), self.ask("1"), self.versions()], [(3, "3"), (1, "1"), ["1", "3"]])
        self.assertEqual(self.load(), {})
        self.assertEqual((self.ask(), self.versions()), ((3, "3"), ["3"]))
        self.assertEqual(self.load(specific), {})
        self.assertEqual(self.rest("models/m/unload", {}, "repository"), {})
        self.assertEqual((self.ask(), self.versions()), ((3, "3"), ["3"]))
        self.assertEqual(self.load(specific), {})
        self.put("m/4", 4)
        self.wait_answer((4, "4"))

    def test_bad_settings(self):
        """The version in use is kept, and the error names the wrong member or line."""
        self.put("m/1", 1)
        self.start()
        self.assertEqual(self.ask(), (1, "1"))
        cases = [("config.pbtxt", 'platform: "onnxruntime_onnx"',
                  "platform says onnx, but the file is of format xgboost"),
                 ("config.pbtxt", 'name: "other"', 'config.pbtxt: line 1: name: "other"'),
                 ("config.pbtxt", "a {" * 1000, "config.pbtxt: line 1: nested too deeply"),
                 ("config.pbtxt", "a: 1 " * 2_000_000, "config.pbtxt: more than 65536 bytes"),
                 ("config.pbtxt", "\0\1\2", "config.pbtxt: line 1: a name is missing"),
                 ("model-settings.json", '{"name": 1, "implementation": "x.Y"}',
                  'model-settings.json: implementation: "x.Y" is not served here')]
        for name, text, said in cases:
            self.settings(text, name)
            wait_until(lambda said=said: said in self.row()["error"],
                       lambda said=said: f"{said} in {self.row()}")
            self.assertEqual(self.ask(), (1, "1"))
            (self.root / "m" / name).unlink()
            self.touch()
            wait_until(lambda: self.row()["error"] == "", lambda: f"{self.row()}")
        (self.root / "m/config.pbtxt").symlink_to("/etc/hostname")
        self.touch()
        wait_until(lambda: "config.pbtxt: " in self.row()["error"], lambda: f"{self.row()}")
        self.assertEqual(self.ask(), (1, "1"))

    def test_other_tensors(self):
        """Compared when a version is loaded."""
        self.put("m/1", 1)
        self.start()
        self.assertEqual(self.ask(), (1, "1"))
        self.settings('max_batch_size: 8 input { name: "features" data_type: TYPE_FP32 dims: 3 }')
        self.put("m/2", 2)
        said = 'config.pbtxt: input "features": the model has other dims'
        wait_until(lambda: said in self.row()["error"], lambda: f"{said} in {self.row()}")
        self.assertEqual(self.ask(), (1, "1"))
        self.settings('max_batch_size: 8 input { name: "features" data_type: TYPE_FP32 dims: 1 }')
        self.put("m/3", 3)
        self.wait_answer((3, "3"))

    def test_most_rows(self):
        """`max_batch_size` of the file limits the rows of a request, until the file has another."""
        self.put("m/1", 1)
        self.settings("max_batch_size: 2")
        self.start()
        self.assertEqual(self.ask(), (1, "1"))

        def rows(count):
            body = {"inputs": [{"name": "features", "datatype": "FP32", "shape": [count, 1],
                                "data": count * [0]}]}
            answer = self.rest("m/infer", body)
            return answer if isinstance(answer, int) else len(answer["outputs"][0]["data"])
        self.assertEqual((rows(2), rows(3)), (2, 400))
        self.settings("max_batch_size: 3")
        wait_until(lambda: rows(3) == 3, "three rows")
        self.assertEqual(rows(4), 400)

    def test_mlserver_settings(self):
        (self.root / "m").rmdir()
        self.put("m", 1)
        (self.root / "m/model.json").rename(self.root / "m/first.json")
        (self.root / "m/second.json").write_text(shoal_boosters.text(2))
        self.settings('{"name": "m", "implementation": "mlserver_xgboost.XGBoostModel", "parameters": '
                      '{"uri": "./first.json", "version": "v0.1.0"}}', "model-settings.json")
        self.start()
        self.assertEqual((self.ask(), self.ask("v0.1.0")), ((1, "v0.1.0"), (1, "v0.1.0")))
        self.assertEqual(self.versions(), ["v0.1.0"])
        self.settings('{"parameters": {"uri": "second.json", "version": "v0.2.0"}}',
                      "model-settings.json")
        self.wait_answer((2, "v0.2.0"))
        self.settings('{"parameters": {"uri": "../../../etc/passwd"}}', "model-settings.json")
        wait_until(lambda: "leads out of the models' root" in self.row()["error"]
                   or "leads out" in self.shoald.stderr, lambda: f"{self.row()}")
        self.assertEqual(self.ask(), (2, "v0.2.0"))

    def test_the_highest_is_broken_at_the_start(self):
        """The next lower one that can be loaded serves; the reason is shown; a repaired one takes over."""
        for number in 1, 2, 3, 4:
            self.put(f"m/{number}", number, "{\"learner\": 7}" if number > 2 else None)
        self.start()
        self.assertEqual(self.ask(), (2, "2"))
        self.assertEqual(self.versions(), ["2"])
        self.shoald.wait_log('model_kept pipeline=boosters model="m" error=".*m/3/model.json: XGBoost says')
        self.assertIn("m/3/model.json: XGBoost says", self.row()["error"])
        self.put("m/5", 5)
        self.wait_answer((5, "5"))
        self.assertEqual(self.row()["error"], "")

    def test_a_call_waits_for_the_version_that_can_be_loaded(self):
        for number in 1, 2:
            self.put(f"m/{number}", number, "{\"learner\": 7}" if number > 1 else None)
        self.start(preload="no")
        self.assertEqual(self.ask(), (1, "1"))

    def test_all_are_broken_at_the_start(self):
        for number in 1, 2:
            self.put(f"m/{number}", number, "{\"learner\": 7}")
        self.start()
        wait_until(lambda: self.row()["state"] == "failed" and "m/1/model.json" in self.row()["error"],
                   lambda: f"{self.row()}")
        code, text = self.refused("")
        self.assertEqual(code.name, "FAILED_PRECONDITION", text)
        self.put("m/3", 3)
        wait_until(lambda: self.row()["state"] == "loaded", lambda: f"{self.row()}")
        self.assertEqual(self.ask(), (3, "3"))

    def test_the_one_that_serves_breaks(self):
        """A worker that restarts cannot load it any more, and no call may depend on the worker."""
        for number in 1, 2:
            self.put(f"m/{number}", number)
        self.start()
        self.assertEqual(self.ask(), (2, "2"))
        (self.root / "m/2/model.json").write_text("{\"learner\": 7}")
        os.kill(self.shoald.workers()[0].pid, 9)

        def answers():
            """Those that were sent with version 2, and come back from the new worker, fail."""
            flying = [self.client.start_raw("m", shoal_boosters.tensor(0)) for _ in range(8)]
            for future in flying:
                if future.exception() is not None:
                    self.assertIn("m/2/model.json", failure(future)[1])
            return all(future.exception() is None and future.result().model_version == "1"
                       for future in flying)
        wait_until(answers, lambda: f"version 1: {self.row()}")
        self.assertIn("m/2/model.json: XGBoost says", self.row()["error"])
        self.put("m/3", 3)
        self.wait_answer((3, "3"))

    def test_the_folder_goes_while_calls_are_under_way(self):
        """No worker can load it any more, and the calls that were sent with it have no deadline."""
        self.put("m/1", 1)
        self.start()
        self.assertEqual(self.ask(), (1, "1"))
        workers = self.shoald.workers()
        for worker in workers:
            os.kill(worker.pid, signal.SIGSTOP)
        flying = [self.client.start_raw("m", shoal_boosters.tensor(0)) for _ in range(8)]
        self.shoald.wait_stat("boosters", lambda now: now["slots_used"] == 8, "all are sent")
        (self.root / "m").rename(self.folder / "gone")
        wait_until(lambda: self.row()["state"] == "unloading", lambda: f"{self.row()}")
        for worker in workers:
            os.kill(worker.pid, signal.SIGKILL)
        codes = {outcome(future).name for future in flying}
        self.assertNotIn("DEADLINE_EXCEEDED", codes)
        wait_until(lambda: shoalctl("model", "list", "--json", "--counters",
                                    self.shoald.counters).out == "", "it is gone")

    def test_a_policy_is_kept_at_the_start(self):
        """Only the version that it names may serve."""
        self.put("m/1", 1)
        self.put("m/2", 2, "{\"learner\": 7}")
        self.settings("version_policy: { specific: { versions: [2] } }")
        self.start()
        wait_until(lambda: self.row()["state"] == "failed", lambda: f"{self.row()}")
        self.assertIn("m/2/model.json", self.refused("")[1])

    def test_rollback(self):
        for number in 1, 2, 3:
            self.put(f"m/{number}", number)
        self.start()
        self.assertEqual(self.ask(), (3, "3"))
        self.assertIn("m: version 2 takes the place of version 3", self.rollback().out)
        self.wait_answer((2, "2"))
        self.rollback()
        self.wait_answer((1, "1"))
        self.assertEqual(self.versions(), ["1"])
        self.assertIn("no lower version than 1", self.rollback(code=NEGATIVE).err)
        self.assertEqual(self.ask(), (1, "1"))
        os.utime(self.root / "m/2/model.json", (2e9, 1e9))  # as if it had been repaired
        self.touch()
        self.wait_answer((2, "2"))
        self.put("m/4", 4)
        self.wait_answer((4, "4"))
        self.rollback()
        self.wait_answer((2, "2"))
        self.shoald.wait_log('model_rolled_back pipeline=boosters model="m" from=4 to=2')

    def test_rollback_of_one_that_was_kept(self):
        self.put("m/1", 1)
        self.start()
        self.ask()
        self.put("m/2", 2, content="{}")
        wait_until(lambda: self.row()["error"] != "", lambda: f"{self.row()}")
        self.rollback()
        self.assertEqual(self.row()["error"], "")
        self.assertEqual(self.ask(), (1, "1"))


if __name__ == "__main__":
    shoal_fixture.main()
