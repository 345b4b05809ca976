# SPDX-License-Identifier: Apache-2.0
"""The log for machines: each line is valid, in both formats, and so are those of workers and of
modelets that say anything; every failed start has a reason, every listener its address, and the
access log holds up nobody. ctest: timeout=240 presets=dev
"""

import http.client
import json
import pathlib
import re
import signal
import socket
import tempfile
import unittest

import shoal_fixture
from shoal_attacks import Unread, puppet, rascal
from shoal_certificates import Certificates
from shoal_client import Client, said
from shoal_fixture import Json, Shoald, free_port, node, pipeline, run_shoald, stage, wait_until
from shoal_rest import Rest

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


def member(root, **keys):
    """The configuration of a mesh's node."""
    models = {"root": str(root), "memory_mib": 1}
    return node(pipeline("shelf", stage("libshelf.so"), models=models), mesh=keys)


class TestStarts(unittest.TestCase):
    def refused(self, config, *args, **options):
        code, text = run_shoald(config, args, **options)
        self.assertEqual(code, 2, text)
        return text

    def check(self, expected, config, *args, **options):
        self.check_said(expected, self.refused(config, *args, **options))

    def check_said(self, expected, text):
        self.assertRegex(text, rf'(?m)^\S+ error shoald start_failed error=".*{expected}.*"')
        self.assertEqual(text.count("start_failed"), 1, text)

    def test_each_failed_start(self):
        echo = node(pipeline("echo", stage("libecho.so")))
        self.check("unknown option", echo, "--no-such-option")
        self.check("no worker program at /dev/null/x", echo, "--worker=/dev/null/x")
        self.check("shoald.yaml:", "pipelines: 5\n")
        self.check("libmissing", node(pipeline("p", stage("libmissing.so"))))
        failing = stage("libpuppet.so", params={"folder": ".", "open": "fail"})
        self.check("tangled", node(pipeline("p", failing), pipeline("q", failing)))
        self.check("unix:/dev/null/x", echo, "--listen", "unix:/dev/null/x/s")
        self.check("/dev/null/x", {**echo, "counters": "/dev/null/x/c"}, counters=False)
        self.check("traces", {**echo, "traces": "file:/dev/null/x/t"})
        self.check("/dev/null/x", {**echo, "http": "unix:/dev/null/x/s"})

    def check_command(self, expected, config, change):
        """`change` makes another command of the daemon's."""
        shoald = Shoald(config)
        self.addCleanup(shoald.discard)
        shoald.command = change(shoald.command)
        self.assertEqual(shoald.start().wait_exit(), 2, shoald.stderr)
        self.check_said(expected, shoald.stderr)

    def test_mistakes_in_files(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        echo = pipeline("echo", stage("libecho.so"))
        self.check("/nothing/shoald.yaml", pathlib.Path("/nothing/shoald.yaml"))
        self.check("shoald.yaml:2:", "pipelines:\n\t- [\n")
        self.check("and more: see above", node(echo, message_mib="a", no_such_key=1))
        self.check('not \\\\"a b\\\\"', member(folder, instance="a b"))
        self.check("/nothing/etcd.json", member(folder, store="etcd:/nothing/etcd.json",
                                                peers=["127.0.0.1:0"]))
        (folder / "token").write_text("short")
        self.check("is not a token of 16 to 256",
                   node(echo, dashboard="127.0.0.1:0", dashboard_token=str(folder / "token")))
        files = self.enterContext(Certificates("ca"))
        for name in "node", "other":
            files.sign(name, "ca")
        self.check("nothing.pem",
                   node(echo, tls={**files.pair("node"), "certificate": "/nothing.pem"}))
        self.check(re.escape(files.key("other")),
                   node(echo, tls={**files.pair("node"), "key": files.key("other")}),
                   listen=["127.0.0.1:0"])

    def test_addresses_in_use(self):
        with socket.create_server(("127.0.0.1", 0)) as other:
            address = f"127.0.0.1:{other.getsockname()[1]}"
            echo = node(pipeline("echo", stage("libecho.so")))
            in_use = f"{re.escape(address)}.*Address already in use"
            self.check(in_use, echo, listen=[address])
            for key in "http", "metrics", "dashboard":
                self.check(f"{key}.*{in_use}", {**echo, key: address})
            self.check(in_use, member("/", management=address))

    def test_live_node(self):
        """Another one takes neither its counters nor its sockets, and does not disturb it."""
        echo = node(pipeline("echo", stage("libecho.so")))
        with Shoald(echo) as first:
            self.check(re.escape(str(first.counters)), echo, "--counters", str(first.counters),
                       counters=False)
            self.check(re.escape(first.target), echo, listen=[first.target])
            self.check(re.escape(first.target), {**echo, "http": first.target})
            with Client(first.target) as client:
                self.assertTrue(client.call("ServerReady").ready)

    def test_limits(self):
        echo = node(pipeline("echo", stage("libecho.so")))
        self.check_command("LimitNOFILE", echo,
                           lambda command: ["prlimit", "--nofile=24:24", *command])

    def test_serve(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (folder / "notes.txt").write_text("no model")
        for expected, arguments in (
                ("unknown option", ["--no-such-option"]), ("expected a model", []),
                ("--workers: a number from 1", ["--workers", "0", folder]),
                ("/nothing/here", ["/nothing/here"]), ("notes.txt", [folder / "notes.txt"])):
            self.check_command(expected, "", lambda command, added=arguments: [
                command[0], "serve", "--counters", str(folder / "counters"), *map(str, added)])

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
            found = shoald.wait_log(
                r"http_listening address=127.0.0.1:0 port=(\d+) service=metrics")
            with Rest(int(found[1])) as metrics:
                self.assertIn(b"\nshoal_", metrics.get("/metrics").body)
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
