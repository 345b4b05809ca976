# SPDX-License-Identifier: Apache-2.0
"""`shoalctl upgrade` replaces a node's process without a failed call, or changes nothing.

Callers neither wait nor retry; they reconnect when they are asked to. Programs that crash, hang or
refuse stand in for a new shoald that is no good, and processes are killed where it hurts.
ctest: timeout=300
"""

import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import tempfile
import unittest

import shoal_fixture
from shoal_attacks import puppet
from shoal_callers import X, Callers, grpc_calls, rest_calls, slow_calls
from shoal_client import Client, said
from shoal_ctl import NEGATIVE, UNREACHABLE, USAGE, shoalctl
from shoal_fixture import BIN, WAIT_SECONDS, Shoald, free_port, is_alive, node, pipeline, stage, wait_until
from shoal_http2 import PING, Http2, frame
from shoal_upgrade import Adopted, Upgradable, Upgrade
from test_05_service_manager import Manager
from test_09_socket_activation import Activated, listening

UPGRADES = 12
ECHO = pipeline("echo", stage("libecho.so"), slots=64)


class ActivatedNode(Upgradable, Activated):
    pass


class TestUpgrade(unittest.TestCase):
    def setUp(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="shoal-test."))
        self.folder = pathlib.Path(folder)

    def start(self, *pipelines, kind=Upgradable, **options):
        """Over TCP and a unix socket, gRPC and HTTP; `keys` are of the configuration."""
        keys = options.pop("keys", {})
        self.port, grpc, self.metrics = free_port(), free_port(), free_port()
        self.tcp = f"127.0.0.1:{grpc}"
        config = node(*(pipelines or [ECHO]), http=f"127.0.0.1:{self.port}",
                      metrics=f"127.0.0.1:{self.metrics}", **keys)
        self.shoald = kind(config, args=("--listen", self.tcp), **options)
        self.addCleanup(self.shoald.discard)
        self.shoald.start()
        return self.shoald

    def loops(self):
        return [grpc_calls(self.tcp)] * 3 + [grpc_calls(self.shoald.target)] + [rest_calls(self.port)] * 3

    def check_served(self):
        with Client(self.tcp) as client:
            client.infer_raw("echo", X)
        with Client(self.shoald.target) as client:
            client.infer_raw("echo", X)

    def check_end(self):
        """A clean end, and nothing that a process before has left."""
        self.assertEqual(self.shoald.terminate(), 0, self.shoald.stderr)
        self.shoald.check_nothing_left()
        self.shoald.check_log()
        self.assertFalse((self.shoald.folder / "counters.new").exists())

    def shoalctl(self, *words, **options):
        return shoalctl(*words, "--counters", self.shoald.counters, **options)

    # ---- it works ----

    def test_fails_no_call(self):
        shoald = self.start(ECHO, pipeline("puppet", puppet(workers=2, sandbox_allow=["files", "processes"]),
                                         slots=16))
        shoald.wait_ready()
        with Callers(*self.loops(), slow_calls(self.tcp, 150), slow_calls(self.tcp, 20)) as callers:
            for _ in range(UPGRADES):
                callers.wait_progress()
                shoald.upgrade()
            callers.wait_progress()
        self.assertEqual(callers.failed, [])
        self.assertEqual(shoald.ended, (0,) * UPGRADES, shoald.stderr)
        self.assertNotIn("late_calls_refused", shoald.stderr)
        print(f"{UPGRADES} upgrades, {sum(callers.done)} calls, {len(callers.failed)} failed")
        self.check_end()

    def test_clients_may_write_last(self):
        """A client that writes behind the node's last frame, as an acknowledgement of a ping, must
        not get an error: it would drop answers that it has not read."""
        shoald = self.start().wait_ready()
        for address in str(shoald.socket), ("127.0.0.1", int(self.tcp.rpartition(":")[2])):
            with self.subTest(address), Http2(address) as caller:
                caller.wait_end(caller.ask("/inference.GRPCInferenceService/ServerLive"))
                upgrade = Upgrade(shoald)
                try:
                    caller.answer_pings_until_closed()
                    for _ in range(2):
                        caller.send(frame(PING, 0, 0, bytes(8)))
                        self.assertEqual(caller.socket.recv(1), b"")
                    self.assertIsNone(upgrade.process.poll())
                finally:
                    caller.socket.close()
                    upgrade.end()
                    shoald.adopt(shoald.stat()["pid"])
        self.check_end()

    def test_what_the_operator_sees(self):
        shoald = self.start().wait_ready()
        first = shoald.pid
        done = shoald.upgrade()
        self.assertRegex(done.out, rf"^started pid {shoald.pid}: {BIN}/shoald\n"
                         rf"ready after \d+\.\d s: pid {shoald.pid} serves, pid {first} drains\n"
                         rf"drained\n$")
        self.assertFalse(is_alive(first))
        self.assertEqual(shoald.stat()["pid"], shoald.pid)
        self.assertEqual(shoald.stat()["state"], "ready")
        self.assertEqual(shoald.ended, (0,))
        lines = Upgrade(shoald, "--json").end().json_lines
        self.assertEqual([sorted(line) for line in lines], [["progress"]] * 2 + [["status", "text"]])
        shoald.adopt(shoald.stat()["pid"])
        self.assertIn(b"shoal_node_uptime", self.get("/metrics"))
        self.check_served()
        self.shoalctl("mesh", "drain")  # it waits for the process that listens now
        self.assertEqual(shoald.wait_exit(), 0)
        shoald.check_nothing_left()

    def get(self, path):
        client = http.client.HTTPConnection("127.0.0.1", self.metrics, timeout=WAIT_SECONDS)
        client.request("GET", path)
        body = client.getresponse().read()
        client.close()
        return body

    def test_the_old_one_serves_until_then(self):
        shoald = self.start().wait_ready()
        program, go = shoald.held()
        upgrade = Upgrade(shoald, "--program", program)
        new = upgrade.started()
        self.check_served()
        self.assertEqual(shoald.stat()["pid"], shoald.pid)
        self.assertIn("ready", self.shoalctl("status").out)
        go()
        upgrade.end()
        shoald.adopt(new)
        self.check_served()
        self.check_end()

    def test_another_configuration_and_program(self):
        """The program's file is replaced, as by a package; a socket of the old configuration is no
        longer there, one of the new is."""
        shoald = self.start().wait_ready()
        own = shoald.folder / "bin"
        own.mkdir()
        for name in ("shoald", "shoal-worker"):
            shutil.copy2(BIN / name, own / name)
        other = shoald.folder / "other.yaml"
        port = free_port()
        other.write_text(shoald.config.read_text().replace(str(self.port), str(port)))
        link = shoald.folder / "link.yaml"
        link.symlink_to(other)  # it may lead elsewhere by the next reload
        shoald.upgrade("--program", own / "shoald", "--config", link)
        self.assertIn(str(link), pathlib.Path(f"/proc/{shoald.pid}/cmdline").read_text())
        self.assertEqual(os.readlink(f"/proc/{shoald.pid}/exe"), str(own / "shoald"))
        self.assertRaises(ConnectionRefusedError, socket.create_connection, ("127.0.0.1", self.port))
        self.port = port
        self.check_served()
        (own / "next").write_text('#!/bin/sh\ntouch was-run\nexec "' + str(BIN / "shoald") + '" "$@"\n')
        (own / "next").chmod(0o755)
        os.rename(own / "next", own / "shoald")
        shoald.upgrade()
        self.assertTrue((shoald.folder / "was-run").exists())
        self.assertEqual(os.readlink(f"/proc/{shoald.pid}/exe"), str(BIN / "shoald"))
        self.check_served()
        self.check_end()

    def test_mode_of_a_shared_socket(self):
        """It is the new configuration's, as after a restart, once the new process serves."""
        shoald = self.start(keys={"socket_mode": "0606"}).wait_ready()
        good = shoald.config.read_text()

        def mode():
            return oct(shoald.socket.stat().st_mode & 0o7777)
        self.assertEqual(mode(), "0o606")
        upgrade, new = self.hanging(socket_mode="0660")
        shoald.wait_log(r'grpc_listening address="unix:', 2)
        os.kill(new, signal.SIGKILL)
        upgrade.end(NEGATIVE)
        self.assertEqual(mode(), "0o606")
        shoald.config.write_text(good.replace("0606", "0660"))
        shoald.upgrade()
        self.assertEqual(mode(), "0o660")
        shoald.config.write_text(good.replace("socket_mode", "drain_timeout_ms").replace('"0606"', "9000"))
        before = os.umask(0)
        os.umask(before)
        shoald.upgrade()
        self.assertEqual(mode(), oct(0o777 & ~before))
        self.check_served()
        self.check_end()

    def test_sockets_of_the_service_manager(self):
        """They stay the manager's through an upgrade, and the restart after it fails no call."""
        grpc = listening(socket.AF_INET, ("127.0.0.1", 0))
        path = self.folder / "s"
        unix = listening(socket.AF_UNIX, str(path))
        self.addCleanup(grpc.close)
        self.addCleanup(unix.close)
        target = f"127.0.0.1:{grpc.getsockname()[1]}"
        shoald = ActivatedNode(node(ECHO), [grpc, unix], listen=[target, f"unix:{path}"])
        self.addCleanup(shoald.discard)
        shoald.start().wait_ready()
        with Callers(*[grpc_calls(target)] * 2, grpc_calls(f"unix:{path}")) as callers:
            callers.wait_progress()
            shoald.upgrade()
            callers.wait_progress()
            self.assertEqual(shoald.terminate(), 0, shoald.stderr)
            shoald.start().wait_ready()
            callers.wait_progress()
        self.assertEqual(callers.failed, [])
        self.assertEqual(shoald.terminate(), 0)
        self.assertTrue(path.exists())

    def test_service_manager_follows(self):
        manager = Manager(self.folder)
        self.addCleanup(manager.socket.close)
        shoald = self.start(env=manager.environment(WATCHDOG_USEC="4000000"))
        shoald.wait_ready()
        manager.wait("READY=1")
        shoald.upgrade()
        self.assertEqual(manager.wait(f"MAINPID={shoald.pid}"), {"MAINPID": str(shoald.pid)})
        manager.wait("READY=1")
        manager.wait("WATCHDOG=1")
        self.assertFalse(any("STOPPING" in message for message in manager.said), manager.said)
        self.assertEqual(shoald.terminate(), 0)
        manager.wait("STOPPING=1")

    def test_log_on_a_full_disk(self):
        shoald = self.start()
        shoald.terminate()
        shoald.command = ["bash", "-c", 'exec "$0" "$@" 2>/dev/full', *shoald.command]
        shoald.start()
        wait_until(lambda: shoald.counters.exists() and shoald.stat()["state"] == "ready", "readiness")
        with Callers(*self.loops()) as callers:
            callers.wait_progress()
            shoald.upgrade()
            callers.wait_progress()
        self.assertEqual(callers.failed, [])
        self.assertEqual(shoald.ended, (0,))
        wait_until(lambda: shoald.stat()["log_dropped"] > 0, "lines that could not be written")

    def test_hangup_meanwhile(self):
        """It is for the process that serves in the end."""
        shoald = self.start().wait_ready()
        program, go = shoald.held()
        upgrade = Upgrade(shoald, "--program", program)
        new = upgrade.started()
        shoald.signal(signal.SIGHUP)
        shoald.wait_log("reload_held")
        go()
        upgrade.end()
        shoald.adopt(new)
        shoald.wait_stat("echo", lambda stat: stat["reloads"] == 1, "the reload")

    # ---- it fails, and nothing changes ----

    def test_programs_that_are_no_good(self):
        shoald = self.start(keys={"upgrade_timeout_ms": 10000}).wait_ready()
        crash = shoald.program("crash", 'echo "first words" >&2; echo "last words" >&2; kill -SEGV $$')
        refuse = shoald.program("refuse", 'exec "' + str(BIN / "shoald") + '" --worker /nowhere "$@"')
        hang = shoald.program("hang", "echo hanging >&2; exec tail -f /dev/null")
        garbage = shoald.folder / "garbage"
        garbage.write_bytes(b"\x7fELF\0\0")
        garbage.chmod(0o755)
        wrong = shoald.folder / "wrong.yaml"
        wrong.write_text("pipelines: 7\n")
        rows = (("--program", crash), ["first words\nlast words\n"], "was ended by signal 11"), \
               (("--program", refuse), ["no worker program at /nowhere"], "ended with exit code 2"), \
               (("--program", hang), ["hanging"], "`upgrade_timeout_ms` was over"), \
               (("--program", garbage), [], "Exec format error"), \
               (("--config", wrong), ["wrong.yaml"], "the check (pid ")
        with Callers(*self.loops()) as callers:
            for arguments, lines, reason in rows:
                with self.subTest(reason):
                    done = Upgrade(shoald, *arguments).end(NEGATIVE)
                    for line in lines:
                        self.assertIn(line, done.out)
                    self.assertIn(reason, done.err)
                    if lines:
                        self.assertIn(f"pid {shoald.pid} serves on", done.err)
                    self.assertEqual(shoald.stat()["pid"], shoald.pid)
                    self.assertFalse((shoald.folder / "counters.new").exists())
                    callers.wait_progress()
            shoald.upgrade()
            callers.wait_progress()
        self.assertEqual(callers.failed, [])
        Upgrade(shoald, "--program", shoald.folder / "missing").end(USAGE)
        self.check_end()

    def hanging(self, **keys):
        """An upgrade to a node whose worker does not become ready, and the new process."""
        other = self.shoald.folder / "other.yaml"
        hang = stage("libpuppet.so", start_timeout_ms=600000, params={"folder": ".", "open": "hang"})
        other.write_text(json.dumps(node(pipeline("echo", hang), **keys)))
        program = self.shoald.program("real", f'exec "{BIN / "shoald"}" "$@"')
        upgrade = Upgrade(self.shoald, "--program", program, "--config", other)
        return upgrade, upgrade.started()

    def test_new_one_is_killed(self):
        """Before it is ready: while it starts workers."""
        shoald = self.start().wait_ready()
        upgrade, new = self.hanging()
        shoald.wait_beside()
        os.kill(new, signal.SIGKILL)
        self.assertIn("was ended by signal 9", upgrade.end(NEGATIVE).err)
        self.assertFalse((shoald.folder / "counters.new").exists())
        self.check_served()
        shoald.upgrade()
        self.check_served()
        self.check_end()

    def test_new_one_dies_just_when_it_is_ready(self):
        """The old one learns of both at once, and has given nothing away."""
        shoald = self.start().wait_ready()
        cue = shoald.folder / "cue"
        os.mkfifo(cue)
        upgrade = Upgrade(shoald, "--program", shoald.program(
            "brief", f"""read line <"{cue}"; exec bash -c 'set -- $SHOAL_UPGRADE; printf R >&$3; kill -KILL $$'"""))
        new = upgrade.started()
        shoald.signal(signal.SIGSTOP)
        cue.write_text("go\n")
        status = pathlib.Path(f"/proc/{new}/status")
        wait_until(lambda: "State:\tZ" in status.read_text(), "its end")
        shoald.signal(signal.SIGCONT)
        self.assertIn("was ended by signal 9 (Killed) before it was ready", upgrade.end(NEGATIVE).err)
        self.assertEqual(shoald.stat()["pid"], shoald.pid)
        self.check_served()
        shoald.upgrade()
        self.check_end()

    def test_old_one_is_killed(self):
        """Before the new one is ready, which then owns everything; calls wait in the sockets."""
        for where in "shoald", "worker":
            with self.subTest(where):
                self.check_old_one_is_killed(where)

    def check_old_one_is_killed(self, where):
        shoald = self.start().wait_ready()
        program, go = shoald.held(where)
        upgrade = Upgrade(shoald, "--program", program)
        new = upgrade.started()
        if where == "worker":
            shoald.wait_beside()
        shoald.kill_alone()
        upgrade.end(UNREACHABLE)
        shoald.process = Adopted(new)
        with Client(self.tcp) as client:
            waiting = client.start_raw("echo", X)
            go()
            self.assertEqual(waiting.result().raw_output_contents[0], X[3])
        self.assertEqual(shoald.stat()["pid"], new)
        self.check_served()
        self.assertEqual(shoald.terminate(), 0)

    def test_old_one_is_killed_while_it_drains(self):
        shoald = self.start(ECHO, pipeline("puppet", puppet(), slots=8)).wait_ready()
        with Client(self.tcp) as client:
            call = client.tell("hold a")
            wait_until((shoald.folder / "a.held").exists, "the call to run")
            upgrade = Upgrade(shoald)
            new = upgrade.started()
            wait_until(lambda: shoald.stat()["pid"] == new, "the new process to be the node")
            shoald.kill_alone()
            self.assertIn("the old process died, and its calls in flight are lost. The new one serves",
                          upgrade.end(UNREACHABLE).err)
            self.assertIsNotNone(call.exception())
        shoald.process = Adopted(new)
        self.check_served()
        self.assertEqual(shoald.terminate(), 0)

    def test_another_node_took_the_name(self):
        """The old process dies, and a third one has its counters before the new one knows."""
        for where in "shoald", "worker":
            with self.subTest(where):
                self.check_another_node_took_the_name(where)

    def check_another_node_took_the_name(self, where):
        shoald = self.start().wait_ready()
        program, go = shoald.held(where)
        upgrade = Upgrade(shoald, "--program", program)
        new = Adopted(upgrade.started())
        if where == "worker":
            shoald.wait_beside()
            new.send_signal(signal.SIGSTOP)
        shoald.kill_alone()
        upgrade.end(UNREACHABLE)
        shoald.socket.unlink()
        with Shoald(node(ECHO), folder=shoald.folder, listen=[shoald.target]) as third:
            if where == "worker":
                new.send_signal(signal.SIGCONT)
            else:
                go()
            new.wait()
            self.assertEqual(new.returncode, 2)
            self.assertEqual(third.stat()["pid"], third.pid)

    # ---- it is refused ----

    def refused(self, *words):
        done = Upgrade(self.shoald).end(NEGATIVE)
        for word in words:
            self.assertIn(word, done.err)

    def test_one_at_a_time(self):
        shoald = self.start(ECHO, pipeline("puppet", puppet(), slots=8)).wait_ready()
        program, go = shoald.held()
        upgrade = Upgrade(shoald, "--program", program)
        new = upgrade.started()
        self.refused("under way already")
        done = self.shoalctl("reload", "--all", code=NEGATIVE)
        self.assertIn("being upgraded: nothing is reloaded", done.err)
        with Client(self.tcp) as client:
            call = client.tell("hold a")
            wait_until((shoald.folder / "a.held").exists, "the call to run")
            go()
            upgrade.wait_said("drains")
            wait_until(lambda: shoald.stat()["pid"] == new, "the new process to be the node")
            self.refused(f"pid {shoald.pid}, still drains")
            (shoald.folder / "a.go").touch()
            self.assertEqual(said(call.result()), "hold a")
        upgrade.end()
        shoald.adopt(new)
        shoald.upgrade()
        self.check_end()

    def test_while_it_reloads_drains_or_starts(self):
        shoald = self.start(pipeline("p", puppet(start_timeout_ms=600000), slots=8),
                            keys={"drain_timeout_ms": 600000}).wait_ready()
        good = shoald.config.read_text()
        shoald.config.write_text(good.replace('"folder": "."', '"folder": ".", "open": "hang"'))
        shoald.signal(signal.SIGHUP)
        shoald.wait_log("reloading pipeline=p")
        self.refused("a reload is under way")
        with Client(self.tcp) as client:
            call = client.tell("hold a", "p")
            wait_until((shoald.folder / "a.held").exists, "the call to run")
            shoald.drain()
            self.refused("the node is stopping")
            (shoald.folder / "a.go").touch()
            call.result()
        self.assertEqual(shoald.wait_exit(), 0)

    def test_end_meanwhile(self):
        """SIGTERM ends both."""
        shoald = self.start().wait_ready()
        upgrade = Upgrade(shoald, "--program", shoald.program("hang", "exec tail -f /dev/null"))
        new = upgrade.started()
        self.assertEqual(shoald.terminate(), 0)
        self.assertFalse(is_alive(new))
        upgrade.end(None)
        shoald.check_nothing_left()

    def test_end_while_the_old_one_drains(self):
        """The service manager would kill it as soon as the new one has ended."""
        shoald = self.start(pipeline("puppet", puppet(), slots=8)).wait_ready()
        with Client(self.tcp) as client:
            call = client.tell("hold a")
            wait_until((shoald.folder / "a.held").exists, "the call to run")
            upgrade = Upgrade(shoald)
            new = Adopted(upgrade.started())
            wait_until(lambda: shoald.stat()["pid"] == new.pid, "the new process to be the node")
            new.send_signal(signal.SIGTERM)
            shoald.wait_log("draining why=SIGTERM")
            self.assertRaises(AssertionError, wait_until, lambda: not is_alive(new.pid), "", 1)
            (shoald.folder / "a.go").touch()
            self.assertEqual(said(call.result()), "hold a")
        upgrade.end()
        shoald.adopt(new.pid)
        self.assertEqual(shoald.wait_exit(), 0)
        shoald.check_nothing_left()

    def test_what_cannot_move(self):
        models = pipeline("echo", stage("libpupil.so", params={"folder": "."}), slots=8,
                          models={"root": "models", "memory_mib": 64, "watch": "no"})
        (self.folder / "models").mkdir()
        (self.folder / "models" / "m").write_text("a model")
        shoald = self.start(models, folder=self.folder).wait_ready()
        self.shoalctl("model", "load", "ordered", "m")
        self.refused("the 1 models that were loaded by order")
        self.shoalctl("model", "unload", "ordered")
        shoald.upgrade()
        self.check_end()
        self.start(models, folder=self.folder, keys={"mesh": {"store": "memory"}}).wait_ready()
        self.refused("the registry of its mesh belongs to this process")

    def test_a_variable_that_is_not_ours(self):
        for value in ("", "7", "x 3 4 5", "1 2 3 4", "1 99 98 97 96"):
            code, printed = shoal_fixture.run_shoald(node(ECHO), env={"SHOAL_UPGRADE": value})
            self.assertEqual(code, 2, printed)
            self.assertIn("SHOAL_UPGRADE", printed)


if __name__ == "__main__":
    shoal_fixture.main()
