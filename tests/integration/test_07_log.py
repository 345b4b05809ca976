# SPDX-License-Identifier: Apache-2.0
"""The log for machines: each line is valid, in both formats, and so are those of workers and of
modelets that say anything; every failed start has a reason, every listener its address, and the
access log holds up nobody. ctest: timeout=240 presets=dev
"""

import http.client
import json
import re
import signal
import unittest

import shoal_fixture
from shoal_attacks import Unread, puppet, rascal
from shoal_client import Client, said
from shoal_fixture import Json, Shoald, free_port, node, pipeline, run_shoald, stage, wait_until

VALUE = r'(?:[^\s"=\\]+|"(?:[^"\\\x00-\x1f\x7f]|\\["\\nrt]|\\u[0-9a-f]{4})*")'
LOGFMT = re.compile(rf'[-0-9]+T[:.0-9]+Z (error|warn|info|debug) shoal\S* \S+( \w+={VALUE})*')
TRACE = "0af7651916cd43dd8448eb211c80319c"


class TestFormats(unittest.TestCase):
    def serve(self, kind=Shoald, **keys):
        return self.enterContext(kind(node(pipeline("p", puppet(workers=1), slots=32),
                                           pipeline("q", rascal(workers=1)), **keys)))

    def test_logfmt(self):
        shoald = self.serve()
        client = self.enterContext(Client(shoald.target))
        said(client.tell('mutter a"b=c \\ d', "q").result())
        shoald.wait_log(r'worker_said .*text="mutters a\\"b=c \\\\ d"')
        shoald.terminate()
        for line in shoald.lines:
            self.assertRegex(line, rf"^{LOGFMT.pattern}$")

    def test_json(self):
        shoald = self.serve(Json, log_format="json")
        client = self.enterContext(Client(shoald.target))
        said(client.tell('mutter {"time":"now"', "q").result())
        wait_until(lambda: any("mutters" in line for line in shoald.lines), "what the modelet says")
        shoald.terminate()
        events = [json.loads(line) for line in shoald.lines]
        said_by, = [one for one in events if one["event"] == "worker_said"]
        self.assertEqual((said_by["text"], said_by["stage"]), ('mutters {"time":"now"', "rascal"))
        ready, = [one for one in events if one["event"] == "ready"]
        self.assertEqual((ready["pipelines"], ready["level"]), (2, "info"))
        self.assertEqual(events[-1]["event"], "stopped")


class TestStarts(unittest.TestCase):
    def refused(self, config, *args, **options):
        code, text = run_shoald(config, args, **options)
        self.assertEqual(code, 2, text)
        return text

    def check(self, expected, config, *args, **options):
        text = self.refused(config, *args, **options)
        self.assertRegex(text, rf'(?m)^\S+ error shoald start_failed error=".*{expected}.*"')
        self.assertEqual(text.count("start_failed"), 1, text)

    def test_each_failed_start(self):
        echo = node(pipeline("echo", stage("libecho.so")))
        self.check("unknown option", echo, "--no-such-option")
        self.check("no worker program at /dev/null/x", echo, "--worker=/dev/null/x")
        self.check("shoald.yaml:", "pipelines: 5\n")
        self.check("libmissing", node(pipeline("p", stage("libmissing.so"))))
        self.check("unix:/dev/null/x", echo, "--listen", "unix:/dev/null/x/s")
        self.check("/dev/null/x", {**echo, "counters": "/dev/null/x/c"}, counters=False)
        self.check("traces", {**echo, "traces": "file:/dev/null/x/t"})
        self.check("/dev/null/x", {**echo, "http": "unix:/dev/null/x/s"})

    def test_json(self):
        text = self.refused(node(pipeline("p", stage("libmissing.so")), log_format="json"))
        last = [json.loads(line) for line in text.splitlines()]
        self.assertIn("libmissing", [one for one in last if one["event"] == "start_failed"][0]["error"])

    def test_addresses(self):
        port = free_port()
        config = node(pipeline("p", stage("libecho.so")), http=f"127.0.0.1:{port}",
                      metrics="127.0.0.1:0")
        with Shoald(config) as shoald:
            shoald.wait_log(rf'grpc_listening address="{shoald.target}" port=0 service=grpc tls=no')
            shoald.wait_log(rf"http_listening address=127.0.0.1:{port} port={port} service=http")
            shoald.wait_log(r"http_listening address=127.0.0.1:0 port=[1-9]\d* service=metrics")
            for name in "control", "local":
                shoald.wait_log(rf'socket_listening path="{shoald.counters}.{name}"')


class TestAccessLog(unittest.TestCase):
    CALL = (r'call id="{id}" method="{method}" pipeline="p" model="p" status={status} us=(\d+) '
            r'wait_us=(\d+) run_us=(\d+) trace_id=([0-9a-f]{{32}}) error="{error}"')

    def line(self, shoald, **parts):
        parts = {"id": "", "status": "OK", "error": "", "method": ".*", **parts}
        return shoald.wait_log(self.CALL.format(**parts))

    def start(self, kind=Shoald, **keys):
        return self.enterContext(kind(node(pipeline("p", puppet(), slots=32), **keys)))

    def test_grpc_and_rest(self):
        port = free_port()
        shoald = self.start(access_log=1, http=f"127.0.0.1:{port}")
        client = self.enterContext(Client(shoald.target))
        request, stub = client.stub("ModelInfer")
        fields = client.infer_fields("p", [("say", "BYTES", [1], b"\x06\0\0\0echo x")], id="r 1")
        stub(request(**fields), timeout=60,
             metadata=[("traceparent", f"00-{TRACE}-b7ad6b7169203331-00")])
        found = self.line(shoald, id="r 1", method="inference.GRPCInferenceService/ModelInfer")
        self.assertEqual(found[4], TRACE)
        total, wait, run = map(int, found.groups()[:3])
        self.assertTrue(0 < run <= total and wait + run <= total, found[0])
        http_client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        http_client.request("POST", "/v2/models/p/infer", json.dumps(
            {"id": "r2", "inputs": [{"name": "say", "datatype": "BYTES", "shape": [1], "data": [7]}]}),
            {"Content-Type": "application/json"})
        self.assertEqual(http_client.getresponse().status, 400)
        shoald.wait_log(r'call id=.* method="POST /v2/models/{model}/infer" .*model="p" '
                        r'status=INVALID_ARGUMENT .*error="[^"]+')

    def test_every_third(self):
        shoald = self.start(access_log=3)
        client = self.enterContext(Client(shoald.target))
        for _ in range(30):
            said(client.tell("echo x", "p").result())
        shoald.terminate()
        self.assertEqual(sum(" call id=" in line for line in shoald.lines), 10)

    def test_nobody_reads(self):
        """Calls are answered, and the lines that nobody takes are counted."""
        shoald = self.start(kind=Unread, access_log=1)
        client = self.enterContext(Client(shoald.target))
        shoald.reads.clear()

        def dropped():
            for call in [client.tell("echo x", "p") for _ in range(32)]:
                said(call.result())
            return shoald.stat()["call_lines_dropped"] > 0
        wait_until(dropped, "lines to be dropped")
        self.assertEqual(shoald.stat()["log_dropped"], 0, "there is room for events")
        shoald.signal(signal.SIGTERM)
        wait_until(lambda: shoald.process.poll() is not None, "its end")
        shoald.reads.set()
        self.assertEqual(shoald.wait_exit(), 0)


if __name__ == "__main__":
    shoal_fixture.main()
