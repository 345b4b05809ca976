# SPDX-License-Identifier: Apache-2.0
"""Models that are fetched: from S3, HTTP, claims and files, by a real node, from a strict server that can
behave badly (shoal_store.py).

Fetches are judged by asking the model, by the files of the cache, and by what the server was asked.
ctest: timeout=600
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import unittest
import unittest.mock
import urllib.request

import shoal_boosters
import shoal_fixture
from shoal_client import Client
from shoal_ctl import NEGATIVE, OK, shoalctl
from shoal_fixture import Shoald, node, pipeline, stage, wait_until
from shoal_registry import LOADED, LOADING_FAILED, Registrar
from shoal_rest import ANY_PORT, port_of
from shoal_runtime import Runtime
from shoal_store import REGION, Store

SECRET, TOKEN, HEADER = "s3cr3t/Key+1", "t0ken/with+signs==", "Bearer h1dden"


def model_data(number=1):
    with tempfile.TemporaryDirectory() as folder:
        shoal_boosters.write_many(folder, number + 1)
        return (pathlib.Path(folder) / shoal_boosters.name(number) / "model.json").read_bytes()


class Case(unittest.TestCase):
    cache_gib, keys, nodes = 0.25, {}, {}

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="shoal-test.")))
        self.config, self.cache = self.folder / "config", self.folder / "cache"
        for name in ("models", "config", "claims", "files"):
            (self.folder / name).mkdir()
        self.store = self.enterContext(Store())
        self.store.keys = {"AKTEST": (SECRET, None), "AKTOKEN": (SECRET, TOKEN)}
        self.store.objects = {"models": {}, "others": {}}
        self.data = model_data()
        self.write_entry("mine", self.store.entry(bucket="models"))
        self.begin()

    def begin(self, **keys):
        models = {"root": str(self.folder / "models"), "memory_mib": 256, "watch": "no",
                  "load_timeout_ms": 60000, **self.keys, **keys}
        self.shoald = Shoald(node(
            pipeline("boosters", stage("libxgboost_modelet.so"), models=models, slots=16),
            models_cache_gib=self.cache_gib, models_cache=str(self.cache),
            storage_config=str(self.config), pvc_mounts=str(self.folder / "claims"),
            files_root=str(self.folder / "files"), **self.nodes), folder=self.folder)
        self.enterContext(self.shoald)

    def tearDown(self):
        log = self.shoald.stderr
        for secret in (SECRET, TOKEN, HEADER, "h1dden", "querysecret"):
            self.assertNotIn(secret, log)

    def write_entry(self, name, entry):
        (self.config / name).write_text(json.dumps(entry))

    def load(self, name, path, key=None, code=OK, **options):
        text = ["--key", json.dumps(key)] if key is not None else []
        done = shoalctl("model", "load", "--json", "--counters", self.shoald.counters, name, path, *text,
                        code=code, **options)
        for secret in (SECRET, TOKEN, HEADER, "querysecret"):
            self.assertNotIn(secret, done.told.partition("\n")[2])
        return done.told.partition("\n")[2]

    def unload(self, name):
        shoalctl("model", "unload", "--counters", self.shoald.counters, name)

    def ask(self, name, number=1):
        with Client(self.shoald.target) as client:
            self.assertEqual(shoal_boosters.value_of(client.infer_raw(name, shoal_boosters.tensor(0))),
                             shoal_boosters.answers(number)[0])

    def cached(self):
        """The models in the cache: {file: content}, each."""
        return [{str(file.relative_to(model)): file.read_bytes() for file in model.rglob("*")
                 if file.is_file()} for model in (self.cache / "models").iterdir()]

    def count(self, name):
        self.shoald.wait_published()
        return self.shoald.stat()[name]

    def put(self, path="m", **files):
        self.store.objects["models"].update({f"{path}/{name}": data for name, data in files.items()} |
                                            {f"{path}/model.json": self.data})


class TestSources(Case):
    def test_names_that_must_be_encoded(self):
        path = "a b/+=~&%25?#/größe/日本"
        names = ["x y", "plus+and=eq", "tilde~", "ü/%41", "a'b\"c", "semi;colon,", "*!()", "back\\slash"]
        self.put(path, **{name: name.encode() for name in names})
        self.put("a b/+=~&%25?#/größe/日本2", decoy=b"not this")
        self.load("odd", path, {"storage_key": "mine"})
        self.ask("odd")
        self.assertEqual(self.cached(), [{"model.json": self.data} | {name: name.encode() for name in names}])
        self.assertEqual((self.count("storage_fetches"), self.count("storage_waiting")), (1, 0))
        self.assertEqual(self.count("storage_failed"), 0)

    def test_session_token(self):
        self.write_entry("temporary", self.store.entry("AKTOKEN", bucket="models"))
        self.put()
        self.load("m", "m", {"storage_key": "temporary"})
        self.ask("m")

    def test_uris(self):
        self.put()
        self.write_entry("default_s3", self.store.entry())
        self.load("folder", "s3://models/m/")
        self.load("file", "s3://models/m/model.json")
        self.store.plain["/plain/pla in.json"] = self.data
        self.load("http", self.store.url + "/plain/pla%20in.json?sig=querysecret")
        (self.folder / "claims" / "claim" / "sub").mkdir(parents=True)
        (self.folder / "claims" / "claim" / "sub" / "model.json").write_bytes(self.data)
        self.load("claim", "pvc://claim/sub")
        (self.folder / "files" / "one.json").write_bytes(self.data)
        self.load("local", (self.folder / "files" / "one.json").as_uri())
        for name in ("folder", "file", "http", "claim", "local"):
            with self.subTest(name):
                self.ask(name)
        self.assertEqual(sorted(name for model in self.cached() for name in model),
                         ["model.json", "one.json", "pla in.json"])  # equal contents are there once

    def test_defaults_and_parameters(self):
        """The keys of both documents, and what a puller makes of storage-config."""
        self.store.objects["others"]["m/model.json"] = model_data(2)
        self.write_entry("default", self.store.entry(bucket="models"))
        self.write_entry("default_special", self.store.entry(bucket="others"))
        self.put()
        key = {"bucket": "models", "disk_size_bytes": 2415, "storage_key": "mine",
               "model_type": {"name": "my_model_type", "version": "1"}}
        for number, (name, given, is_for) in enumerate([
                ("document", key, 1),
                ("bucket", {**key, "bucket": "others"}, 2),
                ("params", {"storage_key": "mine", "storage_params": {"bucket": "others"}}, 2),
                ("default", {"model_type": {"name": "my_model_type"}}, 1),
                ("by_type", {"model_type": {"name": "special"}}, 2),
                ("by_type_text", {"model_type": "special"}, 2)]):
            with self.subTest(name):
                self.load(f"m{number}", "m", given)
                self.ask(f"m{number}", is_for)

    def test_headers_go_to_their_own_server_only(self):
        self.store.needs = {"Authorization": HEADER}
        self.store.plain["/plain/m.json"] = self.data
        with Store() as other:
            other.plain["/plain/m.json"] = self.data
            self.store.redirects = {"/plain/moved": f"{other.url}/plain/m.json",
                                    "/plain/near": "/plain/m.json"}
            self.write_entry("web", {"type": "http", "url": self.store.url,
                                     "headers": {"Authorization": HEADER}})
            self.load("m", "plain/m.json", {"storage_key": "web"})
            self.load("near", "plain/near", {"storage_key": "web"})
            self.load("moved", "plain/moved", {"storage_key": "web"})
            self.assertEqual([HEADER in headers.values() for _, headers in other.requests], [False])
            self.assertTrue(all(HEADER in headers.values() for _, headers in self.store.requests))
            told = self.load("away", f"{other.url}/plain/m.json", {"storage_key": "web"}, code=NEGATIVE)
            self.assertIn("another server than the `url` of entry \"web\"", told)
            told = self.load("away", "m", {"storage_key": "mine", "storage_params": {
                "endpoint_url": other.url, "bucket": "models"}}, code=NEGATIVE)
            self.assertIn("another server than the `endpoint_url` of entry \"mine\"", told)
            self.assertEqual(len(other.requests), 1)


class TestVariables(Case):
    def begin(self, **keys):
        variables = {"AWS_ACCESS_KEY_ID": "AKTOKEN", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": TOKEN,
                     "AWS_REGION": REGION, "AWS_ENDPOINT_URL": self.store.url}
        with unittest.mock.patch.dict(os.environ, variables):
            super().begin(**keys)

    def test_credentials_do_not_go_where_a_key_says(self):
        self.put()
        with Store() as other:
            other.objects = self.store.objects
            self.load("away", "s3://models/m", {"storage_params": {"endpoint_url": other.url}})
            self.assertEqual([headers for _, headers in other.requests if "authorization" in headers or
                              "x-amz-security-token" in headers], [])
        self.load("own", "s3://models/m")


class TestRefusals(Case):
    def refused(self, status, expected, path, key=None):
        told = self.load("refused", path, key, code=NEGATIVE)
        self.assertIn(expected, told)
        self.assertIn(f'"status": "{status}"', told)
        self.assertEqual(self.cached(), [])

    def test_by_name(self):
        mine = {"storage_key": "mine"}
        self.write_entry("broken", {})
        self.write_entry("none", {"type": "ftp"})
        self.write_entry("half", {**self.store.entry(bucket="models"), "secret_access_key": ""})
        (self.config / "torn").write_text('{"secret_access_key": "' + SECRET)
        (self.folder / "files" / "link").symlink_to("/etc")
        os.mkfifo(self.folder / "files" / "fifo")
        for status, expected, path, key in [
                ("NOT_FOUND", "storage key \"nobody\" is not in storage-config", "m", {"storage_key": "nobody"}),
                ("FAILED_PRECONDITION", "is no name of an entry", "m", {"storage_key": "../mine"}),
                ("FAILED_PRECONDITION", "has no `type`", "m", {"storage_key": "broken"}),
                ("FAILED_PRECONDITION", "storage of type \"ftp\" is not known", "m", {"storage_key": "none"}),
                ("FAILED_PRECONDITION", "only one is given", "m", {"storage_key": "half"}),
                ("FAILED_PRECONDITION", "is no JSON object: line 1", "m", {"storage_key": "torn"}),
                ("FAILED_PRECONDITION", "there is no storage of this scheme", "gs://bucket/m", None),
                ("FAILED_PRECONDITION", "has a user's name", "http://me:querysecret@localhost/m", None),
                ("NOT_FOUND", "there is no file", "nothing", mine),
                ("NOT_FOUND", "404, NoSuchBucket", "m", {**mine, "bucket": "absent"}),
                ("PERMISSION_DENIED", "is not beneath `files_root`", "file:///etc/passwd", None),
                ("PERMISSION_DENIED", "leads elsewhere", (self.folder / "files" / "link/passwd").as_uri(), None),
                ("FAILED_PRECONDITION", "no file and no folder", (self.folder / "files" / "fifo").as_uri(), None),
                ("FAILED_PRECONDITION", "no claim is named", "pvc:///m", None),
                ("NOT_FOUND", "has no `default` or `default_TYPE`", "m", {"model_type": "x"})]:
            with self.subTest(expected):
                self.refused(status, expected, path, key)

    def test_wrong_secret(self):
        self.write_entry("wrong", {**self.store.entry(bucket="models"), "secret_access_key": "other"})
        self.put()
        self.refused("PERMISSION_DENIED", "403, SignatureDoesNotMatch", "m", {"storage_key": "wrong"})
        self.assertEqual(len(self.store.requests), 1)  # asked once: it is final

    def test_error_pages_are_no_models(self):
        self.store.plain["/plain/login"] = b"<html>please log in</html>"
        self.store.types["/plain/login"] = "text/html; charset=utf-8"
        self.refused("FAILED_PRECONDITION", "a page of HTML, not a model", self.store.url + "/plain/login")
        self.refused("NOT_FOUND", "the server answers 404", self.store.url + "/plain/none")
        self.store.redirects["/plain/round"] = "/plain/round"
        self.refused("FAILED_PRECONDITION", "redirects too often", self.store.url + "/plain/round")
        self.store.redirects["/plain/file"] = "file:///etc/passwd"
        self.refused("FAILED_PRECONDITION", "redirects to", self.store.url + "/plain/file")

    def test_names_that_lead_out(self):
        self.put(**{"../../../escape": b"x"})
        self.refused("FAILED_PRECONDITION", "cannot be the name of a file", "m", {"storage_key": "mine"})
        self.assertEqual(list(self.folder.rglob("escape")), [])

    def test_wrong_digest(self):
        self.put()
        mine, wrong = {"storage_key": "mine"}, hashlib.sha256(b"other").hexdigest()
        self.refused("DATA_LOSS", "the model's key states " + wrong, "m/model.json", {**mine, "sha256": wrong})
        self.refused("DATA_LOSS", "model.json: its sha256 is", "m", {**mine, "sha256": {"model.json": wrong}})
        right = hashlib.sha256(self.data).hexdigest()
        self.load("right", "m/model.json", {**mine, "sha256": right})
        asked = len(self.store.requests)
        self.unload("right")
        self.load("right", "m/model.json", {**mine, "sha256": right})
        self.assertEqual(len(self.store.requests), asked)  # it can be nothing else
        self.ask("right")

    def test_digests_of_what_was_stored_without_them(self):
        self.put(weights=b"w")
        mine, wrong = {"storage_key": "mine"}, hashlib.sha256(b"other").hexdigest()
        self.load("m", "m", mine)
        self.unload("m")
        for expected, digests in (("the model's key states " + wrong, {"model.json": wrong}),
                                  ("which is not there", {"other": wrong}),
                                  ("is not a string", {"model.json": 1}),
                                  ("is of one file", wrong)):
            with self.subTest(expected):
                self.assertIn(expected, self.load("m", "m", {**mine, "sha256": digests}, code=NEGATIVE))

    def test_file_and_folder_of_one_name(self):
        self.put(**{"a": b"1", "a/b": b"2"})
        self.refused("FAILED_PRECONDITION", "would have the name of a folder", "m", {"storage_key": "mine"})

    def test_line_breaks_do_not_reach_requests(self):
        self.put()
        for region in (f"{REGION}\r\nX-Evil: 1", "evil.example/#"):
            key = {"storage_key": "mine", "storage_params": {"bucket": "models", "region": region}}
            self.refused("FAILED_PRECONDITION", "`region` must be", "m", key)
        self.store.etag_end = "&#13;&#10;X-Evil: 1"
        self.refused("DATA_LOSS", "an ETag with a line break", "m", {"storage_key": "mine"})
        self.assertEqual([headers for _, headers in self.store.requests if "x-evil" in headers], [])

    def test_wrong_lengths(self):
        self.put()
        self.store.listed_lies = 7
        self.refused("UNAVAILABLE", "were listed", "m", {"storage_key": "mine"})
        self.store.listed_lies, self.store.lies = 0, 7
        self.refused("UNAVAILABLE", "were listed", "m", {"storage_key": "mine"})
        self.store.plain["/plain/m"] = self.data
        self.refused("UNAVAILABLE", "6 attempts failed", self.store.url + "/plain/m")
        self.store.lies = 0
        self.load("m", "m", {"storage_key": "mine"})
        self.ask("m")


class TestBadConnections(Case):
    def big(self):
        return {"weights": os.urandom(3 << 20)}

    def test_cut_every_64_kib(self):
        files = self.big()
        self.put(**files)
        self.store.cut_bytes = 64 << 10
        self.load("m", "m", {"storage_key": "mine"})
        self.ask("m")
        self.assertEqual(self.cached(), [files | {"model.json": self.data}])
        self.assertGreaterEqual(self.count("storage_retries"), 40)
        self.assertEqual(self.count("storage_received"), sum(map(len, files.values())) + len(self.data))

    def test_cut_over_http(self):
        self.store.plain["/plain/m.json"] = self.data + b" " * (1 << 20)
        self.store.cut_bytes = 64 << 10
        self.load("m", self.store.url + "/plain/m.json")
        self.ask("m")
        self.assertEqual(self.count("storage_received"), len(self.data) + (1 << 20))

    def test_cut_without_validators_ends(self):
        """Without an ETag nothing can be resumed, and each attempt brings the same."""
        self.store.plain["/plain/m.json"] = self.data + b" " * (1 << 20)
        self.store.cut_bytes, self.store.etags = 64 << 10, False
        self.assertIn("6 attempts failed", self.load("m", self.store.url + "/plain/m.json", code=NEGATIVE))

    def test_body_that_ends_with_its_connection(self):
        """One that is cut looks the same: only a digest shows it."""
        path = self.store.url + "/plain/m.json"
        self.store.plain["/plain/m.json"] = self.data + b" " * (1 << 20)
        self.store.lengths = False
        digest = hashlib.sha256(self.store.plain["/plain/m.json"]).hexdigest()
        self.assertIn("state its `sha256`", self.load("m", path, code=NEGATIVE))
        self.load("m", path, {"sha256": digest})

    def test_ranges_that_are_shorter(self):
        self.store.plain["/plain/m.json"] = self.data + b" " * (1 << 20)
        self.store.cut_bytes, self.store.range_bytes = 128 << 10, 64 << 10
        self.load("m", self.store.url + "/plain/m.json")
        self.assertTrue(self.cached() == [{"m.json": self.store.plain["/plain/m.json"]}], "other bytes")

    def test_range_of_another_content(self):
        """The server ignores If-Range, as some do."""
        self.store.plain["/plain/m.json"] = self.data + b" " * (1 << 20)
        self.store.hold, self.store.heeds_if_range = threading.Event(), False
        loading = threading.Thread(target=self.load, args=("m", self.store.url + "/plain/m.json"))
        loading.start()
        wait_until(lambda: self.store.sent >= 512 << 10, "the first half")
        self.store.plain["/plain/m.json"] = self.data + b"\n" * (1 << 20)
        self.store.cut_bytes = 512 << 10
        self.store.hold.set()
        wait_until(lambda: any(headers.get("range") for _, headers in self.store.requests), "the second half")
        self.store.cut_bytes = None
        loading.join()
        self.assertTrue(self.cached() == [{"m.json": self.store.plain["/plain/m.json"]}], "other bytes")

    def test_errors_that_do_not_last(self):
        self.put()
        self.store.failures = [503, 500, 429, 503]
        self.load("m", "m", {"storage_key": "mine"})
        self.ask("m")
        self.assertEqual(self.count("storage_retries"), 4)

    def test_errors_that_last(self):
        self.put()
        self.store.failures = [503] * 100
        told = self.load("m", "m", {"storage_key": "mine"}, code=NEGATIVE)
        self.assertIn("6 attempts failed: the server answers 503", told)
        self.assertIn('"status": "UNAVAILABLE"', told)
        self.assertEqual(len(self.store.requests), 6)

    def test_slow_server(self):
        files = {"weights": os.urandom(1 << 20)}
        self.put(**files)
        self.store.pause_s = 0.05
        self.load("m", "m", {"storage_key": "mine"})
        self.assertEqual(self.cached(), [files | {"model.json": self.data}])

    def test_changed_while_it_is_fetched(self):
        self.put(weights=b"1" * (1 << 20))
        self.store.hold = threading.Event()
        loading = threading.Thread(target=self.load, args=("m", "m", {"storage_key": "mine"}))
        loading.start()
        wait_until(lambda: any(path.endswith("weights") for path in self.store.paths()), "the first half")
        self.put(weights=b"2" * (1 << 20))
        self.store.cut_bytes = 512 << 10  # the rest comes by another request, with If-Match
        self.store.hold.set()
        wait_until(lambda: any(headers.get("range") for _, headers in self.store.requests), "the second half")
        self.store.cut_bytes = None
        loading.join()
        self.assertEqual(self.cached(), [{"weights": b"2" * (1 << 20), "model.json": self.data}])

    def test_unload_cancels(self):
        self.put(weights=b"1" * (1 << 20))
        self.store.hold = threading.Event()
        loading = threading.Thread(target=self.load, args=("m", "m", {"storage_key": "mine"}, NEGATIVE))
        loading.start()
        wait_until(lambda: any(path.endswith("weights") for path in self.store.paths()), "the first half")
        self.unload("m")
        loading.join()
        wait_until(lambda: self.count("storage_fetching") == 0, "the end of the fetch")
        self.store.hold.set()
        self.assertEqual(self.cached(), [])

    def test_kill_in_the_middle(self):
        """The next process goes on where the first one was killed."""
        weights = os.urandom(4 << 20)
        self.put(weights=weights)
        self.store.hold = threading.Event()
        asker = subprocess.Popen(  # its answer will not come
            [shoal_fixture.BIN / "shoalctl", "model", "load", "--counters", self.shoald.counters,
             "m", "m", "--key", '{"storage_key": "mine"}'], stderr=subprocess.DEVNULL)
        partial = self.cache / "partial"
        wait_until(lambda: any(file.stat().st_size >= 2 << 20 for file in partial.rglob("weights")),
                   "half of the file")
        self.shoald.kill()
        asker.wait()
        self.assertEqual(self.cached(), [])
        self.store.hold.set()
        sent = self.store.sent
        self.begin()
        self.load("m", "m", {"storage_key": "mine"})
        self.ask("m")
        self.assertEqual(self.cached(), [{"weights": weights, "model.json": self.data}])
        self.assertLessEqual(self.store.sent - sent, (2 << 20) + (64 << 10) + len(self.data))
        self.assertEqual(list(partial.iterdir()), [])


class TestFiveAtOnce(Case):
    keys = {"load_concurrency": 5}

    def test_one_that_waits_is_unloaded_and_four_of_equal_content_end(self):
        self.store.hold, loads = threading.Event(), []
        pool = self.enterContext(concurrent.futures.ThreadPoolExecutor(5))
        for i in range(5):
            self.put(f"m{i}", weights=bytes(1 << 20))
            code = OK if i < 4 else NEGATIVE
            loads.append(pool.submit(self.load, f"m{i}", f"m{i}", {"storage_key": "mine"}, code))
            wait_until(lambda i=i: self.count("storage_fetching") == min(i + 1, 4), "the fetch")
        wait_until(lambda: self.count("storage_waiting") == 1, "one that waits")
        self.unload("m4")
        wait_until(lambda: self.count("storage_waiting") == 0, "its end")
        self.store.hold.set()
        self.assertEqual(len([load.result() for load in loads]), 5)


class TestDeadline(Case):
    keys = {"load_timeout_ms": 4000}

    def test_late(self):
        weights = os.urandom(1 << 20)
        self.put(weights=weights)
        self.store.hold = threading.Event()
        told = self.load("m", "m", {"storage_key": "mine"}, code=NEGATIVE)
        self.assertIn("longer than load_timeout_ms", told)
        self.store.hold.set()
        self.load("m", "m", {"storage_key": "mine"})
        self.assertTrue(any(headers.get("range") for _, headers in self.store.requests))
        self.assertEqual(self.cached(), [{"weights": weights, "model.json": self.data}])


class TestCache(Case):
    cache_gib = 10 / 1024

    def big(self, name):
        data = name.encode() * (4 << 20)
        self.put(name, weights=data)
        return data

    def test_bounded(self):
        for name in "abc":
            self.big(name)
        mine = {"storage_key": "mine"}
        self.load("a", "a", mine)
        self.load("b", "b", mine)
        told = self.load("c", "c", mine, code=NEGATIVE)
        self.assertIn("of models that are loaded or being fetched: raise models_cache_gib", told)
        self.unload("a")
        self.load("c", "c", mine)
        self.assertEqual(self.count("storage_evictions"), 1)
        self.assertEqual({model["weights"][:1] for model in self.cached()}, {b"b", b"c"})
        self.assertEqual(len(list((self.cache / "sources").iterdir())), 2)
        self.assertLessEqual(self.count("storage_cache"), 10 << 20)
        self.put("huge", weights=bytes(11 << 20))
        self.assertIn("more than the whole cache may have", self.load("huge", "huge", mine, code=NEGATIVE))
        self.ask("b")
        self.ask("c")

    def test_hit_and_change(self):
        self.big("a")
        mine = {"storage_key": "mine"}
        for i in range(2):
            self.load("a", "a", mine)
            self.unload("a")
        self.assertEqual((self.count("storage_hits"), self.store.sent), (1, (4 << 20) + len(self.data)))
        self.put("a", weights=b"new")
        self.load("a", "a", mine)
        self.assertIn({"weights": b"new", "model.json": self.data}, self.cached())

    def test_http_hit(self):
        self.store.plain["/plain/m.json"] = self.data
        for i in range(2):
            self.load("m", self.store.url + "/plain/m.json")
            self.unload("m")
        self.assertEqual((self.count("storage_hits"), self.store.sent), (1, len(self.data)))

    def test_http_hit_by_date(self):
        self.store.plain["/plain/m.json"] = self.data
        self.store.etags, self.store.modified = False, "Wed, 21 Oct 2026 07:28:00 GMT"  # no weak ETag
        for i in range(2):
            self.load("m", self.store.url + "/plain/m.json")
            self.unload("m")
        self.assertEqual(self.count("storage_hits"), 1)

    def test_deleted_while_it_runs(self):
        mine = {"storage_key": "mine"}
        self.put("b", weights=b"w")
        self.put("a")
        self.load("a", "a", mine)
        for part in self.cache.iterdir():
            shutil.rmtree(part)
        for name, path in (("again", "a"), ("b", "b")):
            self.load(name, path, mine)
            self.ask(name)
        self.ask("a")

    def test_source_is_away(self):
        self.big("a")
        mine = {"storage_key": "mine"}
        self.load("a", "a", mine)
        self.unload("a")
        self.store.failures = [503] * 100
        self.load("a", "a", mine)
        self.ask("a")
        self.shoald.wait_log("storage_stale")
        self.assertEqual(self.count("storage_stale"), 1)

    def test_restart_keeps_it(self):
        self.big("a")
        mine = {"storage_key": "mine"}
        self.load("a", "a", mine)
        self.shoald.kill()
        sent = self.store.sent
        self.begin()
        self.load("a", "a", mine)
        self.ask("a")
        self.assertEqual(self.store.sent, sent)

    def test_same_at_once(self):
        self.big("a")
        self.load_four("a", {"storage_key": "mine"})
        self.assertEqual(self.store.sent, (4 << 20) + len(self.data))
        self.assertEqual(len(self.cached()), 1)

    def test_same_at_once_over_http(self):
        self.store.plain["/plain/m.json"] = self.data + b" " * (4 << 20)
        self.load_four(self.store.url + "/plain/m.json", None)
        self.assertEqual(self.store.sent, (4 << 20) + len(self.data))

    def load_four(self, path, key):
        loads = [threading.Thread(target=self.load, args=(f"m{i}", path, key)) for i in range(4)]
        for load in loads:
            load.start()
        for load in loads:
            load.join()

    def test_worker_that_restarts_finds_it(self):
        self.big("a")
        self.load("a", "a", {"storage_key": "mine"})
        worker, = self.shoald.workers()
        os.kill(worker.pid, 9)
        self.shoald.wait_successor(worker)
        self.ask("a")


class TestMesh(Case):
    """Registered as ModelMesh's controller does, with the keys of KServe's documents."""

    def begin(self, **keys):
        self.shoald = self.enterContext(Shoald(node(
            pipeline("boosters", stage("libxgboost_modelet.so"), slots=16, models={
                "root": str(self.folder / "models"), "memory_mib": 256}),
            models_cache_gib=self.cache_gib, models_cache=str(self.cache), mesh={"instance": "node-1"},
            storage_config=str(self.config)), folder=self.folder))
        self.registrar = self.enterContext(Registrar(self.shoald))

    def test_registered(self):
        self.put("my_models/mnist-model", weights=b"w")
        key = {"bucket": "models", "model_type": {"name": "my_model_type", "version": "1"},
               "storage_key": "mine"}
        said = self.registrar.register("my-mnist-isvc-1", "my_models/mnist-model", json.dumps(key),
                                       "mt:my_model_type", loadNow=True, sync=True)
        self.assertEqual(said.status, LOADED, said)
        self.ask("my-mnist-isvc-1")
        self.assertEqual(self.cached(), [{"weights": b"w", "model.json": self.data}])

    def test_failure_is_told(self):
        said = self.registrar.register("m", "nothing", '{"storage_key": "mine"}', "mt:x", loadNow=True,
                                       sync=True)
        self.assertEqual(said.status, LOADING_FAILED)
        self.assertIn("s3://models/nothing: there is no file", said.errors[0])


class TestExternalRuntime(Case):
    """A model server gets from the storage helper what KServe's documents promise."""

    cache_gib = 10 / 1024

    def begin(self, **keys):
        self.runtime = self.enterContext(Runtime())
        self.shoald = self.enterContext(Shoald(
            {"models_cache_gib": self.cache_gib, "models_cache": str(self.cache),
             "storage_config": str(self.config),
             "mesh": {"instance": "node-1", "runtime": self.runtime.address}}, folder=self.folder))
        self.registrar = self.enterContext(Registrar(self.shoald))

    def asked(self, method="loadModel"):
        return [request for name, request in self.runtime.asked if name == method]

    def register(self, name, path, key, **fields):
        return self.registrar.register(name, path, key if isinstance(key, str) else json.dumps(key),
                                       "mt:my_model_type", loadNow=True, sync=True, **fields)

    def test_documents(self):
        self.put("my_models/mnist-model", weights=b"w" * 1000)
        given = {"model_type": {"name": "my_model_type", "version": "1"}, "storage_key": "mine"}
        with_size = {"bucket": "models", "disk_size_bytes": 1000 + len(self.data), **given}
        for number, key in enumerate(({**given, "bucket": "models"},
                                      {**given, "storage_params": {"bucket": "models"}})):
            with self.subTest(key):
                name = f"my-mnist-isvc-{number}"
                self.assertEqual(self.register(name, "my_models/mnist-model", key).status, LOADED)
                asked = self.asked()[-1]
                self.assertEqual(asked.modelKey, json.dumps(with_size))
                self.assertEqual({file.name: file.read_bytes()
                                  for file in pathlib.Path(asked.modelPath).iterdir()},
                                 {"model.json": self.data, "weights": b"w" * 1000})
                self.assertEqual((asked.modelId, asked.modelType), (name, "mt:my_model_type"))
        self.assertEqual(len(self.cached()), 1)

    def test_without_storage_all_is_as_given(self):
        self.assertEqual(self.register("plain", "my_models/x", '{"a": 1}').status, LOADED)
        self.assertEqual((self.asked()[0].modelPath, self.asked()[0].modelKey), ("my_models/x", '{"a": 1}'))

    def test_failures(self):
        mine = {"storage_key": "mine"}
        said = self.register("none", "nothing", mine)
        self.assertEqual(said.status, LOADING_FAILED)
        self.assertIn("there is no file", said.errors[0])
        self.assertEqual(self.asked(), [])

    def test_files_stay_until_the_unload(self):
        """Half of the cache each: the second model needs the room of the first."""
        mine, size = {"storage_key": "mine"}, 6 << 20
        for name in ("a", "b"):
            self.put(name, weights=name.encode() * size)
        self.assertEqual(self.register("a", "a", mine).status, LOADED)
        said = self.register("b", "b", mine)
        self.assertEqual(said.status, LOADING_FAILED)
        self.assertIn("raise models_cache_gib", said.errors[0])
        self.registrar.unregister("a")
        wait_until(lambda: self.asked("unloadModel"), "the unload")
        self.registrar.unregister("b")
        self.assertEqual(self.register("b2", "b", mine).status, LOADED)
        self.assertEqual(self.count("storage_evictions"), 1)

    def test_runtime_that_ends_holds_nothing(self):
        mine, size = {"storage_key": "mine"}, 6 << 20
        for name in ("a", "b"):
            self.put(name, weights=name.encode() * size)
        self.assertEqual(self.register("a", "a", mine).status, LOADED)
        address = self.runtime.address
        self.runtime.stop()
        self.shoald.wait_log("external_lost")
        self.registrar.unregister("a")
        self.runtime = self.enterContext(Runtime(address))
        wait_until(lambda: self.asked("runtimeStatus"), "the runtime's return")
        self.assertEqual(self.register("b", "b", mine).status, LOADED)


class TestServe(Case):
    def test_uris(self):
        self.put("iris")
        self.store.plain["/plain/boat.json"] = self.data
        environment = {"AWS_ACCESS_KEY_ID": "AKTEST", "AWS_SECRET_ACCESS_KEY": SECRET,
                       "AWS_ENDPOINT_URL": self.store.url, "AWS_REGION": REGION,
                       "XDG_CACHE_HOME": str(self.folder)}
        done = subprocess.run(
            [shoal_fixture.BIN / "shoald", "serve", "--print-config", "s3://models/iris",
             self.store.url + "/plain/boat.json?sig=querysecret"],
            env={**os.environ, **environment}, capture_output=True, text=True, check=True, timeout=60)
        config = done.stdout
        self.assertIn('id: "iris"', config)
        self.assertIn('id: "boat"', config)
        self.assertNotIn("querysecret", config + done.stderr)
        pipelines = "".join(config.partition("pipelines:")[1:])
        with Shoald(pipelines) as shoald, Client(shoald.target) as client:
            for name in ("iris", "boat"):
                answer = client.infer_raw(name, shoal_boosters.tensor(0))
                self.assertEqual(shoal_boosters.value_of(answer), shoal_boosters.answers(1)[0])

    def test_code_is_not_fetched(self):
        for name in ("evil.py", "evil.pkl", "evil.joblib", "evil%2Epy"):
            with self.subTest(name):
                self.store.plain["/plain/" + name.replace("%2E", ".")] = b"import shoal"
                done = subprocess.run(
                    [shoal_fixture.BIN / "shoald", "serve", "--print-config", self.store.url + "/plain/" + name],
                    env={**os.environ, "XDG_CACHE_HOME": str(self.folder)}, capture_output=True, text=True,
                    check=False, timeout=60)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn("code is not fetched", done.stderr)

    def test_refused(self):
        done = subprocess.run([shoal_fixture.BIN / "shoald", "serve", self.store.url + "/plain/none"],
                              env={**os.environ, "XDG_CACHE_HOME": str(self.folder)}, capture_output=True,
                              text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("the server answers 404", done.stderr)


@unittest.skipIf(os.geteuid() != 0, "a small file system needs root")
class TestFullDisk(Case):
    def setUp(self):
        self.small = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="shoal-test.")))
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", self.small],
                              capture_output=True, check=False)
        if done.returncode != 0:
            self.skipTest("this container may not mount")
        self.addCleanup(subprocess.run, ["umount", "-l", self.small], check=True)
        super().setUp()

    def begin(self, **keys):
        self.cache = self.small / "cache"
        super().begin(**keys)

    def test_full(self):
        mine = {"storage_key": "mine"}
        self.put("a", weights=bytes(4 << 20))
        self.put("b", weights=bytes(5 << 20))
        self.load("a", "a", mine)
        told = self.load("b", "b", mine, code=NEGATIVE)
        self.assertIn("the file system of models_cache is full", told)
        self.ask("a")
        self.unload("a")
        self.load("b", "b", mine)
        self.ask("b")
        self.assertEqual(self.count("storage_evictions"), 1)


class TestBesideTheCache(Case):
    """Models of the root, whose path begins like the cache's and whose keys name storages."""

    def begin(self, **keys):
        root = self.folder / "cache" / "models-of-mine" / "local"
        root.mkdir(parents=True)
        (root / "model.json").write_bytes(self.data)
        (root / "key.json").write_text('{"storage_key": "mine", "bucket": "models"}')
        self.shoald = self.enterContext(Shoald(node(
            pipeline("boosters", stage("libxgboost_modelet.so"), slots=16,
                     models={"root": str(root.parent), "memory_mib": 256}),
            models_cache_gib=self.cache_gib, models_cache=str(self.cache), http=ANY_PORT, http_control="on",
            storage_config=str(self.config)), folder=self.folder))

    def test_loaded_by_name(self):
        self.ask("local")
        with urllib.request.urlopen(urllib.request.Request(
                f"http://127.0.0.1:{port_of(self.shoald)}/v2/repository/models/local/load", b"{}")) as answer:
            self.assertEqual(answer.status, 200)
        self.ask("local")
        self.assertEqual(self.store.requests, [])


class TestWithoutCache(unittest.TestCase):
    def test_refused(self):
        with tempfile.TemporaryDirectory(prefix="shoal-test.") as folder:
            config = node(pipeline("boosters", stage("libxgboost_modelet.so"),
                                   models={"root": folder, "memory_mib": 64, "watch": "no"}, slots=16))
            with Shoald(config) as shoald:
                done = shoalctl("model", "load", "--counters", shoald.counters, "m", "s3://b/m",
                                code=NEGATIVE)
                self.assertIn("this node fetches no models: give it disk space, `models_cache_gib`", done.told)


if __name__ == "__main__":
    shoal_fixture.main()
