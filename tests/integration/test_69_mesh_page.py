# SPDX-License-Identifier: Apache-2.0
"""docs/mesh.md's way from one node to three works as it stands there.

Its files are written and its commands run, all of them, in their order and in one shell; only the
folder, the ports and where the programs are differ. Each command must succeed, and what the last ones
print must be what the page is about: three nodes, a model that one registered and another answers for.
ctest: timeout=180
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

from shoal_fixture import BUILD, SOURCE, WAIT_SECONDS, free_port, main

SECTION = re.compile(r"^## From one node to three.*?^## ", re.MULTILINE | re.DOTALL)
YAML = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"(?:^    .+\n)+", re.MULTILINE)
PORTS = ("8033", "8034", "8035", "8081", "8082", "8083", "2379")
PEER = "2380"  # of etcd to its like; the page does not name it


class TestPage(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="shoal-page."))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.ports = {name: str(free_port()) for name in (*PORTS, PEER)}
        section, = SECTION.findall((SOURCE / "docs" / "mesh.md").read_text())
        whole, mesh = YAML.findall(section)
        self.one = self.here(whole)
        self.three = self.here(re.sub(r"^mesh:\n(?:  .*\n)+", mesh, whole, flags=re.MULTILINE))
        self.commands = [self.here(re.sub(r"^    ", "", block, flags=re.MULTILINE))
                         for block in COMMANDS.findall(YAML.sub("", section))]

    def here(self, text):
        text = text.replace("~/shoal/build/release", str(BUILD)).replace("/tmp/mesh",
                                                                         str(self.folder))
        return re.sub("|".join(PORTS), lambda match: self.ports[match[0]], text)

    def environment(self):
        client = f"http://127.0.0.1:{self.ports['2379']}"
        peer = f"http://127.0.0.1:{self.ports[PEER]}"
        return {**os.environ, "SHOAL_TARGET": f"127.0.0.1:{self.ports['8033']}",
                "ETCD_LISTEN_CLIENT_URLS": client, "ETCD_ADVERTISE_CLIENT_URLS": client,
                "ETCD_LISTEN_PEER_URLS": peer, "ETCD_INITIAL_ADVERTISE_PEER_URLS": peer,
                "ETCD_INITIAL_CLUSTER": f"default={peer}"}

    def run_shell(self, script):
        """All that it starts ends with it."""
        log = self.folder / "log"
        with open(log, "wb") as out:
            shell = subprocess.Popen(["bash", "-euo", "pipefail", "-c", script], stdout=out,
                                     stderr=out, stdin=subprocess.DEVNULL, env=self.environment(),
                                     start_new_session=True)
            try:
                code = shell.wait(2 * WAIT_SECONDS)
            finally:
                try:
                    os.killpg(shell.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                shell.wait()
        logs = "".join(f"--- {path.name}\n{path.read_text()}" for path in self.folder.glob("*.log"))
        self.assertEqual(code, 0, log.read_text() + logs)
        self.assertNotRegex(logs, r"Sanitizer|runtime error:|\bCHECK\b")
        return log.read_text()

    def test_commands(self):
        setup, three, calls, down = self.commands
        # all three have heard of each other, which takes a moment
        met = ("until shoalctl mesh nodes --counters a.counters > nodes && grep -q '^3 nodes' nodes && "
               "grep -q leads nodes; do true; done; cat nodes\n")
        # the other nodes hear of the load from etcd
        calls = re.sub(r"(?m)^(shoalctl mesh status .*)$", r"until \1 | grep -q LOADED; do true; done\n\1", calls)
        said = self.run_shell(f"{setup}cat > a.yaml <<'END'\n{self.one}END\nshoald --check a.yaml\n"
                              f"cat > a.yaml <<'END'\n{self.three}END\n{three}{met}{calls}{down}")
        self.assertIn("configuration is good: 1 pipeline", said)
        self.assertRegex(said, r"(?m)^  [abc] .*leads")
        self.assertRegex(said, r"(?m)^m1: LOADED\n  at [abc]: LOADED since ")
        self.assertEqual(len(re.findall(r"(?m)^drained: ", said)), 3, said)


if __name__ == "__main__":
    main()
