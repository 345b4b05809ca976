# SPDX-License-Identifier: Apache-2.0
"""Limits of a container: the keeper (shoal-worker --keep) puts its program and all that this starts into
a cgroup v2 where it may make one, and limits each process where it may not.

Proves: a cgroup has the manifest's limits, a program that needs more memory is ended and nothing of it
is left; without controllers, or as a user without rights, the memory of each process is limited, and a
line says so. Checks that a machine does not permit are skipped with the reason. ctest: timeout=120
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

from shoal_fixture import BUILD, WAIT_SECONDS, main, read_proc, wait_until

MIB = 1 << 20
MEMORY, CPU = 128 * MIB, 500
NOBODY = 65534
# Says that it runs, and needs as many MiB as it is told.
PROGRAM = """
print("runs", flush=True)
for line in sys.stdin:
    kept = b"x" * (int(line) << 20)
    print("has", len(kept) >> 20, flush=True)
"""


def own_groups():
    """Where a keeper that this process starts looks for a cgroup: its own one and the one above."""
    mount = re.search(r"^\S+ \S+ \S+ \S+ (\S+) .* - cgroup2 ", pathlib.Path("/proc/self/mountinfo").read_text(), re.M)
    own = re.search(r"^0::/(.*)$", pathlib.Path("/proc/self/cgroup").read_text(), re.M)
    if mount is None or own is None:
        return []
    group = pathlib.Path(mount[1]) / own[1]
    return [group] if not own[1] else [group, group.parent]


def permitted(controller=None):
    """Why no cgroup, or none with that controller, can be made here; None: one can."""
    for group in own_groups():
        probe = group / f"shoal-test-{os.getpid()}"
        try:
            probe.mkdir()
        except OSError as error:
            why = f"{group}: {error.strerror}"
            continue
        try:
            if controller is None:
                return None
            (group / "cgroup.subtree_control").write_text(f"+{controller}")
            return None
        except OSError as error:
            why = f"{group}: +{controller}: {error.strerror}"
        finally:
            probe.rmdir()
    return why if own_groups() else "no cgroup v2 is mounted"


class Rig(unittest.TestCase):
    def keep(self, *argv, memory=MEMORY, cpu=CPU, **more):
        """A keeper with that program."""
        keeper = subprocess.Popen(
            [self.worker, "--keep", str(os.getpid()), str(memory), str(cpu), "/", *argv], cwd="/",
            stdout=subprocess.PIPE, stderr=self.errors, text=True, **more)
        self.addCleanup(keeper.stdout.close)
        self.addCleanup(keeper.wait)
        self.addCleanup(keeper.kill)
        return keeper

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory(dir="/tmp"))
        os.chmod(self.folder, 0o755)
        self.worker = shutil.copy(BUILD / "bin" / "shoal-worker", self.folder)
        self.errors = self.enterContext((pathlib.Path(self.folder) / "errors").open("w+"))
        self.pipe = os.path.join(self.folder, "pipe")

    def said(self):
        return (pathlib.Path(self.folder) / "errors").read_text()

    def needing(self, **more):
        """The keeper of a program that needs as many MiB as a line of the pipe says: a container has no
        standard input."""
        os.mkfifo(self.pipe)
        os.chmod(self.pipe, 0o666)
        code = PROGRAM.replace("sys.stdin", f"open({self.pipe!r})")
        keeper = self.keep("/usr/bin/python3", "python3", "-c", code, **more)
        orders = self.enterContext(open(self.pipe, "r+b", 0))
        self.assertEqual(keeper.stdout.readline(), "runs\n", self.said())
        return keeper, orders

    def program(self, keeper):
        return int(read_proc(keeper.pid, f"task/{keeper.pid}/children").split()[0])

    def group(self, keeper):
        """The folder of the program's cgroup."""
        path = re.search(r"^0::/(.*)$", read_proc(self.program(keeper), "cgroup"), re.M)[1]
        self.assertTrue(path.endswith(f"shoal-{keeper.pid}"), path)
        found, = [group / f"shoal-{keeper.pid}" for group in own_groups()
                  if (group / f"shoal-{keeper.pid}").is_dir()]
        return found


class TestCgroups(Rig):
    @unittest.skipIf(permitted(), permitted())
    def test_everything_is_in_it_and_ends_with_it(self):
        """A child in a session of its own as well; then nothing is left, not even the cgroup."""
        keeper = self.keep("/bin/sh", "sh", "-c", "setsid sleep 600 & echo runs; wait")
        self.assertEqual(keeper.stdout.readline(), "runs\n", self.said())
        group = self.group(keeper)
        wait_until(lambda: len((group / "cgroup.procs").read_text().split()) == 2, "the program and its child")
        inside = [int(pid) for pid in (group / "cgroup.procs").read_text().split()]
        self.assertNotIn(keeper.pid, inside)
        keeper.send_signal(signal.SIGHUP)
        self.assertEqual(keeper.wait(WAIT_SECONDS), -signal.SIGKILL)
        self.assertFalse(group.exists())
        self.assertFalse([pid for pid in inside if read_proc(pid, "cmdline")])

    @unittest.skipIf(permitted("memory"), permitted("memory"))
    def test_memory(self):
        keeper, orders = self.needing()
        group = self.group(keeper)
        self.assertEqual((group / "memory.max").read_text(), f"{MEMORY}\n")
        self.assertEqual((group / "memory.oom.group").read_text(), "1\n")
        orders.write(b"32\n")
        self.assertEqual(keeper.stdout.readline(), "has 32\n")
        orders.write(b"256\n")
        self.assertEqual(keeper.wait(WAIT_SECONDS), -signal.SIGKILL)
        self.assertFalse(group.exists())
        self.assertNotIn("memory=rlimit_of_each_process", self.said())

    @unittest.skipIf(permitted("cpu"), permitted("cpu"))
    def test_cpu(self):
        keeper, _ = self.needing()
        self.assertEqual((self.group(keeper) / "cpu.max").read_text(), "50000 100000\n")
        self.assertNotIn("cpu=not_enforced", self.said())


class TestWithoutCgroups(Rig):
    @unittest.skipIf(not permitted("memory") and os.geteuid() != 0, "this user may limit memory by a cgroup")
    def test_each_process_is_limited(self):
        other = {"user": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        keeper, orders = self.needing(**other)
        limit = re.search(r"Max data size +(\d+) +(\d+) +bytes", read_proc(self.program(keeper), "limits"))
        self.assertEqual([int(limit[1]), int(limit[2])], [MEMORY, MEMORY])
        self.assertRegex(self.said(), "container_limits memory=rlimit_of_each_process cpu=not_enforced cgroup=")
        orders.write(b"32\n")
        self.assertEqual(keeper.stdout.readline(), "has 32\n")
        orders.write(b"256\n")
        self.assertEqual(keeper.wait(WAIT_SECONDS), 1)
        self.assertIn("MemoryError", self.said())

    def test_no_limits_need_no_cgroup(self):
        keeper, orders = self.needing(memory=0, cpu=0)
        orders.write(b"256\n")
        self.assertEqual(keeper.stdout.readline(), "has 256\n")
        self.assertNotIn("container_limits", self.said())


if __name__ == "__main__":
    main()
