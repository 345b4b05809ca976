# SPDX-License-Identifier: Apache-2.0
"""Starting what is measured: programs of the build, servers, the gRPC client, and their
messages."""

import json
import os
import signal
import struct
import subprocess
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
START_DEADLINE_S = 60  # a node under valgrind starts slowly on a busy machine
RUN_DEADLINE_S = 180
WARMUP_MIN = 20

# Two cores are enough for all: where the server or coordinator, the workers, the client run.
PINNED = {"server": 0, "workers": 1, "client": 1, "local client": 0}

# Freed memory stays with the process: a page fault costs more than copying the page.
KEEP_MEMORY = {"MALLOC_CONF": "dirty_decay_ms:-1,muzzy_decay_ms:-1"}


class Failed(Exception):
    """A program under measurement did not do its work."""


class Missing(Exception):
    """A program under measurement, or a part of it, is not there."""


class Setting:
    """Where the programs are, on which CPUs they run, and a folder for sockets and files."""

    def __init__(self, build, directory, placement):
        self.build = Path(build).resolve()
        self.directory = Path(directory)
        self.pinned = placement == "pinned"

    def program(self, *path):
        found = self.build.joinpath(*path)
        if not found.exists():
            raise Missing(f"{found} is not built")
        return str(found)

    def cpu(self, role, option="--cpu", count=1):
        return [option, ",".join([str(PINNED[role])] * count)] if self.pinned else []

    def write(self, name, content):
        path = self.directory / name
        path.write_bytes(content)
        return str(path)


# ---- messages


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, payload):
    """A length-delimited protobuf field."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


def infer_request(model, name, shape, values):
    """An inference.ModelInferRequest with one FP32 tensor, its contents raw."""
    tensor = field(1, name.encode()) + field(2, b"FP32") + field(3, b"".join(map(varint, shape)))
    return field(1, model.encode()) + field(5, tensor) + field(7, floats(values))


class Messages:
    """The client's messages in turn, and the end of each right answer; all of one length."""

    def __init__(self, messages, tails, warmup=1000):
        self.messages = messages
        self.tails = tails
        self.warmup = warmup

    def options(self, setting, name):
        path = setting.write(f"{name}.messages", b"".join(self.messages))
        tail = setting.write(f"{name}.tails", b"".join(self.tails))
        return ["--message", path, "--expect-tail", tail, "--messages", str(len(self.messages))]


# ---- programs that end by themselves


def run_json(command, environment=None, patience=1):
    """Runs a bench program to its end; returns the JSON lines it printed. `patience`: so many times
    the usual deadline."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_DEADLINE_S * patience,
                              check=False, env={**os.environ, **(environment or {})})
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{command[0]} did not end within {RUN_DEADLINE_S * patience} s") from error
    if done.returncode != 0:
        output = (done.stdout + done.stderr).rstrip()
        raise Failed(f"{' '.join(command)}: exit code {done.returncode}\n{output}")
    return [json.loads(line) for line in done.stdout.splitlines()]


# ---- servers


class Server:
    """A server process from start() to stop(); its end must be clean."""

    def __init__(self, command, log_path, environment=None):
        self.command = command
        self.log_path = log_path
        with open(log_path, "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT,
                                            env={**os.environ, **(environment or {})})

    def stop(self):
        """Returns what was wrong with its end, or None."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout=START_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            code = "none: it had to be killed"
        return None if code == 0 else f"{self.command[0]}: exit code {code}\n{self.log()}"

    def log(self):
        return Path(self.log_path).read_text(errors="replace")

    def pids(self):
        """The process and its children."""
        pids = [self.process.pid]
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            pids += [int(pid) for pid in (task / "children").read_text().split()]
        return pids

    def wait_until(self, ready):
        deadline = time.monotonic() + START_DEADLINE_S
        while not ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Failed(f"{self.command[0]} did not start\n{self.log()}")
            time.sleep(0.02)


class Client:
    """grpc_load before one server."""

    role = "client"

    def __init__(self, setting, name, target, messages, args=()):
        self.setting = setting
        self.warmup = messages.warmup
        self.command = [setting.program("bench", "grpc_load"), "--json", "--target", target]
        self.command += messages.options(setting, name)
        self.command += [word for arg in args for word in ("--arg", arg)]

    def answers(self):
        """True once the server answers. An answer that is wrong will not get better by waiting."""
        done = subprocess.run(self.command + ["--requests", "1", "--warmup", "0"],
                              capture_output=True, text=True, timeout=RUN_DEADLINE_S, check=False)
        if done.stdout and json.loads(done.stdout)["wrong"] > 0:
            raise Failed(f"{' '.join(self.command)}: wrong answers")
        return done.returncode == 0

    def warmups(self, seconds):
        """Calls before those that are measured."""
        return max(WARMUP_MIN, int(self.warmup * min(1.0, seconds)))

    def measure(self, seconds, pids, outstanding, rate=None, seed=1):
        """A closed loop with so many outstanding, or an open one with at most so many."""
        command = self.command + ["--seconds", str(seconds), "--warmup", str(self.warmups(seconds)),
                                  "--outstanding", str(outstanding)]
        if rate is not None:
            command += ["--rate", f"{rate:.1f}", "--seed", str(seed), "--channels", "4"]
        command += [word for pid in pids for word in ("--server-pid", str(pid))]
        (line,) = run_json(command + self.setting.cpu(self.role), KEEP_MEMORY)
        return line


class LocalClient(Client):
    """local_load before one node; in closed loops only."""

    role = "local client"

    def __init__(self, setting, socket_path, payload_bytes, message_bytes, warmup):
        self.setting = setting
        self.warmup = warmup
        self.command = [setting.program("bench", "local_load"), "--json", "--socket", socket_path,
                        "--bytes", str(payload_bytes), "--message-bytes", str(message_bytes)]
