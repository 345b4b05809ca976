# SPDX-License-Identifier: Apache-2.0
"""The protocol of docs/model-server-protocol.md from both sides of the gateway.

A server written from that page alone is routed by adapter, queue and cache, by its gauges and by
its reports alone; the simulated server loads and unloads adapters as the page says; nodes of shoald
are routed by what they publish of their pipelines.

ctest: timeout=240
"""

import http.client
import http.server
import json
import re
import sys
import threading
import unittest

from shoal_fixture import WAIT_SECONDS, Shoald, free_port, main, node, pipeline, stage, wait_until
from shoal_rest import Rest, tensor
from test_97_gateway import Gateway, Model

RARELY = {"scrape_ms_min": 600_000, "scrape_ms_max": 600_000}
OFTEN = {"scrape_ms_min": 10, "scrape_ms_max": 50}


class Foreign(http.server.ThreadingHTTPServer):
    """A model server from the page alone; `gauges` and `adapters` are what it says."""

    keys = {}

    def __init__(self, name, host="127.0.0.1", port=0):
        super().__init__((host, port), Answers)
        self.name, self.port = name, self.server_address[1]
        self.gauges = {"requests_waiting": 0, "requests_running": 0, "kv_cache_used_ratio": 0.0}
        self.adapters = {"sql": ("available", 0), "chat": ("available", 0)}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def page(self):
        lines = [f'model_server_{name}{{model="base"}} {value}' for name, value in self.gauges.items()]
        lines += [f'model_server_adapter_requests{{adapter="{name}",state="{state}"}} {requests}'
                  for name, (state, requests) in self.adapters.items()]
        return "\n".join(lines + ["model_server_adapters_max 1", ""])

    def headers(self):
        loaded = {name: requests for name, (state, requests) in self.adapters.items()
                  if state == "loaded"}
        values = {**self.gauges, "adapters_loaded": len(loaded),
                  **{f"adapter_requests.{name}": requests for name, requests in loaded.items()}}
        return {"endpoint-load-metrics": "TEXT " + ", ".join(
            f"named_metrics.{name}={value}" for name, value in values.items())}

    def handle_error(self, *_):
        if not isinstance(sys.exc_info()[1], ConnectionError):  # the gateway may leave at any time
            super().handle_error(*_)

    def close(self):
        self.shutdown()
        self.server_close()


class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, text, **headers):
        self.send_response(200)
        for name, value in {**headers, "Content-Length": str(len(text))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        if self.path == "/metrics":
            self.answer(self.server.page())
        else:
            self.answer(json.dumps({"object": "list", "data": [
                {"id": "base", "object": "model", "parent": None},
                *({"id": name, "object": "model", "parent": "base"} for name in self.server.adapters)]}))

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        wanted = self.headers["endpoint-load-metrics-format"] == "TEXT"
        self.answer("{}", **{"X-Served-By": self.server.name,
                             **(self.server.headers() if wanted else {})})

    def log_message(self, *_):
        pass


class ForeignServers(unittest.TestCase):
    def start(self, **keys):
        self.one, self.two = Foreign("one"), Foreign("two")
        for server in (self.one, self.two):
            self.addCleanup(server.close)
        self.texts = iter(range(10_000))
        self.gateway = Gateway([self.one, self.two], **keys)
        self.addCleanup(self.gateway.close)
        self.gateway.wait_up(self.one, self.two)

    def served_by(self, model="base"):
        """Its prompt has no prefix in common with others."""
        status, headers, body = self.gateway.chat(model, f"{next(self.texts):04}" * 25)
        self.assertEqual(status, 200, body)
        return headers["X-Served-By"]

    def five(self, model="base"):
        return {self.served_by(model) for _ in range(5)}

    def wait_figure(self, name, value):
        row = f'endpoint_{name}{{endpoint="one"}}'
        wait_until(lambda: self.gateway.figures()[row] == value, f"{row} to be {value}")

    def test_gauges(self):
        self.start(**OFTEN)
        for name, (adapter, shows) in {
                "adapters": ("sql", {"adapters": {"sql": ("loaded", 0)}}),
                "waiting": ("base", {"requests_waiting": 7}),
                "kv_cache_used": ("base", {"kv_cache_used_ratio": 0.5})}.items():
            with self.subTest(name):
                before = dict(self.one.gauges), dict(self.one.adapters)
                self.one.adapters.update(shows.pop("adapters", {}))
                self.one.gauges.update(shows)
                shown = shows.get("requests_waiting", shows.get("kv_cache_used_ratio", 1))
                self.wait_figure(name, shown)
                self.assertEqual(self.five(adapter), {"one" if adapter == "sql" else "two"})
                self.one.gauges, self.one.adapters = before
                self.wait_figure(name, 0)

    def test_reports(self):
        """The gauges are read once: an adapter without requests and a queue are known from answers."""
        self.start(**RARELY)
        self.one.adapters["sql"] = ("loaded", 0)
        wait_until(lambda: self.served_by() == "one", "an answer of that server")
        self.assertEqual(self.five("sql"), {"one"})
        self.one.adapters["sql"] = ("available", 0)
        self.one.gauges["requests_waiting"] = 9
        self.assertEqual(self.served_by("sql"), "one")
        self.assertEqual(self.five("sql") | self.five(), {"two"})
        self.assertEqual(self.gateway.figures()["scrapes_total"], 2)

    def test_proof_of_concept(self):
        """Its two headers say the same."""
        self.start(**RARELY)
        for server, adapters in ((self.one, {"sql": 0}), (self.two, {})):
            server.headers = lambda server=server, adapters=adapters: {
                "active_lora_adapters": json.dumps(adapters), "pending_queue_size": "0"}
        wait_until(lambda: self.served_by() == "one", "an answer of that server")
        self.assertEqual(self.five("sql"), {"one"})

    def test_room(self):
        """Without a cache a server is as full as its requests_max."""
        self.start(**OFTEN)
        for server, running in ((self.one, 5), (self.two, 2)):
            server.gauges = {"requests_waiting": 0, "requests_running": running, "requests_max": 10}
        self.wait_figure("kv_cache_used", 0.5)
        wait_until(lambda: self.five() == {"two"}, "the other's figures")
        self.wait_figure("running", 5)


class Adapters(unittest.TestCase):
    def test_load_and_unload(self):
        model = Model("one", "--slots", "2")
        self.addCleanup(model.kill)

        link = http.client.HTTPConnection("127.0.0.1", model.port, timeout=WAIT_SECONDS)
        self.addCleanup(link.close)

        def call(path, **members):
            link.request("POST", path, json.dumps(members))
            answer = link.getresponse()
            answer.read()
            return answer.status

        def states():
            link.request("GET", "/metrics")
            page = link.getresponse().read().decode()
            return {name: (state, int(requests)) for name, state, requests in re.findall(
                r'adapter_requests{adapter="(\w+)",state="(\w+)"} (\d+)', page)}
        self.assertEqual(states(), {name: ("available", 0) for name in ("red", "blue", "green")})
        load = {"lora_name": "new", "lora_path": "/adapters/new"}
        self.assertEqual(call("/v1/load_lora_adapter", **load), 200)
        self.assertEqual(states()["new"], ("loaded", 0))
        self.assertIn({"id": "new", "object": "model", "parent": "base", "root": "/adapters/new"},
                      model.ask("/v1/models")["data"])
        self.assertEqual(call("/v1/load_lora_adapter", **load), 400)
        self.assertEqual(call("/v1/load_lora_adapter", lora_name="x"), 400)
        self.assertEqual(call("/v1/load_lora_adapter", lora_name="x", lora_path="/missing"), 404)
        self.assertEqual(call("/v1/unload_lora_adapter"), 400)
        self.assertEqual(call("/v1/unload_lora_adapter", lora_name="new"), 200)
        self.assertEqual(call("/v1/unload_lora_adapter", lora_name="new"), 404)
        self.assertNotIn("new", states())


class Nodes(unittest.TestCase):
    """The pool's servers are nodes of shoald, called by the Open Inference Protocol."""

    def node(self, name):
        shoald = self.enterContext(Shoald(node(
            pipeline("echo", stage("libecho.so"), slots=4),
            pipeline("puppet", stage("libpuppet.so", params={"folder": "."}), slots=4),
            http=f"127.0.0.1:{(port := free_port())}", metrics=f"127.0.0.1:{(metrics := free_port())}",
            message_mib=1)))
        shoald.wait_ready()
        shoald.name, shoald.port = name, port
        shoald.keys = {"metricsPort": str(metrics)}
        return shoald

    def test_least_full_node(self):
        busy, idle = self.node("busy"), self.node("idle")
        gateway = Gateway([busy, idle], access_log=1, **OFTEN)
        self.addCleanup(gateway.close)
        gateway.wait_up(busy, idle)
        held = [self.enterContext(Rest(busy.port)) for _ in range(3)]
        held[0].start_tell("hold a")
        wait_until((busy.folder / "a.held").exists, "the request to be running")
        for rest in held[1:]:
            rest.start_tell("echo b")
        with Rest(gateway.port) as client:
            figures = wait_until(lambda: (now := gateway.figures())[
                'endpoint_kv_cache_used{endpoint="busy"}'] == 3 / 8 and now, "the requests to be seen")
            self.assertEqual(figures['endpoint_running{endpoint="busy"}'] +
                             figures['endpoint_waiting{endpoint="busy"}'], 3)
            for i in range(5):
                answer = client.infer("echo", tensor("x", "INT32", [1], [i]))
                self.assertEqual((answer.code, answer.data("x")), (200, [i]))
            self.assertEqual(client.ask("POST", "/v2/models/no%20space/infer", "{}").code, 404)
            self.assertEqual(client.ask("POST", "/v2/models/../infer", "{}").code, 404)
            self.assertEqual(client.infer("nobody").code, 404)
            (busy.folder / "a.go").touch()
            self.assertEqual({rest.receive().code for rest in held}, {200})

        def calls():
            return re.findall(r'path="/v2/models/echo/infer" model="echo" endpoint="(\w+)" status=200',
                              gateway.read_log())
        wait_until(lambda: calls() == ["idle"] * 5, lambda: f"calls of the idle node, not {calls()}")


if __name__ == "__main__":
    main()
