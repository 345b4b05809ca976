# SPDX-License-Identifier: Apache-2.0
"""The README's curl examples do what the README says.

The block between the rest-examples markers is run as it stands, command by command in one shell, against
the example that it names; only the port is another. What each command prints must be what is written
below it.
"""

import re
import subprocess
import unittest

import shoal_fixture
from shoal_fixture import EXAMPLES, SOURCE, WAIT_SECONDS, Shoald
from shoal_rest import ANY_PORT, port_of

BLOCK = re.compile(r"<!-- rest-examples -->\n```console\n(.*?)```\n<!-- /rest-examples -->", re.DOTALL)


def examples():
    """(command, what it prints), in their order."""
    found, = BLOCK.findall((SOURCE / "README.md").read_text())
    for text in re.split(r"^\$ ", found, flags=re.MULTILINE)[1:]:
        lines = text.splitlines()
        count = 1  # of the command's: those that go on are indented
        while count < len(lines) and lines[count].startswith("    "):
            count += 1
        yield "\n".join(lines[:count]), "\n".join(lines[count:])


class TestReadme(unittest.TestCase):
    def test_curl(self):
        config = (EXAMPLES / "scale-shift" / "scale-shift.yaml").read_text()
        with Shoald(f'http: "{ANY_PORT}"\n{config}') as shoald:
            commands = list(examples())
            self.assertGreaterEqual(len(commands), 5)
            script = "".join(f"{command}\nprintf '\\036'\n" for command, _ in commands)
            script = script.replace("localhost:8008", f"127.0.0.1:{port_of(shoald)}")
            done = subprocess.run(["bash", "-eu", "-c", script], capture_output=True, text=True,
                                  timeout=WAIT_SECONDS)
            self.assertEqual(done.returncode, 0, done.stderr)
            for (command, wanted), printed in zip(commands, done.stdout.split("\036")):
                self.assertEqual(printed, wanted, command)


if __name__ == "__main__":
    shoal_fixture.main()
