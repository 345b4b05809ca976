# SPDX-License-Identifier: Apache-2.0
"""Fetches of models beside other work: what they hold up, what ends them, and what is reported.

Proves: slow fetches hold no place among the loads, of pipelines and of an external runtime, and a
fetched model waits for one; both share the cache; four files of a model are fetched at once; digests
beside files count; a listing without an end is given up; secrets in URLs are in no list; lists tell how
far a fetch is. ctest: timeout=600
"""

import concurrent.futures
import hashlib
import os
import pathlib
import subprocess
import threading
import time
import unittest

import shoal_boosters
import shoal_fixture
from shoal_ctl import NEGATIVE, shoalctl
from shoal_fixture import Shoald, main, node, pipeline, stage, wait_until
from shoal_registry import LOADED, LOADING_FAILED, Registrar
from shoal_runtime import Runtime, when_over
from test_71_storage import REGION, SECRET, Case as Storage


class TestLoads(Storage):
    keys = {"load_concurrency": 1}

    def test_slow_fetches_do_not_hold_up_loads(self):
        self.store.hold = threading.Event()
        pool = self.enterContext(concurrent.futures.ThreadPoolExecutor(3))
        for i in range(3):
            self.put(f"m{i}", weights=bytes(1 << 20))
        loads = [pool.submit(self.load, f"m{i}", f"m{i}", {"storage_key": "mine"}) for i in range(3)]
        wait_until(lambda: self.count("storage_fetching") == 3, "three fetches")
        self.shoald.wait_stat("boosters", lambda stat: stat["models_fetching"] == 3, "three models")
        shoal_boosters.write(self.folder / "models" / "local", 1)
        self.load("local", "local")
        self.ask("local")
        self.assertEqual(self.count("storage_fetching"), 3)
        self.store.hold.set()
        for load in loads:
            load.result()
        for i in range(3):
            self.ask(f"m{i}")

    def test_four_files_of_a_model_at_once(self):
        """The small one is over; of the other six, four are half sent, and the rest has not begun."""
        self.store.hold = threading.Event()
        self.put(**{f"weights-{i}": bytes(1 << 20) for i in range(6)})
        pool = self.enterContext(concurrent.futures.ThreadPoolExecutor(1))
        self.addCleanup(self.store.hold.set)
        load = pool.submit(self.load, "m", "m", {"storage_key": "mine"})
        wait_until(lambda: self.store.sent >= len(self.data) + (4 << 19), "the first halves of four files")
        self.assertEqual(sum("weights-" in path for path in self.store.paths()), 4)
        self.store.hold.set()
        load.result()
        self.assertEqual(sum("weights-" in path for path in self.store.paths()), 6)

    def test_a_load_that_is_aside_is_taken_back(self):
        self.store.hold = threading.Event()
        self.put(weights=bytes(1 << 20))
        pool = self.enterContext(concurrent.futures.ThreadPoolExecutor(1))
        load = pool.submit(self.load, "m", "m", {"storage_key": "mine"}, NEGATIVE)
        wait_until(lambda: self.count("storage_fetching") == 1, "the fetch")
        self.unload("m")
        load.result()
        self.store.hold.set()
        self.load("m", "m", {"storage_key": "mine"})
        self.ask("m")

    def test_digests_beside_files(self):
        digest = hashlib.sha256(self.data).hexdigest()
        for beside, told in (("0" * 64, "says " + "0" * 64), ("short", "does not begin with 64 hexadecimal digits")):
            self.put(**{"model.json.sha256": beside.encode()})
            self.assertIn(told, self.load("m", "m", {"storage_key": "mine"}, NEGATIVE))
            self.assertEqual(self.cached(), [])
        self.put(**{"model.json.sha256": f"{digest}  model.json\n".encode(), "other.sha256": b"alone"})
        self.load("m", "m", {"storage_key": "mine"})
        self.ask("m")

    def test_digests_beside_urls(self):
        """A server without one may say so with a page, a refusal or a redirection to nowhere."""
        plain, path = self.store.plain, "/plain/m.json"
        plain[path] = self.data
        digest = hashlib.sha256(self.data).hexdigest()
        url = self.store.url + path + "?sig=querysecret"
        for beside, told in (("0" * 64, "m.json.sha256 says " + "0" * 64), ("", "64 hexadecimal digits"),
                             ("x" * 100, "64 hexadecimal digits"), (digest + "x" * (1 << 20), "more than 64 KiB")):
            plain[path + ".sha256"] = beside.encode()
            self.assertIn(told, self.load("m", url, code=NEGATIVE))
            self.assertEqual(self.cached(), [])
        asked = [path for path in self.store.paths() if "sha256" in path]
        self.assertEqual(asked, [path + ".sha256?sig=querysecret"] * 4)
        self.load("stated", url, {"sha256": digest})
        self.assertEqual(len([path for path in self.store.paths() if "sha256" in path]), 4)

        plain[path + ".sha256"] = f"{digest.upper()} *m.json\n".encode()
        for name in ("m", "m"):
            self.load(name, url)
            self.unload(name)  # asked once: the second load finds the file unchanged
        self.assertEqual(len([path for path in self.store.paths() if "sha256" in path]), 5)

        def absent(number):
            plain[f"/plain/{number}.json"] = self.data + b" " * number
            self.load(f"m{number}", f"{self.store.url}/plain/{number}.json")
        absent(1)  # 404
        plain["/plain/2.json.sha256"], self.store.types["/plain/2.json.sha256"] = b"<html>" * 20000, "text/html"
        absent(2)
        for number, to in ((3, "/plain/3.json.sha256"), (4, "file:///etc/passwd"), (5, "/plain/nowhere")):
            self.store.redirects[f"/plain/{number}.json.sha256"] = to
            absent(number)
        self.store.redirects["/plain/6.json.sha256"] = "/plain/else"
        plain["/plain/else"] = b"0" * 64
        with self.assertRaisesRegex(AssertionError, "6.json.sha256 says 0000"):
            absent(6)

    def test_a_server_that_cannot_tell_whether_there_is_a_digest(self):
        self.store.plain["/plain/m.json"] = self.data
        self.store.refusals["/plain/m.json.sha256"] = 503
        told = self.load("m", self.store.url + "/plain/m.json", code=NEGATIVE)
        self.assertIn("m.json.sha256, which is not asked for if the key states `sha256`: 6 attempts failed", told)

    def test_queries_are_not_listed(self):
        self.store.plain["/plain/m.json"] = self.data
        self.load("m", self.store.url + "/plain/m.json?sig=querysecret")
        told = shoalctl("model", "list", "--counters", self.shoald.counters).told
        self.assertIn("/plain/m.json", told)
        self.assertNotIn("querysecret", told)


class TestManyObjects(Storage):
    """Whose fetch may take minutes on a busy machine."""

    keys = {"load_timeout_ms": 400000}

    def test_five_thousand_objects(self):
        files = {f"part-{i:05}/weights": str(i).encode() for i in range(4999)}
        self.put(**files)
        self.load("many", "m", {"storage_key": "mine"}, seconds=400)
        self.assertEqual(self.cached(), [files | {"model.json": self.data}])
        listings = [path for path in self.store.paths() if "list-type" in path]
        self.assertEqual(len(listings), 5)
        self.assertEqual(sum("continuation-token=token%3D%2F%2B%20" in path for path in listings), 4)
        self.assertEqual(len(self.store.paths()), 5005)


class TestProgress(Storage):
    def begin(self, **keys):
        self.shoald = self.enterContext(Shoald(node(
            pipeline("boosters", stage("libxgboost_modelet.so"), slots=16, models={
                "root": str(self.folder / "models"), "memory_mib": 256}),
            models_cache_gib=self.cache_gib, models_cache=str(self.cache), mesh={"instance": "node-1"},
            storage_config=str(self.config)), folder=self.folder))

    def see(self, noun, verb, *words):
        return shoalctl(noun, verb, "--counters", self.shoald.counters, *words)

    def row(self, noun, verb):
        rows = self.see(noun, verb, "--json").json_lines
        return rows[0] if rows else {}

    def test_a_fetch_tells_how_far_it_is(self):
        """Of a listing and of a body whose length is in its head, in both lists and their tables."""
        self.store.plain["/plain/m.json"] = self.data + b" " * ((4 << 20) - len(self.data))
        self.put(weights=bytes(4 << 20))
        for path, key, more in (("m", '{"storage_key": "mine"}', len(self.data)),
                                (self.store.url + "/plain/m.json", "", 0)):
            self.store.hold = threading.Event()
            with Registrar(self.shoald) as registrar:
                registrar.register("m", path, key, "mt:x", loadNow=True, sync=False)
                for noun, verb in (("model", "list"), ("mesh", "models")):
                    wait_until(lambda noun=noun, verb=verb: self.row(noun, verb).get("fetched_bytes") ==
                               (2 << 20) + more, "half of it")
                    self.assertEqual(self.row(noun, verb)["fetch_bytes"], (4 << 20) + more)
                    self.assertRegex(self.see(noun, verb).out, r" 2\.0\d MiB of 4\.0\d MiB ")
                self.store.hold.set()
                self.ask("m")
                self.assertNotIn("fetched_bytes", self.row("model", "list"))
                self.assertNotIn("fetched_bytes", self.row("mesh", "models"))
                registrar.unregister("m")
                wait_until(lambda: self.row("mesh", "models") == {}, "the end of the model")


class External(Storage):
    """Its runtime takes one load at a time."""

    LOAD_MS = 60000

    def begin(self, **keys):
        self.runtime = self.enterContext(Runtime(maxLoadingConcurrency=1, modelLoadingTimeoutMs=self.LOAD_MS))
        self.runtime.says["loadModel"] = self.load_model
        self.loading, self.most, self.may_load = set(), 0, threading.Event()
        self.shoald = self.enterContext(Shoald(
            {"models_cache_gib": self.cache_gib, "models_cache": str(self.cache), "storage_config": str(self.config),
             "mesh": {"instance": "node-1", "runtime": self.runtime.address}}, folder=self.folder))
        self.registrar = self.enterContext(Registrar(self.shoald))
        self.addCleanup(self.may_load.set)

    def load_model(self, request, context):
        self.loading.add(request.modelId)
        self.most = max(self.most, len(self.loading))
        if request.modelId != "local":
            over = threading.Event()
            when_over(context, over.set)
            wait_until(lambda: self.may_load.is_set() or over.is_set(), "the end of a load")
        self.loading.discard(request.modelId)
        return self.runtime.loadModel(request, context)

    def register(self, name, key='{"storage_key": "mine"}', sync=False):
        if key:
            self.put(name, weights=bytes(1 << 20))
        return self.registrar.register(name, name, key, "mt:x", loadNow=True, sync=sync)

    def wait_waiting(self, count):
        wait_until(lambda: self.count("mesh_runtime_waiting") == count, f"{count} to wait")


class TestExternalRuntime(External):
    def test_slow_fetches_do_not_hold_up_loads(self):
        self.store.hold = threading.Event()
        for i in range(4):
            self.register(f"m{i}")
        wait_until(lambda: self.count("storage_fetching") == 4, "four fetches")
        self.assertEqual(self.register("local", key="", sync=True).status, LOADED)
        self.assertEqual((self.count("storage_fetching"), self.runtime.count("loadModel")), (4, 1))
        self.store.hold.set()
        self.may_load.set()
        for i in range(4):
            self.assertEqual(self.register(f"m{i}", sync=True).status, LOADED)
        self.assertEqual(self.most, 1)

    def test_fetched_ones_wait_for_their_turn(self):
        for i in range(4):
            self.register(f"m{i}")
        wait_until(lambda: self.loading, "the first load")
        self.wait_waiting(3)
        self.may_load.set()
        for i in range(4):
            self.assertEqual(self.register(f"m{i}", sync=True).status, LOADED)
        self.wait_waiting(0)
        self.assertEqual((self.most, len(self.runtime.held)), (1, 4))

    def test_a_runtime_that_ends_while_some_wait(self):
        for i in range(3):
            self.register(f"m{i}")
        wait_until(lambda: self.loading, "the first load")
        self.wait_waiting(2)
        self.runtime.stop()
        self.shoald.wait_log("external_lost")
        self.wait_waiting(0)
        self.may_load.set()


    def test_a_runtime_that_restarts_during_a_fetch(self):
        """It is empty then, and is not asked for what was wanted before."""
        self.store.hold = threading.Event()
        self.register("m")
        wait_until(lambda: self.count("storage_fetching") == 1, "the fetch")
        self.runtime.stop()
        self.shoald.wait_log("external_lost")
        self.registrar.unregister("m")
        before = self.runtime
        self.runtime = self.enterContext(Runtime(before.address, maxLoadingConcurrency=1,
                                                 modelLoadingTimeoutMs=self.LOAD_MS))
        wait_until(lambda: self.runtime.count("runtimeStatus") > 0, "the runtime to be asked")
        self.assertEqual(self.register("local", key="", sync=True).status, LOADED)
        self.store.hold.set()
        wait_until(lambda: self.count("storage_fetching") == 0, "the end of the fetch")
        self.assertEqual(self.register("other", key="", sync=True).status, LOADED)
        self.assertEqual([request.modelId for request in self.runtime.requests("loadModel")], ["local", "other"])


class TestExternalRuntimeLate(External):
    LOAD_MS = 6000

    def test_one_that_waits_too_long(self):
        """It began before the load for whose end it waits, so its time is over first."""
        self.store.hold = threading.Event()
        self.register("m")
        wait_until(lambda: any("m/model.json" in path for path in self.store.paths()), "the fetch")
        self.register("slow", key="")
        wait_until(lambda: self.loading, "the other load")
        self.store.hold.set()
        said = self.register("m", sync=True)
        self.assertEqual(said.status, LOADING_FAILED)
        self.assertIn("DEADLINE_EXCEEDED: the runtime was busy with other loads", said.errors[0])
        self.assertEqual(self.runtime.count("loadModel"), 1)


class TestPipelineAndRuntime(Storage):
    """Of one node, which share its cache."""

    def begin(self, **keys):
        self.runtime = self.enterContext(Runtime())
        self.shoald = self.enterContext(Shoald(node(
            pipeline("boosters", stage("libxgboost_modelet.so"), slots=16, models={
                "root": str(self.folder / "models"), "memory_mib": 256, "types": ["booster"]}),
            models_cache_gib=self.cache_gib, models_cache=str(self.cache), storage_config=str(self.config),
            mesh={"instance": "node-1", "runtime": self.runtime.address}), folder=self.folder))

    def test_an_object_is_fetched_once_for_both(self):
        self.put(weights=bytes(1 << 20))
        with Registrar(self.shoald) as registrar:
            for name, kind in (("of-pipeline", "mt:booster"), ("of-runtime", "mt:other")):
                said = registrar.register(name, "m", '{"storage_key": "mine"}', kind, loadNow=True, sync=True)
                self.assertEqual(said.status, LOADED, said)
            self.ask("of-pipeline")
        asked, = self.runtime.requests("loadModel")
        self.assertEqual(asked.modelId, "of-runtime")
        self.assertEqual(pathlib.Path(asked.modelPath).parent, self.cache / "models")
        self.assertEqual(len(self.cached()), 1)
        self.assertEqual(self.store.sent, (1 << 20) + len(self.data))
        self.assertEqual((self.count("storage_fetches"), self.count("storage_hits")), (2, 1))


class TestPace(Storage):
    nodes = {"storage_mib_per_s": 1}

    def test_a_limit_of_bandwidth_is_kept(self):
        """Two fetches at once of 1.5 MiB each; the limit is for both together."""
        pool = self.enterContext(concurrent.futures.ThreadPoolExecutor(2))
        for i in range(2):
            self.put(f"m{i}", weights=os.urandom(3 << 19))
        began = time.monotonic()
        for load in [pool.submit(self.load, f"m{i}", f"m{i}", {"storage_key": "mine"}) for i in range(2)]:
            load.result()
        self.assertGreaterEqual(time.monotonic() - began, 2.9)


class TestServe(Storage):
    def test_a_listing_without_an_end(self):
        self.store.endless = True
        environment = {"AWS_ACCESS_KEY_ID": "AKTEST", "AWS_SECRET_ACCESS_KEY": SECRET,
                       "AWS_ENDPOINT_URL": self.store.url, "AWS_REGION": REGION,
                       "XDG_CACHE_HOME": str(self.folder)}
        done = subprocess.run([shoal_fixture.BIN / "shoald", "serve", "--print-config", "s3://models/m"],
                              env={**os.environ, **environment}, capture_output=True, text=True, check=False,
                              timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("over 100 pages of the listing are empty", done.stderr)


if __name__ == "__main__":
    main()
