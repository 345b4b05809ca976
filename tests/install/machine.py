# SPDX-License-Identifier: Apache-2.0
"""A bare Debian in a folder, booted as a machine of its own: systemd is the first process of its
namespaces. No network but a loopback can be reached, and nothing that it starts outlives it.

Needs root, in mount, process and network namespaces that `./dev package --check` makes.
"""

import atexit
import contextlib
import fcntl
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading

WAIT_SECONDS = 120
LATER_VERSION = "99.0"
BOOT = """
set -e
mount --bind "$0" "$0"
mount -t proc proc "$0/proc"
mount -t sysfs sysfs "$0/sys"
mount -t cgroup2 cgroup2 "$0/sys/fs/cgroup"
mount -t tmpfs tmpfs "$0/run"
mount -t tmpfs tmpfs "$0/tmp"
mount --rbind /dev "$0/dev"
exec chroot "$0" /usr/bin/env -i container=lxc NOTIFY_SOCKET=@shoal-boot \
    PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd
"""


class Machine:
    def __init__(self, root, name):
        self.root = pathlib.Path(root)
        self.name = name
        self.enter = []  # the words before a command that runs in it

    def boot(self):
        """Returns when systemd says that everything has started."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))
        ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        ready.bind("\0shoal-boot")
        ready.settimeout(WAIT_SECONDS)
        process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--cgroup", "--uts", "--ipc", "--fork", "--kill-child",
             "--propagation", "private", "bash", "-c", BOOT, self.root],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        atexit.register(process.kill)
        while b"READY=1" not in ready.recv(65536):
            self.expect(process.poll() is None, "systemd does not start here")
        self.enter = ["nsenter", "-t", child_of(process.pid), "-a", "-r"]

    def expect(self, condition, what):
        """Ends everything with the reason if it is not as it should be."""
        if not condition:
            sys.exit(f"{self.name}: {what}\n{self.log() if self.enter else ''}")

    def say(self, text):
        print(f"{self.name}: {text}", flush=True)

    def command(self, user, text):
        """A shell's command line, as that user in their home."""
        home = "/root" if user == "root" else f"/home/{user}"
        words = [*self.enter, "/usr/bin/env", "-i", "--chdir=/", f"HOME={home}", f"USER={user}", "LC_ALL=C.UTF-8",
                 "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                 "DEBIAN_FRONTEND=noninteractive"]
        if user != "root":
            words += ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
        return [*words, "bash", "-c", f"cd && {text}"]

    def shell(self, text, user="root", code=0):
        """Runs it to its end; what it prints."""
        done = subprocess.run(self.command(user, text), text=True, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=5 * WAIT_SECONDS, check=False)
        self.expect(done.returncode == code, f"`{text}` ended with {done.returncode}, not {code}\n"
                                             f"{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    @contextlib.contextmanager
    def running(self, text, user):
        """Runs it until the block ends, then presses Ctrl-C; gives its Output."""
        with subprocess.Popen(self.command(user, f"exec {text}"), text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            output = Output(self, process.stdout)
            try:
                yield output
                os.kill(int(child_of(process.pid)), signal.SIGINT)
                self.expect(process.wait(WAIT_SECONDS) == 0,
                            f"`{text}` ended with {process.returncode}\n{output.text}")
            finally:
                with contextlib.suppress(IndexError, OSError):  # the reader waits for its end, too
                    os.kill(int(child_of(process.pid)), signal.SIGKILL)
                process.kill()

    def log(self):
        return subprocess.run([*self.enter, "journalctl", "-u", "shoald", "--no-pager", "-n", "60"],
                              capture_output=True, text=True, timeout=WAIT_SECONDS, check=False).stdout

    def service(self, key):
        return self.shell(f"systemctl show -P {key} shoald").strip()

    def add_later_packages(self):
        """Makes /later: the packages as those of a later version, with the same files and scripts."""
        later = self.root / "later"
        later.mkdir()
        for package in (self.root / "packages").glob("*.deb"):
            tree = later / "tree"
            subprocess.run(["dpkg-deb", "-R", package, tree], check=True)
            control = tree / "DEBIAN" / "control"
            text = control.read_text()
            version = re.search(r"(?m)^Version: (.*)$", text)[1]
            control.write_text(text.replace(version, LATER_VERSION))
            subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, later], check=True,
                           stdout=subprocess.DEVNULL)
            shutil.rmtree(tree)


class Output:
    """The output of a program so far."""

    def __init__(self, machine, pipe):
        self.machine = machine
        self.text = ""
        self.grown = threading.Condition()
        threading.Thread(target=self.take, args=(pipe,), daemon=True).start()

    def take(self, pipe):
        for line in pipe:
            with self.grown:
                self.text += line
                self.grown.notify_all()

    def wait_for(self, pattern):
        """Returns the match when it has been printed."""
        with self.grown:
            found = self.grown.wait_for(lambda: re.search(pattern, self.text), WAIT_SECONDS)
            self.machine.expect(found, f"{pattern} was not printed:\n{self.text}")
            return found


def child_of(pid):
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]
