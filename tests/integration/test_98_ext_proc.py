#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gateway as Envoy's endpoint picker: the message sequences of the reference picker's own
suite, before servers that show given figures; then large bodies, repeated ends, trailers, other
modes, limits, and that counts in flight return to zero however a stream ends.

ctest: timeout=240 presets=dev because messages are parsed in place
"""

import http.server
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import unittest
import urllib.request

import grpc

from shoal_extproc import (BUFFERED, DUPLEX, PROCESS, SERVICE, STREAMED, Processor, attributes,
                           in_threads, modes, number, request_body, request_headers, request_trailers,
                           response_body, response_headers, response_trailers, run, subset_hint,
                           varint)
from shoal_fixture import BIN, SANITIZER, WAIT_SECONDS, free_port, main, wait_until
from shoal_http2 import DATA, END_HEADERS, HEADERS, PING, Http2, frame, grpc_message
from shoal_http2 import request_headers as http2_headers

LORA = "sql-lora-1fdg2"
PLUGINS = {"plugins": [{"type": name} for name in
                       ("queue-scorer", "kv-cache-utilization-scorer", "prefix-cache-scorer",
                        "lora-affinity-scorer", "max-score-picker", "passthrough-parser")],
           "schedulingProfiles": [{"name": "default", "plugins": [
               {"pluginRef": name, "weight": 1} for name in
               ("queue-scorer", "kv-cache-utilization-scorer", "prefix-cache-scorer",
                "lora-affinity-scorer")] + [{"pluginRef": "max-score-picker"}]}]}


class Pod(http.server.ThreadingHTTPServer):
    """A server that shows given figures, and serves nothing."""
    daemon_threads = True

    def __init__(self, waiting, kv_used, *adapters):
        page = "\n".join((
            f'vllm:num_requests_waiting{{model_name="base"}} {waiting}',
            'vllm:num_requests_running{model_name="base"} 0',
            f'vllm:kv_cache_usage_perc{{model_name="base"}} {kv_used}',
            f'vllm:lora_requests_info{{max_lora="2",running_lora_adapters="{",".join(adapters)}",'
            'waiting_lora_adapters=""} 1.0', "")).encode()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):  # pylint: disable=invalid-name
                body = page if self.path == "/metrics" else b'{"data":[]}'
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):  # pylint: disable=arguments-differ
                pass
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Gateway:
    def __init__(self, pods, documents=None, **keys):
        self.folder = tempfile.TemporaryDirectory()
        self.pod_count = len(pods)
        self.admin, self.port = free_port(), free_port()
        self.address = f"127.0.0.1:{self.port}"
        config = {"listen": f"unix:{self.folder.name}/http", "metrics": f"127.0.0.1:{self.admin}",
                  "ext_proc": self.address, "endpoints": "servers.yaml",
                  "scrape_timeout_ms": 60000, **PLUGINS, **keys}
        endpoints = [{"name": f"pod{i}", "address": "127.0.0.1",
                      "port": pod.address.rsplit(":", 1)[1]} for i, pod in enumerate(pods)]
        documents = {"gateway.yaml": config, "servers.yaml": {"endpoints": endpoints},
                     **(documents or {})}
        for name, document in documents.items():
            with open(os.path.join(self.folder.name, name), "w", encoding="utf-8") as file:
                json.dump(document, file)
        self.log = os.path.join(self.folder.name, "log")
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [BIN / "shoal-gateway", os.path.join(self.folder.name, "gateway.yaml")],
                stdout=subprocess.DEVNULL, stderr=log)
        self.code = None

    def wait_up(self):
        wait_until(lambda: self.is_up(self.pod_count), lambda: f"pods up: {self.read_log()}")

    def is_up(self, count):
        try:
            rows = self.figures()
        except OSError:
            return False
        return sum(value for name, value in rows.items() if name.startswith("endpoint_up")) == count

    def figures(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=WAIT_SECONDS) as page:
            rows = [line.rsplit(" ", 1) for line in page.read().decode().splitlines()
                    if not line.startswith("#")]
        return {name.removeprefix("shoal_gateway_"): float(value) for name, value in rows}

    def figure(self, name):
        return self.figures()["ext_proc_" + name]

    def wait_figure(self, name, value):
        wait_until(lambda: self.figure(name) == value,
                   lambda: f"{name} {value}: {self.figures()}")

    def wait_idle(self):
        """Nothing in flight, open or held."""
        def look():
            rows = self.figures()
            return all(value == 0 for name, value in rows.items()
                       if "in_flight" in name or name in ("ext_proc_streams", "ext_proc_held_bytes"))
        wait_until(look, lambda: f"idle: {self.figures()}")

    def read_log(self):
        with open(self.log, encoding="utf-8") as log:
            return log.read()

    def stop(self):
        if self.code is None:
            self.process.send_signal(signal.SIGTERM)
            self.code = self.process.wait(60)

    def close(self):
        self.stop()
        log = self.read_log()
        self.folder.cleanup()
        assert self.code == 0, f"ended with {self.code}: {log}"
        assert not SANITIZER.search(log), log


def llm(prompt, model, target=None, **headers):
    """The reference suite's request: (headers message, body)."""
    fields = {"hi": "mom", "x-request-id": "test-request-id",
              "x-gateway-inference-objective": model, **headers}
    if target is not None:
        fields["x-gateway-model-name-rewrite"] = target
    body = json.dumps({"max_tokens": 100, "model": model, "prompt": prompt, "temperature": 0},
                      separators=(",", ":")).encode()
    return request_headers(fields), body


class ExtProcTest(unittest.TestCase):
    def serve(self, *pods, **keys):
        self.pods = [Pod(*pod) for pod in pods]
        for pod in self.pods:
            self.addCleanup(pod.server_close)
            self.addCleanup(pod.shutdown)
        self.gateway = Gateway(self.pods, **keys)
        self.addCleanup(self.gateway.close)
        self.gateway.wait_up()
        self.processor = Processor(self.gateway.address)
        self.addCleanup(self.processor.__exit__)

    def send(self, *messages):
        stream = self.processor.open()
        stream.send(*messages)
        return stream

    def number_of(self, answer):
        """The pod, counted from one as in the reference's cases."""
        return 1 + [pod.address for pod in self.pods].index(answer.picked)

    def check_picks(self, stream, pod, body):
        """The decision, then the whole body."""
        answer = stream.receive()
        self.assertEqual(answer.phase, "request_headers")
        self.assertTrue(answer.clears_route)
        self.assertEqual(self.number_of(answer), pod)
        self.assertEqual(answer.headers["content-length"], str(len(body)))
        self.assertEqual(stream.receive_body()[0], body)
        return answer

    def check_refused(self, stream, status, words):
        answer = stream.receive()
        self.assertEqual((answer.phase, answer.status), ("immediate_response", status), answer.body)
        error = json.loads(answer.body)["error"]
        self.assertEqual(answer.headers["content-type"], "application/json")
        self.assertEqual(error["code"], status)
        self.assertIn(words, error["message"])
        self.assertEqual("retry-after" in answer.headers, status in (429, 502, 503))
        self.assertEqual(stream.end(), (grpc.StatusCode.OK, []))
        return answer

    def finish(self, stream, body=b'{"ok":1}'):
        """The answer's phases, as Envoy shows them."""
        stream.send(response_headers({":status": "200", "content-type": "application/json"}),
                    response_body(body), response_body(b"", end=True))
        self.assertEqual(stream.receive().phase, "response_headers")
        self.assertEqual(stream.receive_body(), (body, 1))
        self.assertEqual(stream.end(), (grpc.StatusCode.OK, []))


class HermeticCases(ExtProcTest):
    """The cases of the reference's suite. Texts of errors are ours: objects of OpenAI's."""

    def test_01_adapter_despite_higher_kv_cache(self):
        self.serve((10, .2, "foo", "bar"), (10, .4, "foo", LORA), (10, .3, "foo"))
        head, body = llm("test1", "sql-lora", LORA)
        answer = self.check_picks(self.send(head, request_body(body, end=True)), 2,
                                  body.replace(b'"sql-lora"', f'"{LORA}"'.encode()))
        self.assertIn("x-gateway-inference-objective", answer.removed)
        self.assertIn("x-gateway-model-name-rewrite", answer.removed)

    def test_02_passthrough_parser(self):
        self.serve((3, .2), (0, .1), (10, .2), parser={"pluginRef": "passthrough-parser"})
        head, _ = llm("", "my-model")
        self.check_picks(self.send(head, request_body(b"passthrough-parser", end=True)), 2,
                         b"passthrough-parser")

    def test_03_nothing_is_shed_by_default(self):
        self.serve((6, .2, "foo", "bar", LORA), (0, .85, "foo"), (10, .9, "foo"))
        head, body = llm("test3", "sql-lora", LORA)
        self.check_picks(self.send(head, request_body(body, end=True)), 1,
                         body.replace(b'"sql-lora"', f'"{LORA}"'.encode()))

    def test_04_invalid_json(self):
        self.serve((0, .1))
        head, _ = llm("", "my-model")
        answer = self.check_refused(self.send(head, request_body(b"no healthy upstream", end=True)),
                                    400, "object")
        self.assertEqual(answer.headers["x-request-id"], "test-request-id")

    def test_05_body_in_two_pieces(self):
        self.serve((4, .2, "foo", "bar", "sql-lora-1fdg3"), (4, .85, "foo", "sql-lora-1fdg3"))
        head, body = llm("test5", "sql-lora-sheddable", "sql-lora-1fdg3")
        self.check_picks(self.send(head, request_body(body[:30]), request_body(body[30:], end=True)),
                         1, body.replace(b"sql-lora-sheddable", b"sql-lora-1fdg3"))

    def test_06_no_pods(self):
        self.serve()
        self.check_refused(self.send(request_headers({":method": "GET"}, end=True)), 503,
                           "no model server")

    def test_07_missing_model(self):
        self.serve((0, .1))
        head, _ = llm("", "my-model")
        self.check_refused(self.send(head, request_body(b'{"prompt":"hello world"}', end=True)),
                           400, "model")

    def check_subset(self, chosen, pod):
        self.serve((0, .2, "foo"), (0, .1, "foo", LORA), (10, .2, "foo"))
        head, body = llm("test8", "sql-lora", LORA)
        hint = subset_hint(*(self.pods[i - 1].address if i < 9 else "127.0.0.1:99" for i in chosen))
        stream = self.send(head + hint, request_body(body, end=True))
        if pod is None:
            self.check_refused(stream, 503, "that the proxy allows")
        else:
            self.check_picks(stream, pod, body.replace(b'"sql-lora"', f'"{LORA}"'.encode()))

    def test_08_subset_of_all(self):
        self.check_subset((1, 2, 3), 2)

    def test_09_subset_of_one(self):
        """The hint comes with the headers alone, and all addresses differ only in their ports."""
        self.check_subset((3,), 3)

    def test_10_subset_of_none(self):
        self.check_subset((99,), None)

    def test_11_model_without_objective(self):
        self.serve((4, .2, "foo", "bar", "sql-lora-1fdg3"))
        head, body = llm("test11", "direct-model")
        self.check_picks(self.send(head, request_body(body[:20]), request_body(body[20:], end=True)),
                         1, body)

    def test_12_rewritten_model(self):
        """The target comes by header: there is no InferenceModelRewrite."""
        self.serve((0, .1, "foo", "rewritten-model"))
        head, body = llm("test12", "model-to-be-rewritten", "rewritten-model")
        self.check_picks(self.send(head, request_body(body, end=True)), 1,
                         body.replace(b"model-to-be-rewritten", b"rewritten-model"))

    def test_13_get(self):
        self.serve((0, 0, "foo"))
        stream = self.send(request_headers({":method": "GET", ":path": "/v1/models"}, end=True))
        self.assertEqual(self.number_of(stream.receive()), 1)
        self.assertEqual(stream.end(), (grpc.StatusCode.OK, []))

    def answer_of(self, kind, *pieces):
        """The pieces that come back of an answer alone."""
        self.serve((0, 0))
        stream = self.send(response_headers({":status": "200", "content-type": kind}), *pieces)
        self.assertEqual(stream.receive().phase, "response_headers")
        found = stream.receive_body()
        self.assertEqual(stream.end(), (grpc.StatusCode.OK, []))
        return found

    def test_14_json_answer_in_two_pieces(self):
        self.assertEqual(self.answer_of("application/json", response_body(b'{"a":'),
                                        response_body(b"1}", end=True)), (b'{"a":1}', 1))

    def test_15_answer_of_invalid_json(self):
        self.assertEqual(self.answer_of("application/json", response_body(
            b"no healthy upstream", end=True)), (b"no healthy upstream", 1))

    def test_16_json_answer_with_an_empty_end(self):
        self.assertEqual(self.answer_of("application/json", response_body(b'{"a":1}'),
                                        response_body(b"", end=True)), (b'{"a":1}', 1))

    def test_17_events_pass_one_by_one(self):
        events = (b'data: {"usage":{"prompt_tokens":7}}\n\n', b"data: [DONE]\n\n", b"")
        self.serve((0, 0))
        stream = self.send(response_headers({"status": "200", "content-type": "text/event-stream"}))
        self.assertEqual(stream.receive().phase, "response_headers")
        for event in events:
            stream.send(response_body(event, end=event == b""))
            answer = stream.receive()
            self.assertEqual((answer.piece, answer.is_end), (event, event == b""))
        self.assertEqual(stream.end(), (grpc.StatusCode.OK, []))


class Traps(ExtProcTest):
    def setUp(self):
        self.serve((0, .1), (0, .2))

    def test_43_megabytes_with_a_repeated_end(self):
        """Bodies above a megabyte may end twice."""
        head, body = llm("x" * (43 << 20), "base")
        pieces = [request_body(body[at:at + 32768]) for at in range(0, len(body), 32768)]
        stream = self.send(head, *pieces, request_body(b"", end=True), request_body(b"", end=True))
        self.check_picks(stream, 1, body)
        self.finish(stream)
        self.assertEqual(self.gateway.figure("repeated_ends_total"), 1)
        self.assertEqual(self.gateway.figure("answered_total"), 1)
        self.gateway.wait_idle()

    def test_43_megabytes_in_one_message(self):
        head, body = llm("x" * (43 << 20), "base", "target")
        stream = self.send(head + modes(BUFFERED, BUFFERED))
        self.assertEqual(stream.receive().headers, {})
        stream.send(request_body(body, end=True))
        answer = stream.receive()
        self.assertEqual((answer.phase, self.number_of(answer)), ("request_body", 1))
        expected = body.replace(b'"base"', b'"target"')
        self.assertEqual(answer.headers["content-length"], str(len(expected)))
        self.assertTrue(answer.new_body == expected)
        stream.cancel()
        self.gateway.wait_idle()

    def test_buffered_body_that_stays_is_not_sent_back(self):
        head, body = llm("hello", "base")
        stream = self.send(head + modes(BUFFERED, BUFFERED))
        self.assertEqual(stream.receive().phase, "request_headers")
        stream.send(request_body(body, end=True))
        answer = stream.receive()
        self.assertEqual((answer.phase, self.number_of(answer)), ("request_body", 1))
        self.assertIsNone(answer.new_body)
        self.assertNotIn("content-length", answer.headers)
        stream.send(response_headers({":status": "200"}), response_body(b"{}", end=True))
        self.assertEqual([stream.receive().phase for _ in range(2)],
                         ["response_headers", "response_body"])
        self.assertEqual(stream.end(), (grpc.StatusCode.OK, []))
        self.gateway.wait_idle()
        self.assertEqual(self.gateway.figure("answered_total"), 1)

    def test_bodies_are_not_shown(self):
        stream = self.send(request_headers({":method": "POST"}) + modes(0, 0))
        self.assertEqual(self.number_of(stream.receive()), 1)
        stream.send(response_headers({":status": "200"}))
        stream.receive()
        self.assertEqual(stream.end(), (grpc.StatusCode.OK, []))
        self.assertEqual(self.gateway.figure("answered_total"), 1)

    def test_streamed_mode_is_refused(self):
        head, _ = llm("", "base")
        self.check_refused(self.send(head + modes(STREAMED, DUPLEX)), 500, "FULL_DUPLEX_STREAMED")

    def test_trailers_end_a_body(self):
        head, body = llm("hello", "base")
        stream = self.send(head, request_body(body), request_trailers({"x-more": "1"}))
        self.assertEqual(self.number_of(stream.receive()), 1)
        answer = stream.receive()
        self.assertEqual((answer.piece, answer.is_end), (body, False))
        self.assertEqual(stream.receive().phase, "request_trailers")
        stream.send(response_headers({":status": "200", "content-type": "application/json"}),
                    response_body(b"{}"), response_trailers({"grpc-status": "0"}))
        self.assertEqual(stream.receive().phase, "response_headers")
        self.assertEqual(stream.receive().piece, b"{}")
        self.assertEqual(stream.receive().phase, "response_trailers")
        self.assertEqual(stream.end(), (grpc.StatusCode.OK, []))
        self.assertEqual(self.gateway.figure("answered_total"), 1)

    def test_subset_as_text_with_commas(self):
        head, body = llm("hello", "base")
        hint = run(8, run(1, run(1, "envoy.lb.subset_hint") + run(2, run(1, run(
            1, "x-gateway-destination-endpoint-subset") + run(
                2, run(3, f"127.0.0.1:1, {self.pods[1].address}"))))))
        self.check_picks(self.send(head + hint, request_body(body, end=True)), 2, body)

    def test_value_without_raw_value(self):
        """Older Envoys set `value`."""
        headers = run(1, run(1, "x-request-id") + run(2, "old"))
        stream = self.send(run(2, run(1, headers)), request_body(b"{}", end=True))
        self.assertEqual(self.check_refused(stream, 400, "model").headers["x-request-id"], "old")

    def test_usage_is_counted(self):
        head, body = llm("hello", "base")
        stream = self.send(head, request_body(body, end=True))
        self.check_picks(stream, 1, body)
        self.finish(stream, b'{"usage":{"prompt_tokens":7,"completion_tokens":3}}')
        self.assertEqual(self.gateway.figure("prompt_tokens_total"), 7)
        self.assertEqual(self.gateway.figure("answer_tokens_total"), 3)

    def test_negative_priority_is_shed(self):
        """Of an objective, while the pool is saturated; others pass."""
        self.serve((100, .9), objectives="objectives.yaml", documents={"objectives.yaml": {
            "kind": "InferenceObjective", "metadata": {"name": "batch"}, "spec": {"priority": -1}}})
        head, body = llm("hello", "batch")
        self.check_refused(self.send(head, request_body(body, end=True)), 429, "negative priority")
        head, body = llm("hello", "other")
        self.check_picks(self.send(head, request_body(body, end=True)), 1, body)

    def test_request_without_id_gets_one(self):
        stream = self.send(request_headers({":method": "GET"}, end=True))
        self.assertEqual(len(stream.receive().headers["x-request-id"]), 32)

    def test_encoded_body(self):
        head, _ = llm("", "base", **{"content-encoding": "gzip"})
        self.check_refused(self.send(head), 415, "Content-Encoding")

    def test_model_is_quoted_in_its_place(self):
        head, body = llm("hello", "base", 'a"b')
        self.check_picks(self.send(head, request_body(body, end=True)), 1,
                         body.replace(b'"base"', rb'"a\"b"'))

    def test_route_rewrites_the_model(self):
        """Of the client's name or the one that the proxy wants; other names are unknown."""
        self.serve((0, .1), resources="resources.yaml", documents={"resources.yaml": {
            "kind": "InferenceModel", "metadata": {"name": "m"}, "spec": {
                "modelName": "sql", "poolRef": {"name": "p"},
                "targetModels": [{"name": "a-much-longer-name"}]}}})
        for rewritten in (), ("sql",):
            head, body = llm("hello", "other" if rewritten else "sql", *rewritten)
            picked = body.replace(b'"other"', b'"sql"').replace(b'"sql"', b'"a-much-longer-name"')
            stream = self.send(head, request_body(body, end=True))
            self.check_picks(stream, 1, picked)
            self.finish(stream)
        head, body = llm("hello", "other")
        self.check_refused(self.send(head, request_body(body, end=True)), 404, "no such model")

    def test_name_that_is_too_long(self):
        head, _ = llm("hello", "base", "x" * 1025)
        self.check_refused(self.send(head), 400, "1,024 bytes")

    def test_envoy_lost_the_server(self):
        """A server whose connection failed is in doubt, and returns with its next scrape."""
        stream = self.send(request_headers({":method": "GET"}, end=True))
        self.assertEqual(self.number_of(stream.receive()), 1)
        before = self.gateway.figures()["scrapes_total"]
        stream.send(response_headers({":status": "503"}) + attributes(
            response__code_details="upstream_reset_before_response_started{connection_failure}"),
            response_body(b"upstream connect error", end=True))
        stream.receive(), stream.receive_body()
        self.gateway.wait_figure("broke_total", 1)
        wait_until(lambda: self.gateway.figures()["scrapes_total"] > before, lambda: "scraped")
        wait_until(lambda: self.gateway.is_up(2), lambda: "up again")

    def test_fallbacks_are_named(self):
        """Best first, in header and metadata alike; a subset bounds them."""
        self.serve((0, .3), (0, .1), (0, .2), ext_proc_fallbacks=3)
        stream = self.send(request_headers({":method": "GET"}, end=True))
        order = [self.pods[i].address for i in (1, 2, 0)]
        self.assertEqual(stream.receive().picked, ",".join(order))
        stream = self.send(request_headers({":method": "GET"}, end=True)
                           + subset_hint(order[1], order[2]))
        self.assertEqual(stream.receive().picked, ",".join(order[1:]))

    def test_wrong_messages(self):
        for message in (b"\xff\xff", run(2, b"\x0a\x7f"), number(10, 1) + request_headers({}),
                        b"", request_body(b"{}", end=True), run(4, number(1, 1) + number(2, 1))):
            code, rest = self.send(message).end()
            self.assertIn(code, (grpc.StatusCode.INVALID_ARGUMENT,
                                 grpc.StatusCode.FAILED_PRECONDITION), message)
            self.assertEqual(rest, [])
        head, _ = llm("", "base")
        self.assertEqual(self.send(head, head).end()[0], grpc.StatusCode.INVALID_ARGUMENT)
        self.gateway.wait_idle()

    def test_unknown_method(self):
        call = self.processor.channel.unary_unary("/envoy.service.ext_proc.v3.Other/Process")
        with self.assertRaises(grpc.RpcError) as caught:
            call(b"", timeout=20)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.UNIMPLEMENTED)

    def test_health(self):
        serving, unknown = 1, 3
        for service in "", "liveness", "readiness", SERVICE:
            self.assertEqual(self.processor.health(service), serving, service)
        self.assertEqual(self.processor.health("other"), unknown)


class Counts(ExtProcTest):
    def picked(self):
        head, body = llm("hello", "base")
        stream = self.send(head, request_body(body, end=True))
        self.check_picks(stream, 1, body)
        return stream

    def in_flight(self, count):
        def look():
            return sum(value for name, value in self.gateway.figures().items()
                       if "in_flight" in name) == count
        wait_until(look, lambda: f"{count} in flight: {self.gateway.figures()}")

    def test_every_end(self):
        """Whole; cancelled before and within the answer; ended by Envoy; connection lost."""
        self.serve((0, .1))
        whole = self.picked()
        self.in_flight(1)
        self.finish(whole)
        self.picked().cancel()
        within = self.picked()
        within.send(response_headers({":status": "200"}))
        within.receive()
        within.cancel()
        self.assertEqual(self.picked().end(), (grpc.StatusCode.OK, []))
        with Processor(self.gateway.address) as other:
            stream = other.open()
            stream.send(request_headers({":method": "GET"}, end=True))
            stream.receive()
            self.gateway.wait_figure("connections", 2)
            wait_until(lambda: self.gateway.figure("streams") == 1, lambda: "only the last is open")
            self.in_flight(1)
        stream.requests.put(None)
        self.gateway.wait_figure("cancelled_total", 4)
        self.assertEqual(self.gateway.figure("answered_total"), 1)
        self.gateway.wait_idle()

    def test_streams_max(self):
        self.serve((0, .1), ext_proc_streams_max=2)
        open_ones = [self.picked(), self.picked()]
        self.check_refused(self.send(request_headers({":method": "GET"}, end=True)), 503,
                           "ext_proc_streams_max")
        self.assertEqual(self.gateway.figure("streams_full_total"), 1)
        for stream in open_ones:
            self.finish(stream)
        self.gateway.wait_idle()
        self.finish(self.picked())

    def test_streams_that_say_nothing(self):
        """A few more than ext_proc_streams_max are open at a time; the rest is reset."""
        self.serve((0, .1), ext_proc_streams_max=1)
        address = "127.0.0.1", self.gateway.port
        with Http2(address) as first, Http2(address) as second:
            for link, count in (first, 65), (second, 10):
                for stream in link.streams(count):
                    link.send(frame(HEADERS, END_HEADERS, stream, http2_headers(PROCESS)))
                self.gateway.wait_figure("streams_total", 65)
            self.gateway.wait_figure("streams_reset_total", 10)
            while len(second.ended) < 10:
                second.read_frame()
        self.gateway.wait_idle()

    def test_held_bytes(self):
        self.serve((0, .1), ext_proc_held_mib_max=1)
        head, body = llm("x" * (3 << 19), "base")
        self.check_refused(self.send(head, request_body(body, end=True)), 503, "bytes")
        half, rest = body[:3 << 18], body[3 << 18:]
        self.check_refused(self.send(head, request_body(half), request_body(rest, end=True)), 503,
                           "bytes")
        self.assertEqual(self.gateway.figure("overflows_total"), 2)
        self.gateway.wait_idle()
        self.finish(self.picked())

    def test_declared_length_holds_nothing(self):
        """Anybody can declare anything, of a body and of a message: only what has come counts."""
        self.serve((0, .1), body_mib_max=1, ext_proc_held_mib_max=1)
        with Http2(("127.0.0.1", self.gateway.port)) as link:
            for stream in link.streams(4):
                link.send(frame(HEADERS, END_HEADERS, stream, http2_headers(PROCESS))
                          + frame(DATA, 0, stream, b"\0\0\x10\0\0" + b"x" * 10))
            self.gateway.wait_figure("held_bytes", 4 << 16)
            self.finish(self.picked())
        self.gateway.wait_idle()
        head, body = llm("hello", "base", **{"content-length": str(1 << 20)})
        waiting = [self.send(head, request_body(body[:10])) for _ in range(4)]
        self.gateway.wait_figure("held_bytes", 4 * 4096)
        self.finish(self.picked())
        for stream in waiting:
            stream.cancel()
        self.gateway.wait_idle()

    def test_answers_that_wait_are_held(self):
        """A caller whose window is shut gets no second large message echoed."""
        self.serve((0, .1), ext_proc_held_mib_max=1)
        size = 700 << 10
        message = (grpc_message(response_headers({"content-type": "text/event-stream"}))
                   + grpc_message(response_body(b"x" * size)))
        with Http2(("127.0.0.1", self.gateway.port), window=0) as link:
            link.read_settings()
            first, second = link.streams(2)
            link.send(frame(HEADERS, END_HEADERS, first, http2_headers(PROCESS)))
            link.send_body(first, message)
            wait_until(lambda: self.gateway.figure("held_bytes") >= size, lambda: "held")
            link.send(frame(HEADERS, END_HEADERS, second, http2_headers(PROCESS)))
            link.send_body(second, message)
            self.gateway.wait_figure("overflows_total", 1)
        self.gateway.wait_idle()

    def test_body_max(self):
        self.serve((0, .1), body_mib_max=1)
        head, body = llm("x" * (1 << 20), "base", **{"content-length": str(2 << 20)})
        self.check_refused(self.send(head, request_body(body[:100])), 413, "body_mib_max")
        head, _ = llm("", "base")
        self.check_refused(self.send(head, request_body(body, end=True)), 413, "body_mib_max")
        self.check_refused(self.send(head, request_body(body + body, end=True)), 413, "body_mib_max")
        self.gateway.wait_idle()

    def test_idle_streams_end(self):
        self.serve((0, .1), ext_proc_idle_timeout_ms=2000)
        stream = self.picked()
        with self.assertRaises(grpc.RpcError):
            stream.receive()
        self.assertEqual(stream.call.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        self.gateway.wait_figure("idle_total", 1)
        self.gateway.wait_idle()

    def test_connections_max(self):
        self.serve((0, .1), ext_proc_connections_max=1)
        stream = self.picked()
        with Processor(self.gateway.address) as other, self.assertRaises(grpc.RpcError):
            other.health()
        self.assertGreater(self.gateway.figure("connections_refused_total"), 0)
        self.finish(stream)
        self.gateway.wait_idle()
        with Processor(self.gateway.address) as other:  # an idle connection gives way
            self.assertEqual(other.health(), 1)
        self.assertEqual(self.gateway.figure("connections_evicted_total"), 1)

    def test_no_http2(self):
        self.serve((0, .1))
        with socket.create_connection(("127.0.0.1", self.gateway.port)) as link:
            link.sendall(b"GET / HTTP/1.1\r\n\r\n0123456789")
            self.gateway.wait_figure("malformed_total", 1)
        with Http2(("127.0.0.1", self.gateway.port)) as link:
            link.send(b"\xff" * 100)
            self.gateway.wait_figure("malformed_total", 2)
        self.gateway.wait_figure("connections", 0)

    def test_envoy_does_not_read(self):
        """Its window is shut until it reads: what waits stays below two windows."""
        self.serve((0, .1))
        with Http2(("127.0.0.1", self.gateway.port), window=0) as link:
            link.read_settings()
            stream, = link.streams(1)
            link.rooms[stream] = 262144
            link.send(frame(HEADERS, END_HEADERS, stream, http2_headers(PROCESS)))

            def say(message):
                link.send(frame(DATA, 0, stream, grpc_message(message)))
                link.rooms[0] -= len(message) + 5
                link.rooms[stream] -= len(message) + 5
            say(response_headers({"content-type": "text/event-stream"}))
            sent, pinged = 0, False
            while not pinged and sent < 1 << 21:
                while min(link.rooms[0], link.rooms[stream]) > 9000:
                    say(response_body(b"x" * 8192))
                    sent += 8192
                pinged = True
                for _ in range(2):  # the first answer may overtake a window
                    link.send(frame(PING, 0, 0, b"12345678"))
                    while link.read_frame()[0] != PING:
                        pass
                    pinged = pinged and min(link.rooms[0], link.rooms[stream]) <= 9000
            self.assertLess(sent, 1 << 20)
            self.assertGreater(sent, 1 << 18)
        self.gateway.wait_idle()

    def test_headers_that_unpack_to_much(self):
        """One byte stands for four thousand: the stream is reset, the connection serves on."""
        self.serve((0, .1))
        with Http2(("127.0.0.1", self.gateway.port)) as link:
            link.read_settings()
            first, second = link.streams(2)
            large = b"\x40\x01x\x7f" + varint(4000 - 127) + b"v" * 4000  # the first of the table
            link.send(frame(HEADERS, END_HEADERS, first, http2_headers("/other") + large))
            link.wait_end(first)
            self.assertEqual(self.gateway.figure("malformed_total"), 0)
            link.send(frame(HEADERS, END_HEADERS, second, http2_headers("/other") + b"\xbe" * 16000))
            link.wait_end(second)
            self.assertEqual(self.gateway.figure("malformed_total"), 1)
            link.wait_end(link.ask("/other"))
        self.gateway.wait_idle()

    def test_resets_that_nobody_reads(self):
        """Streams beyond the limit, from a caller that neither acknowledges it nor reads."""
        self.serve((0, .1), ext_proc_streams_max=1)
        head = b"\x83\x86\x84\x01\x01a"  # POST http://a/
        with Http2(("127.0.0.1", self.gateway.port), acknowledge=False) as link:
            with self.assertRaises(OSError):
                for _ in range(200):
                    link.send(b"".join(frame(HEADERS, END_HEADERS, stream, head)
                                       for stream in link.streams(20000)))
        self.gateway.wait_figure("malformed_total", 1)
        self.gateway.wait_figure("connections", 0)

    def test_many_at_once(self):
        self.serve((0, .1), (0, .1))

        def work(i):
            with Processor(self.gateway.address) as processor:
                for k in range(20):
                    head, body = llm("x" * (i * 1000 + k), "base")
                    stream = processor.open()
                    stream.send(head, request_body(body), request_body(b"", end=True))
                    self.assertIn(stream.receive().picked, [pod.address for pod in self.pods])
                    self.assertEqual(stream.receive_body()[0], body)
                    if k % 3 == 0:
                        stream.cancel()
                    else:
                        self.finish(stream, b'{"n":%d}' % k)
        in_threads(8, work)
        self.gateway.wait_idle()

    def test_drain(self):
        """Requests under way are finished; new ones are refused; then the process ends."""
        self.serve((0, .1))
        stream = self.picked()
        self.gateway.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "stopping" in self.gateway.read_log(), lambda: "stopping")
        self.finish(stream)
        self.gateway.code = self.gateway.process.wait(60)

    def test_drain_refuses_at_the_proxy(self):
        """Also on a kept connection, and after the proxy itself has nothing left to do."""
        self.serve((0, .1))
        stream = self.picked()
        body = b'{"model":"base","prompt":"x"}'
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(WAIT_SECONDS)
            link.connect(f"{self.gateway.folder.name}/http")
            link.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertIn(b" 200 ", link.recv(4096))
            self.gateway.process.send_signal(signal.SIGTERM)
            wait_until(lambda: "stopping" in self.gateway.read_log(), lambda: "stopping")
            link.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s"
                         % (len(body), body))
            answer = link.recv(4096)
        self.assertIn(b" 503 ", answer)
        self.assertIn(b"stopping", answer)
        self.finish(stream)
        self.gateway.code = self.gateway.process.wait(60)


if __name__ == "__main__":
    main()
