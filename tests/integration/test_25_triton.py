# SPDX-License-Identifier: Apache-2.0
"""Triton's extensions about models, over gRPC and REST: the list of models, index, load, unload,
configuration, statistics. Both ways tell the same; loading and unloading need `http_control: on`.
ctest: timeout=180
"""

import json
import pathlib
import tempfile
import time
import unittest

import grpc

import shoal_fixture
from shoal_client import Client, failure
from shoal_fixture import Shoald, node, pipeline, stage, wait_until
from shoal_rest import ANY_PORT, Rest, port_of, tensor

Code = grpc.StatusCode
NAMES = ("a broken one", "simple", "simple_identity", "simple_string")
COLUMNS = list(range(16))


class Models(unittest.TestCase):
    keys = {}

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(
            tempfile.TemporaryDirectory(prefix="shoal-test.")))
        cls.make_models(cls.folder / "models")
        cls.shoald = cls.enterClassContext(Shoald(node(
            pipeline("more", stage("libsimple.so", batch_size=8, batch_wait_ms=2),
                     models={"root": "models", "memory_mib": 512, "preload": "no"}),
            pipeline("echo", stage("libecho.so")), pipeline("zebra", stage("libecho.so")),
            http=ANY_PORT, **cls.keys), folder=cls.folder))
        cls.port = port_of(cls.shoald)
        cls.client = cls.enterClassContext(Client(cls.shoald.target))

    @staticmethod
    def make_models(root):
        for name in NAMES:
            (root / name).mkdir(parents=True)

    def setUp(self):
        self.rest = self.enterContext(Rest(self.port))

    def order(self, name, verb, **members):
        return self.rest.ask("POST", f"/v2/repository/models/{name}/{verb}",
                             json.dumps(members) if members else None)

    def state(self, name):
        rows = self.rest.ask("POST", "/v2/repository/index").json
        return next((row["state"], row["reason"]) for row in rows if row["name"] == name)

    def infer(self, model="simple", rows=1, headers=None):
        return self.rest.infer(model, tensor("INPUT0", "INT32", [rows, 16], COLUMNS * rows),
                               tensor("INPUT1", "INT32", [rows, 16], [1] * 16 * rows), headers=headers)


class TestControl(Models):
    keys = {"http_control": "on"}

    def test_list(self):
        names = sorted((*NAMES, "echo", "zebra"))
        for path in ("/v2/models", "/v1/models", "/v2/models?x=1&limit=1000", "/v2/models?after="):
            self.assertEqual(self.rest.get(path).json, {"models": names})
        paged, after = [], ""
        while after is not None:
            page = self.rest.get(f"/v2/models?limit=2&after={after.replace(' ', '%20')}").json
            self.assertLessEqual(len(page["models"]), 2)
            paged += page["models"]
            after = page.get("next")
        self.assertEqual(paged, names)
        self.assertEqual(self.rest.get("/v2/models?after=zebra").json, {"models": []})
        for limit in ("0", "1001", "x", "-1", "", "1.5", "99999999999999999999"):
            answer = self.rest.get(f"/v2/models?limit={limit}")
            self.assertEqual(answer.code, 400, answer)
            self.assertIn("limit", answer.error)

    def test_index(self):
        rows = self.rest.ask("POST", "/v2/repository/index", "{}").json
        self.assertEqual([row["name"] for row in rows], sorted((*NAMES, "echo", "zebra")))
        index = self.client.call("RepositoryIndex")
        self.assertEqual([{"name": one.name, "version": one.version, "state": one.state,
                           "reason": one.reason} for one in index.models], rows)
        self.assertEqual(rows[1], {"name": "echo", "version": "1", "state": "READY", "reason": ""})
        ready = self.rest.ask("POST", "/v2/repository/index", '{"ready": true}').json
        self.assertEqual(ready, [row for row in rows if row["state"] == "READY"])
        self.assertEqual(len(self.client.call("RepositoryIndex", ready=True).models), len(ready))

    def test_load_and_unload(self):
        for load, unload in (
                (lambda: self.assertEqual(self.order("simple", "load").json, {}),
                 lambda: self.order("simple", "unload", parameters={"unload_dependents": True})),
                (lambda: self.client.call("RepositoryModelLoad", model_name="simple"),
                 lambda: self.client.call("RepositoryModelUnload", model_name="simple"))):
            load()
            self.assertEqual(self.rest.get("/v2/models/simple/ready").code, 200)
            self.assertEqual(self.state("simple"), ("READY", ""))
            load()  # again: it stays
            unload()
            self.assertEqual(self.rest.get("/v2/models/simple/ready").code, 503)
            self.assertEqual(self.state("simple"), ("UNAVAILABLE", "not loaded: a request loads it"))
        self.assertEqual(self.infer().code, 200)
        self.assertEqual(self.state("simple")[0], "READY")

    def test_failures(self):
        for name, verb, code, words in (
                ("nobody", "load", 404, ("failed to load 'nobody'",)),
                ("nobody", "unload", 404, ("failed to unload 'nobody'", "not known")),
                ("..%2F..%2Fetc", "load", 400, ("failed to load '../../etc'",)),
                ("echo", "load", 503, ("failed to load 'echo'", "pipelines with `models`")),
                ("echo", "unload", 503, ("failed to unload 'echo'",)),
                ("a%20broken%20one", "load", 503, ("failed to load 'a broken one'", "broken"))):
            answer = self.order(name, verb)
            self.assertEqual(answer.code, code, answer)
            for word in words:
                self.assertIn(word, answer.error)
            error = failure(self.client.start(
                "RepositoryModelLoad" if verb == "load" else "RepositoryModelUnload",
                model_name=name.replace("%2F", "/").replace("%20", " ")))
            self.assertEqual(error[1], answer.error)
        self.assertEqual(self.state("a broken one")[0], "UNAVAILABLE")
        self.assertIn("broken", self.state("a broken one")[1])
        for parameter, value, code, grpc_code, word in (
                ("config", "{{", 400, Code.INVALID_ARGUMENT, "config: "),
                ("config", '{"optimization": {}}', 400, Code.INVALID_ARGUMENT, "leave out optimization"),
                ("config", '{"optimization": {}, "": 1}', 400, Code.INVALID_ARGUMENT, 'leave out optimization, ""'),
                ("config", " " * 9000, 400, Code.INVALID_ARGUMENT, "at most 8191"),
                ("other", "", 400, Code.INVALID_ARGUMENT, '"other" is not supported'),
                ("file:" + "A" * 256, "YQ==", 500, Code.INTERNAL, "failed to poll from model repository")):
            answer = self.order("simple", "load", parameters={parameter: value})
            self.assertEqual(answer.code, code, answer)
            self.assertIn(word, answer.error)
            error = failure(self.grpc_load(**{parameter: value}))
            self.assertIs(error[0], grpc_code)
            self.assertEqual(error[1], answer.error)
        self.assertEqual(self.order("simple", "load", parameters={"config": {}}).code, 400)
        for body, word in (("[]", "a JSON object"), ("{", "not valid JSON"), ('{"ready": 1}', '"ready"'),
                           ('{"parameters": []}', '"parameters"'), (" " * 70_000, "65536")):
            answer = self.rest.ask("POST", "/v2/repository/index", body)
            self.assertEqual(answer.code, 400)
            self.assertIn(word, answer.error)
        self.assertEqual(self.rest.get("/v2/repository/index").code, 405)
        self.assertEqual(self.rest.get("/v2/repository/models/simple/load").code, 405)
        self.assertEqual(self.rest.get("/v2/models/" + "x" * 128 + "/stats").code, 400)
        for message in (b"\x0a", b"\x0a\x02\xff\xff", b"\x0a" + b"\xff\x01" + b"x" * 255, b"\x08\x01",
                        bytes(70_000)):
            error = failure(self.client.start_bytes(
                "/inference.GRPCInferenceService/ModelStatistics", message))
            self.assertIs(error[0], Code.INVALID_ARGUMENT)

    def test_config_of_a_load(self):
        self.order("simple", "load")
        self.addCleanup(self.order, "simple", "unload")
        config = self.rest.get("/v2/models/simple/config").json
        self.assertEqual((config["max_batch_size"], self.infer(rows=17).code), (8, 200))
        config["max_batch_size"] = 16
        for load in (lambda: self.order("simple", "load", parameters={"config": '{"max_batch_size": "16"}'}),
                     lambda: self.grpc_load(config=json.dumps(config | {"platform": ""})).result()):
            load()
            self.assertEqual(self.client.call("ModelConfig", name="simple").config.max_batch_size, 16)
            self.assertEqual(self.infer(rows=16).code, 200)
            refused = self.infer(rows=17)
            self.assertEqual(refused.code, 400)
            self.assertIn('tensor "INPUT0": 17 rows, but model "simple" takes at most 16', refused.error)
            refused = self.order("simple", "load", parameters={
                "config": '{"max_batch_size": 4, "input": [{"name": "INPUT0", "dims": [17]}]}'})
            self.assertEqual(refused.code, 503)
            self.assertIn("failed to load 'simple': config: input \"INPUT0\": the model has other dims",
                          refused.error)
            self.assertEqual(self.infer(rows=16).code, 200)
            self.order("simple", "load")  # without: as its files say
            self.assertEqual(self.infer(rows=17).code, 200)
        self.order("simple", "load", parameters={"config": '{"maxBatchSize": 1}'})
        self.assertEqual(self.infer(rows=2).code, 400)
        self.order("simple", "unload")
        self.assertEqual(self.infer(rows=2).code, 200)

    def grpc_load(self, **values):
        """A future."""
        parameter = self.client.type("inference.ModelRepositoryParameter")
        parameters = {name: parameter(bytes_param=value.encode()) if name.startswith("file:")
                      else parameter(string_param=value) for name, value in values.items()}
        return self.client.start("RepositoryModelLoad", model_name="simple", parameters=parameters)

    def test_config(self):
        self.order("simple", "load")
        config = self.rest.get("/v2/models/simple/config").json
        self.assertEqual(config, {
            "name": "simple", "platform": "simple", "max_batch_size": 8, "backend": "",
            "input": [{"name": f"INPUT{i}", "data_type": "TYPE_INT32", "dims": [16]} for i in (0, 1)],
            "output": [{"name": f"OUTPUT{i}", "data_type": "TYPE_INT32", "dims": [16]} for i in (0, 1)],
            "dynamic_batching": {"preferred_batch_size": [], "max_queue_delay_microseconds": 2000}})
        by_id = self.rest.ask("GET", "/v2/models/nobody/config", headers={"mm-model-id": "simple"})
        self.assertEqual(by_id.json, config)
        self.assertEqual(self.rest.get("/v2/models/simple/versions/1/config").json, config)
        message = self.client.call("ModelConfig", name="simple").config
        self.assertEqual((message.name, message.max_batch_size, len(message.input), list(message.output[1].dims)),
                         ("simple", 8, 2, [16]))
        self.assertEqual(self.rest.get("/v2/models/echo/config").json["max_batch_size"], 0)
        for path, code in (("nobody/config", 404), ("simple/versions/2/config", 404)):
            self.assertEqual(self.rest.get(f"/v2/models/{path}").code, code)

    def statistics(self, model):
        row, = self.rest.get(f"/v2/models/{model}/stats").json["model_stats"]
        message, = self.client.call("ModelStatistics", name=model).model_stats
        self.assertEqual((message.name, message.inference_count, message.inference_stats.success.ns),
                         (model, row["inference_count"], row["inference_stats"]["success"]["ns"]))
        return row

    def test_statistics(self):
        before = {name: self.statistics(name) for name in ("simple_string", "echo")}
        began = time.time()
        for _ in range(3):
            self.assertEqual(self.rest.infer("echo", tensor("x", "INT8", [1], [1])).code, 200)
        self.assertEqual(self.rest.infer("echo").code, 400)
        good, bad = ["1"] * 16, ["x"] * 16
        for left in (good, good, bad):
            self.rest.infer("simple_string", tensor("INPUT0", "BYTES", [1, 16], left),
                            tensor("INPUT1", "BYTES", [1, 16], good))
        took_ns = (time.time() - began) * 1e9

        def grown(name, what, member):
            return (self.statistics(name)["inference_stats"][what][member] -
                    before[name]["inference_stats"][what][member])
        for name, successes, failures in (("simple_string", 2, 1), ("echo", 3, 1)):
            wait_until(lambda n=name, f=failures: grown(n, "fail", "count") == f, "the failure is not counted")
            self.assertEqual(grown(name, "success", "count"), successes)
            for what in ("success", "fail"):
                self.assertTrue(0 < grown(name, what, "ns") < took_ns, what)
        row = self.statistics("simple_string")
        self.assertEqual(row["inference_count"], row["inference_stats"]["success"]["count"])
        self.assertTrue(began * 1000 - 1000 <= row["last_inference"] <= time.time() * 1000 + 1000)
        self.assertEqual((row["memory_usage"][0]["type"], row["version"]), ("CPU", "1"))
        everything = self.rest.get("/v2/models/stats").json["model_stats"]
        self.assertEqual([one["name"] for one in everything], sorted((*NAMES, "echo", "zebra")))
        self.assertEqual(self.rest.get("/v2/models/nobody/stats").code, 404)
        self.shoald.wait_published()
        self.assertGreater(self.shoald.pipeline_stat("echo")["failure_time"], 0)

    def test_deadline(self):
        answer = self.rest.ask("POST", "/v2/repository/index", headers={"Grpc-Timeout": "x"})
        self.assertEqual(answer.code, 400)
        answer = self.rest.ask("POST", "/v2/repository/index", headers={"Grpc-Timeout": "60S"})
        self.assertEqual(answer.code, 200)


class TestOff(Models):
    def test_refused(self):
        for verb, method in (("load", "RepositoryModelLoad"), ("unload", "RepositoryModelUnload")):
            answer = self.order("simple", verb)
            self.assertEqual(answer.code, 403)
            self.assertIn("`http_control: on`", answer.error)
            self.assertEqual(failure(self.client.start(method, model_name="simple")),
                             (Code.PERMISSION_DENIED, answer.error))
        self.assertEqual(self.rest.ask("POST", "/v2/repository/index").code, 200)
        self.assertEqual(len(self.client.call("RepositoryIndex").models), len(NAMES) + 2)


class TestMany(Models):
    @staticmethod
    def make_models(root):
        for i in range(2_500):
            (root / f"m{i:04}").mkdir(parents=True)

    def test_pages(self):
        names, after = [], ""
        while after is not None:
            page = self.rest.get(f"/v2/models?after={after}")
            self.assertLess(len(page.body), 16 * 1024)
            self.assertLessEqual(len(page.json["models"]), 1000)
            names += page.json["models"]
            after = page.json.get("next")
        self.assertEqual(names, ["echo", *(f"m{i:04}" for i in range(2_500)), "zebra"])
        self.assertEqual(len(self.client.call("RepositoryIndex").models), 2_502)


if __name__ == "__main__":
    shoal_fixture.main()
