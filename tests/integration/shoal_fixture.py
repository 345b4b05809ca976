# SPDX-License-Identifier: Apache-2.0
"""Shared by the integration tests: a real `shoald` in a folder of its own, and waiting with a
deadline.

    with Shoald(node(pipeline("echo", stage("libecho.so")))) as shoald:
        client = Client(shoald.target)

A configuration is a dict (JSON is YAML), a text, or the path of a file. Each daemon listens on a
unix socket in its folder, has its counters there, and is gone when the block is left, or when this
process dies. Leaving the block is itself a test: the daemon must still run, stop within a bound
when told, exit with 0, print no sanitizer report, and leave nothing behind.
"""

import ctypes.util
import dataclasses
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from shoal_ports import free_port  # noqa: F401: tests take it from here

SOURCE = pathlib.Path(os.environ.get("SHOAL_SOURCE_DIR",
                                     pathlib.Path(__file__).resolve().parents[2]))
BUILD = pathlib.Path(os.environ.get("SHOAL_BUILD_DIR", SOURCE / "build" / "dev"))
BIN = BUILD / "bin"
MODELETS = BUILD / "tests" / "modelets"
EXAMPLES = BUILD / "examples"

PAUSE_SECONDS = 0.005, 0.1  # between two looks, at least and at most
WAIT_SECONDS = 60  # of anything that is sure to happen: these machines are small and busy
# A shell ignores it in what it starts in the background, which would be handed on: some tests send
# it.
signal.signal(signal.SIGINT, signal.default_int_handler)
SANITIZER = re.compile(r"(Sanitizer|runtime error:|\bCHECK\b)")


def wait_until(condition, what, seconds=WAIT_SECONDS):
    """Waits for a condition and returns its value; fails, saying what did not happen. Between two
    looks it sleeps for three times as long as a look takes: other tests need the processor."""
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        value = condition()
        if value:
            return value
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(min(max(3 * (now - began), PAUSE_SECONDS[0]), PAUSE_SECONDS[1]))


def sanitized():
    """Whether the build has sanitizers, which keep memory that is freed."""
    return (BUILD / "tests" / "sanitize").read_text().strip() != ""


def has_onnxruntime():
    """Whether there is an ONNX Runtime: the system's, or the one that the variable names."""
    return bool(os.environ.get("SHOAL_ONNXRUNTIME_DIR") or ctypes.util.find_library("onnxruntime"))


def draw_seed():
    """The seed of this run, printed so that it can be run again."""
    seed = int(os.environ.get("SHOAL_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"SHOAL_SEED={seed}", flush=True)
    return seed


class LoaderInOrder(unittest.TestLoader):
    """Runs tests in the order in which they are written: the most basic first."""

    def getTestCaseNames(self, case):
        return sorted(super().getTestCaseNames(case),
                      key=lambda name: getattr(case, name).__code__.co_firstlineno)

    def loadTestsFromModule(self, module, **_):
        cases = [case for case in vars(module).values()
                 if isinstance(case, type) and issubclass(case, unittest.TestCase)]
        return self.suiteClass(map(self.loadTestsFromTestCase, cases))


def main():
    """The last call of each test file."""
    unittest.main(verbosity=2, testLoader=LoaderInOrder())


# ---- configurations ----

# Misbehaviour of the tests' modelets: they take their cues from files and leave
# notes in others, or look for their region in /proc/self/maps while they serve.
SANDBOX_ALLOW = {
    "libletters.so": ["files"],
    "libprobe.so": ["files"],
    "libprobe_in_place.so": ["files"],
    "libpupil.so": ["files"],
    "libpuppet.so": ["files"],
    "libpuppet_once.so": ["files"],
    "librascal.so": ["reading"],
    "libscribble.so": ["reading"],
}


def stage(modelet, name=None, **keys):
    file = pathlib.Path(modelet).name
    name = name or re.sub(r"^lib|\.so$", "", file)
    allow = {"sandbox_allow": SANDBOX_ALLOW[file]} if file in SANDBOX_ALLOW else {}
    return {"name": name, "modelet": str(modelet), **allow, **keys}


def pipeline(name, *stages, **keys):
    return {"name": name, **keys, "stages": list(stages)}


def node(*pipelines, **keys):
    """Small messages: the region that they are in is made anew for each daemon, page by page."""
    return {"message_mib": 1, **keys, "pipelines": list(pipelines)}


# ---- processes, from /proc ----

def read_proc(pid, name):
    try:
        return pathlib.Path(f"/proc/{pid}/{name}").read_text()
    except OSError:  # gone, or not ours to look at
        return ""


def is_alive(pid):
    """True if there is such a process; one that only waits to be reaped is none."""
    stat = read_proc(pid, "stat")
    return stat != "" and stat.rpartition(")")[2].split()[0] not in "ZX"


def works_in(pid, folder):
    """False if it has another working directory: pids are soon used again on a busy machine."""
    try:
        return os.path.samefile(f"/proc/{pid}/cwd", folder)
    except FileNotFoundError:
        return False
    except PermissionError:
        return True


def children(pid):
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        stat = read_proc(entry.name, "stat") if entry.name.isdigit() else ""
        fields = stat.rpartition(")")[2].split()
        if len(fields) > 1 and int(fields[1]) == pid and fields[0] not in "ZX":
            found.append(int(entry.name))
    return sorted(found)


@dataclasses.dataclass(frozen=True)
class Worker:
    pipeline: str
    stage: str
    index: int
    pid: int


WORKER_READY = re.compile(r"worker_ready pipeline=(\S+) stage=(\S+) worker=(\d+) pid=(\d+)")


class Shoald:
    """One daemon. `args`: more options; `folder`: one that is kept, instead of a new one."""

    def __init__(self, config, args=(), folder=None, env=None, listen=None, counters=True):
        self.own_folder = folder is None
        self.folder = pathlib.Path(folder or tempfile.mkdtemp(prefix="shoal-test."))
        self.config = self.write_config(config)
        self.socket = self.folder / "grpc.sock"
        self.target = f"unix:{self.socket}"
        self.counters = self.folder / "counters"
        self.management = f"unix:{self.counters}.manage"  # of a node of a mesh
        self.command = [str(BIN / "shoald"), *args]
        for address in [self.target] if listen is None else listen:
            self.command += ["--listen", str(address)]
        if counters:
            self.command += ["--counters", str(self.counters)]
        self.command.append(str(self.config))
        self.env = {**os.environ, "SHOAL_MODELET_PATH": f"{MODELETS}:{BUILD / 'lib' / 'shoal'}",
                    **(env or {})}
        self.core_limit = 0
        self.pass_fds = ()
        self.process = None
        self.lines = []
        self.code = None

    def write_config(self, config):
        if isinstance(config, pathlib.Path):
            return config
        path = self.folder / "shoald.yaml"
        path.write_text(config if isinstance(config, str) else json.dumps(config, indent=1))
        return path

    # ---- life ----

    def start(self):
        """Starts the daemon, which dies with this process, and reads what it logs."""
        self.lines = []
        self.code = None
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "prlimit", f"--core={self.core_limit}", *self.command],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=self.env, cwd=self.folder, pass_fds=self.pass_fds)
        self.reader = threading.Thread(target=self.read, args=(self.process.stdout,), daemon=True)
        self.reader.start()
        return self

    def read(self, stream):
        for line in stream:
            self.lines.append(line.decode(errors="replace").rstrip("\n"))
        stream.close()

    @property
    def pid(self):
        return self.process.pid

    @property
    def stderr(self):
        return "\n".join(list(self.lines))

    def wait_log(self, pattern, count=1, seconds=WAIT_SECONDS):
        """Waits for the count-th line that matches; returns the match. Fails if shoald ends
        first."""
        expression = re.compile(pattern)

        def look():
            over = self.process.poll() is not None and not self.reader.is_alive()
            found = [match for match in map(expression.search, list(self.lines)) if match]
            if len(found) >= count:
                return found[count - 1]
            if over:
                raise AssertionError(f"shoald ended with {self.process.poll()} and never logged "
                                     f"/{pattern}/\n{self.stderr}")
            return None
        return wait_until(look, lambda: f"log line /{pattern}/ in\n{self.stderr}", seconds)

    def wait_ready(self):
        self.wait_log(r"\bready pipelines=")
        return self

    def wait_exit(self, seconds=WAIT_SECONDS):
        """Waits for the end; returns the exit code (negative: the signal)."""
        wait_until(lambda: self.process.poll() is not None,
                   lambda: f"the end of shoald; its log:\n{self.stderr}", seconds)
        self.reader.join(WAIT_SECONDS)
        self.code = self.process.returncode
        return self.code

    def signal(self, number):
        self.process.send_signal(number)

    def drain(self):
        """Asks it to stop; returns when it takes no more requests."""
        self.signal(signal.SIGTERM)
        self.wait_log("draining why=SIGTERM")

    def terminate(self, seconds=WAIT_SECONDS):
        self.signal(signal.SIGTERM)
        return self.wait_exit(seconds)

    def kill(self):
        self.signal(signal.SIGKILL)
        return self.wait_exit()

    def __enter__(self):
        try:
            return self.start().wait_ready()
        except BaseException:
            self.discard()
            raise

    def __exit__(self, kind, *_):
        try:
            if kind is not None:
                print(f"--- the log of shoald:\n{self.stderr}\n---", flush=True)
            elif self.code is None:
                self.check_still_runs()
                code = self.terminate()
                assert code == 0, f"exit code {code} after SIGTERM; its log:\n{self.stderr}"
                self.check_nothing_left()
            if kind is None:
                self.check_log()
        finally:
            self.discard()

    def discard(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    # ---- what must hold ----

    def check_still_runs(self):
        assert self.process.poll() is None, f"shoald has ended by itself:\n{self.stderr}"

    def check_end(self):
        """Waits for a clean end."""
        code = self.wait_exit()
        assert code == 0, f"exit code {code}; its log:\n{self.stderr}"
        self.check_nothing_left()
        self.check_log()

    def check_log(self):
        found = [line for line in self.lines if SANITIZER.search(line)]
        assert not found, f"a sanitizer or an assertion spoke:\n{self.stderr}"

    def check_nothing_left(self):
        """After a clean stop: no process, no socket, no file of counters."""
        left = [worker for worker in self.all_workers() if is_alive(worker.pid)
                and works_in(worker.pid, self.folder)]
        assert not left, f"still alive after shoald: {left}"
        assert not self.socket.exists(), f"{self.socket} was left behind"
        sockets = (pathlib.Path(f"{self.counters}.{what}") for what in ("control", "local", "manage"))
        for path in (self.counters, *sockets):
            assert not path.exists(), f"{path} was left behind"

    # ---- what can be seen ----

    def stat(self):
        """The counters, as the operator sees them."""
        done = subprocess.run([BIN / "shoalctl", "stat", "--json", "--counters", self.counters],
                              capture_output=True, text=True, timeout=WAIT_SECONDS)
        assert done.returncode == 0, f"shoalctl stat: {done.returncode}: {done.stderr}"
        return json.loads(done.stdout)

    def pipeline_stat(self, name):
        return next(one for one in self.stat()["pipelines"] if one["name"] == name)

    def stage_stat(self, pipeline, name):
        return next(one for one in self.pipeline_stat(pipeline)["stages"] if one["name"] == name)

    def wait_stat(self, name, condition, what):
        """Waits until a pipeline's counters fulfil a condition; gauges are only written every now
        and then. Returns them."""
        last = {}

        def look():
            last.update(self.pipeline_stat(name))
            return condition(last)
        wait_until(look, lambda: f"{what}; the counters: {last}\nthe log:\n{self.stderr}")
        return last

    def wait_published(self):
        """Waits until what is only written every now and then is younger than this call."""
        after = time.monotonic_ns()
        wait_until(lambda: time.monotonic_ns() - self.stat()["heartbeat_age_ns"] > after,
                   lambda: f"a heartbeat; the log:\n{self.stderr}")

    def wait_all_returned(self, *names):
        """Waits until no slot and no block is in use in these pipelines, and finds that each
        request got one answer. Returns the counters of the last one."""
        self.wait_published()
        for name in names:
            stat = self.wait_stat(name, lambda stat: stat["slots_used"] == stat["blocks_used"] == 0,
                                  "all slots and blocks to be given back")
            answered = sum(stat[key] for key in stat
                           if key.startswith("replies_") or key.startswith("rejected_"))
            assert answered == stat["requests"], f"{stat['requests']} requests, {answered} ends: {stat}"
        return stat

    def all_workers(self):
        """Every worker that ever was ready, in the order of their readiness."""
        found = map(WORKER_READY.search, list(self.lines))
        return [Worker(m[1], m[2], int(m[3]), int(m[4])) for m in found if m]

    def workers(self, pipeline=None, stage=None):
        """The latest worker of each place."""
        seats = {}
        for worker in self.all_workers():
            if pipeline in (None, worker.pipeline) and stage in (None, worker.stage):
                seats[worker.pipeline, worker.stage, worker.index] = worker
        return list(seats.values())

    def wait_successor(self, worker):
        """Waits until another process than `worker` is ready in its place; returns it."""
        def look():
            now = [other for other in self.workers(worker.pipeline, worker.stage)
                   if other.index == worker.index and other.pid != worker.pid]
            return now[0] if now else None
        return wait_until(look, lambda: f"a successor of {worker}; the log:\n{self.stderr}")


class Json(Shoald):
    """One whose log is JSON."""

    def wait_ready(self):
        self.wait_log('"event":"ready"')
        return self

    def all_workers(self):  # these are read from the other format
        return []


def run_shoald(config, args=(), folder=None, seconds=WAIT_SECONDS, **options):
    """Runs a daemon that is expected to end by itself; returns (exit code, what it printed)."""
    shoald = Shoald(config, args, folder, **options)
    try:
        code = shoald.start().wait_exit(seconds)
        shoald.check_log()
        return code, shoald.stderr
    finally:
        shoald.discard()
