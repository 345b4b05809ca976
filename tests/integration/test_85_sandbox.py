# SPDX-License-Identifier: Apache-2.0
"""A modelet can do no more than its stage allows, and the operator sees what the machine lacks.

The modelet `captive` (tests/modelets/modelet_captive.c) tries to get out, in its constructor, in
`open`, in `run` and in a thread of its constructor's, and answers with what it met. By default
everything is refused, and what a modelet needs goes on to work; each name of `sandbox_allow`
permits what it says and nothing else. A start, a load or a request that fails by a refusal says so.
A machine without Landlock, or without filters of system
calls, is simulated by a filter of our own around shoald (lacking.c): it is logged once per worker,
shown by `shoalctl status`, and `sandbox: required` does not start. ctest: timeout=240
"""

import ctypes
import json
import os
import pathlib
import re
import resource
import shutil
import socket
import tempfile
import textwrap
import unittest

import shoal_fixture
from shoal_client import Client, bytes_element, failure
from shoal_ctl import shoalctl
from shoal_fixture import BUILD, EXAMPLES, MODELETS, Shoald, node, pipeline, run_shoald, stage

STARTING = ("constructor", "open")
SERVING = ("run", "thread")
LACKING = BUILD / "tests" / "integration" / "lacking"
LANDLOCK = ("landlock_files", "landlock_tcp", "landlock_sockets", "landlock_signals")
CALLS = ("calls_starting", "calls_serving")
ALWAYS = ("no_new_privs", "limits", "capabilities")
ENOSYS, EPERM = 38, 1


def landlock_abi():
    create_ruleset, version = 444, 1
    return max(0, ctypes.CDLL(None).syscall(create_ruleset, None, 0, version))


def landlock_parts():
    """The parts that this kernel grants."""
    least = {"landlock_files": 1, "landlock_tcp": 4, "landlock_sockets": 6, "landlock_signals": 6}
    return [part for part in LANDLOCK if landlock_abi() >= least[part]]


# The default result of each attempt: while the modelet starts, and while it serves.
DENIED = {
    "tcp_socket": ("EPERM", "EPERM"), "unix_socket": ("EPERM", "EPERM"),
    "socketpair": ("EPERM", "EPERM"),
    "fork": ("EPERM", "EPERM"), "vfork": ("EPERM", "EPERM"), "spawn": ("EPERM", "EPERM"),
    "clone_process": ("EPERM", "EPERM"), "clone3": ("ENOSYS", "ENOSYS"),
    "signal_parent": ("EPERM", "EPERM"), "pidfd_parent": ("EPERM", "EPERM"),
    "setown": ("EPERM", "EPERM"), "read_parent": ("EPERM", "EPERM"),
    "parent_memory": ("EACCES", "EPERM"), "move_parent": ("EPERM", "EPERM"),
    "read_passwd": ("EACCES", "EPERM"), "read_link": ("EACCES", "EPERM"),
    "write_own": ("EPERM", "EPERM"), "truncate_own": ("EPERM", "EPERM"),
    "chmod_own": ("EPERM", "EPERM"),
    "cut_region": ("EBADF", "EBADF"), "cut_counters": ("EBADF", "EBADF"),
    "raise_limits": ("EPERM", "EPERM"), "outlive": ("EPERM", "EPERM"),
    "dumpable": ("EPERM", "EPERM"), "type": ("EPERM", "EPERM"),
    "map_code": ("ok", "EPERM"), "make_code": ("ok", "EPERM"), "memfd": ("ok", "EPERM"),
    "affinity": ("ok", "EPERM"), "read_own": ("ok", "EPERM"),
    "unheard": ("ENOSYS", "ENOSYS"), "raise": ("ok", "ok"), "thread": ("ok", "ok"),
}
BY_LANDLOCK = ("read_passwd", "read_link", "parent_memory")

# The attempts that each name permits while the modelet serves; the others in DENIED stay denied.
ALLOWED = {
    "reading": {"read_own"},
    "files": {"read_own", "read_passwd", "read_link", "write_own", "truncate_own", "chmod_own"},
    "network": {"tcp_socket", "unix_socket", "socketpair"},
    "processes": {"fork", "vfork", "spawn", "clone_process", "signal_parent", "pidfd_parent",
                  "move_parent", "affinity", "read_own", "map_code", "make_code", "memfd"},
    "code": {"map_code", "make_code", "memfd"},
}


class Cell:
    """A folder with the captive in a folder of its own, a node's folder, and a secret outside
    both."""

    def __enter__(self):
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="shoal-test."))
        self.node = self.base / "node"
        self.plug = self.base / "plug"
        self.node.mkdir()
        self.plug.mkdir()
        self.secret = self.base / "secret.txt"
        self.secret.write_text("nobody's business\n")
        shutil.copy(MODELETS / "libcaptive.so", self.plug)
        (self.plug / "victim").write_text("something\n")
        (self.plug / "out").symlink_to("../secret.txt")
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.base, ignore_errors=True)

    def stage(self, *allow, **keys):
        return stage(self.plug / "libcaptive.so", **({"sandbox_allow": list(allow)} if allow else {}),
                     **keys)

    def shoald(self, config, launcher=()):
        shoald = Shoald(config, folder=self.node)
        shoald.command[:0] = [str(word) for word in launcher]
        return shoald


class Captive:
    def __init__(self, client, model):
        self.client = client
        self.model = model

    def met(self, text):
        answer = self.client.infer_raw(self.model, ("try", "BYTES", [1], bytes_element(text)))
        return answer.raw_output_contents[0][4:].decode()


def worker_rows(shoald):
    done = shoalctl("status", "--counters", shoald.counters, "--wait-ready", 30, "--json")
    return {row["pipeline"]: row["sandbox"] for row in done.json["workers"]}, done


class TestCaptive(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cell = cls.enterClassContext(Cell())
        names = [*ALLOWED, "all"]
        config = node(pipeline("captive", cls.cell.stage(workers=2), slots=8),
                      *(pipeline(name, cls.cell.stage(name), slots=8) for name in names))
        # with something to read at its standard input, and limits that a worker is to lower
        cls.shoald = cls.enterClassContext(cls.cell.shoald(config, [
            "/usr/bin/prlimit", "--msgqueue=819200", "--nofile=4096:8192",
            "/bin/sh", "-c", 'exec "$0" "$@" </dev/zero']))
        cls.client = cls.enterClassContext(Client(cls.shoald.target))

    def met(self, text, model="captive"):
        return Captive(self.client, model).met(text)

    def check(self, attempt, moment, wanted, model="captive"):
        if attempt in BY_LANDLOCK and landlock_abi() == 0 and moment in STARTING:
            return
        with self.subTest(attempt=attempt, moment=moment, model=model):
            self.assertEqual(self.met(f"{moment} {attempt}", model), wanted)

    def test_everything_is_denied_by_default(self):
        for attempt, (starting, serving) in DENIED.items():
            for moment in STARTING:
                self.check(attempt, moment, starting)
            for moment in SERVING:
                self.check(attempt, moment, serving)

    def test_attempts_with_arguments_are_denied(self):
        other = next(one.pid for one in self.shoald.workers("network"))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"\0shoal-test-{os.getpid()}")
            listener.listen()
            name = listener.getsockname()[1:].decode()
            for attempt in (f"abstract_socket {name}", f"signal {other}", f"signal {self.shoald.pid}",
                            f"read {self.cell.secret}", f"read {self.shoald.config}", "execve x",
                            "ptrace_parent x", "punch_region x", "punch_region_long x"):
                self.check(attempt, "run", "EPERM")
            self.check(f"abstract_socket {name}", "run", "ok", "network")
        self.check("thread_exit x", "run", "ok")
        self.check(f"signal {other}", "run", "ok", "processes")
        self.check(f"read {self.cell.secret}", "run", "ok", "files")
        self.check(f"read {self.shoald.config}", "run", "ok", "reading")
        if landlock_abi() > 0:
            self.check(f"read {self.cell.secret}", "run", "EACCES", "reading")

    def test_calls_that_nobody_needs_are_denied(self):
        source = (shoal_fixture.SOURCE / "tests" / "modelets" / "modelet_captive.c").read_text()
        calls = re.findall(r"\bCALL\((\w+)\),", source)
        self.assertGreater(len(calls), 90)
        for name in calls:
            for moment in (*STARTING, *SERVING):
                self.check(f"call_{name}", moment, "EPERM")

    def test_each_name_permits_what_it_says_and_nothing_else(self):
        for name, permitted in ALLOWED.items():
            for attempt, (_, wanted) in DENIED.items():
                if attempt in permitted:
                    wanted = "ok"
                elif attempt in BY_LANDLOCK and "read_own" in permitted:
                    if landlock_abi() == 0:
                        continue
                    wanted = "EACCES"  # opened it may be, were it in the right place
                if attempt == "parent_memory" and name == "files":
                    if landlock_abi() == 0:
                        continue  # what else the kernel asks for is its own affair
                    wanted = "EACCES"
                if attempt == "move_parent" and os.getuid() == 0:
                    wanted = "EPERM"  # of a process with more capabilities
                self.check(attempt, "run", wanted, name)

    def test_all_is_no_sandbox(self):
        for attempt in ("fork", "clone3", "tcp_socket", "read_passwd", "write_own", "map_code",
                        "outlive", "dumpable", "affinity", "signal_parent"):
            for moment in (*STARTING, *SERVING):
                self.check(attempt, moment, "ok", "all")

    def test_nothing_was_left_behind(self):
        self.assertEqual(sorted(path.name for path in self.cell.plug.iterdir()),
                         ["libcaptive.so", "out", "victim"])
        self.assertEqual(shoal_fixture.children(self.shoald.pid),
                         sorted(one.pid for one in self.shoald.workers()))

    def test_status_shows_it(self):
        rows, _ = worker_rows(self.shoald)
        lacks = [part for part in LANDLOCK if part not in landlock_parts()]
        self.assertEqual(rows["captive"], {
            "allows": [], "lacks": lacks,
            "in_force": [part for part in ("no_new_privs", "limits", *landlock_parts(),
                                           "capabilities", *CALLS)]})
        self.assertEqual(rows["all"], {"allows": ["all"], "in_force": [], "lacks": []})
        self.assertEqual(rows["files"]["allows"], ["files"])
        self.assertNotIn("landlock_files", rows["files"]["in_force"] + rows["files"]["lacks"])
        text = shoalctl("status", "--counters", self.shoald.counters).out
        self.assertRegex(text, r"(?m)^  all +.* off$")
        self.assertRegex(text, r"(?m)^  processes +.* allows processes")
        if not lacks:
            self.assertRegex(text, r"(?m)^  captive +.* whole$")
            self.assertNotIn("worker_sandbox", self.shoald.stderr)

    def test_counters_show_it(self):
        for worker in self.shoald.stage_stat("captive", "captive")["workers"]:
            self.assertEqual(worker["sandbox_allow"], 0)
            self.assertEqual(bin(worker["sandbox"]).count("1"),
                             len(ALWAYS) + len(CALLS) + len(landlock_parts()))

    def test_the_process_as_the_kernel_sees_it(self):
        worker = self.shoald.workers("captive")[0]
        status = dict(line.split(":\t", 1) for line in
                      shoal_fixture.read_proc(worker.pid, "status").splitlines() if ":\t" in line)
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))
        self.assertEqual(int(status["CapEff"], 16) | int(status["CapPrm"], 16), 0)
        limits = shoal_fixture.read_proc(worker.pid, "limits")
        self.assertRegex(limits, r"Max core file size +0 +0 ")
        self.assertRegex(limits, r"Max msgqueue size +0 +0 ")
        self.assertRegex(limits, r"Max open files +1024 +1024 ")
        fds = {int(fd): os.readlink(f"/proc/{worker.pid}/fd/{fd}")
               for fd in os.listdir(f"/proc/{worker.pid}/fd")}
        self.assertEqual(sorted(fds), [0, 1, 2, 5], fds)
        self.assertEqual(fds[0], "/dev/null")


class TestExamples(unittest.TestCase):
    """XGBoost, with the threads that it makes, goes on to work; so does what is simpler."""

    INPUTS = {"digits": ("image", "FP32", [3, 64], bytes(3 * 64 * 4)),
              "echo": ("any", "INT32", [2], bytes(8)),
              "mlp": ("bits", "FP32", [3, 2], bytes(3 * 2 * 4)),
              "scale-shift": ("x", "FP64", [4], bytes(32)),
              "xgboost": ("features", "FP32", [3, 64], bytes(3 * 64 * 4))}

    def test_they_work_in_the_whole_sandbox(self):
        for model, tensor in self.INPUTS.items():
            with self.subTest(model=model), \
                    Shoald(EXAMPLES / model / f"{model}.yaml", ["--no-pin"]) as shoald, \
                    Client(shoald.target) as client:
                self.assertEqual(len(client.infer_raw(model, tensor).raw_output_contents[0]) > 0,
                                 True)
                done = shoalctl("status", "--counters", shoald.counters, "--json")
                for row in done.json["workers"]:
                    self.assertEqual(row["sandbox"]["allows"], [])
                    self.assertLessEqual({*ALWAYS, *CALLS, *landlock_parts()},
                                         {*row["sandbox"]["in_force"]})


    @unittest.skipIf(landlock_abi() == 0, "this kernel has no Landlock")
    def test_refusals_name_the_sandbox(self):
        with Cell() as cell:
            config = node(pipeline("digits", stage("libxgboost_modelet.so", "classify",
                                                   params={"model": str(cell.secret)}), slots=8))
            code, text = run_shoald(config, folder=cell.node)
        self.assertNotEqual(code, 0)
        self.assertRegex(text, r'stage "classify": its sandbox \(Landlock\) refuses open outside its '
                               r"folders, and `sandbox_allow: \[files\]` allows it, .*: "
                               r"libxgboost_modelet\.so: open failed ")


    @unittest.skipIf(landlock_abi() == 0, "this kernel has no Landlock")
    def test_refusals_of_a_load_name_the_sandbox(self):
        """In the log, and in the error of the model."""
        config = node(pipeline("crasher", stage("libcrasher.so"), slots=8,
                               models={"root": "models", "memory_mib": 64}))
        shoald = Shoald(config)
        wanted = {"socket": "its sandbox (seccomp) refuses system calls that `sandbox_allow` allows: "
                            "socket (network), ",
                  "open": "its sandbox (Landlock) refuses open outside its folders, and "
                          "`sandbox_allow: [files]` allows it, "}
        for word in wanted:
            folder = shoald.folder / "models" / word
            folder.mkdir(parents=True)
            (folder / "key.json").write_text(json.dumps({"do": word}))
        with shoald, Client(shoald.target) as client:
            for word, text in wanted.items():
                code, said = failure(client.start_raw(word, ("do", "BYTES", [1], bytes_element("x"))))
                self.assertIn(text, said, code)
                self.assertIn(f": no {word}: ", said)
                shoald.wait_log(rf"model_failed .*{re.escape(text)}")

    NOTE = " (its sandbox refuses some calls: see `sandbox_allow`)"
    CALLS = "its sandbox (seccomp) refuses system calls that `sandbox_allow` allows: "
    FILES = "its sandbox (Landlock) refuses open outside its folders, and `sandbox_allow: [files]` "

    def check_refused_in_run(self, shoald, future, told, *logged):
        """The caller is told the key; the log has, beside the same text, the calls and their names."""
        code, text = failure(future)
        self.assertEqual((code.name, text), ("UNKNOWN", told + self.NOTE))
        for part in logged:
            shoald.wait_log(rf'sandbox_suspected modelet=\S+ error="{re.escape(told)}.*{re.escape(part)}')

    @unittest.skipIf(landlock_abi() == 0, "this kernel has no Landlock")
    def test_refusals_of_a_run_name_the_sandbox(self):
        names = [], ["reading"], ["network"], ["all"]
        config = node(*(pipeline("-".join(["crasher", *allow]),
                                 stage("libcrasher.so", sandbox_allow=allow), slots=8) for allow in names))
        with Shoald(config) as shoald, Client(shoald.target) as client:
            def start(model, word):
                return client.start_raw(model, ("do", "BYTES", [1], bytes_element(word)))
            self.check_refused_in_run(shoald, start("crasher", "socket"),
                                      "no socket: Operation not permitted",
                                      self.CALLS + "open to read (reading), socket (network), ")
            self.check_refused_in_run(shoald, start("crasher-reading", "socket"),
                                      "no socket: Operation not permitted", self.CALLS + "socket (network), ")
            self.check_refused_in_run(shoald, start("crasher-reading", "open"),
                                      "no open: Permission denied", self.FILES)
            for model, word in ("crasher-network", "socket"), ("crasher-all", "open"):
                self.assertEqual(start(model, word).result().outputs[0].name, "done")
            lines = sum("sandbox_suspected" in line for line in shoald.lines)
            self.assertEqual(lines, 3, "of what failed, and not of what was done")

    @unittest.skipUnless((BUILD / "lib/shoal/libpython_modelet.so").exists(), "not built")
    @unittest.skipIf(landlock_abi() == 0, "this kernel has no Landlock")
    def test_refusals_of_python_name_the_sandbox(self):
        code = """
            import shoal, socket
            def run(do: shoal.BYTES[1]) -> {"y": shoal.BYTES[1]}:
                if do[0] == b"socket":
                    socket.create_connection(("127.0.0.1", 1))
                if do[0] == b"open":
                    open("/etc/passwd")
                raise PermissionError(1, "Operation not permitted", "\u00e4" * 100)
            """
        shoald = Shoald(node(pipeline("code", stage("./code.py", name="code"), slots=8)))
        (shoald.folder / "code.py").write_text(textwrap.dedent(code))
        with shoald, Client(shoald.target) as client:
            def start(word):
                return client.start_raw("code", ("do", "BYTES", [1], bytes_element(word)))
            self.check_refused_in_run(shoald, start("socket"),
                                      "PermissionError: [Errno 1] Operation not permitted",
                                      self.CALLS + "socket (network), ")
            self.check_refused_in_run(shoald, start("open"),
                                      "PermissionError: [Errno 13] Permission denied: '/etc/passwd'",
                                      self.FILES)
            _, text = failure(start("long"))
            self.assertRegex(text, r"^PermissionError: \[Errno 1\] Operation not permitted: '\u00e4{20,}"
                                   + re.escape(self.NOTE) + "$")

    def test_refusals_of_a_start_name_the_calls(self):
        """Of a stage's own model; libraries may have tried other calls before, and went on without."""
        for word, call in (("socket", "socket (network)"), ("fork", "clone (processes)"),
                           ("chroot", "chroot (all)")):
            model = {"id": "m", "path": str(EXAMPLES), "key": json.dumps({"do": word})}
            code, text = run_shoald(node(pipeline(word, stage("libcrasher.so", model=model), slots=8)))
            self.assertNotEqual(code, 0)
            self.assertRegex(text, r'start_failed .*its sandbox \(seccomp\) refused system calls that '
                                   rf"`sandbox_allow` allows: ([^:]*, )?{re.escape(call)}(, if any)?: .*no {word}: ")

    def test_a_start_is_not_repeated_if_the_sandbox_is_not_the_reason(self):
        config = node(pipeline("p", stage("libpuppet.so", params={"folder": ".", "open": "fail"}), slots=8))
        code, text = run_shoald(config)
        self.assertNotEqual(code, 0)
        self.assertEqual(text.count("worker_died"), 1, text)


class TestCore(unittest.TestCase):
    """`core` allows core files, and nothing else does."""

    HARD_LIMIT = resource.getrlimit(resource.RLIMIT_CORE)[1]

    @unittest.skipIf(HARD_LIMIT == 0, "core files are forbidden here")
    @unittest.skipIf(shoal_fixture.sanitized(), "a sanitizer forbids core files")
    def test_core(self):
        pattern = pathlib.Path("/proc/sys/kernel/core_pattern").read_text().strip()
        keys = {"attempts_max": 1, "quarantine_deaths": 0}
        shoald = Shoald(node(pipeline("none", stage("libcrasher.so", **keys), slots=8),
                             pipeline("core", stage("libcrasher.so", sandbox_allow=["core"], **keys),
                                      slots=8)))
        shoald.core_limit = "0:"  # which the worker raises
        with shoald, Client(shoald.target) as client:
            worker, = shoald.workers("core")
            limit = shoal_fixture.read_proc(worker.pid, "limits")
            self.assertRegex(limit, r"Max core file size +(\w+) +\1 ")
            self.assertNotRegex(limit, r"Max core file size +0 ")
            for model in ("none", "core"):
                failure(client.start_raw(model, ("do", "BYTES", [1], bytes_element("abort"))))
            ends = {model: shoald.wait_log(rf'worker_died pipeline={model} .*why="([^"]*)"')[1]
                    for model in ("none", "core")}
            self.assertEqual(ends["none"], "killed by signal 6 (Aborted)")
            if pattern[0] not in "|/" and landlock_abi() > 0:
                self.assertEqual(ends["core"], "killed by signal 6 (Aborted), core dumped")
                files = list(shoald.folder.glob(f"{pattern.partition('%')[0]}*"))
                self.assertTrue(any(file.read_bytes()[:4] == b"\x7fELF" for file in files
                                    if file.is_file()), files)


class TestLacking(unittest.TestCase):
    """As on a kernel, or in a container, that does not grant a part."""

    def check_lacking(self, calls, number, lacks, attempts):
        with Cell() as cell:
            config = node(pipeline("captive", cell.stage(workers=2), slots=8))
            with cell.shoald(config, [LACKING, calls, number]) as shoald, \
                    Client(shoald.target) as client:
                for attempt, wanted in attempts.items():
                    with self.subTest(attempt=attempt):
                        self.assertEqual(Captive(client, "captive").met(attempt), wanted)
                rows, _ = worker_rows(shoald)
                self.assertEqual(sorted(rows["captive"]["lacks"]), sorted(lacks))
                text = shoalctl("status", "--counters", shoald.counters).out
                self.assertIn(f"lacks {','.join(rows['captive']['lacks'])}", text)
                lines = [line for line in shoald.lines if "worker_sandbox" in line]
                self.assertEqual(len(lines), 2, lines)  # one per worker
                for part in lacks:
                    self.assertRegex(lines[0], rf"pipeline=captive stage=captive .*{part}\(E\w+\)")
            self.check_required(cell, [LACKING, calls, number], lacks[0])

    def check_required(self, cell, launcher, part):
        config = node(pipeline("captive", cell.stage(), slots=8), sandbox="required")
        shoald = cell.shoald(config, launcher)
        try:
            code = shoald.start().wait_exit()
        finally:
            shoald.discard()
        self.assertNotEqual(code, 0)
        self.assertRegex(shoald.stderr, r'stage \\?"captive\\?": sandbox: `required`, but this '
                                        rf"machine does not grant {part}.*best_effort")

    def test_no_landlock(self):
        self.check_lacking("landlock_create_ruleset", ENOSYS, LANDLOCK, {
            "constructor read_passwd": "ok", "constructor tcp_socket": "EPERM",
            "constructor write_own": "EPERM", "run read_passwd": "EPERM", "run fork": "EPERM"})

    @unittest.skipIf(landlock_abi() == 0, "this kernel has no Landlock")
    def test_no_filters_of_system_calls(self):
        old = [part for part in LANDLOCK if part not in landlock_parts()]
        self.check_lacking("seccomp", EPERM, [*old, *CALLS] if old else CALLS, {
            "constructor read_passwd": "EACCES", "run read_passwd": "EACCES",
            "run write_own": "EACCES", "run truncate_own": "EACCES" if landlock_abi() >= 3 else "ok",
            "run tcp_socket": "ok", "run raise_limits": "EPERM", "run cut_region": "EBADF",
            "run signal_parent": "EPERM" if landlock_abi() >= 6 else "ok"})

    def test_required_serves_where_all_is_granted(self):
        with Cell() as cell:
            config = node(pipeline("captive", cell.stage(), slots=8), sandbox="required")
            if landlock_abi() == 0:
                self.check_required(cell, [], "landlock_files")
                return
            with cell.shoald(config) as shoald, Client(shoald.target) as client:
                self.assertEqual(Captive(client, "captive").met("run fork"), "EPERM")

    def test_unknown_names_are_refused(self):
        config = node(pipeline("echo", stage("libecho.so", sandbox_allow=["file"]), slots=8))
        code, text = run_shoald(config)
        self.assertNotEqual(code, 0)
        self.assertIn("`sandbox_allow` must list words of reading|files|", text)


if __name__ == "__main__":
    shoal_fixture.main()
