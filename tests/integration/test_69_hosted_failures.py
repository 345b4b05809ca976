# SPDX-License-Identifier: Apache-2.0
"""ServingRuntimes that nodes run, when their processes fail.

Proves: a container that crashes is started again after longer and longer pauses, and its last words are
told; one that ignores SIGTERM ends all the same; one that floods its log stops nobody; processes that
it leaves behind end with it, and all with shoald; of several containers the end of any ends the models.
ctest: timeout=240
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile

from shoal_fixture import BUILD, WAIT_SECONDS, main, read_proc, wait_until
from shoal_hosting import Case, container, host, processes, runtime, service


class TestContainers(Case):
    def test_a_crash_loop_pauses_longer_and_says_why(self):
        self.start(restart_ms_max=300)
        self.apply(runtime("loop", self.address, container("crash")))
        self.wait_state("loop", "BackOff",
                        message='container "server" ended with exit code 3 after .* s: I cannot go on: no licence')
        self.at.wait_log(r"container_ended .* restart_in_ms=100")
        self.at.wait_log(r"container_ended .* restart_in_ms=200")
        self.at.wait_log(r"container_ended .* restart_in_ms=300", count=2)
        self.at.wait_log(r'container_said runtime=loop container=server .*text="I cannot go on: no licence"')
        self.ctl("delete", "servingruntime", "loop")
        wait_until(lambda: "runs:loop" not in self.ctl("mesh", "nodes", "--json").out, "the claim to end")

    def test_one_that_ignores_its_end_and_leaves_processes_behind(self):
        self.start(stop_timeout_ms=200)
        self.apply(runtime("stubborn", self.address, container("fork", "stubborn", env=[self.mark])))
        wait_until(lambda: len(processes(self.marker)) == 4, lambda: f"keeper and 3, not {processes(self.marker)}")
        self.ctl("delete", "servingruntime", "stubborn")
        self.at.wait_log(r'container_killed runtime=stubborn container=server why="it did not end')
        self.wait_gone()

    def test_all_end_with_a_main_process_that_is_killed(self):
        self.start()
        self.apply(runtime("forks", self.address, container("fork", env=[self.mark])))
        wait_until(lambda: len(processes(self.marker)) == 4, lambda: f"keeper and 3, not {processes(self.marker)}")
        before = set(processes(self.marker))
        keeper, = [pid for pid in before if "--keep" in read_proc(pid, "cmdline")]
        os.kill(keeper, signal.SIGKILL)  # of all of them the worst
        wait_until(lambda: not before & set(processes(self.marker)), lambda: f"{before} to end")
        self.wait_state("forks", "Starting", restarts="^1$")

    def test_descendants_end_without_a_cgroup(self):
        """They come to the keeper one generation after the other. Nobody may make cgroups."""
        folder = self.enterContext(tempfile.TemporaryDirectory(dir="/tmp"))
        os.chmod(folder, 0o755)
        worker = shutil.copy(BUILD / "bin" / "shoal-worker", folder)
        nested = "sh -c 'sleep 600 & wait; exit 0' & wait; exit 0"
        keeper = subprocess.Popen(
            [worker, "--keep", str(os.getpid()), "0", "0", "/", "/bin/sh", "sh", "-c", nested],
            env={**os.environ, "MARKER": self.marker}, cwd="/", stderr=subprocess.DEVNULL,
            **({"user": 65534, "extra_groups": []} if os.geteuid() == 0 else {}))
        self.addCleanup(lambda: [os.kill(pid, signal.SIGKILL) for pid in processes(self.marker)])
        self.addCleanup(keeper.wait)
        self.addCleanup(keeper.kill)
        wait_until(lambda: len(processes(self.marker)) == 4, lambda: f"keeper and 3, not {processes(self.marker)}")
        keeper.send_signal(signal.SIGHUP)
        self.assertEqual(keeper.wait(WAIT_SECONDS), -signal.SIGKILL)
        self.assertEqual(processes(self.marker), [])

    def test_one_that_says_failing_is_asked_again(self):
        self.start()
        self.apply(runtime("late", self.address, container("failing", f"serve={self.address}")))
        self.wait_state("late", "Ready", restarts="^0$")
        self.at.wait_log("external_wrong .*it says FAILING")

    def test_a_flood_stops_nobody(self):
        self.start()
        self.apply(service("life"), runtime("flood", self.address,
                                            container("flood", f"serve={self.address}", env=[self.mark])))
        self.wait_ready("life")
        self.call("life")
        wait_until(lambda: self.at.stat()["mesh_runtime_lines_dropped"] > 1000, "lines to be dropped")
        self.at.wait_log("container_log_dropped runtime=flood container=server .*lines=")
        self.call("life")

    def test_several_containers(self):
        """They start in the manifest's order. One of them serves; the end of the other ends the models, too."""
        self.start()
        self.apply(service("life"), runtime(
            "pair", self.address, container(name="model-server", env=[self.mark]),
            container(f"serve={self.address}", name="adapter", env=[self.mark])))
        self.wait_ready("life")
        self.assertEqual(re.findall(r"container_started runtime=pair container=(\S+)", self.at.stderr),
                         ["model-server", "adapter"])
        first = self.call("life")["pid"]
        other, = [pid for pid in processes(self.marker) if pid != first and
                  "--keep" not in read_proc(pid, "cmdline")]
        os.kill(other, signal.SIGKILL)
        self.wait_state("pair", "Ready", restarts="^1$", message='"model-server" was ended by signal 9')
        self.assertEqual(wait_until(lambda: self.call_or_none("life"), "an answer")["pid"], first)
        wait_until(lambda: self.at.stat()["mesh_loads"] == 2, "the second load to be counted")

    def test_nothing_outlives_a_killed_shoald(self):
        at = host()
        self.addCleanup(at.discard)
        at.start().wait_ready()
        self.at = at
        self.apply(runtime("forks", self.address, container("fork", "stubborn", env=[self.mark])))
        wait_until(lambda: len(processes(self.marker)) == 4, lambda: f"keeper and 3, not {processes(self.marker)}")
        at.kill()
        self.wait_gone()


if __name__ == "__main__":
    main()
