# SPDX-License-Identifier: Apache-2.0
"""shoalctl mesh: models and vmodels of a mesh, by name, through one of its nodes.

A real node, a mesh of one, has the pupil's models. All is done and looked at by shoalctl alone; that it
was true is seen by calling the models. Answers of a mesh that no honest node gives are a server's of
this test.
ctest: timeout=180
"""

import concurrent.futures
import subprocess
import unittest

import grpc

from shoal_ctl import LATE, NEGATIVE, OK, UNREACHABLE, USAGE, environment, shoalctl
from shoal_fixture import BIN, WAIT_SECONDS, Shoald, free_port, main, node, pipeline, stage
from shoal_pupil import key, prepare, pupil, said
from shoal_registry import Registrar


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shoald = prepare(pupil(), mesh={"instance": "the-node"})
        cls.enterClassContext(cls.shoald)
        cls.registrar = cls.enterClassContext(Registrar(cls.shoald.target))

    def mesh(self, verb, *arguments, **options):
        return shoalctl("mesh", verb, *arguments, "--target", self.shoald.target, **options)

    def register(self, model, *arguments, path="model", **options):
        return self.mesh("register", model, path, "--type", "pupil", *arguments, **options)


class TestModels(Case):
    def test_the_life_of_a_model(self):
        self.assertEqual(self.mesh("status", "one", code=NEGATIVE).out, "one: NOT_FOUND\n")
        self.assertEqual(self.register("one").out, "one: NOT_LOADED\n")
        self.assertEqual(self.register("one").out, "one: NOT_LOADED\n")
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
        self.assertEqual(self.mesh("unregister", "one").out, "one is not registered\n")
        self.assertEqual(self.mesh("unregister", "one", "--json").json,
                         {"id": "one", "done": "not registered"})
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
        done = self.register("slow", "--wait", "--key", key(load="slow"), "--timeout-ms", 300,
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
                         r"^v: DEFINED, answered by v1, owned by me\n  v1: NOT_LOADED\n")
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
        self.assertEqual(self.mesh("delete-vmodel", "v", "--owner", "me").out, "v is no vmodel\n")
        self.mesh("unregister", "v2")

    def test_what_is_asked_for_goes_with_it(self):
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
        self.assertTrue(out.startswith("u: TRANSITIONING, answered by u1, goes over to u2\n"), out)
        row = self.mesh("vmodel", "u", "--json").json
        self.assertEqual((row["active"], row["target"], row["target_model"]["id"]),
                         ("u1", "u2", "u2"))
        (self.shoald.folder / "u2.go").touch()
        self.assertIn("answered by u2", self.mesh("set-vmodel", "u", "u2", "--wait").out)
        self.register("u3", "--key", key(load="u3"))
        self.assertIn("answered by u3", self.mesh("set-vmodel", "u", "u3", "--force").out)
        (self.shoald.folder / "u3.go").touch()


class TestUsage(unittest.TestCase):
    def test_what_cannot_be_meant(self):
        for arguments, told in (
                ([], "say what"), (["statu"], "meant status"), (["--load"], "--load"),
                (["status"], "it takes ID"), (["status", "a", "b"], "one argument too many"),
                (["status", ""], "an argument is empty"),
                (["register", "a", "b"], "--type is missing"),
                (["register", "a", "--type", "t"], "it takes ID PATH"),
                (["set-vmodel", "v", "m", "--type", "t"], "one is missing"),
                (["set-vmodel", "v", "m", "--key", "k"], "--key needs"),
                (["status", "a", "--force"], "--force"),
                (["status", "a", "--timeout-ms", "0"], "no whole number")):
            self.assertIn(told, shoalctl("mesh", *arguments, code=USAGE).err, arguments)
        self.assertIn("No such file",
                      shoalctl("mesh", "register", "a", "b", "--type", "t", "--key", "@/nothing",
                               code=USAGE).err)
        for word in ("register", "unregister", "status", "load", "set-vmodel", "delete-vmodel",
                     "vmodel"):
            self.assertIn(f"shoalctl mesh {word}", shoalctl("mesh", word, "--help").out)
            self.assertIn(word, shoalctl("mesh", "--help").out)

    def test_nobody_there(self):
        target = f"127.0.0.1:{free_port()}"
        for arguments in (["--target", target], []):
            done = shoalctl("mesh", "status", "m", "--timeout-ms", 500, "--json", *arguments,
                            code=UNREACHABLE, env=environment(SHOAL_TARGET=target))
            self.assertEqual(done.json["error"], f"no node answers at {target}")

    def test_a_node_without_a_mesh(self):
        with Shoald(node(pipeline("echo", stage("libecho.so")))) as shoald:
            done = shoalctl("mesh", "status", "m", "--target", shoald.target, code=NEGATIVE)
        self.assertIn("is in no mesh: its configuration has no `mesh`", done.err)


class TestAnswers(unittest.TestCase):
    """What no honest node says."""

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
