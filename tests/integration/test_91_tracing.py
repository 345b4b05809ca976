# SPDX-License-Identifier: Apache-2.0
"""Traced requests become spans: the right ones, in a file and at a collector, under all faults.

The spans are read as OTLP/JSON by rules of their own here (`Spans.check`): ids, parents, times
inside one another. The collector is an HTTP server of the test's, which stands for the one that
operators have: it can be away, refuse, ask for patience, or take a part.

ctest: timeout=300
"""

import collections
import contextlib
import http.server
import json
import os
import pathlib
import re
import signal
import socket
import struct
import tempfile
import threading
import time
import unittest

import grpc

import shoal_fixture
from shoal_client import Client, bytes_element, failure
from shoal_fixture import (WAIT_SECONDS, Shoald, draw_seed, free_port, node, pipeline, run_shoald, stage,
                           wait_until)
from shoal_rest import ANY_PORT, Rest, port_of

PARENT = "b7ad6b7169203331"
STAMPS, TEXTS = 14, 11  # tests/modelets/scribble.h
TRACES_MAX = 2048  # src/coordinator/telemetry/tracer.h
METHOD = "inference.GRPCInferenceService/ModelInfer"
ROUTE = "/v2/models/{model}/infer"
REQUESTS = (METHOD, f"POST {ROUTE}")


def trace_id(number):
    return f"{number + 1:032x}"


def traceparent(number, flags="01"):
    return ("traceparent", f"00-{trace_id(number)}-{PARENT}-{flags}")


def attributes(span):
    """Name to value; numbers as numbers."""
    found = {}
    for entry in span["attributes"]:
        (kind, value), = entry["value"].items()
        found[entry["key"]] = int(value) if kind == "intValue" else value
    assert len(found) == len(span["attributes"]), f"an attribute twice: {span}"
    return found


class Spans:
    """All spans of some exports, each checked against what holds for every span."""

    def __init__(self, exports):
        self.spans = []
        for export in exports:
            resource, = export["resourceSpans"]
            values = attributes(resource["resource"])
            assert values["service.name"] == "shoald" and values["process.pid"] > 0, values
            scope, = resource["scopeSpans"]
            assert scope["scope"]["name"] == "shoal", scope
            self.spans += scope["spans"]
        self.roots = [span for span in self.spans if span["kind"] == 2]
        self.by_parent = collections.defaultdict(list)
        for span in self.spans:
            self.by_parent[span.get("parentSpanId")].append(span)
        self.check()

    def check(self):
        ids = {span["spanId"]: span for span in self.spans}
        assert len(ids) == len(self.spans), "an id twice"
        now_ns = time.time_ns()
        for span in self.spans:
            assert re.fullmatch("[0-9a-f]{32}", span["traceId"]) and int(span["traceId"], 16), span
            assert re.fullmatch("[0-9a-f]{16}", span["spanId"]) and int(span["spanId"], 16), span
            start, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
            assert now_ns - 600 * 10**9 < start <= end <= now_ns + 10**9, span
            assert (span["kind"], span["name"] in REQUESTS) in ((2, True), (1, False)), span
            assert span.get("status", {}).get("code", 2) == 2, span
        for root in self.roots:
            self.check_children(root)
        children = sum(len(self.children(root)) for root in self.roots)
        assert children + len(self.roots) == len(self.spans), "a child without a parent"

    def check_children(self, root):
        """One after the other, inside the request."""
        before = int(root["startTimeUnixNano"])
        for span in self.children(root):
            values = attributes(span)
            start, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
            assert span["traceId"] == root["traceId"], (root, span)
            assert span.get("traceState") == root.get("traceState"), (root, span)
            assert before <= start <= end <= int(root["endTimeUnixNano"]), (root, span)
            assert values["shoal.queue_ns"] >= 0 and values["shoal.run_ns"] >= 0, span
            assert values["shoal.queue_ns"] + values["shoal.run_ns"] == end - start, span
            for event in span.get("events", []):
                assert event["name"] == "run", span
                assert int(event["timeUnixNano"]) == start + values["shoal.queue_ns"], span
            before = end

    def children(self, root):
        return self.by_parent.get(root["spanId"], [])

    def of(self, number):
        """The one request of a trace and the runs of its stages."""
        root, = [span for span in self.roots if span["traceId"] == trace_id(number)]
        assert root["parentSpanId"] == PARENT, root
        return root, self.children(root)


def read_exports(path):
    """Every line must be whole: there is no time at which half a line can be seen as the last."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]


class Collector:
    """A collector of OpenTelemetry's, with faults on demand."""

    def __init__(self, port=0):
        collector = self
        self.posts = []
        self.answers = []  # (code, headers, body), for the next posts; then all is taken

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.posts.append((self.path, dict(self.headers), body))
                code, headers, answer = (collector.answers.pop(0) if collector.answers
                                         else (200, {}, b'{"partialSuccess":{}}'))
                self.send_response(code)
                for key, value in {"Content-Type": "application/json",
                                   "Content-Length": len(answer), **headers}.items():
                    self.send_header(key, str(value))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

        self.server = Server(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1/traces"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def exports(self):
        return [json.loads(body) for _, _, body in list(self.posts)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class TracingTest(unittest.TestCase):
    def start(self, config):
        self.shoald = self.enterContext(Shoald(config))
        self.client = self.enterContext(Client(self.shoald.target))
        self.file = self.shoald.folder / "spans.jsonl"
        return self.shoald

    def start_puppet(self, traces="file:spans.jsonl", workers=1, stage_keys=None, **keys):
        """A puppet, and an echo behind it."""
        return self.start(node(pipeline("p", stage("libpuppet.so", "first", workers=workers,
                                                   params={"folder": "."}, **(stage_keys or {})),
                                        stage("libecho.so", "second"), slots=64),
                               message_mib=1, traces=traces, **keys))

    def tell(self, text, *metadata, model="p", timeout=WAIT_SECONDS, client=None):
        client = client or self.client
        request, stub = client.stub("ModelInfer")
        fields = client.infer_fields(model, [("say", "BYTES", [1], bytes_element(text))])
        return stub.future(request(**fields), timeout=timeout, metadata=metadata)

    def wait_spans(self, count, exports=None):
        """Waits until that many spans were written; returns all there are then."""
        exports = exports or (lambda: read_exports(self.file))

        def look():
            spans = Spans(exports())
            return spans if len(spans.spans) >= count else None
        return wait_until(look, lambda: f"{count} spans; the log:\n{self.shoald.stderr}")

    def wait_node(self, condition, what):
        """Waits until the node's counters fulfil a condition."""
        last = {}

        def look():
            last.update(self.shoald.stat())
            return condition(last)
        wait_until(look, lambda: f"{what}; {last}\n{self.shoald.stderr}")
        return last

    def hold(self, name, *metadata):
        future = self.tell(f"hold {name}", *metadata)
        wait_until((self.shoald.folder / f"{name}.held").exists, "the request to be running")
        return future

    def go(self, name):
        (self.shoald.folder / f"{name}.go").touch()


class TestFile(TracingTest):
    def test_a_request_and_its_stages(self):
        shoald = self.start_puppet()
        before_ns = time.time_ns()
        self.tell("echo x", traceparent(1), ("tracestate", "a=1"), ("tracestate", "b=2")).result()
        after_ns = time.time_ns()
        spans = self.wait_spans(3)
        root, (first, second) = spans.of(1)
        self.assertLessEqual(before_ns - 10**7, int(root["startTimeUnixNano"]))
        self.assertGreaterEqual(after_ns + 10**7, int(second["endTimeUnixNano"]))
        values = attributes(root)
        self.assertEqual(values, {"rpc.system": "grpc", "rpc.method": "ModelInfer",
                                  "rpc.service": "inference.GRPCInferenceService",
                                  "rpc.grpc.status_code": 0, "shoal.pipeline": "p",
                                  "shoal.generation": 1, "shoal.worker.deaths": 0})
        self.assertEqual(root["traceState"], "a=1,b=2")
        for index, (span, name) in enumerate(((first, "first"), (second, "second"))):
            values = attributes(span)
            worker, = shoald.workers("p", name)
            self.assertEqual(span["name"], f"stage {name}")
            self.assertEqual((values["shoal.stage"], values["shoal.stage.index"]), (name, index))
            self.assertEqual(values["shoal.worker.pid"], worker.pid)
            self.assertEqual((values["shoal.worker.index"], values["shoal.batch.size"],
                              values["shoal.attempt"]), (0, 1, 1))
            self.assertEqual(len(span["events"]), 1)
            self.assertNotIn("status", span)
        self.assertNotIn("status", root)
        stat = self.wait_node(lambda stat: stat["spans_exported"] == 3, "three spans")
        self.assertEqual((stat["traces"], stat["traces_dropped"], stat["spans_dropped"],
                          stat["exports_failed"]), (1, 0, 0, 0))
        self.assertEqual(self.file.stat().st_mode & 0o137, 0)

    def test_queue_and_run_are_told_apart(self):
        """One waits until the other has run; for as long as it was made to."""
        self.start_puppet()
        first = self.hold("a", traceparent(1))
        second = self.tell("echo x", traceparent(2))
        self.shoald.wait_stat("p", lambda stat: stat["stages"][0]["depth"] == 1, "it to wait")
        held_ns = time.monotonic_ns()
        wait_until(lambda: time.monotonic_ns() - held_ns > 50 * 10**6, "50 ms")
        self.go("a")
        first.result()
        second.result()
        spans = self.wait_spans(6)
        ran, waited = (attributes(spans.of(number)[1][0]) for number in (1, 2))
        self.assertGreater(ran["shoal.run_ns"], 50 * 10**6)
        self.assertGreater(waited["shoal.queue_ns"], 50 * 10**6)

    def test_only_sampled_calls_are_traced(self):
        """Not: no traceparent, one that is not sampled, one that is malformed, two of them."""
        self.start_puppet()
        good = traceparent(1)
        for metadata in ([], [traceparent(2, "00")], [("traceparent", "00-1-2-01")],
                         [(good[0], good[1].upper())], [good, good], [("tracestate", "a=1")]):
            self.tell("echo x", *metadata).result()
        self.tell("echo x", good).result()
        spans = self.wait_spans(3)
        spans.of(1)
        self.assertEqual(len(spans.roots), 1)
        self.assertEqual(self.shoald.stat()["traces"], 1)

    def test_share(self):
        """Half of those without a traceparent; a caller with one has decided."""
        self.start_puppet(trace_sample=0.5)
        calls = 400
        for future in [self.tell("echo x") for _ in range(calls)]:
            with contextlib.suppress(grpc.RpcError):  # full: refused, and traced or not like others
                future.result()
        self.tell("echo x", traceparent(1, "00")).result()
        self.tell("echo x", traceparent(2)).result()
        wait_until(lambda: trace_id(2) in (self.file.read_text() if self.file.exists() else ""),
                   "the last")
        spans = self.wait_spans(1)
        ours = [root for root in spans.roots if "parentSpanId" not in root]
        self.assertEqual(len(ours) + 1, len(spans.roots))
        self.assertEqual(len({root["traceId"] for root in ours}), len(ours))
        self.assertTrue(100 < len(ours) < 300, len(ours))  # ten standard deviations
        self.assertNotIn(trace_id(1), self.file.read_text())

    def test_errors(self):
        self.start_puppet()
        failure(self.tell("fail 9", traceparent(1)))
        failure(self.tell("unset x", traceparent(2)))
        failure(self.tell("echo x", traceparent(3), model="nobody"))
        held = self.hold("a")
        late = self.tell("echo x", traceparent(4))
        self.wait_node(lambda stat: stat["traces"] == 4, "it to be there")
        late.cancel()
        self.shoald.wait_stat("p", lambda stat: stat["cancelled"] == 1, "it to be cancelled")
        self.go("a")
        held.result()
        spans = self.wait_spans(7)
        for number, code, text, children in ((1, 9, "told to fail with 9", 1),
                                             (2, 13, "left the item unset", 1),
                                             (3, 5, '"nobody" is not known', 0),
                                             (4, 1, "cancelled before stage first ran it", 1)):
            root, stages = spans.of(number)
            self.assertEqual(attributes(root)["rpc.grpc.status_code"], code)
            self.assertEqual(root["status"]["code"], 2)
            self.assertIn(text, root["status"]["message"])
            self.assertEqual(len(stages), children)
            for span in stages:
                self.assertEqual(span["status"], root["status"])
        self.assertNotIn("events", spans.of(4)[1][0])  # it was never run
        self.assertEqual(attributes(spans.of(4)[1][0])["shoal.run_ns"], 0)

    def test_batches(self):
        self.start_puppet(stage_keys={"batch_size": 4, "batch_wait": "fixed", "batch_wait_ms": 60000})
        futures = [self.tell(f"echo {i}", traceparent(i)) for i in range(4)]
        for future in futures:
            future.result()
        spans = self.wait_spans(12)
        runs = [spans.of(i)[1][0] for i in range(4)]
        self.assertEqual([attributes(run)["shoal.batch.size"] for run in runs], [4] * 4)
        self.assertEqual(len({run["events"][0]["timeUnixNano"] for run in runs}), 1)

    def test_rotation_and_reload(self):
        """A file that was moved is closed; a new generation is in the spans; keys above the
        pipelines need a restart."""
        shoald = self.start_puppet()
        self.tell("echo x", traceparent(1)).result()
        self.wait_spans(3)
        self.file.rename(shoald.folder / "old.jsonl")
        shoald.config.write_text(shoald.config.read_text().replace("spans.jsonl", "others.jsonl"))
        shoald.signal(signal.SIGHUP)
        shoald.wait_stat("p", lambda stat: stat["generation"] == 2, "a reload")
        shoald.wait_log("reload_ignored key=traces needs=restart")
        self.tell("echo x", traceparent(2)).result()
        root, _ = self.wait_spans(3).of(2)
        self.assertEqual(attributes(root)["shoal.generation"], 2)
        self.assertEqual(len(Spans(read_exports(shoald.folder / "old.jsonl")).spans), 3)
        self.assertFalse((shoald.folder / "others.jsonl").exists())

    def test_no_place_to_write(self):
        """Nothing is started; the reason is said."""
        echo = pipeline("p", stage("libecho.so"))
        code, text = run_shoald(node(echo, traces="file:/nowhere/at/all"))
        self.assertEqual(code, 2)
        self.assertIn("opening /nowhere/at/all for traces: No such file", text)
        code, text = run_shoald(node(echo, traces="http://host:port/"))
        self.assertEqual(code, 2)
        self.assertIn("traces cannot go to http://host:port/", text)

    def test_no_request_fails_for_want_of_a_file(self):
        """The folder goes away and comes back: nothing is lost."""
        with tempfile.TemporaryDirectory(prefix="shoal-test.") as folder:
            place = pathlib.Path(folder) / "place"
            place.mkdir()
            self.start_puppet(traces=f"file:{place}/spans.jsonl")
            place.rename(f"{place}.away")
            self.tell("echo x", traceparent(1)).result()
            self.wait_node(lambda stat: stat["exports_failed"] >= 2, "attempts")
            self.shoald.wait_log("traces_not_exported action=later .*opening .*spans.jsonl")
            pathlib.Path(f"{place}.away").rename(place)
            self.file = place / "spans.jsonl"
            self.wait_spans(3).of(1)
            self.shoald.wait_log("traces_exported_again")


class TestRest(TracingTest):
    def test_over_http(self):
        """Headers as metadata, the same stages, and a refusal."""
        shoald = self.start_puppet(http=ANY_PORT)
        with Rest(port_of(shoald)) as rest:
            for number, flags in ((1, "01"), (2, "00")):
                headers = dict([traceparent(number, flags), ("tracestate", "a=1")])
                self.assertEqual(rest.tell("echo x", "p", headers=headers).code, 200)
            self.assertEqual(rest.tell("echo x", "p", headers={"traceparent": "00-0-0-01"}).code, 200)
            self.assertEqual(rest.tell("echo x", "nobody", headers=dict([traceparent(3)])).code, 404)
            self.assertEqual(rest.post("p", "{", dict([traceparent(4)])).code, 400)
        spans = self.wait_spans(5)
        root, stages = spans.of(1)
        self.assertEqual(attributes(root), {"http.request.method": "POST", "http.route": ROUTE,
                                            "rpc.grpc.status_code": 0, "shoal.pipeline": "p",
                                            "shoal.generation": 1, "shoal.worker.deaths": 0})
        self.assertEqual(root["traceState"], "a=1")
        self.assertEqual([span["name"] for span in stages], ["stage first", "stage second"])
        unknown, none = spans.of(3)
        self.assertEqual((none, attributes(unknown)["rpc.grpc.status_code"]), ([], 5))
        self.assertIn("not known", unknown["status"]["message"])
        broken, none = spans.of(4)
        self.assertEqual((none, attributes(broken)["rpc.grpc.status_code"]), ([], 3))
        self.wait_node(lambda stat: stat["traces"] == 3, "three traces, and no more")


class TestDeaths(TracingTest):
    def test_run_again(self):
        """Both runs are there: the one that a death ended, and the one that gave the answer."""
        shoald = self.start_puppet(workers=2)
        future = self.hold("a", traceparent(1))
        (shoald.folder / "a.held").unlink()
        busy = next(worker for worker in shoald.workers("p", "first")
                    if shoald.stage_stat("p", "first")["workers"][worker.index]["items"] == 1)
        os.kill(busy.pid, signal.SIGKILL)
        wait_until((shoald.folder / "a.held").exists, "the request to be run again")
        self.go("a")
        future.result()
        root, (lost, again, _) = self.wait_spans(4).of(1)
        self.assertEqual(attributes(root)["shoal.worker.deaths"], 1)
        self.assertNotIn("status", root)
        values = attributes(lost)
        self.assertEqual((values["shoal.attempt"], values["shoal.worker.pid"],
                          values["shoal.worker.index"]), (1, busy.pid, busy.index))
        self.assertEqual(lost["status"], {"code": 2, "message": "the worker died"})
        values = attributes(again)
        self.assertEqual((values["shoal.attempt"], again["name"]), (2, "stage first"))
        self.assertNotEqual(values["shoal.worker.pid"], busy.pid)
        self.assertNotIn("status", again)

    def test_poison(self):
        self.start_puppet(stage_keys={"attempts_max": 3})
        failure(self.tell("crash x", traceparent(1)))
        root, runs = self.wait_spans(4).of(1)
        self.assertEqual(attributes(root)["shoal.worker.deaths"], 3)
        self.assertIn("3 workers died while they ran this request", root["status"]["message"])
        self.assertEqual([attributes(run)["shoal.attempt"] for run in runs], [1, 2, 3])
        self.assertEqual(len({attributes(run)["shoal.worker.pid"] for run in runs}), 3)
        for run in runs:
            self.assertEqual(run["status"]["message"], "the worker died")

    def test_hostile_stamps(self):
        """For any writes of a modelet there: spans stay inside their request (`Spans` looks), the
        daemon lives, requests are answered, the pipeline's shared memory is not called corrupt."""
        seed = draw_seed()
        self.start(node(pipeline("p", stage("libecho.so", "before"),
                                 stage("libscribble.so", workers=2, batch_size=4),
                                 stage("libecho.so", "after"), slots=32),
                        message_mib=1, traces="file:spans.jsonl"))
        request, stub = self.client.stub("ModelInfer")
        rounds, burst = 40, 8
        for number in range(rounds):
            futures = []
            for i in range(burst):
                words = struct.pack("<4q", 1, STAMPS, seed + number * burst + i, 50)
                fields = self.client.infer_fields("p", [("scribble", "INT64", [4], words)])
                futures.append(stub.future(request(**fields), timeout=WAIT_SECONDS,
                                           metadata=[traceparent(number * burst + i)]))
            for future in futures:
                future.result()
        traces = rounds * burst
        self.wait_node(lambda stat: stat["traces"] == traces, "all")
        wait_until(lambda: len(Spans(read_exports(self.file)).roots) == traces,
                   lambda: f"{traces} traces; the log:\n{self.shoald.stderr}")
        spans = Spans(read_exports(self.file))
        for root in spans.roots:
            self.assertLessEqual(len(spans.children(root)), 3)
            self.assertEqual(attributes(root)["shoal.worker.deaths"], 0)
        self.assertEqual(self.shoald.wait_all_returned("p")["region_resets"], 0)


class TestCollector(TracingTest):
    def test_posts(self):
        collector = self.enterContext(Collector())
        self.start_puppet(traces=collector.url)
        for number in range(5):
            self.tell("echo x", traceparent(number)).result()
        spans = self.wait_spans(15, collector.exports)
        for number in range(5):
            self.assertEqual(len(spans.of(number)[1]), 2)
        for path, headers, _ in collector.posts:
            self.assertEqual(path, "/v1/traces")
            self.assertEqual(headers["Content-Type"], "application/json")
            self.assertNotIn("Expect", headers)
        self.wait_node(lambda stat: stat["spans_exported"] == 15, "all to be counted")

    def test_asked_for_patience(self):
        """The very same export again, until it is taken."""
        collector = self.enterContext(Collector())
        collector.answers += [(503, {}, b"busy"), (429, {"Retry-After": 1}, b""), (502, {}, b"")]
        self.start_puppet(traces=collector.url)
        self.tell("echo x", traceparent(1)).result()
        wait_until(lambda: len(collector.posts) == 4, "four attempts")
        self.assertEqual(len({body for _, _, body in collector.posts}), 1)
        Spans(collector.exports()[:1]).of(1)
        stat = self.wait_node(lambda stat: stat["spans_exported"] == 3, "the spans to be taken")
        self.assertEqual((stat["exports_failed"], stat["spans_dropped"]), (3, 0))
        warning = self.shoald.wait_log("traces_not_exported action=later .*")[0]
        self.assertIn("it answers 503: busy", warning)
        self.assertEqual(self.shoald.stderr.count("traces_not_exported"), 1)  # not for each attempt
        self.shoald.wait_log("traces_exported_again")

    def test_refused(self):
        """Not tried again; and of what is taken in part the rest is counted."""
        collector = self.enterContext(Collector())
        collector.answers += [(400, {}, b"no"), (200, {}, b'{"partialSuccess":{"rejectedSpans":"2"}}')]
        self.start_puppet(traces=collector.url)
        self.tell("echo x", traceparent(1)).result()
        self.wait_node(lambda stat: stat["spans_dropped"] == 3, "the refusal")
        self.shoald.wait_log("traces_not_exported action=dropped .*it answers 400: no")
        self.tell("echo x", traceparent(2)).result()
        stat = self.wait_node(lambda stat: stat["spans_dropped"] == 5, "the part")
        self.assertEqual((stat["spans_exported"], stat["exports_failed"]), (1, 1))
        self.assertEqual(len(collector.posts), 2)

    def test_redirects_are_not_followed(self):
        collector = self.enterContext(Collector())
        collector.answers += [(301, {"Location": "/elsewhere"}, b"")]
        self.start_puppet(traces=collector.url)
        self.tell("echo x", traceparent(1)).result()
        self.wait_node(lambda stat: stat["spans_dropped"] == 3, "the refusal")
        self.assertEqual(len(collector.posts), 1)

    def test_away_and_back(self):
        """Requests are served meanwhile, and their spans come when the collector does."""
        port = free_port()
        self.start_puppet(traces=f"http://127.0.0.1:{port}/v1/traces")
        for number in range(10):
            self.tell("echo x", traceparent(number)).result()
        self.wait_node(lambda stat: stat["exports_failed"] >= 2, "attempts")
        self.shoald.wait_log("traces_not_exported action=later")
        collector = self.enterContext(Collector(port))
        spans = self.wait_spans(30, collector.exports)
        for number in range(10):
            spans.of(number)
        self.shoald.wait_log("traces_exported_again")
        self.assertEqual(self.shoald.stat()["spans_dropped"], 0)

    def test_end_exports_waiting_spans(self):
        """A pause that was asked for is not waited for then, and nothing is lost."""
        collector = self.enterContext(Collector())
        collector.answers += [(503, {"Retry-After": 300}, b"")]
        shoald = self.start_puppet(traces=collector.url)
        self.tell("echo x", traceparent(1)).result()
        self.wait_node(lambda stat: stat["exports_failed"] == 1, "an attempt")
        self.tell("echo x", traceparent(2)).result()
        self.assertEqual(shoald.terminate(), 0)
        spans = Spans(collector.exports()[1:])
        self.assertEqual(len(spans.spans), 6)
        for number in (1, 2):
            spans.of(number)

    def test_goes_away_for_good(self):
        """The end does not wait for a collector that takes calls and never answers."""
        with socket.create_server(("127.0.0.1", 0), backlog=8) as deaf:
            self.start_puppet(traces=f"http://127.0.0.1:{deaf.getsockname()[1]}/v1/traces")
            self.tell("echo x", traceparent(1)).result()
            deaf.settimeout(WAIT_SECONDS)
            connection, _ = deaf.accept()  # the export is on its way
            with connection:
                self.tell("echo x", traceparent(2)).result()
                self.assertEqual(self.shoald.terminate(), 0)
            self.shoald.wait_log('traces_lost spans=6 why="the node ends"')


class TestOverflow(TracingTest):
    def test_more_than_there_are_records(self):
        """Those beyond are served and counted, and nothing else. A caller alone fills 85 % of the
        slots."""
        more = 20
        self.start(node(pipeline("p", stage("libpuppet.so", params={"folder": "."}),
                                 slots=(TRACES_MAX + more) * 100 // 85 + 10, arena_mib=64),
                        message_mib=1, traces="file:spans.jsonl",
                        streams_per_connection_max=TRACES_MAX + more))
        held = self.hold("a", traceparent(0))
        futures = [self.tell("echo x", traceparent(number))
                   for number in range(1, TRACES_MAX + more)]
        stat = self.wait_node(lambda stat: stat["traces"] + stat["traces_dropped"] == TRACES_MAX + more,
                              "all to be there")
        self.assertEqual((stat["traces"], stat["traces_dropped"]), (TRACES_MAX, more))
        self.go("a")
        for future in [held, *futures]:
            future.result()
        stat = self.wait_node(lambda stat: stat["spans_exported"] == 2 * TRACES_MAX, "all spans")
        self.assertEqual(stat["spans_dropped"], 0)
        self.assertEqual(len(self.wait_spans(2 * TRACES_MAX).roots), TRACES_MAX)
        self.tell("echo x", traceparent(TRACES_MAX + more)).result()  # there is room again
        self.wait_spans(2 * TRACES_MAX + 2).of(TRACES_MAX + more)


if __name__ == "__main__":
    shoal_fixture.main()
