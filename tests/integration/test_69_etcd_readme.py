# SPDX-License-Identifier: Apache-2.0
"""The program of src/mesh/etcd/README.md is built as it says there, and works.

It is compiled by that page's command, with this build's libraries, and run twice beside a real
etcd: the first makes the key, the second finds it.
"""

import pathlib
import re
import subprocess
import tempfile
import textwrap
import unittest

from shoal_fixture import BUILD, SOURCE, WAIT_SECONDS, main
from shoal_meshes import Etcd

PAGE = SOURCE / "src" / "mesh" / "etcd" / "README.md"
BLOCK = re.compile(r"(?:^(?:    .*)?\n)+", re.MULTILINE)
ENDPOINT = "http://127.0.0.1:2379"
LIBRARY = BUILD / "src" / "mesh" / "etcd" / "libshoal_mesh_etcd.a"


class TestReadme(unittest.TestCase):
    def setUp(self):
        blocks = [textwrap.dedent(block).strip() for block in BLOCK.findall(PAGE.read_text())]
        self.program, = [block for block in blocks if "main(void)" in block]
        commands, = [block for block in blocks if "greeting.c" in block]
        self.build, self.compile = re.sub(r"\\\n *", "", commands).splitlines()
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="shoal-etcd.")))
        self.etcd = self.enterContext(Etcd())

    def sanitizers(self):
        """Further compiler flags, if this build's libraries need them."""
        symbols = subprocess.run(["nm", "-u", LIBRARY], capture_output=True, text=True, check=True).stdout
        return ["-fsanitize=address,undefined"] if "__asan_init" in symbols else []

    def run_program(self):
        done = subprocess.run([self.folder / "greeting"], capture_output=True, text=True,
                              timeout=WAIT_SECONDS)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return done.stdout

    def test_program(self):
        self.assertEqual(self.program.count(ENDPOINT), 1)
        (self.folder / "greeting.c").write_text(self.program.replace(ENDPOINT, self.etcd.url) + "\n")
        self.assertRegex(self.build, r"--preset release && ninja -C build/release shoal_mesh_etcd$")
        words = [word.replace("build/release", str(BUILD)) for word in self.compile.split()]
        words[words.index("greeting.c")] = str(self.folder / "greeting.c")
        subprocess.run([*words, *self.sanitizers(), "-o", self.folder / "greeting"], cwd=SOURCE, check=True,
                       timeout=2 * WAIT_SECONDS)
        self.assertRegex(self.run_program(), r"\Amade at revision \d+\n\Z")
        self.assertRegex(self.run_program(), r"\Awas there at revision \d+\n\Z")


if __name__ == "__main__":
    main()
