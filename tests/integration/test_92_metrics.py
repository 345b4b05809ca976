# SPDX-License-Identifier: Apache-2.0
"""/metrics: what a real daemon has done, as Prometheus reads it.

After known traffic the figures are those that shoalctl stat has; they go on through deaths and
reloads; a modelet that writes into its own figures spoils nobody else's; every answer passes
promtool without a word. A real Prometheus scrapes a node and computes rates from it; it answers
every query of the dashboard in docs/, whose metrics are all there. ctest: timeout=240
"""

import concurrent.futures
import json
import os
import re
import signal
import socket
import struct
import subprocess
import time
import unittest

import shoal_fixture
from shoal_client import Client, failure, said
from shoal_ctl import shoalctl
from shoal_fixture import (SOURCE, WAIT_SECONDS, Shoald, free_port, node, pipeline, run_shoald, stage,
                           wait_until)
from shoal_metrics import Prometheus, Scrape, fetch, metrics_port
from shoal_pupil import prepare, pupil
from shoal_registry import Registrar

X = ("x", "INT32", [1], struct.pack("<i", 1))


def echo_node(**keys):
    return node(pipeline("echo", stage("libecho.so", "first", workers=2),
                         stage("libecho.so", "second", batch_size=4), slots=32),
                pipeline("puppet", stage("libpuppet.so", params={"folder": "."}), slots=8),
                **{"metrics": "127.0.0.1:0", "message_mib": 1, **keys})


class Case(unittest.TestCase):
    def start(self, config):
        self.enter(Shoald(config))

    def enter(self, shoald):
        self.shoald = self.enterContext(shoald)
        self.client = self.enterContext(Client(self.shoald.target))
        self.port = metrics_port(self.shoald)

    def start_everything(self):
        """A scrape of a node that has all there is to be seen: a model of a mesh, too."""
        self.enter(prepare(pupil(), pipeline("echo", stage("libecho.so", "first", workers=2),
                                             stage("libecho.so", "second", batch_size=4), slots=32),
                           mesh={"instance": "one"}, metrics="127.0.0.1:0"))
        with Registrar(self.shoald) as registrar:
            registrar.register("m", loadNow=True, sync=True)
        return self.wait_scrape(lambda now: {"shoal_mesh_heard_timestamp_seconds",
                                             "shoal_mesh_oldest_timestamp_seconds"} <= now.names(),
                                "the mesh's figures")

    def scrape(self):
        return Scrape(self.port)

    def wait_scrape(self, condition, what):
        """Gauges are only written every now and then."""
        scrapes = []

        def look():
            scrapes[:] = [self.scrape()]
            return condition(scrapes[0])
        wait_until(look, lambda: f"{what}; the last scrape:\n{scrapes[0].text}")
        return scrapes[0]


class TestFigures(Case):
    def test_known_traffic(self):
        self.start(echo_node())
        for _ in range(20):
            self.client.infer_raw("echo", X)
        for _ in range(3):
            code, _ = failure(self.client.start_raw("echo", X, outputs=["none"]))
            self.assertEqual(code.name, "INVALID_ARGUMENT")
        failure(self.client.start_raw("nobody", X))
        self.shoald.wait_all_returned("echo")
        stat = self.shoald.stat()
        scrape = self.scrape()
        echo = {"pipeline": "echo"}
        self.assertEqual(scrape["shoal_pipeline_requests_total", echo], 23)
        self.assertEqual(scrape["shoal_pipeline_requests_total", {"pipeline": "puppet"}], 0)
        self.assertEqual(scrape["shoal_pipeline_replies_total", {**echo, "result": "ok"}], 20)
        self.assertEqual(scrape.sum("shoal_pipeline_replies_total", result="failed", **echo)
                         + scrape.sum("shoal_pipeline_rejected_total", reason="invalid", **echo), 3)
        self.assertEqual(scrape["shoal_node_calls_total"], stat["calls"])
        self.assertEqual(scrape["shoal_node_calls_refused_total"], 1)
        self.assertEqual(scrape["shoal_pipeline_ready", echo], 1)
        self.assertEqual(scrape["shoal_node_state", {"state": "ready"}], 1)
        self.assertEqual(scrape["shoal_pipeline_oldest_age_seconds", echo], 0)
        self.assertEqual(scrape["shoal_pipeline_slots_max", echo], 32)
        # all other values equal shoalctl's
        for one in stat["pipelines"]:
            self.check_same(scrape, one, {"pipeline": one["name"]}, "pipeline")
            for row in one["stages"]:
                labels = {"pipeline": one["name"], "stage": row["name"]}
                self.check_same(scrape, row, labels, "stage")
                for item in ("items", "items_ok", "batches"):
                    self.assertEqual(scrape.sum(f"shoal_worker_{item}_total", **labels), row[item])
        # each item of a stage waited once, and was in one batch
        for name, workers in (("first", 2), ("second", 1)):
            labels = {**echo, "stage": name}
            self.assertEqual(scrape["shoal_stage_wait_seconds_count", labels],
                             scrape.sum("shoal_worker_items_total", **labels))
            self.assertEqual(scrape["shoal_stage_batch_items_sum", labels],
                             scrape.sum("shoal_worker_items_total", **labels))
            self.assertEqual(scrape["shoal_stage_batch_items_count", labels],
                             scrape.sum("shoal_worker_batches_closed_total", **labels))
            self.assertEqual(scrape["shoal_stage_workers_live", labels], workers)
            self.assertLess(abs(time.time() - max(
                scrape["shoal_worker_heartbeat_timestamp_seconds", {**labels, "worker": str(i)}]
                for i in range(workers))), WAIT_SECONDS)
        latency = scrape["shoal_pipeline_latency_seconds_bucket", {**echo, "le": "+Inf"}]
        self.assertEqual(latency, scrape["shoal_pipeline_latency_seconds_count", echo])
        self.assertEqual(latency, scrape.sum("shoal_pipeline_replies_total", **echo))
        self.assertGreater(scrape["shoal_pipeline_latency_seconds_sum", echo], 0)

    def check_same(self, scrape, stat, labels, scope):
        checked = 0
        for name, value in stat.items():
            family = f"shoal_{scope}_{name}_total"
            if scrape.types.get(family) == "counter":
                self.assertEqual(scrape[family, labels], value, family)
                checked += 1
        self.assertGreater(checked, 2)

    def test_process(self):
        self.start(echo_node())
        scrape = self.scrape()
        self.assertEqual(scrape.label("shoal_build_info", "version"),
                         {shoalctl("--version", code=0).out.split()[-1]})
        self.assertLess(abs(scrape["process_start_time_seconds"] + scrape["shoal_node_uptime_seconds"]
                            - time.time()), WAIT_SECONDS)
        fields = dict(line.split(":\t") for line in
                      shoal_fixture.read_proc(self.shoald.pid, "status").splitlines() if ":\t" in line)
        resident = int(fields["VmRSS"].split()[0]) * 1024
        self.assertLess(abs(scrape["process_resident_memory_bytes"] - resident), resident / 2)
        self.assertGreater(scrape["process_virtual_memory_bytes"], resident)
        self.assertGreater(scrape["process_cpu_seconds_total"], 0)
        self.assertGreater(scrape["process_open_fds"], 10)
        self.assertGreater(scrape["process_max_fds"], scrape["process_open_fds"])
        before = scrape["shoal_node_http_requests_total"]
        scrape = self.scrape()
        self.assertEqual(scrape["shoal_node_http_requests_total"], before + 1)
        self.assertEqual(scrape["shoal_node_http_refused_total"], 0)
        self.assertGreaterEqual(scrape["shoal_node_http_connections"], 1)

    def test_in_flight(self):
        self.start(echo_node())
        held = self.client.tell("hold a")
        wait_until((self.shoald.folder / "a.held").exists, "the request to be running")
        scrape = self.wait_scrape(
            lambda now: now["shoal_pipeline_oldest_age_seconds", {"pipeline": "puppet"}] > 0
            and now["shoal_pipeline_slots_used", {"pipeline": "puppet"}] == 1, "the request is seen")
        self.assertGreater(scrape["shoal_pipeline_blocks_used", {"pipeline": "puppet"}], 0)
        (self.shoald.folder / "a.go").touch()
        self.assertEqual(said(held.result()), "hold a")
        self.wait_scrape(lambda now: now["shoal_pipeline_oldest_age_seconds",
                                         {"pipeline": "puppet"}] == 0, "no request in flight")


class TestChange(Case):
    def test_restart(self):
        self.start(echo_node())
        worker, = self.shoald.workers("puppet")
        labels = {"pipeline": "puppet", "stage": "puppet"}
        self.client.tell("echo x").result()
        self.shoald.wait_all_returned("puppet")
        self.assertEqual(self.scrape()["shoal_worker_pid", {**labels, "worker": "0"}], worker.pid)
        os.kill(worker.pid, signal.SIGKILL)
        successor = self.shoald.wait_successor(worker)
        self.client.tell("echo x").result()
        scrape = self.wait_scrape(
            lambda now: now["shoal_stage_restarts_total", labels] == 1
            and now["shoal_stage_recovery_seconds_count", labels] == 1
            and now.sum("shoal_worker_items_total", **labels) == 2, "both lives to count")
        self.assertEqual(scrape["shoal_worker_pid", {**labels, "worker": "0"}], successor.pid)

    def test_reload(self):
        self.start(echo_node())
        for _ in range(5):
            self.client.infer_raw("echo", X)
        config = echo_node()
        config["pipelines"][0]["stages"] = [stage("libecho.so", "first"), stage("libecho.so", "third")]
        self.shoald.write_config(config)
        shoalctl("reload", "--counters", self.shoald.counters, "echo", code=0)
        for _ in range(5):
            self.client.infer_raw("echo", X)
        scrape = self.wait_scrape(
            lambda now: now.label("shoal_stage_depth_items", "stage") == {"first", "third", "puppet"}
            and now.sum("shoal_worker_items_total", stage="third") == 5, "the new stages alone")
        self.assertEqual(scrape["shoal_pipeline_generation", {"pipeline": "echo"}], 2)
        self.assertEqual(scrape["shoal_pipeline_reloads_total", {"pipeline": "echo"}], 1)
        self.assertEqual(scrape["shoal_pipeline_requests_total", {"pipeline": "echo"}], 10)
        self.assertEqual(scrape.sum("shoal_worker_items_total", stage="first"), 10)

    def test_reloads_amid_scrapes(self):
        """Stages and workers come and go while they are read: every answer is whole."""
        self.start(echo_node())
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            def change():
                for name in ("a", "b", "c", "second"):
                    config = echo_node()
                    config["pipelines"][0]["stages"][1]["name"] = name
                    self.shoald.write_config(config)
                    shoalctl("reload", "--counters", self.shoald.counters, "echo", code=0)
            done = pool.submit(change)
            while not done.done():
                scrape = self.scrape()
                for pipe, name in (("puppet", "puppet"), ("echo", "first")):
                    self.assertGreaterEqual(
                        scrape["shoal_stage_workers_wanted", {"pipeline": pipe, "stage": name}], 1)
            done.result()

    def test_drain(self):
        self.start(echo_node(drain_timeout_ms=3600000))
        held = self.client.tell("hold a")
        wait_until((self.shoald.folder / "a.held").exists, "the request to be running")
        self.shoald.drain()
        scrape = self.scrape()
        self.assertEqual(scrape["shoal_node_state", {"state": "draining"}], 1)
        self.assertEqual(scrape["shoal_node_state", {"state": "ready"}], 0)
        self.assertEqual(scrape["shoal_pipeline_ready", {"pipeline": "puppet"}], 0)
        waiting = socket.create_connection(("127.0.0.1", self.port))  # holds up nothing
        (self.shoald.folder / "a.go").touch()
        self.assertEqual(said(held.result()), "hold a")
        self.assertEqual(self.shoald.wait_exit(), 0)
        self.assertEqual(waiting.recv(1), b"")
        waiting.close()

    def test_scribbled_figures(self):
        """A modelet may write anything into its own worker's values: that worker's figures are
        worth nothing then, and all else is right."""
        self.start(node(pipeline("hostile", stage("libscribble.so", workers=2, quarantine_deaths=0)),
                        pipeline("echo", stage("libecho.so")), metrics=["127.0.0.1:0"]))
        counters = 13
        for seed in range(20):
            tensor = ("scribble", "INT64", [4], struct.pack("<4q", seed, counters, seed * 7919, 1000))
            self.client.start_raw("hostile", tensor).exception()
            self.client.infer_raw("echo", X)
            self.scrape()
        self.shoald.wait_all_returned("echo")
        scrape = self.scrape()
        self.assertEqual(scrape.sum("shoal_worker_items_total", pipeline="echo"), 20)
        self.assertEqual(scrape["shoal_pipeline_requests_total", {"pipeline": "hostile"}], 20)


class TestServer(Case):
    def test_paths(self):
        self.start(echo_node())
        status, _, text = fetch(self.port, "/")
        self.assertEqual(status, 200)
        self.assertIn("/metrics", text)
        status, headers, text = fetch(self.port, "/metrics", "HEAD")
        self.assertEqual((status, text), (200, ""))
        self.assertGreater(int(headers["Content-Length"]), 10000)
        self.assertEqual(fetch(self.port, "/metrics?x=y")[0], 200)
        status, _, text = fetch(self.port, "/metric")
        self.assertEqual(status, 404)
        self.assertIn("/metrics", text)
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
            status, headers, _ = fetch(self.port, "/metrics", method)
            self.assertEqual((status, headers["Allow"]), (405, "GET, HEAD"), method)
        self.assertEqual(fetch(self.port, "/metrics", "POST", b"x" * 100000)[0], 413)

    def test_every_address(self):
        self.start(echo_node(metrics=["127.0.0.1:0", "[::1]:0", "port:0"]))
        for count, host in ((1, "127.0.0.1"), (2, "::1"), (3, "127.0.0.1"), (3, "::1")):
            self.assertEqual(fetch(metrics_port(self.shoald, count), host=host)[0], 200)

    def test_many_scrapers(self):
        self.start(echo_node())
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: self.scrape(), range(24)))
        silent = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(200)]
        self.scrape()
        self.client.infer_raw("echo", X)
        for one in silent:
            one.close()
        self.wait_scrape(lambda now: now["shoal_node_http_connections"] == 1, "the others to be gone")

    def test_none_without_the_key(self):
        self.shoald = self.enterContext(Shoald(node(pipeline("echo", stage("libecho.so")))))
        self.assertNotIn("http_listening", self.shoald.stderr)
        self.assertFalse({"shoald:http", "shoald:probes"} & set(self.threads()))

    def test_thread(self):
        self.start(echo_node())
        self.assertIn("shoald:probes", self.threads())
        self.assertNotIn("shoald:http", self.threads())

    def threads(self):
        folder = f"/proc/{self.shoald.pid}/task"
        return [shoal_fixture.read_proc(f"{self.shoald.pid}/task/{task}", "comm").strip()
                for task in os.listdir(folder)]

    def test_taken_port(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            code, text = run_shoald(echo_node(metrics=address))
        self.assertEqual(code, 2)
        self.assertIn(f"metrics: {address}: cannot listen there: Address already in use", text)
        code, text = run_shoald(echo_node(metrics="unix:/no/such/folder/x"))
        self.assertEqual(code, 2)
        self.assertIn("metrics: unix:/no/such/folder", text)

    def test_reload_says_that_it_needs_a_restart(self):
        self.start(echo_node())
        self.shoald.write_config(echo_node(metrics=f"127.0.0.1:{free_port()}"))
        shoalctl("reload", "--counters", self.shoald.counters, "echo", code=0)
        self.shoald.wait_log("reload_ignored key=metrics needs=restart")


class TestPrometheus(Case):
    def test_alerts(self):
        """They are rules to Prometheus, over metrics that are there."""
        path = SOURCE / "docs" / "alerts.yaml"
        rules = path.read_text()
        scrape = self.start_everything()
        done = subprocess.run(["promtool", "check", "rules", path], capture_output=True, text=True,
                              timeout=WAIT_SECONDS)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertIn("18 rules found", done.stdout)
        used = set(re.findall(r"\b(?:shoal|process)_\w+", rules))
        self.assertLessEqual(used, scrape.names())

    def queries(self):
        dashboard = json.loads((SOURCE / "docs" / "grafana.json").read_text())
        panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
        return [target["expr"] for panel in panels for target in panel["targets"]]

    def test_dashboard(self):
        """Every metric that it shows is there; it can be imported: ids and places are its own."""
        names = self.start_everything().names()
        queries = self.queries()
        self.assertGreater(len(queries), 15)
        for query in queries:
            used = re.findall(r"\b(?:shoal|process)_\w+", query)
            self.assertTrue(used, query)
            self.assertLessEqual(set(used), names, query)
        dashboard = json.loads((SOURCE / "docs" / "grafana.json").read_text())
        panels = dashboard["panels"]
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
        taken = set()
        for panel in panels:
            place = panel["gridPos"]
            cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                     for y in range(place["y"], place["y"] + place["h"])}
            self.assertFalse(cells & taken, panel["title"])
            self.assertLessEqual(place["x"] + place["w"], 24, panel["title"])
            taken |= cells

    def test_scrapes(self):
        self.start_everything()
        with Prometheus(self.shoald.folder, [self.port]) as prometheus:
            prometheus.wait_value("up", lambda value: value == 1)
            for _ in range(30):
                self.client.infer_raw("echo", X)
            prometheus.wait_value('shoal_pipeline_requests_total{pipeline="echo"}',
                                  lambda value: value == 30)
            prometheus.wait_value('rate(shoal_pipeline_requests_total{pipeline="echo"}[10s])',
                                  lambda value: value > 0)
            p99 = prometheus.wait_value(
                "histogram_quantile(0.99, sum by (le) (shoal_pipeline_latency_seconds_bucket))")
            self.assertTrue(0 < p99 < WAIT_SECONDS, p99)

            def target():  # a scrape may be late on a busy machine
                one, = prometheus.ask("targets")["activeTargets"]
                return one["health"], one["lastError"]
            wait_until(lambda: target() == ("up", ""), target)
            metadata = prometheus.ask("metadata", metric="shoal_node_calls_total")
            self.assertEqual(metadata["shoal_node_calls_total"][0]["type"], "counter")
            for query in self.queries():
                for name, value in (("$__rate_interval", "10s"), ("$pipeline", ".*"), ("$job", ".*")):
                    query = query.replace(name, value)
                self.assertIsNotNone(prometheus.ask("query", query=query), query)
            self.assertNotRegex(prometheus.log(), "level=error|scrape|parse")


if __name__ == "__main__":
    shoal_fixture.main()
