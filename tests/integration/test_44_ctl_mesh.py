# SPDX-License-Identifier: Apache-2.0
"""shoalctl mesh: models and vmodels of a mesh, by name, through one of its nodes, and what the node
on this machine knows of all of them.

A real node, a mesh of one, has the pupil's models. All is done and looked at by shoalctl alone;
that it was true is seen by calling the models. Lists are asked for in pages: there are more models
than one answer has, and more names than one answer looks at. A drain is one of a node that has a
call under way. Answers of a mesh that no honest node gives are a server's of this test, or a
socket's. A mesh of several nodes is looked at, and drained, in test_69_mesh_nodes.py.
ctest: timeout=180
"""

import concurrent.futures
import errno
import fcntl
import json
import os
import pathlib
import pty
import socket
import struct
import subprocess
import tempfile
import termios
import threading
import unittest

import grpc

from shoal_ctl import LATE, NEGATIVE, OK, UNREACHABLE, USAGE, environment, shoalctl
from shoal_fixture import BIN, WAIT_SECONDS, Shoald, free_port, main, node, pipeline, stage
from shoal_loads import VERSION
from shoal_pupil import key, prepare, pupil, said
from shoal_registry import Registrar


def read_terminal(master):
    """All that was written to a terminal whose other side is closed: it comes in pieces."""
    pieces = []
    while True:
        try:
            piece = os.read(master, 1 << 16)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            piece = b""
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shoald = prepare(pupil(), mesh={"instance": "the-node"})
        cls.enterClassContext(cls.shoald)
        cls.registrar = cls.enterClassContext(Registrar(cls.shoald))

    def mesh(self, verb, *arguments, **options):
        return shoalctl("mesh", verb, *arguments, "--counters", self.shoald.counters,
                        **options)

    def register(self, model, *arguments, path="model", **options):
        return self.mesh("register", model, path, "--type", "pupil", *arguments, **options)


class TestModels(Case):
    def test_the_life_of_a_model(self):
        self.assertEqual(self.mesh("status", "one", code=NEGATIVE).out, "one: NOT_FOUND\n")
        self.assertEqual(self.register("one").out, "one is registered: its first call loads it\n")
        self.assertRegex(self.register("one").out, "^one is registered")  # or loaded in advance
        told = self.register("one", path="folder", code=NEGATIVE).err
        self.assertIn("ALREADY_EXISTS: Model already exists with different attribute values", told)
        self.assertRegex(self.mesh("load", "one", "--wait").out,
                         r"^one: LOADED\n  at the-node: LOADED since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\n$")
        self.assertEqual(said(self.registrar.infer("one")), "one")
        row = self.mesh("status", "one", "--json").json
        self.assertEqual((row["id"], row["status"], row["errors"]), ("one", "LOADED", []))
        copy, = row["copies"]
        self.assertEqual((copy["node"], copy["status"]), ("the-node", "LOADED"))
        self.assertGreater(copy["since_ms"], 1_600_000_000_000)
        self.assertEqual(self.mesh("unregister", "one").out, "one is unregistered\n")
        self.assertEqual(self.mesh("unregister", "one", "--json").json,
                         {"id": "one", "done": "unregistered"})
        self.mesh("status", "one", code=NEGATIVE)

    def test_registered_and_loaded_at_once(self):
        self.assertRegex(self.register("now", "--wait").out, r"^now: LOADED\n  at the-node: LOADED ")
        self.register("soon", "--load")
        self.registrar.wait_status("soon", 3)

    def test_a_load_that_fails(self):
        bad = self.shoald.folder / "key.json"
        bad.write_text(key(fail="it is no good"))
        done = self.register("bad", "--wait", "--key", f"@{bad}", code=NEGATIVE)
        self.assertIn("bad: LOADING_FAILED\n  at the-node: LOADING_FAILED since ", done.out)
        self.assertRegex(done.out, r"(?m)^  error: .*it is no good")
        row = self.mesh("status", "bad", "--json", code=NEGATIVE).json
        self.assertEqual(row["status"], "LOADING_FAILED")
        self.assertIn("it is no good", row["errors"][0])

    def test_too_slow(self):
        done = self.register("slow", "--wait", "--key", key(load="slow"), "--timeout-ms", 3000,
                             code=LATE)
        self.assertIn("slow: DEADLINE_EXCEEDED", done.err)
        (self.shoald.folder / "slow.go").touch()
        self.registrar.wait_status("slow", 3)


class TestVModels(Case):
    def test_the_life_of_a_vmodel(self):
        self.register("v1")
        self.register("v2")
        self.assertEqual(self.mesh("vmodel", "v", code=NEGATIVE).out, "v: NOT_FOUND\n")
        self.assertRegex(self.mesh("set-vmodel", "v", "v1", "--owner", "me").out,
                         r"^v: DEFINED, answered by v1, owned by me\n  v1: (NOT_LOADED|LOADING|LOADED)\n")
        done = self.mesh("set-vmodel", "v", "v2", "--owner", "me", "--wait")
        self.assertRegex(done.out, r"^v: DEFINED, answered by v2, owned by me\n")
        answer = self.registrar.infer(metadata=[("mm-vmodel-id", "v")])
        self.assertEqual(said(answer), "v2")
        row = self.mesh("vmodel", "v", "--owner", "me", "--json").json
        self.assertEqual((row["id"], row["status"], row["owner"], row["active"], row["target"]),
                         ("v", "DEFINED", "me", "v2", "v2"))
        self.assertEqual((row["active_model"]["id"], row["active_model"]["status"]),
                         ("v2", "LOADED"))
        self.assertIn("FAILED_PRECONDITION: Model v2 has referents",
                      self.mesh("unregister", "v2", code=NEGATIVE).err)
        self.assertEqual(self.mesh("delete-vmodel", "v", "--owner", "me").out, "v is deleted\n")
        self.mesh("unregister", "v2")

    def test_options_reach_the_node(self):
        self.register("w1")
        self.register("w3")
        self.mesh("set-vmodel", "w", "w1", "--update", code=NEGATIVE)
        self.mesh("set-vmodel", "w", "w1", "--owner", "me")
        for arguments in (["w1", "--owner", "you"],
                          ["w3", "--owner", "me", "--expect", "another"],
                          ["nobody", "--owner", "me"]):
            done = self.mesh("set-vmodel", "w", *arguments, code=NEGATIVE)
            self.assertRegex(done.err, "w: (ALREADY_EXISTS|FAILED_PRECONDITION|NOT_FOUND): ")
        done = self.mesh("set-vmodel", "w", "w2", "--owner", "me", "--type", "pupil", "--path",
                         "model", "--auto-delete", "--force")
        self.assertIn("answered by w2", done.out)
        self.assertEqual(said(self.registrar.infer("w2")), "w2")
        self.mesh("delete-vmodel", "w", "--owner", "me")
        self.assertEqual(self.mesh("status", "w2", code=NEGATIVE).out, "w2: NOT_FOUND\n")

    def test_a_move_that_is_under_way(self):
        self.register("u1", "--wait")
        self.register("u2", "--key", key(load="u2"))
        self.mesh("set-vmodel", "u", "u1")
        out = self.mesh("set-vmodel", "u", "u2").out
        self.assertTrue(out.startswith("u: TRANSITIONING, answered by u1, switching to u2\n"), out)
        row = self.mesh("vmodel", "u", "--json").json
        self.assertEqual((row["active"], row["target"], row["target_model"]["id"]),
                         ("u1", "u2", "u2"))
        (self.shoald.folder / "u2.go").touch()
        self.assertIn("answered by u2", self.mesh("set-vmodel", "u", "u2", "--wait").out)
        self.register("u3", "--key", key(load="u3"))
        self.assertIn("answered by u3", self.mesh("set-vmodel", "u", "u3", "--force").out)
        (self.shoald.folder / "u3.go").touch()


class TestLists(Case):
    def list(self, what, *arguments, **options):
        return shoalctl("mesh", what, *arguments, "--counters", self.shoald.counters, **options)

    def rows(self, what, *arguments):
        return self.list(what, "--json", *arguments).json_lines

    def test_nodes(self):
        row, = self.rows("nodes")
        self.assertEqual((row["id"], row["self"], row["leads"], row["drains"], row["full"]),
                         ("the-node", True, True, False, False))
        self.assertGreater(row["capacity_bytes"], 0)
        self.assertGreaterEqual(row["capacity_bytes"], row["free_bytes"])
        self.assertGreater(row["start_ms"], 1_600_000_000_000)
        out = self.list("nodes").out
        self.assertRegex(out, r"(?m)^  the-node .* this one leads ")
        self.assertTrue(out.endswith("\n1 node\n"), out)
        self.assertNotRegex(out, r"(?i)version|\b1000\b")  # of the instance record: tells nobody anything
        self.assertEqual(self.rows("nodes", "--prefix", "the-n"), [row])
        self.assertEqual(self.list("nodes", "--prefix", "other").out, "0 nodes\n")

    def test_how_models_are(self):
        self.register("state-known")
        self.register("state-loaded", "--wait")
        self.register("state-failed", "--wait", "--key", key(fail="it is no good"), code=NEGATIVE)
        rows = {row["id"]: row for row in self.rows("models", "--prefix", "state-")}
        known = rows.pop("state-known")  # soon after the start the leader loads it in advance
        self.assertIn((known["state"], known["here"]),
                      (("not loaded", ""), ("loading", "loading"), ("loaded", "loaded")))
        self.assertEqual((known["failed"], known["type"], known["path"]), (0, "pupil", "model"))
        self.assertEqual({name: (row["state"], row["loaded"], row["failed"], row["here"])
                          for name, row in rows.items()},
                         {"state-loaded": ("loaded", 1, 0, "loaded"),
                          "state-failed": ("failed", 0, 1, "")})
        self.assertIn("it is no good", rows["state-failed"]["error"])
        loaded = [row["id"] for row in self.rows("models", "--prefix", "state-", "--node",
                                                 "the-node")]
        self.assertIn("state-loaded", loaded)
        self.assertNotIn("state-failed", loaded)
        self.assertEqual(self.rows("models", "--node", "nobody"), [])
        out = self.list("models", "--prefix", "state-").out
        self.assertRegex(out, r"(?m)^  state-loaded +loaded +pupil +model +loaded +1 +0 +0 +0 ")
        self.assertRegex(out, r"(?m)^state-failed: .*it is no good$")
        self.assertTrue(out.endswith("\n3 models\n"), out)

    def test_more_than_a_page(self):
        names = {f"page-{i:05}" for i in range(1500)}
        flying = [self.registrar.start("registerModel", modelId=name,
                                       modelInfo={"type": "pupil", "path": "model"})
                  for name in sorted(names)]
        for call in flying:
            call.result()
        rows = self.rows("models", "--prefix", "page-", "--limit", 5000)
        self.assertEqual([row["id"] for row in rows], sorted(names))
        self.assertEqual(len(self.rows("models", "--prefix", "page-0000")), 10)
        self.assertEqual(len(self.rows("models", "--prefix", "page-", "--limit", 1001)), 1001)
        self.assertEqual(len(self.rows("models", "--prefix", "page-")), 1000)
        self.assertIn("1 model, and there are more", self.list("models", "--prefix", "page-",
                                                               "--limit", 1).out)

    def test_copies(self):
        self.register("where", "--wait")
        self.assertRegex(self.list("copies", "where").out,
                         r"^where: loaded\n  NODE .*\n  the-node +loaded +loaded +pipelines +\S.*\n1 place\n$")
        model, copy = self.rows("copies", "where")
        self.assertEqual((model["id"], model["state"], model["here"]), ("where", "loaded", "loaded"))
        self.assertEqual((copy["node"], copy["state"], copy["here"], copy["by"], copy["error"]),
                         ("the-node", "loaded", "loaded", "pipelines", ""))
        self.assertGreater(copy["since_ms"], 1_600_000_000_000)
        self.register("where-held", "--load", "--key", key(load="where-held"))
        self.registrar.wait_status("where-held", 2)
        self.assertIn("the-node  loading", self.list("copies", "where-held").out)
        (self.shoald.folder / "where-held.go").touch()
        done = self.list("copies", "nowhere", code=NEGATIVE)
        self.assertIn('this node knows no model "nowhere"', done.err)

    def test_vmodels(self):
        self.register("x1", "--wait")
        self.register("x2", "--key", key(load="x2"))
        self.mesh("set-vmodel", "x-still", "x1", "--owner", "me")
        self.mesh("set-vmodel", "x-moves", "x1")
        self.mesh("set-vmodel", "x-moves", "x2")
        rows = {row["id"]: row for row in self.rows("vmodels", "--prefix", "x-")}
        self.assertEqual(rows["x-still"],
                         {"id": "x-still", "state": "defined", "owner": "me", "active": "x1",
                          "target": "x1", "target_state": "", "active_copies": 1,
                          "target_copies": 0})
        self.assertEqual((rows["x-moves"]["state"], rows["x-moves"]["active"],
                          rows["x-moves"]["target"], rows["x-moves"]["target_state"]),
                         ("going over", "x1", "x2", "loading"))
        self.assertRegex(self.list("vmodels", "--prefix", "x-").out,
                         r"(?m)^  x-moves +switching +- +x1 +x2 +loading +1 +0\n"
                         r"  x-still +defined +me +x1 +- +- +1 +0\n2 vmodels\n")
        (self.shoald.folder / "x2.go").touch()
        self.mesh("set-vmodel", "x-moves", "x2", "--wait")

    def test_again_and_again(self):
        out = self.list("nodes", "--watch", "--interval", "0.01", "--count", 3).out
        self.assertEqual(out.count("\n1 node\n"), 3, out)
        lines = self.list("nodes", "--json", "--interval", "0.01", "--count", 2).out.split("\n\n")
        self.assertEqual(len(lines), 2)

    def test_on_a_terminal(self):
        """Two lines high: the rest is cut off, and written over the next time."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 2, 30, 0, 0))
        done = subprocess.run([BIN / "shoalctl", "mesh", "nodes", "--counters", self.shoald.counters,
                               "--interval", "0.01", "--count", "2"], stdout=slave,
                              timeout=WAIT_SECONDS, env=environment())
        os.close(slave)
        shown = read_terminal(master).decode()
        os.close(master)
        self.assertEqual(done.returncode, OK)
        self.assertEqual(shown.count("\033[H"), 2, shown)
        self.assertEqual(shown.count("NODE"), 2, shown)
        self.assertNotIn("1 node", shown)

    def test_a_page_without_a_row(self):
        """So many names were looked at, and none was meant: the next page is asked for."""
        pages = [listed([{"id": "b"}]), listed([], 9), listed([{"id": "z"}], 7)]
        with FakeNode(lambda verb: pages.pop()) as fake:
            rows = shoalctl("mesh", "nodes", "--json", "--counters", fake.counters).json_lines
        self.assertEqual([one["id"] for one in rows], ["b", "z"])

    def test_a_list_that_cannot_be_read(self):
        """A socket that is no node's answers with a list that ends too early, or is none."""
        page = json.dumps(listed([])).encode()
        for answer, told in (
                (page[:40], "no readable answer"), (page + page, "no readable answer"),
                (b"\377" * 96, "no readable answer"), (b"[]", "no readable answer"),
                (b"[" * 5000, "no readable answer"),
                (page.replace(b"5", b"6"), "use the shoalctl that came with it"),
                ({"version": VERSION, "status": "OK"}, "the node's list cannot be read"),
                (listed([7]), "the node's list cannot be read"),
                (listed([], -1), "the node's list cannot be read"),
                (listed([], 1 << 32), "the node's list cannot be read"), (page, "0 nodes")):
            with FakeNode(lambda verb, answer=answer: answer) as fake:
                done = shoalctl("mesh", "nodes", "--counters", fake.counters,
                                code=OK if told == "0 nodes" else UNREACHABLE)
            self.assertIn(told, done.out + done.err)

    def test_an_error_of_another_version(self):
        answer = {"version": 99, "error": "too old", "status": "INVALID_ARGUMENT", "code": 3, "new": 1}
        with FakeNode(lambda verb: answer) as fake:
            done = shoalctl("mesh", "nodes", "--json", "--counters", fake.counters, code=NEGATIVE)
        self.assertEqual(done.json, {"error": "too old", "status": "INVALID_ARGUMENT", "code": 3})


def listed(rows, following=0):
    return {"version": VERSION, "status": "OK", "list": {"rows": rows, "next": following}}


class FakeNode:
    """Answers each request with what `answer` says for its verb: bytes or JSON, in turn in a packet and
    in a file."""

    count = 0

    def __init__(self, answer):
        self.folder = tempfile.TemporaryDirectory(prefix="shoal-test.")
        self.counters = pathlib.Path(self.folder.name) / "counters"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind(f"{self.counters}.control")
        self.socket.listen(4)
        self.answer = answer
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def serve(self):
        while True:
            try:
                call, _ = self.socket.accept()
            except OSError:
                return
            with call:
                self.say(call, self.answer(json.loads(call.recv(1 << 16))["verb"]))

    def say(self, call, answer):
        answer = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        FakeNode.count += 1
        if FakeNode.count % 2:
            call.send(answer)
            return
        fd = os.memfd_create("answer")
        os.write(fd, answer)
        socket.send_fds(call, [b"{}"], [fd])
        os.close(fd)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join()
        self.folder.cleanup()


class TestDrain(unittest.TestCase):
    """Of a mesh of one: what is under way is answered, then the node ends."""

    def start(self, **keys):
        self.shoald = prepare(pupil(), mesh={"instance": "the-node"}, **keys)
        self.enterContext(self.shoald)
        self.registrar = self.enterContext(Registrar(self.shoald))

    def held_call(self, name):
        self.registrar.register(name, key=key(load=name))
        call = self.registrar.start_infer(name)
        self.registrar.wait_status(name, 2)
        return call

    def drain(self, *arguments, **options):
        return shoalctl("mesh", "drain", *arguments, "--counters", self.shoald.counters, **options)

    def test_it_waits_for_the_end(self):
        self.start()
        call = self.held_call("held")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(self.drain)
            self.shoald.wait_log("draining why=asked")
            done = self.drain("--timeout-ms", 300, "--json", code=LATE)
            self.assertIn("the drain continues", done.json["error"])
            row, = shoalctl("mesh", "nodes", "--json", "--counters",
                            self.shoald.counters).json_lines
            self.assertEqual(row["id"], "the-node")
            (self.shoald.folder / "held.go").touch()
            self.assertEqual(said(call.result()), "held")
            self.assertRegex(waiting.result().out, r"(?m)^drained: \d+ moved, \d+ unloaded\n$")
        self.assertIsNotNone(self.shoald.process.poll())  # it was waited for
        self.shoald.check_end()

    def test_its_time_is_over(self):
        self.start(drain_timeout_ms=400)
        call = self.held_call("held")
        done = self.drain("--quiet", code=NEGATIVE)
        self.assertIn("drain_timeout_ms was over", done.err)
        self.assertIsNotNone(self.shoald.process.poll())  # it was waited for
        call.exception()
        (self.shoald.folder / "held.go").touch()
        self.shoald.check_end()

    def test_where_models_went(self):
        """One is seen elsewhere while it is still here, one only when it has gone, one nowhere. The
        node is this test, which does not end: so the time is over."""
        moves = [listed([]), listed([{"id": name, "here": "loaded", "to": to} for name, to in (
            ("seen", "b"), ("quick", ""), ("old", ""))])]
        copies = [listed([{"node": "c", "state": "loading"}, {"node": "d", "state": "loaded"}]), listed([])]
        answers = {"mesh moves": lambda: moves.pop() if len(moves) > 1 else moves[0],
                   "mesh copies": copies.pop,
                   "drain": lambda: {"version": VERSION, "status": "OK", "text": "drained"}}
        with FakeNode(lambda verb: answers[verb]()) as fake:
            done = shoalctl("mesh", "drain", "--counters", fake.counters, "--timeout-ms", 3000,
                            code=LATE)
        self.assertEqual(done.out, "old: unloaded\nquick: moved to d\nseen: moved to b\n")

    def test_it_only_begins_it(self):
        self.start()
        self.assertEqual(self.drain("--no-wait").out, "the node drains\n")
        self.shoald.check_end()
        self.assertIn("no node listens", self.drain(code=UNREACHABLE).err)

    def test_without_a_mesh(self):
        with Shoald(node(pipeline("echo", stage("libecho.so")))) as shoald:
            done = shoalctl("mesh", "models", "--counters", shoald.counters, code=NEGATIVE)
            self.assertIn("the node is in no mesh", done.err)
            done = shoalctl("mesh", "drain", "--json", "--counters", shoald.counters)
            self.assertEqual(done.json, {"status": "OK", "text": "drained", "moved": 0, "let_go": 0})
            shoald.check_end()


class TestUsage(unittest.TestCase):
    def test_wrong_usage(self):
        for arguments, told in (
                ([], "a command is missing"), (["statu"], "did you mean status"), (["--load"], "--load"),
                (["status"], "expected ID"), (["status", "a", "b"], "unexpected argument"),
                (["status", ""], "an argument is empty"),
                (["register", "a", "b"], "--type is missing"),
                (["register", "a", "--type", "t"], "expected ID PATH"),
                (["set-vmodel", "v", "m", "--type", "t"], "one is missing"),
                (["set-vmodel", "v", "m", "--key", "k"], "--key needs"),
                (["status", "a", "--force"], "--force"),
                (["status", "a", "--timeout-ms", "0"], "is not an integer"),
                (["nods"], "did you mean nodes"), (["copies"], "expected ID"),
                (["copies", "a", "b"], "unexpected argument"), (["copies", ""], "1 to 4095 bytes"),
                (["nodes", "a"], "unexpected argument"), (["models", "--limit", "0"], "is not an integer"),
                (["nodes", "--limit", "1"], "unknown option"), (["drain", "a"], "unexpected argument"),
                (["models", "--prefix", "p" * 4096], "1 to 4095 bytes")):
            self.assertIn(told, shoalctl("mesh", *arguments, code=USAGE).err, arguments)
        self.assertIn("No such file",
                      shoalctl("mesh", "register", "a", "b", "--type", "t", "--key", "@/nothing",
                               code=USAGE).err)
        for word in ("register", "unregister", "status", "load", "set-vmodel", "delete-vmodel",
                     "vmodel", "nodes", "models", "copies", "vmodels", "drain"):
            self.assertIn(f"shoalctl mesh {word}", shoalctl("mesh", word, "--help").out)
            self.assertIn(word, shoalctl("mesh", "--help").out)

    def test_nobody_there(self):
        target = f"127.0.0.1:{free_port()}"
        with tempfile.TemporaryDirectory() as folder:
            for arguments, told in (
                    (["--target", target], f"no node answers at {target}"),
                    (["--counters", f"{folder}/c"], f"no node of a mesh answers at unix:{folder}/c.manage: ")):
                done = shoalctl("mesh", "status", "m", "--timeout-ms", 500, "--json", *arguments,
                                code=UNREACHABLE)
                self.assertIn(told, done.json["error"])
        shoalctl("mesh", "status", "m", "--counters", "x" * 200, code=USAGE)

    def test_a_node_without_a_mesh(self):
        with Shoald(node(pipeline("echo", stage("libecho.so")))) as shoald:
            done = shoalctl("mesh", "status", "m", "--target", shoald.target, code=NEGATIVE)
        self.assertIn("is in no mesh: its configuration has no `mesh`", done.err)


class TestAnswers(unittest.TestCase):
    """Answers that no honest node gives."""

    def setUp(self):
        self.answer = b""
        outer = self

        class Handler(grpc.GenericRpcHandler):
            def service(self, details):
                return grpc.unary_unary_rpc_method_handler(lambda request, context: outer.answer)
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
        self.server.add_generic_rpc_handlers([Handler()])
        self.target = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()
        self.addCleanup(lambda: self.server.stop(None).wait())

    def test_them(self):
        for answer, code, told in (
                (b"\x0a\xff", NEGATIVE, "the answer cannot be read"),
                (b"\x08\x63", OK, "m: status 99\n"),
                (b"\x08\x03\x1a\x0e\x0a\x00\x10\x63\x18" + b"\xff" * 8 + b"\x7f", OK, "at : status 99 since"),
                (b"\x08\x03\x12\x02\xc3\x28", OK, "m: LOADED\n  error: ")):
            self.answer = answer
            done = subprocess.run([BIN / "shoalctl", "mesh", "status", "m", "--target", self.target],
                                  capture_output=True, timeout=WAIT_SECONDS, env=environment())
            self.assertEqual(done.returncode, code, done)
            self.assertIn(told.encode(), done.stdout + done.stderr)
            self.assertIsInstance(shoalctl("mesh", "status", "m", "--target", self.target, "--json",
                                           code=code).json, dict)



if __name__ == "__main__":
    main()
