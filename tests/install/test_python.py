# SPDX-License-Identifier: Apache-2.0
"""The Python client as its users install it: pip builds and installs it offline, and it serves.

A virtual environment that sees Debian's packages, so that gRPC and NumPy are there; pip may ask no
index. The installed package, not the sources, calls a node; no file of it is missing.
ctest: timeout=300
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["SHOAL_SOURCE_DIR"])
sys.path.insert(0, str(SOURCE / "tests" / "integration"))
import shoal_fixture  # noqa: E402
from shoal_fixture import WAIT_SECONDS, Shoald, node, pipeline, stage  # noqa: E402

CALL = """
import sys, shoal
assert sys.prefix in shoal.__file__, shoal.__file__
with shoal.Client(sys.argv[1]) as client:
    print(client.infer("echo", [1, 2]).tolist(), shoal.__version__ == client.server().version)
"""


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True,
                          timeout=2 * WAIT_SECONDS, cwd="/", env={"PATH": os.environ["PATH"]})
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def files(folder):
    return sorted(path.name for path in folder.iterdir() if path.is_file())


class TestPackage(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.package = self.folder / "package"  # the build writes beside the sources
        shutil.copytree(SOURCE / "clients" / "python", self.package)
        run(sys.executable, "-m", "venv", "--system-site-packages", self.folder / "venv")
        self.python = self.folder / "venv" / "bin" / "python3"

    def test_install_and_call(self):
        run(self.python, "-m", "pip", "install", "--no-index", "--no-build-isolation", self.package)
        installed, = (self.folder / "venv").glob("lib/python*/site-packages/shoal")
        self.assertEqual(files(installed), files(SOURCE / "clients" / "python" / "shoal"))
        with Shoald(node(pipeline("echo", stage("libecho.so")))) as shoald:
            self.assertEqual(run(self.python, "-c", CALL, shoald.target), "[1, 2] True\n")


if __name__ == "__main__":
    shoal_fixture.main()
