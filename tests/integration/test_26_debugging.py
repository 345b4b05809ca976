# SPDX-License-Identifier: Apache-2.0
"""The recipes of docs/debugging.md lead to the line of source: a program that wraps the worker
(valgrind, AddressSanitizer, strace), gdb on a worker and on its core file, perf.

The scripts and commands are the document's, with other paths, pids and seconds. The modelet reads
behind a block of memory, opens a file that it may not, aborts or computes, as it is asked to. A
recipe is skipped where its tool is not installed, or where the machine does not allow it.
ctest: presets=release
"""

import contextlib
import functools
import pathlib
import re
import resource
import shutil
import subprocess
import tempfile
import textwrap
import unittest

import shoal_fixture
from shoal_client import Client
from shoal_fixture import BIN, SOURCE, WAIT_SECONDS, Shoald, node, pipeline, stage, wait_until

DOCUMENT = (SOURCE / "docs" / "debugging.md").read_text()
PLUGIN = """
#include <fcntl.h>
#include <stdlib.h>
#include <shoal/modelet.h>

static volatile char sink;

__attribute__((noinline)) void
behind(void)
{
    char *block = malloc(8);
    sink = block[8]; /* here */
    free(block);
}

__attribute__((noinline)) void
busy(void)
{
    for (long i = 0; i < 20000000; i++)
        sink++;
}

static int
run(void *instance, void *model, struct shoal_batch *batch)
{
    (void)instance;
    (void)model;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct shoal_item *item = batch->items[i];
        const int32_t *what = item->inputs[0].data;
        const int64_t shape[] = {1};
        if (what[0] == 1)
            behind();
        if (what[0] == 2)
            sink = (char)open("/etc/hostname", O_RDONLY);
        if (what[0] == 3)
            abort();
        if (what[0] == 4)
            busy();
        int32_t *y = batch->host->output(item, "y", SHOAL_INT32, 1, shape);
        if (y == NULL)
            continue;
        *y = what[0];
        item->status = SHOAL_OK;
    }
    return SHOAL_OK;
}

const struct shoal_modelet shoal_modelet = {
    SHOAL_MODELET_HEADER, .abilities = SHOAL_RUNS_BATCHES, .name = "plug", .run = run,
};
"""
BEHIND, OPEN, ABORT, BUSY = 1, 2, 3, 4
HERE = 1 + PLUGIN.split("/* here */")[0].count("\n")


def needs(tool):
    return unittest.skipUnless(shutil.which(tool), f"{tool} is not installed")


def script(name):
    """The script that follows a name in bold."""
    found = re.search(rf"\*\*{name}\*\*[\s\S]*?\n\n((?:    .*\n)+)", DOCUMENT)
    return textwrap.dedent(found[1])


def command(beginning, **words):
    """The command of the document that begins so, with other words."""
    line, = re.findall(rf"(?m)^ +({beginning}.*)$", DOCUMENT)
    for old, new in words.items():
        line, count = re.subn(rf"\b{old}\b", str(new), line)
        assert count == 1, (line, old)
    return line


@unittest.skipIf(shoal_fixture.sanitized(), "these tools are for what is installed")
class TestDebugging(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="shoal-test.")))

    def plugin(self, *flags):
        source = self.folder / "plug.c"
        source.write_text(PLUGIN)
        subprocess.run(["cc", "-w", *(flags or ["-g", "-O1"]), "-shared", "-fPIC",
                        "-fno-omit-frame-pointer", f"-I{SOURCE / 'include'}", source, "-o",
                        self.folder / "libplug.so"], check=True)

    @contextlib.contextmanager
    def serving(self, wrapper=None, core_limit=0, **keys):
        """A node with the plug-in, and with shoal-worker on its path."""
        keys = {"attempts_max": 1, "quarantine_deaths": 0, **keys}
        shoald = Shoald(node(pipeline("plug", stage("./libplug.so", **keys), slots=8)),
                        folder=self.folder, env={"PATH": f"{BIN}:/usr/sbin:/usr/bin:/sbin:/bin"})
        shoald.core_limit = core_limit
        if wrapper is not None:
            path = self.folder / "wrapper"
            path.write_text(wrapper)
            path.chmod(0o755)
            shoald.command[1:1] = ["--worker", str(path)]
        self.addCleanup(shoald.discard)
        shoald.start().wait_log(r"\bready pipelines=", seconds=2 * WAIT_SECONDS)
        with Client(shoald.target) as client:
            yield shoald, functools.partial(self.call, client)

    @staticmethod
    def call(client, what):
        return client.start_raw("plug", ("x", "INT32", [1], what.to_bytes(4, "little")),
                                timeout=2 * WAIT_SECONDS)

    def run_here(self, line, **options):
        return subprocess.run(line, shell=True, cwd=self.folder, text=True, timeout=2 * WAIT_SECONDS,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              check=False, **options)

    # ---- wrappers ----

    @needs("valgrind")
    def test_valgrind(self):
        self.plugin()
        with self.serving(script("valgrind"), sandbox_allow=["all"],
                          start_timeout_ms=120000) as (shoald, call):
            self.assertEqual(call(BEHIND).result().raw_output_contents[0][0], BEHIND)
            shoald.wait_log(r"worker_said .*Invalid read of size 1")
            shoald.wait_log(rf"worker_said .*behind \(plug\.c:{HERE}\)")
            self.assertEqual(shoald.terminate(), 0)

    def test_address_sanitizer(self):
        library = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True,
                                 check=True).stdout.strip()
        if not pathlib.Path(library).is_absolute():
            self.skipTest("the compiler has no libasan")
        flags, = re.findall(r"compile the plug-in with `([^`]*)`", DOCUMENT)
        self.plugin(*flags.split())
        with self.serving(script("AddressSanitizer"), sandbox_allow=["all"],
                          start_timeout_ms=120000) as (shoald, call):
            self.assertEqual(call(BUSY).result().raw_output_contents[0][0], BUSY)
            self.assertEqual(call(BEHIND).code().name, "UNAVAILABLE")
            shoald.wait_log(r"worker_said .*heap-buffer-overflow")
            shoald.wait_log(rf"worker_said .*#0 .* in behind .*plug\.c:{HERE}")
            shoald.wait_log("worker_died")
            self.assertNotIn("worker_crashed", shoald.stderr)
            self.assertEqual(shoald.terminate(), 0)

    @needs("strace")
    def test_strace(self):
        self.plugin()
        trace = self.folder / "trace"
        with self.serving(script("strace").replace("/tmp/trace", str(trace))) as (shoald, call):
            worker, = shoald.workers()
            if shoal_fixture.read_proc(worker.pid, "status").find("TracerPid:\t0\n") >= 0:
                self.skipTest(f"strace may not trace here: {shoald.stderr}")
            self.assertEqual(call(OPEN).result().raw_output_contents[0][0], OPEN)
            wait_until(lambda: re.search(r'open.*"/etc/hostname".* = -1 E(ACCES|PERM)', trace.read_text()),
                       lambda: f"the refusal in {trace.read_text()}")
            self.assertEqual(shoald.terminate(), 0)

    # ---- on a worker that runs ----

    @needs("gdb")
    def test_gdb(self):
        self.plugin()
        with self.serving() as (shoald, call):
            worker, = shoald.workers()
            line = command("gdb -p", PID=worker.pid)
            gdb = self.enterContext(subprocess.Popen(
                f"{line} -batch -ex 'break plug.c:{HERE}' -ex 'shell touch set' -ex continue -ex bt", shell=True,
                cwd=self.folder, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT))
            wait_until(lambda: (self.folder / "set").exists() or gdb.poll() is not None, "the breakpoint")
            answer = call(BEHIND)
            said, _ = gdb.communicate(timeout=WAIT_SECONDS)
            if "ptrace: " in said:
                self.skipTest(f"gdb may not attach here: {said}")
            self.assertRegex(said, rf"#0 .*behind \(\) at .*plug\.c:{HERE}\n#1 .*\brun\b")
            self.assertEqual(answer.result().raw_output_contents[0][0], BEHIND)  # gdb has left
            self.assertEqual(shoald.terminate(), 0)

    @needs("gdb")
    @unittest.skipIf(resource.getrlimit(resource.RLIMIT_CORE)[1] == 0, "core files are forbidden here")
    def test_core(self):
        pattern = pathlib.Path("/proc/sys/kernel/core_pattern").read_text().strip()
        if pattern[0] in "|/":
            self.skipTest(f"core files go elsewhere here: {pattern}")
        self.plugin()
        with self.serving(core_limit="unlimited", sandbox_allow=["core"]) as (shoald, call):
            self.assertEqual(call(ABORT).code().name, "UNAVAILABLE")
            shoald.wait_log("worker_died .*core dumped")
            core, = self.folder.glob(f"{pattern.partition('%')[0]}*")
            line = command("gdb shoal-worker", core=core.name)
            said = self.run_here(f"{line} -batch -ex bt", env=shoald.env).stdout
            self.assertRegex(said, r"(?s)terminated with signal SIGABRT.* run \(.*plug\.c:\d+")
            self.assertEqual(shoald.terminate(), 0)

    @needs("perf")
    def test_perf(self):
        self.plugin()
        with self.serving() as (shoald, call):
            worker, = shoald.workers()
            line = command("perf record", PID=worker.pid, **{"sleep 10": "sleep 1"})
            log = self.enterContext((self.folder / "log").open("w+")) # into a pipe it would write data
            record = self.enterContext(subprocess.Popen(line, shell=True, cwd=self.folder,
                                                        stdin=subprocess.DEVNULL, stdout=log,
                                                        stderr=subprocess.STDOUT))
            while record.poll() is None:
                self.assertEqual(call(BUSY).result().raw_output_contents[0][0], BUSY)
            if record.returncode != 0:
                self.skipTest(f"perf may not record here: {log.seek(0) or log.read()}")
            said = self.run_here(f"{command('perf report')} --stdio --no-children").stdout
            self.assertRegex(said, r"libplug\.so +\[\.\] busy\b")
            self.assertEqual(shoald.terminate(), 0)


if __name__ == "__main__":
    shoal_fixture.main()
