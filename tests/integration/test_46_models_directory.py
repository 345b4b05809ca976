# SPDX-License-Identifier: Apache-2.0
"""A directory of models, in a real node: what lies there is served, and what changes there changes.

How a directory is watched is a unit test's matter (test_model_directory.c); here it is what callers
and operators see of it: models that appear, are replaced while they are asked, disappear, or cannot
be what they are.
ctest: timeout=180
"""

import os
import pathlib
import shutil
import tempfile
import unittest

import shoal_boosters
import shoal_fixture
from shoal_client import Client, failure, outcome
from shoal_ctl import shoalctl
from shoal_fixture import Shoald, node, pipeline, stage, wait_until
from shoal_metrics import Scrape, metrics_port


def boosters(**keys):
    return node(pipeline("boosters", stage("libxgboost_modelet.so", workers=2),
                         models={"root": "models", "memory_mib": 256, **keys}, slots=64),
                metrics="127.0.0.1:0")


class TestDirectory(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory(prefix="shoal-test.")))
        self.root = self.folder / "models"
        self.root.mkdir()
        self.made = 0

    def start(self, **keys):
        self.shoald = self.enterContext(Shoald(boosters(**keys), folder=self.folder))
        self.client = self.enterContext(Client(self.shoald.target))

    def switch(self, name, number, features=1):
        """A model that is a link, which is switched: there is no moment without it."""
        self.put(f".{name}-{number}", number, features=features)
        self.point(name, number)

    def point(self, name, number):
        link = self.root / ".next"
        link.symlink_to(f".{name}-{number}")
        link.rename(self.root / name)

    def put(self, name, number, key=None, features=1, more_bytes=0):
        """As one should: made elsewhere, then renamed into place."""
        self.made += 1
        making = self.folder / f"making-{self.made}"
        shoal_boosters.write(making, number, features, more_bytes)
        if key is not None:
            (making / "key.json").write_text(key)
        for path in (*making.iterdir(), making):
            os.utime(path, (1e9 + self.made, 1e9 + self.made))
        target = self.root / name
        if target.exists():
            target.rename(self.folder / f"old-{self.made}")
        making.rename(target)

    def ask(self, name, features=1):
        return shoal_boosters.value_of(
            self.client.infer_raw(name, shoal_boosters.tensor(0, features)))

    def code(self, name, features=1):
        return outcome(self.client.start_raw(name, shoal_boosters.tensor(0, features))).name

    def refused(self, name, features=1):
        return failure(self.client.start_raw(name, shoal_boosters.tensor(0, features)))

    def rows(self):
        done = shoalctl("model", "list", "--json", "--counters", self.shoald.counters)
        return {row["id"]: row for row in done.json_lines}

    def wait_known(self, name):
        wait_until(lambda: name in self.rows(), lambda: f"{name} in {self.rows()}")

    def wait_unknown(self, name):
        wait_until(lambda: name not in self.rows(), lambda: f"{name} gone from {self.rows()}")

    def test_models_present_at_the_start(self):
        self.put("one", 1)
        self.put("two", 2, key='{"words": "of the registrar"}')
        self.put(".three", 3)
        self.start(preload="no")
        self.assertEqual(set(self.rows()), {"one", "two"})
        self.assertEqual({row["state"] for row in self.rows().values()}, {"known"})
        self.assertEqual(self.rows()["two"]["key"], '{"words": "of the registrar"}')
        self.assertEqual((self.ask("one"), self.ask("two")),
                         (shoal_boosters.answers(1)[0], shoal_boosters.answers(2)[0]))
        row = self.rows()["one"]
        self.assertEqual((row["state"], row["listed"], row["ordered"]), ("loaded", True, False))
        self.assertEqual(self.refused(".three")[0].name, "NOT_FOUND")
        done = shoalctl("model", "unload", "--counters", self.shoald.counters, "one")
        self.assertIn("it stays listed by its directory", done.out)
        self.assertEqual(self.rows()["one"]["state"], "known")
        self.assertEqual(self.ask("one"), shoal_boosters.answers(1)[0])

    def test_preload(self):
        """Listed models are loaded before anybody calls them, while they fit, and evict nothing."""
        for number in range(3):
            self.put(f"early-{number}", number)
        self.start()

        def states():
            return [row["state"] for row in self.rows().values()]
        wait_until(lambda: states() == 3 * ["loaded"], lambda: f"loaded in advance: {self.rows()}")
        self.put("late", 7)
        wait_until(lambda: states() == 4 * ["loaded"], lambda: f"loaded in advance: {self.rows()}")
        loads = self.shoald.pipeline_stat("boosters")["model_loads"]
        self.assertEqual((self.ask("late"), self.ask("early-1")),
                         (shoal_boosters.answers(7)[0], shoal_boosters.answers(1)[0]))
        self.assertEqual(self.shoald.pipeline_stat("boosters")["model_loads"], loads)
        (self.root / "late/model.json").write_text("{}")
        wait_until(lambda: "model_kept" in self.shoald.stderr, lambda: "the broken file")
        self.assertEqual(self.ask("late"), shoal_boosters.answers(7)[0])

    def test_preload_fills_the_budget(self):
        for number in range(12):  # as large as that in each of two workers, with any allocator
            self.put(f"model-{number:02}", number, more_bytes=400_000)
        self.start(memory_mib=4, default_size_mib=2)
        self.shoald.wait_log("models_not_preloaded pipeline=boosters count=[1-9]")
        wait_until(lambda: "loaded" in {row["state"] for row in self.rows().values()},
                   lambda: f"one is loaded: {self.rows()}")
        self.assertEqual(self.shoald.pipeline_stat("boosters")["model_evictions"], 0)
        for number in range(12):
            self.assertEqual(self.ask(f"model-{number:02}"), shoal_boosters.answers(number)[0])

    def test_coming_and_going(self):
        self.start()
        self.assertEqual(self.refused("late")[0].name, "NOT_FOUND")
        self.put("late", 7)
        self.wait_known("late")
        self.assertEqual(self.ask("late"), shoal_boosters.answers(7)[0])
        shutil.rmtree(self.root / "late")
        self.wait_unknown("late")
        self.assertEqual(self.refused("late")[0].name, "NOT_FOUND")

    def test_replaced_while_it_is_asked(self):
        self.switch("m", 10)
        self.start()
        right = [shoal_boosters.answers(number)[0] for number in range(10, 16)]
        self.assertEqual(self.ask("m"), right[0])
        seen = 0
        for number in range(11, 16):
            self.switch("m", number)

            def look():
                nonlocal seen
                now = right.index(self.ask("m"))  # the answer of one of them, at each moment,
                self.assertGreaterEqual(now, seen)  # and of none that was there before
                seen = now
                return seen == number - 10
            wait_until(look, lambda: f"the answer of {number}, not of {10 + seen}")
        self.shoald.wait_all_returned("boosters")

    def test_replaced_by_one_of_another_shape(self):
        """Nobody calls with the old shape, which would load it."""
        self.switch("m", 10)
        self.start()
        self.assertEqual(self.ask("m"), shoal_boosters.answers(10)[0])
        self.switch("m", 11, features=2)
        wait_until(lambda: self.code("m", 2) == "OK", lambda: f"not {self.refused('m', 2)}")
        self.assertEqual(self.code("m", 1), "INVALID_ARGUMENT")
        self.assertEqual(self.ask("m", 2), shoal_boosters.answers(11)[0])
        self.assertEqual(self.client.call("ModelMetadata", name="m").inputs[0].shape, [-1, 2])
        self.shoald.wait_all_returned("boosters")

    def test_replaced_while_it_is_not_loaded(self):
        self.switch("m", 10)
        self.start()
        self.ask("m")
        shoalctl("model", "unload", "--counters", self.shoald.counters, "m")
        self.switch("m", 11, features=2)
        wait_until(lambda: self.code("m", 2) == "OK", lambda: f"not {self.refused('m', 2)}")
        self.assertEqual(self.ask("m", 2), shoal_boosters.answers(11)[0])

    def test_broken_replacement(self):
        """The old version serves on, and the next one is tried."""
        self.switch("m", 10)
        self.start()
        self.ask("m")
        self.put(".m-0", 0)
        (self.root / ".m-0" / "model.json").write_text("{")
        self.point("m", 0)
        self.shoald.wait_log('model_kept pipeline=boosters model="m" error=".*neither JSON nor')
        self.assertEqual(self.ask("m"), shoal_boosters.answers(10)[0])
        self.assertEqual(self.rows()["m"]["state"], "loaded")
        self.assertIn("neither JSON nor", self.rows()["m"]["error"])
        self.assertRegex(shoalctl("model", "list", "--counters", self.shoald.counters).out,
                         "(?m)^m: .*neither JSON nor")
        self.wait_outdated(1)
        self.assertIn("model  boosters  ready, but serves an old version: see `shoalctl model list`",
                      shoalctl("status", "--counters", self.shoald.counters).out)
        self.switch("m", 12)
        wait_until(lambda: self.ask("m") == shoal_boosters.answers(12)[0], "the answer of 12")
        self.wait_outdated(0)
        self.assertEqual(self.rows()["m"]["error"], "")
        self.assertIn("model  boosters  ready\n", shoalctl("status", "--counters", self.shoald.counters).out)

    def wait_outdated(self, count):
        self.shoald.wait_stat("boosters", lambda stat: stat["models_outdated"] == count,
                              f"{count} models that serve an old version")
        scrape = Scrape(metrics_port(self.shoald))
        self.assertEqual(scrape["shoal_pipeline_models_outdated", {"pipeline": "boosters"}], count)

    def test_a_file_that_is_no_model_any_more(self):
        """As with `shoald serve`: pipelines of one root, and the format decides which takes a model."""
        flat, folder = self.root / "flat.json", self.root / "folder"
        self.put("folder", 2)
        (self.root / "folder/model.json").rename(flat)
        flat.write_text(shoal_boosters.text(1))
        (folder / "model.json").write_text(shoal_boosters.text(2))
        both = [pipeline(name, stage(modelet, workers=1), slots=16,
                         models={"root": "models", "types": [name], "memory_mib": 64})
                for name, modelet in (("mlp", "libmlp.so"), ("xgboost", "libxgboost_modelet.so"))]
        self.shoald = self.enterContext(Shoald(node(*both), folder=self.folder))
        self.client = self.enterContext(Client(self.shoald.target))
        right = {"flat": 3.0, "folder": 5.0}
        for name, path in ("flat", flat), ("folder", folder / "model.json"):
            self.assertEqual(self.ask(name), right[name])
            path.write_text("no booster")
            self.shoald.wait_log(f'model_kept pipeline=xgboost model="{name}" error=')
            self.assertEqual(self.ask(name), right[name])
            self.assertRegex(self.rows()[name]["error"], "known format")
            path.write_text(shoal_boosters.text(7))
            wait_until(lambda: self.ask(name) == 15.0, lambda: f"{name} is repaired")
            self.assertEqual(self.rows()[name]["error"], "")
        (self.root / ".next").symlink_to("/etc/hostname")
        (self.root / ".next").rename(flat)
        self.shoald.wait_log('model_kept pipeline=xgboost model="flat" error="it is a link that leads out')
        self.assertEqual(self.ask("flat"), 15.0)
        flat.unlink()
        self.wait_unknown("flat")

    def test_files_beside_the_model(self):
        """Hidden files, the key, and what ends in something else are no models."""
        for ending in ("json", "ubj"):
            self.put(ending, 1, key='{"model_type": {"name": "xgboost"}}')
            folder = self.root / ending
            (folder / "model.json").rename(folder / f"iris.{ending}")
            (folder / "README.md").write_text("# Iris")
            (folder / ".old.json").write_text("{")
            (folder / "notes.json").mkdir()
        self.start()
        for ending in ("json", "ubj"):
            self.assertEqual(self.ask(ending), shoal_boosters.answers(1)[0])

    def test_entries_that_cannot_be_models(self):
        self.put("boosters", 1)
        self.put("key", 1, key="{")
        self.put("x" * 128, 1)
        self.put(b"\xff\xfe".decode(errors="surrogateescape"), 1)
        (self.root / "out").symlink_to("/etc")
        self.put("fine", 1)
        self.start()
        self.assertEqual(set(self.rows()), {"fine"})
        for text in ('model="boosters" error=".*pipeline', r'model="key" error="key\.json: line 1',
                     'model="x{128}" error="its name has 128 bytes', 'error="its name is not UTF-8',
                     'model="out" error="it is a link that leads out of the root'):
            self.shoald.wait_log(f"model_not_listed pipeline=boosters {text}" if text[:5] == "model"
                                 else text)
        self.put("key", 1, key="{}")
        self.wait_known("key")
        self.assertEqual(self.ask("key"), shoal_boosters.answers(1)[0])

    def test_not_watched(self):
        self.put("one", 1)
        self.start(watch="no")
        self.assertEqual(self.rows(), {})
        shoalctl("model", "load", "--counters", self.shoald.counters, "other", "one")
        self.assertEqual(self.ask("other"), shoal_boosters.answers(1)[0])

    def test_ordered_stays_when_it_is_no_longer_listed(self):
        self.put("one", 1)
        self.start()
        shoalctl("model", "load", "--counters", self.shoald.counters, "one", "one")
        self.assertEqual([self.rows()["one"][what] for what in ("listed", "ordered")], [True, True])
        shutil.rmtree(self.root / "one")
        wait_until(lambda: not self.rows()["one"]["listed"], lambda: f"not listed: {self.rows()}")
        self.assertEqual(self.ask("one"), shoal_boosters.answers(1)[0])
        shoalctl("model", "unload", "--counters", self.shoald.counters, "one")
        self.assertEqual(self.rows(), {})

    def rows_of(self, name):
        return {row["id"] for row in self.rows().values() if row["pipeline"] == name}

    def divide(self, *pipelines):
        """Pipelines on one root, each a name and its types."""
        self.shoald = self.enterContext(Shoald(node(*(
            pipeline(name, stage("libxgboost_modelet.so"),
                     models={"root": "models", "memory_mib": 64, **({"types": types} if types else {})},
                     slots=64) for name, types in pipelines)), folder=self.folder))
        self.client = self.enterContext(Client(self.shoald.target))

    def put_type(self, name, number, type_name):
        self.put(name, number, key=f'{{"model_type": {{"name": "{type_name}"}}}}')

    def test_divided_by_types(self):
        self.put_type("one", 1, "red")
        self.put_type("two", 2, "blue")
        self.put_type("three", 3, "green")
        self.put("four", 4)
        self.divide(("reds", ["red", "pink"]), ("blues", ["blue"]))
        self.assertEqual((self.rows_of("reds"), self.rows_of("blues")), ({"one"}, {"two"}))
        self.assertEqual((self.ask("one"), self.ask("two")),
                         (shoal_boosters.answers(1)[0], shoal_boosters.answers(2)[0]))
        self.put_type("one", 5, "blue")  # it changes sides
        wait_until(lambda: self.rows_of("blues") == {"one", "two"}, lambda: f"moved: {self.rows()}")
        self.assertEqual(self.ask("one"), shoal_boosters.answers(5)[0])
        self.put_type("five", 6, "pink")
        self.wait_known("five")
        self.shoald.wait_log('model_not_listed pipeline=reds model="three" error=".*type \'green\'')
        self.shoald.wait_log('model_not_listed pipeline=reds model="four" error=".*type \'xgboost\'')
        lines = [line for line in self.shoald.stderr.splitlines() if "model_not_listed" in line]
        self.assertEqual(len(lines), 2, lines)

    def test_files_beside_directories(self):
        """A file is a model of its name; its format is its type, as of a directory without a key."""
        self.put("folder", 1)
        self.put("made", 2)
        (self.root / "file.json").write_bytes((self.root / "made/model.json").read_bytes())
        (self.root / "notes.json").write_text('{"not": "a model"}')
        (self.root / "broken.onnx").write_text("not ONNX")
        shutil.rmtree(self.root / "made")
        self.divide(("boosters", ["xgboost"]), ("others", ["onnx", "mlp"]))
        self.assertEqual((self.rows_of("boosters"), self.rows_of("others")), ({"file", "folder"}, set()))
        self.assertEqual((self.ask("folder"), self.ask("file")),
                         (shoal_boosters.answers(1)[0], shoal_boosters.answers(2)[0]))
        self.shoald.wait_log('model_not_listed pipeline=boosters model="broken.onnx" error=".*format')
        self.put("made", 3)
        (self.root / "made/model.json").rename(self.root / "file.json")  # replaced
        wait_until(lambda: self.ask("file") == shoal_boosters.answers(3)[0], lambda: "the new file")

    def test_one_takes_what_the_others_do_not_name(self):
        self.put_type("one", 1, "red")
        self.put_type("two", 2, "green")
        self.put("three", 3)
        self.divide(("others", None), ("reds", ["red"]))
        self.assertEqual((self.rows_of("reds"), self.rows_of("others")), ({"one"}, {"two", "three"}))
        self.assertNotIn("model_not_listed", self.shoald.stderr)


if __name__ == "__main__":
    shoal_fixture.main()
