# SPDX-License-Identifier: Apache-2.0
"""A node whose process is replaced by `shoalctl upgrade`, and programs that are no good as its
successor.

A successor is nobody's child once the process before it has ended: it comes to this one, which
reaps it and sees its exit code.
"""

import ctypes
import os
import re
import signal
import subprocess
import threading

from shoal_ctl import Done, environment
from shoal_fixture import BIN, WAIT_SECONDS, Shoald, is_alive, wait_until

PR_SET_CHILD_SUBREAPER = 36
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Adopted:
    """A process as a subprocess.Popen has it."""

    def __init__(self, pid):
        self.pid = pid
        self.returncode = None

    def poll(self):
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # its parent still lives
                return None if is_alive(self.pid) else 0
            if pid == self.pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self):
        wait_until(lambda: self.poll() is not None, f"the end of {self.pid}")

    def send_signal(self, number):
        os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


class Upgrade:
    """A `shoalctl upgrade` that is under way."""

    def __init__(self, shoald, *arguments):
        self.arguments = ("upgrade", "--counters", shoald.counters, *arguments)
        self.process = subprocess.Popen([BIN / "shoalctl", *map(str, self.arguments)],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env=environment())
        self.lines = []
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line.decode())

    def wait_said(self, pattern):
        """The match in what it has printed."""
        return wait_until(lambda: re.search(pattern, "".join(self.lines)),
                          lambda: f"/{pattern}/ in {self.lines}")

    def started(self):
        """The pid of the new process."""
        return int(self.wait_said(r"started pid (\d+): ")[1])

    def end(self, code=0):
        """Waits for it; None: any exit code will do."""
        self.reader.join(WAIT_SECONDS)
        self.process.wait(WAIT_SECONDS)
        error = self.process.stderr.read()
        self.process.stderr.close()
        self.process.stdout.close()
        done = Done(subprocess.CompletedProcess((), self.process.returncode,
                                                "".join(self.lines).encode(), error), self.arguments)
        assert code in (None, done.code), f"exit code {code} was expected\n{done.told}"
        return done


class Upgradable(Shoald):
    """Its `process` is the one that serves; `ended` has the exit codes of those before."""

    ended = ()

    def upgrade(self, *arguments):
        """Replaces its process."""
        done = Upgrade(self, *arguments).end()
        self.adopt(int(re.search(r"pid (\d+) serves", done.out)[1]))
        return done

    def adopt(self, pid):
        before = self.process
        self.process = Adopted(pid)
        wait_until(lambda: before.poll() is not None, "the old process to be reaped")
        self.ended = (*self.ended, before.returncode)

    def kill_alone(self):
        """The process, not its successor, which may have its log open."""
        self.process.kill()
        self.process.wait()

    def program(self, name, body):
        """A shell script in the place of shoald: good when it is asked to --check."""
        path = self.folder / name
        path.write_text(f'#!/bin/sh\ncase "$*" in *--check*) exit 0;; esac\n{body}\n')
        path.chmod(0o755)
        return path

    def held(self, where="shoald"):
        """A program that becomes shoald when it is let go, or one whose worker does, and how to let
        it go."""
        cue = self.folder / "cue"
        if not cue.exists():
            os.mkfifo(cue)
        waits, worker = f'read line <"{cue}"', self.folder / "worker"
        worker.write_text(f'#!/bin/sh\n{waits}\nexec "{BIN / "shoal-worker"}"\n')
        worker.chmod(0o755)
        bodies = {"shoald": f'{waits}; exec "{BIN / "shoald"}" "$@"',
                  "worker": f'exec "{BIN / "shoald"}" --worker "{worker}" "$@"'}
        return self.program("held", bodies[where]), lambda: cue.write_text("go\n")

    def wait_beside(self):
        """Until the new process has its counters."""
        wait_until((self.folder / "counters.new").exists, "the new process's counters")
