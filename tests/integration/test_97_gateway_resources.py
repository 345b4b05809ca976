#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Resources of the gateway: pools, routes, rewrites and objectives from watched files.

Proves: a pool with an LLMRoute admits only what is defined; splits, sessions, fallbacks, retries,
pools by labels and failure modes hold; a mistake is reported with file, line and field while the old
state serves; conditions are shown.

ctest: timeout=120 presets=dev
"""

import collections
import http.server
import json
import os
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request

from shoal_fixture import BIN, WAIT_SECONDS, main, wait_until
from test_97_gateway import Gateway, Model

X = "inference.networking.x-k8s.io/v1alpha2"


def document(kind, name, spec, **more):
    return json.dumps({"kind": kind, "metadata": {"name": name}, "spec": spec, **more})


def pool(name, mode="FailClose", **labels):
    return document("InferencePool", name, {
        "selector": {"matchLabels": labels},
        "endpointPickerRef": {"name": "shoal-gateway", "failureMode": mode}},
                    apiVersion="inference.networking.k8s.io/v1")


def llm_route(name, adapter, **spec):
    return document("LLMRoute", name, {
        "parentRefs": [{"name": "ai-gw"}],
        "backendRefs": [{"name": "all", "adapter": {"name": adapter}}], **spec},
                    apiVersion="inference.x-k8s.io/v1alpha1")


def rewrite(name, model, targets, target_pool="all"):
    return document("InferenceModelRewrite", name, {"poolRef": {"name": target_pool}, "rules": [
        {"matches": [{"model": {"type": "Exact", "value": model}}] if model else [],
         "targets": [{"modelRewrite": to, "weight": weight} for to, weight in targets.items()]}]},
                    apiVersion=X)


class Loading(http.server.ThreadingHTTPServer):
    """A server that loads any adapter. `catalogue` returns the models of /v1/models, or their names;
    None: status 500."""

    daemon_threads = True
    keys = {}

    def __init__(self, name, port, catalogue):
        super().__init__(("127.0.0.1", port), LoadingAnswers)
        self.name, self.port, self.catalogue = name, self.server_address[1], catalogue
        self.is_posted_to = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def close(self):
        self.shutdown()
        self.server_close()


class LoadingAnswers(http.server.BaseHTTPRequestHandler):
    """Connections close behind each answer."""

    def answer(self, names):
        self.send_response(200 if names is not None else 500)
        self.end_headers()
        self.wfile.write(json.dumps({"data": [
            name if isinstance(name, dict) else
            {"id": name, "parent": "base" if name != "base" else None} for name in names or ()]}).encode())

    def do_GET(self):
        self.answer(self.server.catalogue() if self.path == "/v1/models" else [])

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.is_posted_to.set()
        self.answer([])

    def log_message(self, *_):
        pass


class ResourcesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.models = []
        for name in ("one", "two"):
            cls.models.append(Model(name))
            cls.models[-1].keys = {"labels": {"zone": name, "kind": "gpu"}}

    @classmethod
    def tearDownClass(cls):
        for model in cls.models:
            model.kill()

    def serve(self, *documents, **keys):
        self.gateway = Gateway(self.models, {"resources.yaml": self.join(documents)},
                               resources="resources.yaml", **keys)
        self.addCleanup(self.gateway.close)
        self.gateway.wait_up(*self.models)

    @staticmethod
    def join(documents):
        return "\n---\n".join(documents) + "\n"

    def apply(self, *documents, name="resources.yaml"):
        """Returns when they are in use."""
        before = self.gateway.figures()["endpoint_file_reloads_total"]
        self.gateway.write(name, self.join(documents))
        wait_until(lambda: self.gateway.figures()["endpoint_file_reloads_total"] > before,
                   self.gateway.read_log)

    def resources(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.gateway.admin}/resources",
                                    timeout=WAIT_SECONDS) as page:
            return json.load(page)

    def conditions(self, name):
        [found] = [entry for entry in self.resources()["resources"] if entry["name"] == name]
        return {condition["type"]: (condition["status"], condition["reason"])
                for condition in found["conditions"]}

    def ask(self, model, **keys):
        """(status, the model that answered, or the error)."""
        status, _, body = self.gateway.chat(model, **keys)
        answer = json.loads(body)
        return status, answer["model"] if status == 200 else answer["error"]

    def check_unknown(self, model):
        status, error = self.ask(model)
        self.assertEqual((status, error["type"], error["code"]), (404, "NotFoundError", 404))

    # ---- routes ----

    def test_only_defined_adapters(self):
        self.serve(llm_route("assistant", "red"))
        self.assertEqual(self.ask("red"), (200, "red"))
        self.check_unknown("blue")
        self.check_unknown("base")
        self.assertEqual(self.gateway.figures()["unknown_models_total"], 2)
        self.assertEqual(self.gateway.figures()["unavailable_total"], 0)
        self.apply("# nothing")
        self.assertEqual(self.ask("blue"), (200, "blue"))
        self.apply(document("InferenceModel", "old", {"modelName": "b", "poolRef": {"name": "all"},
                                                      "targetModels": [{"name": "blue"}]}))
        self.assertEqual(self.ask("b"), (200, "blue"))
        self.check_unknown("blue")

    def test_seed_route_in_spec(self):
        """With what an adapter has in spec, as the first proposal can be read, too."""
        self.serve("""
kind: LLMRoute
apiVersion: inference.x-k8s.io/v1alpha1
metadata:
  name: assistant
spec:
  parentRefs:
  - name: ai-gw
  backendRefs:
  - name: assistant
  adapter:
    name: green
  priority: 100
  objectives:
  - type: OutputTokenLatency
    latency:
      value: 2s
      quantile:
        numerator: 99
  metrics:
    format: Prometheus
""")
        self.assertEqual(self.ask("green"), (200, "green"))
        self.check_unknown("assistant")

    def test_split_and_sessions(self):
        self.serve(rewrite("canary", "sql", {"red": 1, "blue": 3}))
        seen = collections.Counter(self.ask("sql")[1] for _ in range(60))
        self.assertEqual(set(seen), {"red", "blue"})
        self.assertGreater(seen["blue"], seen["red"])
        for session in "abcd":
            self.assertEqual(len({self.ask("sql", headers={"x-session-id": session})
                                  for _ in range(4)}), 1)
        self.assertEqual(self.ask("green"), (200, "green"))
        self.apply(rewrite("canary", "sql", {"red": 1}), rewrite("others", None, {"green": 1}))
        self.assertEqual({self.ask("sql") for _ in range(5)}, {(200, "red")})
        self.assertEqual(self.ask("anything"), (200, "green"))

    def test_rewritten_bodies_are_whole(self):
        """Of longer and shorter names, first and last in a body, and streamed."""
        self.serve(rewrite("shorter", "a-name-of-some-length", {"red": 1}),
                   rewrite("longer", "s", {"green": 1}))
        for model, target in ("a-name-of-some-length", "red"), ("s", "green"):
            for body in (f'{{"model":"{model}","prompt":"{"x" * 20000}","max_tokens":2}}',
                         f'{{"max_tokens":2,"prompt":"x","model": "{model}"}}'):
                status, _, answer = self.gateway.call(body)
                self.assertEqual((status, json.loads(answer)["model"]), (200, target))
            self.assertIn(f'"model": "{target}"'.encode(),
                          self.gateway.chat(model, stream=True)[2])

    def test_another_try_has_the_name_that_came(self):
        """The first pool's rewrite does not hold for the second one."""
        self.serve(pool("one", zone="one"), pool("two", zone="two"),
                   rewrite("all-names", None, {"a-name-of-some-length": 1}, "one"))
        self.models[0].fault("decline")
        self.addCleanup(self.models[0].fault, "")
        for session in "abcdefgh":  # some of them are drawn for the first pool
            self.assertEqual(self.ask("red", headers={"x-session-id": session}), (200, "red"))
        self.assertGreater(self.gateway.figures()["retried_total"], 0)

    def test_open_inference_protocol(self):
        """The path names the model: another server's answer shows what it was asked for."""
        self.serve(rewrite("path", "a", {"b/c:d": 1}))
        self.gateway.call({"model": "base"}, path="/v2/models/a/versions/1/infer")
        asked = [model.ask("/test/last").get("path") for model in self.models]
        self.assertIn("/v2/models/b%2Fc:d/versions/1/infer", asked)

    def test_fallbacks_and_retries(self):
        """No server has purple: it is asked for once, and green after it."""
        self.serve(llm_route("first", "purple", fallbacks=["violet", "green"]),
                   llm_route("alone", "violet"), llm_route("once", "red", retry={"attempts": 0}))
        self.assertEqual(self.ask("purple"), (200, "green"))
        self.assertEqual(self.gateway.figures()["fallbacks_total"], 2)
        self.check_unknown("violet")
        self.assertEqual(self.gateway.figures()["retried_total"], 3)
        self.models[0].fault("decline")
        self.addCleanup(self.models[0].fault, "")
        self.models[1].fault("decline")
        self.addCleanup(self.models[1].fault, "")
        self.assertEqual(self.ask("red")[0], 429)
        self.assertEqual(self.gateway.figures()["retried_total"], 3)

    def test_objective_of_a_route(self):
        """Of one that no answer can meet, and of one that each does."""
        def latency(value):
            return [{"type": "OutputTokenLatency", "latency": {
                "value": value, "quantile": {"numerator": 99}}}]
        self.serve(llm_route("fast", "red", objectives=latency("1ms")),
                   llm_route("slow", "blue", objectives=latency("60s")), objective_window_ms=100)

        def windows(model, result):
            return self.gateway.figures()[
                f'objective_windows_total{{model="{model}",result="{result}"}}']
        wait_until(lambda: self.ask("red", max_tokens=1)[0] == 200 and windows("red", "missed") > 0, "missed")
        wait_until(lambda: self.ask("blue", max_tokens=1)[0] == 200 and windows("blue", "met") > 0, "met")
        self.assertEqual((windows("red", "met"), windows("blue", "missed")), (0, 0))
        self.assertIn('inference_objective_output_token_latency_met{model_name="red"}',
                      self.gateway.figures())

    # ---- pools ----

    def test_pools_by_labels_and_ports(self):
        weights = {"one": 0, "two": 1}
        self.serve(pool("one", zone="one", kind="gpu"), pool("two", zone="two"),
                   pool("none", zone="nowhere"), document("InferencePool", "port", {
                       "selector": {}, "targetPorts": [{"number": self.models[0].port}]}),
                   llm_route("r", "red", backendRefs=[
                       {"name": "port", "adapter": {"name": "red"}}]),
                   document("HTTPRoute", "all", {"rules": [{"backendRefs": [
                       {"group": "inference.networking.k8s.io", "kind": "InferencePool",
                        "name": name, "weight": weight} for name, weight in weights.items()]}]}))
        self.assertEqual({self.gateway.chat()[1]["x-served-by"] for _ in range(8)}, {"two"})
        self.assertEqual({self.gateway.chat("red")[1]["x-served-by"] for _ in range(8)}, {"one"})
        row = 'inference_extension_flow_control_pool_saturation{inference_pool="%s"}'
        wait_until(lambda: [self.gateway.figures()[row % name] for name in ("one", "none")] == [0, 1],
                   "the saturation of each pool")

    def test_failure_modes(self):
        """A server without figures answers requests all the same."""
        self.serve(pool("all", "FailOpen"))
        for model in self.models:
            model.fault("blind")
            self.addCleanup(model.fault, "")
        wait_until(lambda: self.gateway.figures()["inference_pool_ready_pods"] == 0, "blind")
        self.assertEqual(self.ask("red"), (200, "red"))
        self.apply(pool("all", "FailClose"))
        self.assertEqual(self.ask("red")[0], 503)

    # ---- roll-out ----

    def adapters(self, model):
        return {entry["id"] for entry in model.ask("/v1/models")["data"]}

    def wait_adapters(self, model, name, has):
        wait_until(lambda: (name in self.adapters(model)) == has,
                   lambda: f"{model.name}: {name} {has}: {self.gateway.read_log()}")

    def test_adapter_rolls_out_and_back(self):
        """It is loaded by the servers of its pool, again by one that was restarted, and answers;
        without its resource it is unknown at once, and unloaded."""
        first = llm_route("first", "red", backendRefs=[
            {"name": name, "adapter": {"name": "red"}} for name in ("one", "two")])
        second = llm_route("second", "new", backendRefs=[
            {"name": "one", "adapter": {"name": "new", "path": "/adapters/new"}}])
        pools = pool("one", zone="one"), pool("two", zone="two")
        self.serve(*pools, first)
        self.check_unknown("new")
        began = time.monotonic()
        self.apply(*pools, first, second)
        wait_until(lambda: self.ask("new") == (200, "new"), self.gateway.read_log)
        print(f"first answer {time.monotonic() - began:.2f} s after it was applied")
        wait_until(lambda: self.gateway.figures()["adapters_loaded_total"] == 1,
                   self.gateway.read_log)  # a server may answer before it says that it loaded
        self.assertNotIn("new", self.adapters(self.models[1]))
        self.models[0].kill()
        self.models[0].start()
        self.wait_adapters(self.models[0], "new", True)
        wait_until(lambda: self.ask("new") == (200, "new"), self.gateway.read_log)
        self.apply(*pools, first)
        self.check_unknown("new")
        self.wait_adapters(self.models[0], "new", False)
        self.assertEqual(self.ask("red"), (200, "red"))

    def test_adapter_that_cannot_be_loaded(self):
        """It is tried again, and its requests are answered by the fallback meanwhile."""
        def late(path):
            return llm_route("late", "late", fallbacks=["green"], backendRefs=[
                {"name": "all", "adapter": {"name": "late", "path": path}}])
        self.serve(late("/adapters/missing"))
        wait_until(lambda: self.gateway.figures()["adapters_failed_total"] > 0, "a failure")
        wait_until(lambda: "adapter_refused" in self.gateway.read_log(), "it is logged")
        self.assertEqual(self.ask("late"), (200, "green"))
        self.apply(late("/adapters/late"))
        for model in self.models:
            self.wait_adapters(model, "late", True)
        wait_until(lambda: self.ask("late") == (200, "late"), self.gateway.read_log)
        self.apply("# nothing")
        for model in self.models:
            self.wait_adapters(model, "late", False)

    def test_a_catalogue_does_not_outlive_its_server(self):
        """It comes while the server is down; the next server at that address has none."""
        asked, goes_on = threading.Event(), threading.Event()

        def catalogue():
            if not server.is_posted_to.is_set():
                return ["base"]
            asked.set()
            goes_on.wait(WAIT_SECONDS)
            return ["base", "new"]
        server = Loading("loading", 0, catalogue)
        self.addCleanup(goes_on.set)
        self.gateway = Gateway([server], {"resources.yaml": llm_route("new", "new", backendRefs=[
            {"name": "all", "adapter": {"name": "new", "path": "/adapters/new"}}])},
                               resources="resources.yaml")
        self.addCleanup(self.gateway.close)
        self.assertTrue(asked.wait(WAIT_SECONDS), self.gateway.read_log())
        server.close()
        wait_until(lambda: self.gateway.chat("new")[0] >= 500 and not self.gateway.is_up(server),
                   self.gateway.read_log)
        goes_on.set()
        other = Loading("loading", server.port, lambda: None)
        self.addCleanup(other.close)
        self.gateway.wait_up(other)
        self.assertEqual(json.loads(self.gateway.call(method="GET", path="/v1/models")[2])["data"], [])

    def test_models_without_a_parent_are_listed_too(self):
        """A name that one server lists beside its base model goes to no server that lacks it."""
        lacks = Loading("lacks", 0, lambda: ["base"])
        lists = Loading("lists", 0, lambda: ["base", {"id": "other", "root": "/base"}])
        self.addCleanup(lacks.close)
        self.addCleanup(lists.close)
        self.gateway = Gateway([lacks, lists])
        self.addCleanup(self.gateway.close)
        self.gateway.wait_up(lacks, lists)
        for _ in range(20):
            self.assertEqual(self.gateway.chat("other")[0], 200)
        self.assertTrue(lists.is_posted_to.is_set())
        self.assertFalse(lacks.is_posted_to.is_set())

    # ---- mistakes and conditions ----

    def test_mistakes_leave_the_old_state(self):
        self.serve(llm_route("assistant", "red"))
        folder = self.gateway.folder.name
        for text, said in (
                ("kind: LLMRoute\nmetadata: {name: a}\nspec:\n  backendRef: []\n",
                 "resources.yaml:4: spec.backendRef: is not a field of it"),
                ("kind: Pod\n", "resources.yaml:1: kind: \"Pod\" is not supported: InferencePool"),
                ("kind: [\n", "resources.yaml:2: not YAML"),
                (document("InferencePool", "a", {"selector": {}}, apiVersion="v2"),
                 "apiVersion: must be inference.networking.k8s.io/v1"),
                (rewrite("a", "b", {"c": 1000001}), "weight: must be at most 1000000"),
                (llm_route("a", "b\"c"), "adapter.name: must be a model's name")):
            mistakes = self.gateway.figures()["endpoint_file_mistakes_total"]
            self.gateway.write("resources.yaml", text)
            wait_until(lambda: self.gateway.figures()["endpoint_file_mistakes_total"] > mistakes,
                       self.gateway.read_log)
            self.assertIn(said, self.resources()["refused"])
            self.assertIn(folder, self.resources()["refused"])
        self.assertEqual(self.ask("red"), (200, "red"))
        self.check_unknown("blue")
        self.apply(llm_route("assistant", "blue"))
        self.assertIsNone(self.resources()["refused"])
        self.assertEqual(self.ask("blue"), (200, "blue"))

    def test_conditions(self):
        true = {"Accepted": ("True", "Accepted"), "ResolvedRefs": ("True", "ResolvedRefs")}
        self.serve(pool("all"), llm_route("good", "red"), llm_route("late", "red"),
                   llm_route("lost", "blue", backendRefs=[
                       {"name": "none", "adapter": {"name": "blue"}}]))
        self.assertEqual(self.conditions("all"), true)
        self.assertEqual(self.conditions("good"), true)
        self.assertEqual(self.conditions("late"), {**true, "Accepted": ("False", "Conflicted")})
        self.assertEqual(self.conditions("lost"),
                         {**true, "ResolvedRefs": ("False", "BackendNotFound")})
        self.assertEqual(self.ask("red"), (200, "red"))
        self.assertEqual(self.ask("blue")[0], 503)

    def test_folder(self):
        """Files come and go; their names are their order."""
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.gateway = Gateway(self.models, resources=folder)
        self.addCleanup(self.gateway.close)
        self.gateway.wait_up(*self.models)
        self.assertEqual(self.ask("s")[0], 404)  # the servers say so
        self.apply(rewrite("a", "s", {"blue": 1}), name=os.path.join(folder, "2.yaml"))
        self.assertEqual(self.ask("s"), (200, "blue"))
        self.apply(rewrite("b", "s", {"green": 1}), name=os.path.join(folder, "1.json"))
        self.assertEqual(self.ask("s"), (200, "green"))
        reloads = self.gateway.figures()["endpoint_file_reloads_total"]
        os.remove(os.path.join(folder, "1.json"))
        wait_until(lambda: self.gateway.figures()["endpoint_file_reloads_total"] > reloads,
                   self.gateway.read_log)
        self.assertEqual(self.ask("s"), (200, "blue"))
        os.mkfifo(os.path.join(folder, "3.yaml"))  # which nobody writes
        wait_until(lambda: self.resources()["refused"], self.gateway.read_log)
        self.assertIn("3.yaml: is not a regular file", self.resources()["refused"])
        self.assertEqual(self.ask("s"), (200, "blue"))

    def test_check(self):
        """All mistakes are reported, or all conditions."""
        folder = self.enterContext(tempfile.TemporaryDirectory())

        def check(**files):
            for name, text in {"gateway": "endpoints: servers.yaml\nresources: resources.yaml\n",
                               "servers": "endpoints: []\n", **files}.items():
                with open(os.path.join(folder, name + ".yaml"), "w", encoding="utf-8") as file:
                    file.write(text)
            done = subprocess.run([BIN / "shoal-gateway", "--check", folder + "/gateway.yaml"],
                                  capture_output=True, text=True, check=False, timeout=60)
            return done.returncode, (done.stdout + done.stderr).replace(folder + "/", "")

        self.assertEqual(
            check(resources=self.join((pool("all"), llm_route("a", "red", backendRefs=[
                {"name": "none", "adapter": {"name": "red"}}])))),
            (0, "InferencePool/all resources.yaml:1 Accepted ResolvedRefs\n"
                "LLMRoute/a resources.yaml:3 Accepted ResolvedRefs=False (BackendNotFound: there "
                "is no such InferencePool: none)\nvalid: 0 endpoints\n"))
        code, said = check(resources="kind: A\n---\n" + self.join((pool("b"), pool("b"))))
        self.assertEqual(code, 2)
        self.assertIn("resources.yaml:1: kind: \"A\" is not supported", said)
        self.assertIn('resources.yaml:5: InferencePool "b" is also at resources.yaml:3', said)


if __name__ == "__main__":
    main()
