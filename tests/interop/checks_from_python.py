# SPDX-License-Identifier: Apache-2.0
"""The services of mosec, LitServe, mpservice and BentoML in docs/from-python.md, as they stand there:
each answers with the right label. tests/integration/test_26_documents.py runs Shoal's side.
"""

import json
import os
import pathlib
import subprocess
import sys
import unittest

import numpy
import peers

sys.path.insert(0, str(peers.SOURCE / "tests" / "integration"))
from shoal_fixture import wait_until  # noqa: E402
from shoal_ports import free_port  # noqa: E402
from servers import ask, kill_family  # noqa: E402

WEIGHTS = numpy.array([[0, 2, 1], [1, 0, 2], [1, 0, 0], [2, 1, 0]], "f4")
ROW, LABEL = [0, 1, 0, 0], 2


class FromPython(unittest.TestCase):
    def setUp(self):
        self.folder = peers.FOLDER / self.id()
        self.folder.mkdir()
        numpy.save(self.folder / "weights.npy", WEIGHTS)
        self.log = self.folder / "service.log"
        self.port = free_port()
        self.addCleanup(lambda: print(self.log.read_text()[-4000:], flush=True))

    def start(self, server, *command, edit=("", "")):
        """The document's code, with a port of its own; it ends with the check, as all that it starts."""
        code = peers.documented("from-python.md", server)
        self.assertIn(edit[0], code)
        (self.folder / "service.py").write_text(code.replace(*edit) if edit[0] else code)
        with self.log.open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                       cwd=self.folder,
                                       env={**os.environ, "BENTOML_DO_NOT_TRACK": "True",
                                            "BENTOML_HOME": str(self.folder)})
        self.addCleanup(kill_family, process)
        return process

    def verify(self, process, path, body, wanted):
        def answer():
            self.assertIsNone(process.poll(), "the service ended")
            try:
                status, data = ask(self.port, path, body)
            except OSError:
                return None
            return (status, data) if status not in (404, 503) else None  # not ready
        status, data = wait_until(answer, "the service to answer")
        self.assertEqual((status, json.loads(data)), (200, wanted))

    def check_mosec(self):
        process = self.start("mosec", sys.executable, "service.py", "--port", str(self.port))
        self.verify(process, "/inference", {"x": ROW}, {"label": LABEL})

    def check_litserve(self):
        process = self.start("litserve", sys.executable, "service.py",
                             edit=("port=8000", f"port={self.port}"))
        self.verify(process, "/predict", {"x": ROW}, {"label": LABEL})

    def check_mpservice(self):
        """it calls itself, having no server"""
        process = self.start("mpservice", sys.executable, "service.py",
                             edit=("[1, 2, 3, 4]", str(ROW)))
        self.assertEqual(process.wait(peers.SECONDS), 0)
        self.assertEqual(self.log.read_text().splitlines()[-1:], [str(LABEL)])

    def check_bentoml(self):
        program = pathlib.Path(sys.executable).with_name("bentoml")
        process = self.start("bentoml", program, "serve", "service:Linear", "--port", str(self.port))
        self.verify(process, "/label", {"x": [ROW]}, [LABEL])


if __name__ == "__main__":
    peers.main()
