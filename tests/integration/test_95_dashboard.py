# SPDX-License-Identifier: Apache-2.0
"""The dashboard without a browser: what a page is sent, who may look, and that no viewer delays or
burdens the node.

Figures equal those of shoalctl. A viewer that does not read gets the latest sample later and costs
no memory; too many are refused. Its requests for lists and models are bounded and read-only.
ctest: timeout=240
"""

import contextlib
import http.client
import pathlib
import re
import socket
import ssl
import statistics
import tempfile
import threading
import unittest

import shoal_fixture
from shoal_certificates import Certificates
from shoal_dashboard import ANY_PORT, Dashboard, dashboard_port
from shoal_fixture import (Shoald, node, pipeline, read_proc, run_shoald, sanitized, stage,
                           wait_until)
from shoal_rest import Rest, SecureRest, port_of, tensor

UNREAD = 1_000_000  # bytes of an answer: more than sockets buffer
TOKEN = "a-token-of-the-tests-0123456789"
POLICY = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; object-src 'none'; " \
         "form-action 'self'"


def echo(**keys):
    return node(pipeline("echo", stage("libecho.so")), dashboard=ANY_PORT, **keys)


def memory_kib(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", read_proc(pid, "status"))[1])


class TestSamples(unittest.TestCase):
    def test_figures_are_those_of_shoalctl(self):
        with Shoald(echo(http=ANY_PORT)) as shoald, Rest(port_of(shoald)) as rest:
            for _ in range(20):
                self.assertEqual(rest.infer("echo", tensor("x", "INT8", [1], [1])).code, 200)
            self.assertEqual(rest.post("echo", b"{}").code, 400)
            shoald.wait_all_returned("echo")
            with Dashboard(dashboard_port(shoald)).stream() as stream:
                sample = stream.sample()
                stat = shoald.stat()
                found, = sample["stat"]["pipelines"]
                wanted, = stat["pipelines"]
                self.assertEqual(sample["stat"]["pid"], shoald.pid)
                self.assertEqual(set(found), set(wanted))
                for name in wanted:
                    if isinstance(wanted[name], int):
                        self.assertEqual(found[name], wanted[name], name)
                self.assertEqual((found["requests"], found["replies_ok"]), (20, 20))
                self.assertEqual(found["stages"][0]["items"], 20)
                for name in "count", "sum", "p50", "p90", "p99":
                    self.assertEqual(found["latency"][name], wanted["latency"][name], name)
                self.assertNotIn("buckets", found["latency"])
                self.assertIn("buckets", sample["stat"]["mesh_wait"])
                later = stream.sample()
                self.assertGreater(later["time_ms"], sample["time_ms"])
                self.assertEqual([event["text"] for event in later["events"]], [])
            self.assertEqual(shoald.stat()["dashboard_refused"], 0)

    def test_history_and_events_precede_the_page(self):
        with Shoald(echo(http=ANY_PORT)) as shoald:
            dashboard = Dashboard(dashboard_port(shoald))
            with dashboard.stream() as stream, Rest(port_of(shoald)) as rest:
                stream.sample()
                rest.infer("echo", tensor("x", "INT8", [1], [1]))
                stream.sample()
                stream.sample()
            history = dashboard.json("/history?pipeline=echo")
            fine = history["points"]["fine"]
            self.assertGreaterEqual(len(fine["times_ms"]), 2)
            whole, part = fine["tracks"]
            self.assertEqual((whole["stage"], part["stage"]), ("", "echo"))
            self.assertEqual(len(whole["values"]["ok"]), len(fine["times_ms"]))
            times_s = [time / 1000 for time in fine["times_ms"]]
            pauses = [later - one for one, later in zip(times_s, times_s[1:])]
            answers = [rate * pause for rate, pause in zip(whole["values"]["ok"][1:], pauses)]
            self.assertAlmostEqual(sum(answers), 1, delta=0.1, msg=fine)
            events = [event["text"] for event in history["events"]]
            self.assertTrue(any(text.startswith("ready pipelines=1") for text in events), events)
            self.assertEqual(dashboard.json("/history?pipeline=none")["points"]["fine"]["tracks"], [])
            node_track, = dashboard.json("/history")["points"]["fine"]["tracks"]
            self.assertIn("mesh_here", node_track["values"])
            self.assertEqual(dashboard.get("/history?pipeline=" + 64 * "x")[0], 400)

    def test_counters_are_left_alone_while_nobody_looks(self):
        """A look every ten seconds is enough for the hour's chart."""
        with Shoald(echo()) as shoald:
            dashboard = Dashboard(dashboard_port(shoald))
            points = wait_until(lambda: dashboard.json("/history")["points"]["fine"]["times_ms"],
                                "the first interval")
            began_ms = shoald.stat()["started_unix_ns"] / 1e6
            self.assertGreater(points[0] - began_ms, 9_000)
            with dashboard.stream() as stream:
                times = [stream.sample()["time_ms"] for _ in range(6)]
            self.assertLess(times[2] - times[0], 9_000)
            # a sample that is taken late shortens one pause, but not the median
            pauses = [later - one for one, later in zip(times, times[1:])]
            self.assertGreaterEqual(statistics.median(pauses), 900, pauses)

    def test_pages_end_with_the_node(self):
        with Shoald(echo()) as shoald:
            with Dashboard(dashboard_port(shoald)).stream() as stream:
                self.assertIsNotNone(stream.sample())
                self.assertEqual(shoald.terminate(), 0)
                while stream.sample() is not None:
                    pass


    def test_questions_while_the_node_ends(self):
        """They wait for the loop while it waits for a REST client that does not read its answer."""
        body, headers = Rest(0).infer_body([tensor("x", "UINT8", [UNREAD], UNREAD * [255])])
        with Shoald(echo(http=ANY_PORT, message_mib=16)) as shoald, socket.socket() as slow:
            dashboard = Dashboard(dashboard_port(shoald))
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(("127.0.0.1", port_of(shoald)))
            head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            slow.sendall(f"POST /v2/models/echo/infer HTTP/1.1\r\nHost: localhost\r\n{head}"
                         f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            slow.settimeout(shoal_fixture.WAIT_SECONDS)
            self.assertIn(b" 200 OK", slow.recv(64))

            def ask():
                with contextlib.suppress(OSError, http.client.HTTPException):
                    while True:
                        dashboard.get("/ask?verb=model+list")
            threads = [threading.Thread(target=ask) for _ in range(8)]
            for thread in threads:
                thread.start()
            self.assertEqual(shoald.terminate(), 0)
            for thread in threads:
                thread.join(shoal_fixture.WAIT_SECONDS)


class TestViewers(unittest.TestCase):
    def test_too_many_are_refused(self):
        with Shoald(echo(dashboard_viewers=2)) as shoald:
            dashboard = Dashboard(dashboard_port(shoald))
            with dashboard.stream() as first, dashboard.stream() as second:
                self.assertEqual((first.code, second.code), (200, 200))
                code, _, text = dashboard.get("/stream")
                self.assertEqual(code, 429, text)
                self.assertIn("dashboard_viewers", text)
                wait_until(lambda: shoald.stat()["dashboard_viewers"] == 2, "two viewers")
                self.assertEqual(shoald.stat()["dashboard_refused"], 1)
            wait_until(lambda: shoald.stat()["dashboard_viewers"] == 0, "the end of both")
            with dashboard.stream() as third:
                self.assertIsNotNone(third.sample())

    def test_slow_viewer_is_skipped_and_costs_no_memory(self):
        many = [pipeline(f"echo-{i}", stage("libecho.so", f"stage-{i}")) for i in range(12)]
        with Shoald(node(*many, dashboard=ANY_PORT)) as shoald:
            port = dashboard_port(shoald)
            with socket.socket() as slow, Dashboard(port).stream() as quick:
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                slow.connect(("127.0.0.1", port))
                slow.sendall(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")

                def skipped():
                    self.assertIsNotNone(quick.sample())  # the other page goes on meanwhile
                    return shoald.stat()["dashboard_skipped"]
                wait_until(skipped, "the first sample that it does not get")
                before = memory_kib(shoald.pid)
                for _ in range(8):
                    self.assertIsNotNone(quick.sample())
                self.assertGreaterEqual(shoald.stat()["dashboard_skipped"], 5)
                if not sanitized():
                    self.assertLess(memory_kib(shoald.pid) - before, 2048)
                self.assertEqual(shoald.stat()["dashboard_cut"], 0)


class TestGuard(unittest.TestCase):
    def test_headers_and_hosts(self):
        with Shoald(echo(http_hosts=["shoal.example"])) as shoald:
            dashboard = Dashboard(dashboard_port(shoald))
            for path, kind in (("/", "text/html"), ("/style.css", "text/css"),
                               ("/app.js", "text/javascript"), ("/icon.svg", "image/svg+xml"),
                               ("/about", "application/json")):
                code, headers, _ = dashboard.get(path)
                self.assertEqual((code, headers["Content-Type"].partition(";")[0]), (200, kind))
                self.assertEqual(headers["Content-Security-Policy"], POLICY)
                self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
            for headers, code in (({"Host": "evil.example"}, 403), ({"Host": "shoal.example"}, 200),
                                  ({"Origin": "http://evil.example"}, 403),
                                  ({"Sec-Fetch-Site": "cross-site"}, 403),
                                  ({"Sec-Fetch-Site": "same-origin"}, 200)):
                self.assertEqual(dashboard.get("/about", headers)[0], code, headers)
            self.assertEqual(dashboard.get("/", {"Sec-Fetch-Site": "cross-site"})[0], 200)
            self.assertEqual(dashboard.get("/nothing")[0], 404)
            self.assertEqual(dashboard.get("/", method="POST", body="x")[0], 501)

    def test_page_asks_nobody_else(self):
        """No address of another host, no inline script or style in what is compiled in."""
        with Shoald(echo()) as shoald:
            dashboard = Dashboard(dashboard_port(shoald))
            index = dashboard.get("/")[2]
            names = re.findall(r'(?:src|href)="(/[^"]*)"', index) + \
                re.findall(r'from "(/[^"]*)"', dashboard.get("/app.js")[2])
            self.assertIn("/node.js", names)
            for name in names:
                code, _, text = dashboard.get(name)
                self.assertEqual(code, 200, name)
                found = [url for url in re.findall(r"https?://[^\s\"'`)]+", text)
                         if not url.startswith(("http://www.w3.org/", "http://localhost"))]
                self.assertEqual(found, [], name)
                self.assertNotRegex(text, r"innerHTML|outerHTML|insertAdjacentHTML|document\.write")
            self.assertNotRegex(index, r"<style|style=|<script(?! type=\"module\" src)| on\w+=")

    def test_token(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        file = pathlib.Path(folder, "token")
        file.write_text(TOKEN + "\n")
        with Shoald(echo(dashboard_token=str(file))) as shoald:
            port = dashboard_port(shoald)
            nobody = Dashboard(port)
            code, headers, _ = nobody.get("/")
            self.assertEqual((code, headers["Location"]), (303, "/login"))
            self.assertEqual(nobody.get("/login")[0], 200)
            self.assertEqual(nobody.get("/style.css")[0], 200)
            for path in ("/app.js", "/about", "/stream", "/history", "/ask?verb=model+list",
                         "/v2/models/echo"):
                self.assertEqual(nobody.get(path)[0], 401, path)
            self.assertEqual(Dashboard(port, Authorization=f"Bearer {TOKEN}x").get("/about")[0], 401)
            self.assertEqual(Dashboard(port, Authorization=f"Bearer {TOKEN}").get("/about")[0], 200)
            form = {"Content-Type": "application/x-www-form-urlencoded"}
            for wrong in ("", "token=", "token=wrong", f"token={TOKEN[:-1]}", "token=%"):
                self.assertEqual(nobody.get("/login", form, "POST", wrong)[0], 401, wrong)
            code, headers, _ = nobody.get("/login", form, "POST", f"token={TOKEN}")
            self.assertEqual((code, headers["Location"]), (303, "/"))
            cookie, *how = headers["Set-Cookie"].split("; ")
            self.assertEqual(set(how), {"Path=/", "HttpOnly", "SameSite=Strict"})
            with Dashboard(port, Cookie=cookie).stream() as stream:
                self.assertIsNotNone(stream.sample())
            self.assertEqual(Dashboard(port, Cookie=cookie).get("/login", form, "POST", "")[0], 303)
            self.assertEqual(shoald.stat()["dashboard_refused"], 12)
            self.assertNotIn(TOKEN, shoald.stderr)

    def test_beyond_this_machine(self):
        files = self.enterContext(Certificates("ca", "others"))
        files.sign("node", "ca")
        files.sign("stranger", "others")
        tls = files.pair("node")
        ca = {**tls, "client_ca": str(files.pem("ca"))}
        secure = {"address": "0.0.0.0:0", "tls": "yes"}
        refused = "would show the node to anyone"
        for keys, said in (
                ({"dashboard": "0.0.0.0:0"}, refused),
                ({"dashboard": "port:8088"}, refused),
                ({"dashboard": secure, "tls": tls}, refused),
                ({"dashboard": secure, "tls": {**ca, "client_auth": "optional"}}, refused),
                ({"dashboard": "0.0.0.0:0", "tls": ca}, "client_ca"),
                ({"dashboard": "127.0.0.1:0", "dashboard_token": "/nothing/here"}, "/nothing/here"),
                ({"dashboard_token": "/nothing/here"}, "`dashboard_token` without `dashboard`")):
            code, text = run_shoald(node(pipeline("echo", stage("libecho.so")), **keys))
            self.assertEqual(code, 2, keys)
            self.assertIn(said, text)
        file = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()), "token")
        file.write_text("short")
        code, text = run_shoald(echo(dashboard_token=str(file)), ["--check"])
        self.assertEqual(code, 2)
        self.assertIn("is not a token of 16 to 256", text)
        file.write_text(TOKEN)
        echo_there = pipeline("echo", stage("libecho.so"))
        with Shoald(node(echo_there, dashboard="0.0.0.0:0", dashboard_token=str(file))) as shoald:
            port = dashboard_port(shoald)
            self.assertEqual(Dashboard(port).get("/about")[0], 401)
            self.assertEqual(Dashboard(port, Authorization=f"Bearer {TOKEN}").get("/about")[0], 200)
        files.sign("viewer", "ca")
        with Shoald(node(echo_there, dashboard=secure, tls=ca)) as shoald:
            self.check_certificates(dashboard_port(shoald), files)

    def check_certificates(self, port, files):
        """A viewer has a certificate of the authority, or sees nothing."""
        def look(name=None):
            context = ssl.create_default_context(cafile=files.pem("ca"))
            if name is not None:
                context.load_cert_chain(files.pem(name), files.key(name))
            with SecureRest(port, context) as viewer:
                return viewer.get("/about").code
        self.assertEqual(look("viewer"), 200)
        # of TLS 1.3 the client learns of the refusal as it reads; the request may meet a reset
        self.assertRaises((ssl.SSLError, ConnectionError), look)
        self.assertRaises((ssl.SSLError, ConnectionError), look, "stranger")
        self.assertEqual(look("viewer"), 200)


class TestLists(unittest.TestCase):
    def test_models(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        names = [f"m{i:02}" for i in range(30)]
        for name in names:
            (folder / f"{name}.mlp").write_bytes(
                (shoal_fixture.EXAMPLES / "mlp/xor.mlp").read_bytes())
        mlp = stage(shoal_fixture.BUILD / "lib/shoal/libmlp.so")
        with Shoald(node(pipeline("mlp", mlp, models={"root": str(folder), "types": ["mlp"],
                                                "memory_mib": 64}),
                         dashboard=ANY_PORT)) as shoald:
            dashboard = Dashboard(dashboard_port(shoald))
            answer = dashboard.ask("model list", limit=12)
            self.assertEqual((answer["version"], answer["status"]), (5, "OK"))
            self.assertEqual([row["id"] for row in answer["list"]["rows"]], names[:12])
            self.assertEqual(answer["list"]["next"], 12)
            last = dashboard.ask("model list", limit=12, **{"from": 24})["list"]
            self.assertEqual(([row["id"] for row in last["rows"]], last["next"]), (names[24:], 0))
            found = dashboard.ask("model list", prefix="m1", limit=10)["list"]
            self.assertEqual(([row["id"] for row in found["rows"]], found["next"]), (names[10:20], 0))
            self.assertEqual(dashboard.ask("model list", limit=0)["list"]["next"], 0)
            for members, code in (({"limit": 201}, 400), ({"limit": "x"}, 400),
                                  ({"from": "-1"}, 400), ({"prefix": 5000 * "x"}, 400)):
                dashboard.ask("model list", code, **members)
            for verb in ("reload", "model load", "model unload", "drain", "mesh moves", ""):
                self.assertEqual(dashboard.ask(verb, 400)["status"], "INVALID_ARGUMENT", verb)
            self.assertIn("in no mesh", dashboard.ask("mesh nodes", 503)["error"])
            self.assertEqual(dashboard.json("/v2/models/m01")["name"], "m01")

    def test_form_calls_models_only_if_allowed(self):
        body, headers = Rest(0).infer_body([tensor("x", "INT8", [2], [1, 2])])
        for infer, code in (("off", 403), ("on", 200)):
            with Shoald(echo(dashboard_infer=infer)) as shoald:
                dashboard = Dashboard(dashboard_port(shoald))
                self.assertEqual(dashboard.json("/about")["infer"], infer == "on")
                self.assertEqual(dashboard.json("/v2/models/echo")["name"], "echo")
                got, _, text = dashboard.get("/v2/models/echo/infer", headers, "POST", body)
                self.assertEqual(got, code, text)
                foreign = {**headers, "Origin": "http://evil.example"}
                self.assertEqual(
                    dashboard.get("/v2/models/echo/infer", foreign, "POST", body)[0], 403)
                self.assertEqual(shoald.pipeline_stat("echo")["requests"], int(infer == "on"))
                for path in ("/v2/repository/models/echo/unload", "/v2/%72epository/index"):
                    code, _, text = dashboard.get(path, headers, "POST", b"{}")
                    self.assertEqual((code, "only calls models" in text), (403, True), text)


if __name__ == "__main__":
    shoal_fixture.main()
