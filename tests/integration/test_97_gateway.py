#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gateway before simulated model servers (tests/llm-server): what is passed on, by whom it is
answered when servers die, hang or decline, and what its limits refuse.

ctest: timeout=480 presets=dev
"""

import hashlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

from shoal_fixture import BIN, SANITIZER, SOURCE, WAIT_SECONDS, free_port, main, wait_until

LLM_SERVER = str(SOURCE / "tests" / "llm-server" / "llm_server.py")
CHAT = "/v1/chat/completions"
PATIENT = {"scrape_timeout_ms": 60_000, "connect_timeout_ms": 60_000}  # servers that are slow stay


class Model:
    """A simulated server, which may be killed and started again."""

    keys = {}  # further ones of its entry

    def __init__(self, name, *options):
        self.name, self.options, self.port, self.process = name, options, free_port(), None
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [sys.executable, LLM_SERVER, "--port", str(self.port), "--name", self.name,
             "--adapters", "red,blue,green", "--speed", "20", *self.options],
            stdout=subprocess.PIPE)
        assert self.process.stdout.readline()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def stop(self):
        if self.process.poll() is None:
            self.kill()

    def renew(self):
        """For the next test: it runs, and behaves."""
        if self.process.poll() is None:
            self.fault("")
        else:
            self.start()

    def ask(self, path, body=None):
        data = json.dumps(body).encode() if body is not None else None
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", data, WAIT_SECONDS) as answer:
            return json.load(answer)

    def fault(self, fault):
        self.ask("/test/fault", {"fault": fault})


class Gateway:
    command = ()  # in front of the program
    code = 0  # with which it is to end

    def __init__(self, models, files=None, **keys):
        self.folder = tempfile.TemporaryDirectory()
        self.port, self.admin = free_port(), free_port()
        self.list(models)
        for name, text in (files or {}).items():
            self.write(name, text)
        lines = {"listen": f"127.0.0.1:{self.port}", "metrics": f"127.0.0.1:{self.admin}",
                 "endpoints": "servers.yaml", **PATIENT, **keys}
        self.config = os.path.join(self.folder.name, "gateway.yaml")
        with open(self.config, "w", encoding="utf-8") as file:
            json.dump(lines, file)
        self.log = os.path.join(self.folder.name, "log")
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([*self.command, BIN / "shoal-gateway", self.config],
                                            stdin=subprocess.PIPE, stderr=log)

    def write(self, name, text):
        path = os.path.join(self.folder.name, name)
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(path + ".new", path)

    def list(self, models):
        self.write("servers.yaml", json.dumps({"endpoints": [
            {"name": model.name, "address": "127.0.0.1", "port": str(model.port), **model.keys}
            for model in models]}))

    def figures(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=WAIT_SECONDS) as page:
            rows = [line.rsplit(" ", 1) for line in page.read().decode().splitlines()
                    if not line.startswith("#")]
        return {name.removeprefix("shoal_gateway_"): float(value) for name, value in rows}

    def is_up(self, model):
        return self.figures().get(f'endpoint_up{{endpoint="{model.name}"}}') == 1

    def wait_up(self, *models):
        def all_up():
            try:
                return all(self.is_up(model) for model in models)
            except OSError:
                return False
        wait_until(all_up, lambda: f"{[model.name for model in models]} up: {self.read_log()}")

    def read_log(self):
        with open(self.log, encoding="utf-8") as log:
            return log.read()

    def call(self, body=None, method="POST", path=CHAT, headers=None):
        """(status, headers, body) of one request on a connection of its own."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_SECONDS)
        link.request(method, path, json.dumps(body) if isinstance(body, dict) else body,
                     headers or {})
        answer = link.getresponse()
        data = answer.read()
        link.close()
        return answer.status, answer.headers, data

    def chat(self, model="base", text="hello", **keys):
        headers = keys.pop("headers", {})
        return self.call({"model": model, "messages": [{"role": "user", "content": text}],
                          "max_tokens": 4, **keys}, headers=headers)

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        log = self.read_log()
        self.process.stdin.close()
        self.folder.cleanup()
        assert code == self.code, f"ended with {code}: {log}"
        assert not SANITIZER.search(log), log


class GatewayTest(unittest.TestCase):
    """A gateway of its own before two servers that tests share, since they start slowly."""

    keys = {}
    files = {}
    options = ()
    shared = {}  # by options

    def setUp(self):
        if self.options not in self.shared:
            self.shared[self.options] = [Model(name, *self.options) for name in ("one", "two")]
            for model in self.shared[self.options]:
                unittest.addModuleCleanup(model.stop)
        self.models = self.shared[self.options]
        for model in self.models:
            model.renew()
        self.gateway = Gateway(self.models, self.files, **self.keys)
        self.addCleanup(self.gateway.close)
        self.gateway.wait_up(*self.models)

    def check_retries(self, *faults):
        """Servers that score the same are picked at random: it may take some requests."""
        def retried():
            return self.gateway.figures()["retried_total"]
        for fault in faults:
            before = retried()
            self.models[0].fault(fault)
            for count in range(50):
                if count >= 4 and retried() > before:
                    break
                status, headers, body = self.gateway.chat()
                self.assertEqual((status, headers["x-served-by"]), (200, "two"), (fault, body))
            self.models[0].fault("")
            self.gateway.wait_up(self.models[0])
        self.assertGreater(retried(), 0)


class Catalogues(unittest.TestCase):
    def setUp(self):
        self.models = [Model("one", "--adapters", "red,été"), Model("two", "--adapters", "blue")]
        for model in self.models:
            self.addCleanup(model.stop)
        self.gateway = Gateway(self.models)
        self.addCleanup(self.gateway.close)
        self.gateway.wait_up(*self.models)

    def test_an_adapter_is_asked_for_where_it_is(self):
        for number in range(20):
            for model, server in (("red", "one"), ("blue", "two")):
                status, headers, body = self.gateway.chat(model, f"{number}")
                self.assertEqual((status, headers["x-served-by"]), (200, server), body)

    def test_a_name_is_the_same_with_escapes_and_without(self):
        """The servers' catalogues have some."""
        for model in ("été", "\\u00e9t\\u00e9"):
            for number in range(10):
                status, headers, body = self.gateway.call(
                    f'{{"model": "{model}", "prompt": "{number}"}}'.encode(), path="/v1/completions")
                self.assertEqual((status, headers["x-served-by"]), (200, "one"), body)
        rows = [name for name in self.gateway.figures() if name.startswith("prompt_tokens_total{")]
        self.assertEqual([name for name in rows if "other" not in name],
                         ['prompt_tokens_total{model="été",endpoint="one"}'])

    def test_a_busy_servers_adapter_is_no_unknown_model(self):
        self.models[0].fault("decline")
        self.assertEqual(self.gateway.chat("red")[0], 429)


class Passing(GatewayTest):
    def test_answer_headers_and_body_pass(self):
        status, headers, body = self.gateway.chat(headers={
            "x-request-id": "mine", "x-more": "1", "Connection": "x-hop", "x-hop": "1"})
        self.assertEqual(status, 200)
        self.assertEqual(json.loads(body)["choices"][0]["message"]["content"], "t1 t2 t3 t4 ")
        self.assertEqual(headers["x-request-id"], "mine")
        self.assertNotIn("endpoint-load-metrics", headers)
        self.assertEqual(headers.get_all("Content-Length"), [str(len(body))])
        server = next(model for model in self.models if model.name == headers["x-served-by"])
        passed = server.ask("/test/last")["headers"]
        self.assertEqual((passed["x-request-id"], passed["x-more"]), ("mine", "1"))
        self.assertNotIn("x-hop", passed)
        self.assertRegex(self.gateway.chat()[1]["x-request-id"], "^[0-9a-f]{32}$")

    def test_all_fields_of_one_hop_stay(self):
        body = b'{"model": "base", "prompt": "x", "max_tokens": 1}'
        with socket.create_connection(("127.0.0.1", self.gateway.port)) as link:
            link.sendall(b"POST /v1/compl%%65tions?user=a%%20b HTTP/1.1\r\nHost: x\r\n"
                         b"Connection: close, x-one\r\nConnection: x-two\r\nx-one: 1\r\nx-two: 1\r\n"
                         b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
            head = http.client.HTTPResponse(link)
            head.begin()
            self.assertEqual((head.status, len(head.read()) > 0), (200, True))
        server = next(model for model in self.models if model.name == head.headers["x-served-by"])
        passed = server.ask("/test/last")
        self.assertEqual(passed["path"], "/v1/completions?user=a%20b")
        self.assertFalse({"x-one", "x-two"} & set(passed["headers"]))

    def test_events_pass_as_they_come(self):
        _, headers, body = self.gateway.chat(stream=True)
        self.assertEqual(headers["Content-Type"], "text/event-stream")
        events = body.decode().split("\n\n")
        self.assertEqual(len(events), 4 + 2)
        self.assertEqual(events[-2:], ["data: [DONE]", ""])

    def test_tokens_are_counted(self):
        def tokens(kind, model="base"):
            rows = self.gateway.figures()
            return sum(value for name, value in rows.items()
                       if name.startswith(f'{kind}_tokens_total{{model="{model}"'))
        said = json.loads(self.gateway.chat(text="x" * 400)[2])["usage"]
        self.gateway.chat(text="x" * 400, stream=True, stream_options={"include_usage": True})
        self.gateway.chat("red", stream=True)
        self.gateway.chat("unknown")
        self.assertEqual(tokens("prompt"), 2 * said["prompt_tokens"])
        self.assertEqual(tokens("answer"), 8)
        self.assertEqual(tokens("prompt", "unknown"), 0)
        self.assertEqual(self.gateway.figures()["usage_unknown_total"], 1)

    def test_other_paths(self):
        self.assertEqual(self.gateway.call({"model": "base", "prompt": "x"},
                                           path="/v1/completions")[0], 200)
        self.assertEqual(self.gateway.call({"model": "base", "input": "x"},
                                           path="/v1/embeddings")[0], 200)
        wait_until(lambda: len(self.list_models()) == 4, self.list_models)
        self.assertEqual(sorted(self.list_models()), ["base", "blue", "green", "red"])
        self.assertEqual(self.gateway.call(method="GET", path="/health")[0], 200)
        self.assertEqual(self.gateway.call(method="HEAD", path="/health")[::2], (200, b""))
        for method, path, allow in (("GET", CHAT, "POST"), ("DELETE", "/health", "GET, HEAD")):
            status, headers, _ = self.gateway.call(method=method, path=path)
            self.assertEqual((status, headers["Allow"]), (405, allow))

    def list_models(self):
        body = self.gateway.call(method="GET", path="/v1/models")[2]
        return [model["id"] for model in json.loads(body)["data"]]

    def test_a_large_chunked_body(self):
        text = json.dumps({"model": "base", "prompt": "x" * 3_000_000, "max_tokens": 1}).encode()
        pieces = [text[at:at + 50_000] for at in range(0, len(text), 50_000)]
        status, headers, _ = self.gateway.call(iter(pieces), path="/v1/completions")
        self.assertEqual(status, 200)
        server = next(model for model in self.models if model.name == headers["x-served-by"])
        self.assertEqual(server.ask("/test/last")["bytes"], len(text))

    def test_prefix_and_adapter_draw_requests(self):
        served = {self.gateway.chat(text="p" * 4000)[1]["x-served-by"] for _ in range(6)}
        self.assertEqual(len(served), 1)
        self.assertGreater(self.gateway.figures()["prefix_blocks_matched_total"], 200)
        first = self.gateway.chat("green", "q")[1]["x-served-by"]  # no other test has it loaded
        wait_until(lambda: self.gateway.figures()[f'endpoint_adapters{{endpoint="{first}"}}'] > 0,
                   "the adapter is not seen as loaded")
        for _ in range(6):
            wait_until(self.is_idle, "a queue seems to remain")
            self.assertEqual(self.gateway.chat("green", "r")[1]["x-served-by"], first)

    def is_idle(self):
        figures = self.gateway.figures()
        return not any(figures[f'endpoint_waiting{{endpoint="{model.name}"}}'] +
                       figures[f'endpoint_in_flight{{endpoint="{model.name}"}}']
                       for model in self.models)

    def test_refusals_are_openai_errors(self):
        chat = {"model": "base", "messages": []}
        for body, method, path, headers, status in (
                ("{", "POST", CHAT, {}, 400),
                ("[1]", "POST", CHAT, {}, 400),
                ("", "POST", CHAT, {}, 400),
                ({"messages": []}, "POST", CHAT, {}, 400),
                ('{"model": "a", "model": "b"}', "POST", CHAT, {}, 400),
                ('{"model": "a", "mo\\u0064el": "b"}', "POST", CHAT, {}, 400),
                ('{"model": "a\\u12"}', "POST", CHAT, {}, 400),
                ('{"model": "base\\u0000"}', "POST", CHAT, {}, 400),
                (chat, "POST", "/v1/nothing", {}, 404),
                (None, "GET", CHAT, {}, 405),
                (chat, "POST", CHAT, {"Content-Encoding": "gzip"}, 415),
                (chat, "POST", CHAT, {"x-long": "x" * 40_000}, 431)):
            got, _, answer = self.gateway.call(body, method, path, headers)
            self.assertEqual(got, status, answer)
            self.assertIn("message", json.loads(answer)["error"], answer)
        status, _, answer = self.gateway.chat("unknown")  # the server's own words
        self.assertEqual((status, json.loads(answer)["error"]["message"]), (404, "no such model"))


class Logging(GatewayTest):
    keys = {"access_log": 2}

    def test_every_second_request_is_logged(self):
        self.gateway.chat("red", headers={"x-request-id": 'a"b'})
        self.gateway.chat()
        self.gateway.call("{")
        self.gateway.call("{")
        calls = [line for line in self.gateway.read_log().splitlines() if " call " in line]
        self.assertEqual(len(calls), 2, calls)
        self.assertRegex(calls[0], r'call id="a\?b" peer=127.0.0.1 path="/v1/chat/completions" '
                         r'model="red" endpoint="(one|two)" status=200 outcome=answered tries=1 '
                         r'us=\d+ first_us=\d+ prompt_tokens=\d+ answer_tokens=4')
        self.assertIn('model="" endpoint="" status=400 outcome=refused tries=0', calls[1])


class Failing(GatewayTest):
    def test_a_killed_server_costs_no_request(self):
        failed, stop = [], threading.Event()

        def load():
            while not stop.is_set():
                status, _, body = self.gateway.chat(text="same prefix " * 50)
                if status != 200:
                    failed.append((status, body))
        threads = [threading.Thread(target=load) for _ in range(4)]
        for thread in threads:
            thread.start()
        answered = self.gateway.figures()["answered_total"]
        wait_until(lambda: self.gateway.figures()["answered_total"] > answered + 20, "answers")
        for model in self.models:
            model.kill()
            wait_until(lambda: not self.gateway.is_up(model), "ejection")
            answered = self.gateway.figures()["answered_total"]
            wait_until(lambda: self.gateway.figures()["answered_total"] > answered + 20, "answers")
            model.start()
            self.gateway.wait_up(model)
        stop.set()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])
        figures = self.gateway.figures()
        self.assertGreaterEqual(figures["ejected_total"], 2)
        self.assertGreaterEqual(figures["returned_total"], 2)
        self.assertEqual(figures["requests_open"], 0)

    def test_misbehaviour_is_retried_elsewhere(self):
        self.check_retries("decline", "drop", "malformed", "cut")

    def test_a_stream_that_breaks_ends_in_an_error_event(self):
        for model in self.models:
            model.fault("cut")
        status, _, body = self.gateway.chat(stream=True, max_tokens=50)
        events = body.decode().strip().split("\n\n")
        self.assertEqual((status, len(events)), (200, 3 + 1))
        self.assertIn('"code":502', events[-1])
        self.assertEqual(self.gateway.figures()["cut_short_total"], 1)

    def test_a_stream_that_breaks_within_an_event_is_cut(self):
        for model in self.models:
            model.fault("tear")
        link = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=WAIT_SECONDS)
        link.request("POST", CHAT, json.dumps({"model": "base", "messages": ["x"],
                                               "max_tokens": 50, "stream": True}))
        answer = link.getresponse()
        with self.assertRaises((ConnectionResetError, http.client.IncompleteRead)):
            answer.read()
        link.close()
        self.assertEqual(self.gateway.figures()["cut_short_total"], 1)

    def test_without_servers(self):
        for model in self.models:
            model.fault("decline")
        status, headers, body = self.gateway.chat()
        self.assertEqual((status, headers["Retry-After"]), (429, "1"), body)
        for model in self.models:
            model.kill()
        status, headers, body = self.gateway.chat()
        self.assertIn(status, (502, 503))
        wait_until(lambda: self.gateway.call(method="GET", path="/health")[0] == 503, "no health")
        status, headers, body = self.gateway.chat()
        self.assertEqual((status, headers["Retry-After"]), (503, "1"))
        self.assertIn("no model server", json.loads(body)["error"]["message"])

    def test_a_client_that_leaves_is_noticed(self):
        before = self.cancelled()
        link = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=WAIT_SECONDS)
        link.request("POST", CHAT, json.dumps({"model": "base", "messages": ["x"],
                                               "max_tokens": 100_000, "stream": True}))
        answer = link.getresponse()
        answer.read(10)
        answer.close()
        link.close()
        wait_until(lambda: self.cancelled() == before + 1, "no server was told")
        self.assertEqual(self.gateway.figures()["cancelled_total"], 1)
        self.assertEqual(self.gateway.figures()["requests_open"], 0)

    def cancelled(self):
        return sum(model.ask("/test/last")["cancelled"] for model in self.models)


class Hanging(GatewayTest):
    keys = {"first_byte_timeout_ms": 3000, "scrape_timeout_ms": 5000}

    def test_silence_is_retried_elsewhere(self):
        self.check_retries("hang")


class Pausing(GatewayTest):
    """A token each 140 ms, for hours."""

    options = ("--speed", "0.1")
    keys = {"idle_timeout_ms": 50}

    def test_an_answer_that_takes_too_long(self):
        status, _, body = self.gateway.chat(stream=True, max_tokens=100_000)
        self.assertIn(b'"code":502', body)
        self.assertEqual(self.gateway.figures()["cut_short_total"], 1 if status == 200 else 0)
        wait_until(lambda: self.gateway.figures()["requests_open"] == 0, "it is not freed")


class Lasting(Pausing):
    keys = {"total_timeout_ms": 3000}


class Example(unittest.TestCase):
    def test_the_demo(self):
        done = subprocess.run([sys.executable, SOURCE / "examples" / "gateway" / "demo.py",
                               "--seconds", "3"], capture_output=True, text=True, timeout=180,
                              env={**os.environ, "SHOAL_BUILD_DIR": str(BIN.parent)})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("through the gateway", done.stdout)
        self.assertIn("the same, with fairness", done.stdout)
        self.assertIn("a new adapter answered", done.stdout)


class FlowTest(GatewayTest):
    """The pool is saturated by a request for each of two servers."""

    options = ("--speed", "1")
    keys = {"objectives": "objectives.yaml", "access_log": 1,
            "featureGates": ["flowControl"],
            "plugins": [{"type": "concurrency-detector", "parameters": {"maxConcurrency": 1}},
                        {"type": "round-robin-fairness-policy"}, {"type": "max-score-picker"}],
            "schedulingProfiles": [{"name": "default",
                                    "plugins": [{"pluginRef": "max-score-picker"}]}],
            "flowControl": {"saturationDetector": {"pluginRef": "concurrency-detector"},
                            "maxRequests": "6", "defaultRequestTTL": "60s",
                            "defaultPriorityBand": {
                                "fairnessPolicyRef": "round-robin-fairness-policy"},
                            "priorityBands": [{"priority": -1, "defaultRequestTTL": "1ms"},
                                              {"priority": 9, "maxRequests": 1}]}}
    files = {"objectives.yaml": "\n---\n".join(
        f"kind: InferenceObjective\nmetadata: {{name: {name}}}\nspec: {{priority: {priority}}}"
        for name, priority in (("urgent", 9), ("normal", 0), ("batch", -1)))}

    def hold(self):
        """Keeps a server busy until the answer is closed."""
        link = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=WAIT_SECONDS)
        link.request("POST", CHAT, json.dumps({"model": "base", "messages": ["x"],
                                               "max_tokens": 10**6, "stream": True}))
        self.addCleanup(link.close)
        answer = link.getresponse()
        self.addCleanup(answer.close)
        return link, answer

    def later(self, objective, tenant="", done=None):
        headers = {"x-request-id": f"{objective}-{tenant}", "x-gateway-inference-objective": objective,
                   "x-gateway-inference-fairness-id": tenant}
        queued = self.gateway.figures()["queued_total"]

        def call():
            status = self.gateway.chat(headers=headers)[0]
            done.append((objective, tenant, status))
        thread = threading.Thread(target=call)
        thread.start()
        self.addCleanup(thread.join)
        wait_until(lambda: self.gateway.figures()["queued_total"] == queued + 1, "it is queued")
        return thread

    def size(self, priority):
        return self.gateway.figures().get(
            f'inference_extension_flow_control_queue_size{{priority="{priority}"}}', 0)


class Queueing(FlowTest):
    def test_priorities_and_tenants_take_turns(self):
        held = [self.hold() for _ in self.models]
        done = []
        threads = [self.later("normal", "greedy", done) for _ in range(3)]
        threads += [self.later("normal", "modest", done), self.later("urgent", "modest", done)]
        self.assertEqual((self.size(0), self.size(9)), (4, 1))
        self.assertEqual(self.gateway.figures()["inference_extension_flow_control_pool_saturation"],
                         1)
        status, headers, body = self.gateway.chat(
            headers={"x-gateway-inference-objective": "urgent"})
        self.assertEqual((status, headers["Retry-After"]), (429, "1"))
        self.assertIn("queue", json.loads(body)["error"]["message"])
        status, _, body = self.gateway.chat(headers={"x-gateway-inference-objective": "batch"})
        self.assertEqual(status, 429)
        self.assertIn("may wait", json.loads(body)["error"]["message"])
        self.assertEqual((self.gateway.figures()["inference_objective_running_requests"],
                          self.gateway.figures()["inference_pool_ready_pods"]), (2, 2))
        held[0][1].close()
        held[0][0].close()
        for thread in threads:
            thread.join()
        self.assertEqual([row[2] for row in done], [200] * 5)
        self.assertEqual(re.findall('call id="([a-z]+-[a-z]+)"', self.gateway.read_log()),
                         ["urgent-modest", "normal-greedy", "normal-modest", "normal-greedy",
                          "normal-greedy"])
        figures = self.gateway.figures()
        self.assertEqual((figures["queue_full_total"], figures["queue_expired_total"]), (1, 1))
        waits = "inference_extension_flow_control_request_queue_duration_seconds"
        self.assertEqual(figures[f'{waits}_count{{priority="9",outcome="Dispatched"}}'], 1)
        self.assertGreater(figures[f'{waits}_sum{{priority="9",outcome="Dispatched"}}'], 0)
        self.assertGreaterEqual(figures["inference_objective_request_total"], 5)
        self.assertGreaterEqual(figures["inference_objective_request_error_total"], 2)
        passed = {name for model in self.models
                  for name in model.ask("/test/last").get("headers", {})}
        self.assertNotIn("x-gateway-inference-fairness-id", passed)

    def test_a_client_that_leaves_the_queue(self):
        held = [self.hold() for _ in self.models]
        link = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=WAIT_SECONDS)
        link.request("POST", CHAT, json.dumps({"model": "base", "messages": ["x"]}))
        wait_until(lambda: self.size(0) == 1, "it waits")
        link.close()
        wait_until(lambda: self.gateway.figures()["queue_left_total"] == 1, "it is noticed")
        self.assertEqual(self.size(0), 0)
        self.assertEqual(len(held), 2)

    def test_a_queue_outlasts_its_servers(self):
        for model in self.models:
            model.kill()
        wait_until(lambda: self.gateway.call(method="GET", path="/health")[0] == 503, "no health")
        done = []
        thread = self.later("normal", done=done)
        self.models[0].start()
        thread.join()
        self.assertEqual(done, [("normal", "", 200)])
        self.models[1].start()

    def test_objectives_are_read_again(self):
        held = [self.hold() for _ in self.models]
        self.gateway.write("objectives.yaml",
                           self.files["objectives.yaml"].replace("-1", "5"))
        wait_until(lambda: self.gateway.figures()["endpoint_file_reloads_total"] == 1, "a reload")
        done = []
        thread = self.later("batch", done=done)
        self.assertEqual(self.size(5), 1)
        self.gateway.write("objectives.yaml", "kind: Pod")
        wait_until(lambda: self.gateway.figures()["endpoint_file_mistakes_total"] == 1, "a mistake")
        held[0][1].close()
        held[0][0].close()
        thread.join()
        self.assertEqual(done, [("batch", "", 200)])


class StoppingAtLast(FlowTest):
    keys = {**FlowTest.keys, "drain_timeout_ms": 300}

    def test_those_that_wait_are_told(self):
        """Streams are cut when the time is over; a client that has no answer yet gets one."""
        held = [self.hold() for _ in self.models]
        done = []
        thread = self.later("normal", "", done)
        self.gateway.process.send_signal(signal.SIGTERM)
        thread.join(60)
        self.assertEqual(done, [("normal", "", 503)])
        self.gateway.code = 1
        self.assertEqual(self.gateway.process.wait(60), 1)
        for _, answer in held:
            with self.assertRaises(http.client.IncompleteRead):
                answer.read()


class Shedding(FlowTest):
    keys = {**FlowTest.keys, "featureGates": ["flowControl=false"]}
    files = {"objectives.yaml": FlowTest.files["objectives.yaml"] + "".join(
        f"\n---\nkind: InferenceModel\nmetadata: {{name: {name}}}\n"
        f"spec: {{modelName: {name}, criticality: {criticality}, poolRef: {{name: all}}}}"
        for name, criticality in (("base", "Standard"), ("red", "Sheddable")))}

    def test_negative_priorities_are_shed(self):
        batch = {"x-gateway-inference-objective": "batch"}
        self.assertEqual(self.gateway.chat(headers=batch)[0], 200)
        held = [self.hold() for _ in self.models]
        status, headers, body = self.gateway.chat(headers=batch)
        self.assertEqual((status, headers["Retry-After"]), (429, "1"))
        self.assertIn("negative priority", json.loads(body)["error"]["message"])
        self.assertEqual(self.gateway.chat()[0], 200)
        for objective, status in ("unknown", 429), ("normal", 200):  # unknown: the route's
            self.assertEqual(self.gateway.chat("red", headers={
                "x-gateway-inference-objective": objective})[0], status)
        self.assertEqual(self.gateway.figures()["shed_total"], 2)
        self.assertEqual(len(held), 2)


class Sharing(FlowTest):
    keys = {**FlowTest.keys, "featureGates": [], "share_window_ms": 60000}

    def test_a_model_with_more_than_its_share(self):
        for model, count in ("red", 200), ("blue", 10):
            self.assertEqual(self.gateway.chat(model, max_tokens=count)[0], 200)
        self.assertEqual(sum(value for name, value in self.gateway.figures().items()
                             if name.startswith("answer_tokens_total")), 210)
        self.assertEqual(self.gateway.chat("red")[0], 200)  # there is room
        held = [self.hold() for _ in self.models]
        status, headers, body = self.gateway.chat("red")
        self.assertEqual((status, headers["Retry-After"]), (429, "1"))
        self.assertIn("share of tokens", json.loads(body)["error"]["message"])
        self.assertEqual(self.gateway.chat("blue")[0], 200)
        self.assertEqual(self.gateway.figures()["share_exceeded_total"], 1)
        self.assertEqual(len(held), 2)


class Keys(GatewayTest):
    options = ("--speed", "1")
    keys = {"keys": "keys.yaml"}
    files = {"keys.yaml": json.dumps({"keys": [
        {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), **limits}
        for name, limits in (("free", {}), ("few", {"requests_per_minute": 1}),
                             ("small", {"tokens_per_minute": 60}), ("lone", {"concurrency": 1}))]})}

    def ask(self, key, **more):
        status, headers, body = self.gateway.chat(headers={"Authorization": f"Bearer {key}"}, **more)
        return status, int(headers.get("Retry-After", 0)), body

    def test_only_known_keys_are_served(self):
        for path, method in ((CHAT, "POST"), ("/v1/models", "GET")):
            for headers in {}, {"Authorization": "Bearer other"}, {"Authorization": "free"}:
                status, _, body = self.gateway.call({"model": "base", "messages": []}, method, path,
                                                    headers)
                self.assertEqual(status, 401)
                self.assertIn("API key", json.loads(body)["error"]["message"])
        self.assertEqual(self.gateway.figures()["keys_refused_total"], 6)
        self.assertEqual(self.ask("free")[0], 200)
        self.assertEqual(self.gateway.call(method="GET", path="/health")[0], 200)
        self.assertFalse(any("authorization" in model.ask("/test/last").get("headers", {})
                             for model in self.models))

    def test_each_limit_says_how_long_to_wait(self):
        began = time.monotonic()
        self.assertEqual(self.ask("few")[0], 200)
        status, wait, body = self.ask("few")
        passed = time.monotonic() - began
        self.assertEqual((status, 50 - passed < wait <= 61), (429, True), (wait, passed, body))
        began = time.monotonic()
        self.assertEqual(self.ask("small", max_tokens=80)[0], 200)  # more than it had
        status, wait, _ = self.ask("small")
        passed = time.monotonic() - began
        self.assertEqual((status, 15 - passed < wait <= 61), (429, True), (wait, passed))
        link = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=WAIT_SECONDS)
        link.request("POST", CHAT, json.dumps({"model": "base", "messages": ["x"],
                                               "max_tokens": 10**6, "stream": True}),
                     {"Authorization": "Bearer lone"})
        answer = link.getresponse()
        self.assertEqual(self.ask("lone")[:2], (429, 1))
        answer.close()
        link.close()
        wait_until(lambda: self.ask("lone")[0] == 200, "its request has ended")
        self.assertGreaterEqual(self.gateway.figures()["quota_exceeded_total"], 3)
        self.assertEqual(self.ask("free")[0], 200)

    def test_the_file_is_read_again(self):
        self.assertEqual(self.ask("few")[0], 200)
        self.gateway.write("keys.yaml", self.files["keys.yaml"].replace(
            hashlib.sha256(b"free").hexdigest(), hashlib.sha256(b"new").hexdigest()))
        wait_until(lambda: self.ask("new")[0] == 200, "the new key")
        self.assertEqual([self.ask(key)[0] for key in ("free", "few")], [401, 429])
        self.gateway.write("keys.yaml", "keys: [{sha256: x}]")
        wait_until(lambda: "api_keys_refused" in self.gateway.read_log(), "a mistake")
        self.assertEqual(self.ask("new")[0], 200)


class Changing(GatewayTest):
    def test_the_file_is_read_again(self):
        third = Model("three")
        self.addCleanup(third.kill)
        self.gateway.list([self.models[0], third])
        self.gateway.wait_up(third)
        wait_until(lambda: 'endpoint_up{endpoint="two"}' not in self.gateway.figures(), "two leaves")
        self.models[0].kill()
        self.assertEqual(self.gateway.chat()[1]["x-served-by"], "three")
        with open(os.path.join(self.gateway.folder.name, "servers.yaml"), "w",
                  encoding="utf-8") as file:
            file.write("endpoints: [{name: a, address: no where, port: 1}]")
        wait_until(lambda: self.gateway.figures()["endpoint_file_mistakes_total"] > 0, "a mistake")
        self.assertEqual(self.gateway.chat()[1]["x-served-by"], "three")


class Stopping(GatewayTest):
    def test_a_hangup_changes_nothing(self):
        self.gateway.process.send_signal(signal.SIGHUP)
        self.assertEqual(self.gateway.chat()[0], 200)

    def test_requests_under_way_are_finished(self):
        link = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=WAIT_SECONDS)
        link.request("POST", CHAT, json.dumps({"model": "base", "messages": ["x"],
                                               "max_tokens": 1000, "stream": True}))
        answer = link.getresponse()
        self.gateway.process.send_signal(signal.SIGTERM)
        self.assertTrue(answer.read().endswith(b"data: [DONE]\n\n"))
        link.close()
        self.assertEqual(self.gateway.process.wait(60), 0)


class Limits(GatewayTest):
    options = ("--speed", "1000")
    keys = {"requests_max": 2, "body_mib_max": 1, "bodies_mib_max": 1}

    def test_each_limit_refuses_and_counts(self):
        status, _, _ = self.gateway.call(b"x" * (2 << 20))
        self.assertEqual(status, 413)
        link = socket.create_connection(("127.0.0.1", self.gateway.port))
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
        link.sendall(head + b"x" * 600_000)
        wait_until(lambda: self.gateway.figures()["bodies_bytes"] == 1_000_000, "a body is coming")
        status, headers, body = self.gateway.chat(text="x" * 200_000)
        self.assertEqual((status, headers["Retry-After"]), (503, "1"), body)
        other = socket.create_connection(("127.0.0.1", self.gateway.port))
        other.sendall(head)
        wait_until(lambda: self.gateway.figures()["requests_open"] == 2, "both are open")
        status, headers, body = self.gateway.chat()
        self.assertEqual((status, headers["Retry-After"]), (503, "1"), body)
        other.close()
        figures = self.gateway.figures()
        self.assertEqual((figures["requests_full_total"], figures["bodies_full_total"]), (1, 1))
        link.close()
        wait_until(lambda: self.gateway.figures()["bodies_bytes"] == 0, "its body is freed")
        self.assertEqual(self.gateway.chat()[0], 200)


class SlowClients(GatewayTest):
    options = ("--speed", "1000")
    keys = {"client_timeout_ms": 1000}

    def test_a_body_that_does_not_come(self):
        with socket.create_connection(("127.0.0.1", self.gateway.port), WAIT_SECONDS) as link:
            link.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
            self.assertIn(b" 408 ", link.recv(4096))
        wait_until(lambda: self.gateway.figures()["bodies_bytes"] == 0, "its body is freed")

    def test_a_client_that_does_not_read_slows_its_server(self):
        link = socket.create_connection(("127.0.0.1", self.gateway.port))
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        body = json.dumps({"model": "base", "messages": ["x"], "max_tokens": 10**6, "stream": True})
        link.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}"
                     .encode())
        wait_until(lambda: self.gateway.figures()["connections_timed_out_total"] > 0,
                   "it is not disconnected", 120)
        self.assertGreater(self.gateway.figures()["paused_total"], 0)
        wait_until(lambda: self.gateway.figures()["requests_open"] == 0, "it is not freed")
        link.close()


class Starting(unittest.TestCase):
    def run_gateway(self, text, *options, prefix=()):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "gateway.yaml")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            with open(os.path.join(folder, "servers.yaml"), "w", encoding="utf-8") as file:
                file.write("endpoints: [{name: a, address: 127.0.0.1, port: '1'}]")
            done = subprocess.run([*prefix, BIN / "shoal-gateway", *options, path], capture_output=True,
                                  text=True, check=False, timeout=60)
            return done.returncode, done.stdout + done.stderr

    def test_configurations(self):
        picker = """
endpoints: servers.yaml
apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: single-profile-handler
- type: lora-affinity-scorer
- {type: utilization-filter, name: room, parameters: {queueDepthThreshold: 5}}
- {type: seed-picker, parameters: {threshold: 30}}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: lora-affinity-scorer, weight: 2.5}
  - pluginRef: room
  - pluginRef: seed-picker
"""
        flow = "endpoints: servers.yaml\nfeatureGates: [flowControl]\nflowControl:\n  "
        found = picker.replace("endpoints: servers.yaml", "dataLayer: {discovery: {pluginRef: list}}")
        found = found.replace("plugins:\n- type", "plugins:\n- {name: list, type: file-discovery, "
                              "parameters: {path: servers.yaml, watchFile: true}}\n- type", 1)
        for text in (picker, found, found + "endpoints: servers.yaml\n"):
            self.assertEqual(self.run_gateway(text, "--check"), (0, "valid: 1 endpoints\n"))
        for text, said in (
                ("endpoints: servers.yaml\nliste: x\n", ":2: the key liste is not known"),
                ("endpoints: servers.yaml\ntries_max: 9\n", "tries_max: 9 is no number from 1 to 8"),
                ("endpoints: a\nendpoints: b\n", "endpoints is given twice"),
                ("listen: port:1\n", "the key endpoints is missing"),
                ("endpoints: nowhere.yaml\n", "nowhere.yaml: No such file"),
                ("endpoints: servers.yaml\nobjectives: none.yaml\n", "none.yaml: No such file"),
                ("endpoints: servers.yaml\nkeys: none.yaml\n", "none.yaml: No such file"),
                (flow + "maxRequests: many", "maxRequests: expected a quantity"),
                (flow + "maxBytes: 1X", "maxBytes: expected a quantity"),
                (flow + "defaultRequestTTL: 5", "defaultRequestTTL: expected a duration"),
                (flow + "maxRequest: 5", "no key maxRequest here"),
                (flow + "priorityBands: [{priority: 1}, {priority: 1}]", "1 is given twice"),
                (flow + "priorityBands: [{}]", "priority: expected a whole number"),
                (flow + "defaultPriorityBand: {fairnessPolicyRef: fair}", "fair is no fairness"),
                (flow + "defaultPriorityBand: {orderingPolicyRef: o}", "o is no ordering policy"),
                (flow + "saturationDetector: {pluginRef: d}", "d is no saturation detector"),
                (flow + "usageLimitPolicyPluginRef: u", "u is no usage limit policy"),
                ("endpoints: servers.yaml\nscrape_ms_min: 150\nfeatureGates: [flowControl]\n",
                 "metricsStalenessThreshold is less than twice scrape_ms_min"),
                ("a: [\n", "not YAML"),
                (found.replace("path: ", "file: "), "expected a file-discovery with"),
                (found.replace("pluginRef: list", "pluginRef: room"), "expected a file-discovery with"),
                (found.replace("path: servers", "path: nowhere"), "nowhere.yaml: No such file"),
                (found + "endpoints: nowhere.yaml\n", "nowhere.yaml: No such file"),
                (picker.replace("pluginRef: room", "pluginRef: rooms"), "has the name rooms"),
                (picker.replace("type: seed-picker", "type: s"), "has the name seed-picker"),
                (picker.replace("weight: 2.5", "weight: x"), "weight: expected a number"),
                (picker.replace("single-profile-handler\n", "pd-profile-handler\n")
                 .replace("pluginRef: room", "pluginRef: pd-profile-handler"), "no plugin of type")):
            code, output = self.run_gateway(text, "--check")
            self.assertEqual(code, 2, output)
            self.assertIn(said, output)

    def test_too_few_descriptors(self):
        code, output = self.run_gateway("endpoints: servers.yaml\nlisten: 127.0.0.1:0\n",
                                        prefix=["prlimit", "--nofile=1000:1000"])
        self.assertEqual(code, 2, output)
        self.assertIn("may open 1000 files, and this configuration needs 7104", output)

    def test_help(self):
        for option in "--help", "--help-config", "--help=man", "--version":
            code, output = self.run_gateway("", option)
            self.assertEqual(code, 0)
            self.assertIn("gateway" if option != "--help-config" else "tries_max", output)


if __name__ == "__main__":
    main()
