# SPDX-License-Identifier: Apache-2.0
"""The examples in README.md, docs/calling.md, docs/from-python.md, docs/serving.md and shoal/modelet.h do
what they say.

The console blocks between the markers are run as they stand, command by command in one shell; only
the port is another. Each command must print the text below it. The README's modelet is
compiled without a warning and answers.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy

import shoal_fixture
from shoal_ctl import shoalctl
from shoal_fixture import (EXAMPLES, SOURCE, WAIT_SECONDS, Shoald, node, pipeline,
                           stage)
from shoal_meshes import Etcd
from shoal_rest import ANY_PORT, port_of


def marked(document, marker):
    text = (SOURCE / document).read_text()
    found, = re.findall(f"<!-- {marker} -->\n(.*?)<!-- /{marker} -->", text, re.DOTALL)
    return found


def block(text, language):
    found, = re.findall(f"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return found


def commands(console):
    """(command, what it prints), in their order."""
    for text in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        lines = text.splitlines()
        count = 1  # of the command's: those that go on are indented
        while count < len(lines) and lines[count].startswith("    "):
            count += 1
        yield "\n".join(lines[:count]), "\n".join(lines[count:])


WEIGHTS = numpy.array([[0, 2, 1], [1, 0, 2], [1, 0, 0], [2, 1, 0]], "f4")
LABELS = [1, 2, 0]  # of the rows in test_from_python


class TestDocuments(unittest.TestCase):
    maxDiff = None

    def check_console(self, console, port, minimum, folder=None, **environment):
        wanted = list(commands(console))
        self.assertGreaterEqual(len(wanted), minimum)
        script = "".join(f"{command}\nprintf '\\036'\n" for command, _ in wanted)
        script = script.replace("localhost:8008", f"127.0.0.1:{port}")
        done = subprocess.run(["bash", "-eu", "-c", script], capture_output=True, text=True,
                              timeout=2 * WAIT_SECONDS, cwd=folder, env={**os.environ, **environment})
        self.assertEqual(done.returncode, 0, done.stderr)
        for (command, output), printed in zip(wanted, done.stdout.split("\036")):
            self.assertEqual(printed.rstrip("\n"), output.rstrip("\n"), command)

    def check_program(self, program, shoald):
        """It prints what its last comment says."""
        done = subprocess.run(
            [sys.executable, "-c", program.replace("localhost:8033", shoald.target)],
            capture_output=True, text=True, timeout=WAIT_SECONDS,
            env={**os.environ, "PYTHONPATH": str(SOURCE / "clients" / "python")})
        self.assertEqual(done.stdout, program.rsplit("# ", 1)[1], done.stderr)

    def test_python(self):
        with Shoald(EXAMPLES / "scale-shift" / "scale-shift.yaml") as shoald:
            self.check_program(block(marked("docs/calling.md", "python-example"), "python"), shoald)

    def test_rest(self):
        config = (EXAMPLES / "scale-shift" / "scale-shift.yaml").read_text()
        with Shoald(f'http: "{ANY_PORT}"\n{config}') as shoald:
            console = block(marked("docs/calling.md", "rest-examples"), "console")
            self.check_console(console, port_of(shoald), 5)

    def test_serve(self):
        text = marked("README.md", "serve-example")
        with tempfile.TemporaryDirectory(prefix="shoal-readme.") as folder:
            models = pathlib.Path(folder) / "models"
            models.mkdir()
            shutil.copy(EXAMPLES / "digits" / "digits.ubj", models)
            config = block(text, "yaml").replace('"127.0.0.1:8008"', f'"{ANY_PORT}"')
            config = config.replace("root: models", f"root: {models}")
            with Shoald(config) as shoald:
                port = port_of(shoald)
                self.check_console(block(text, "console"), port, 3)
                self.check_program(block(text, "python"), shoald)

    def serving_node(self, config):
        """Of docs/serving.md, with a port of its own; not started."""
        shoald = Shoald(config.replace('"127.0.0.1:8008"', f'"{ANY_PORT}"'))
        (shoald.folder / "models").mkdir()
        shutil.copy(EXAMPLES / "digits" / "digits.ubj", shoald.folder / "models")
        return shoald

    def check_serving(self, text, shoald, minimum):
        console = re.sub(r"\bshoalctl (\w+)", rf"shoalctl \1 --counters {shoald.counters}",
                         block(text, "console"))
        self.check_console(console, port_of(shoald), minimum, folder=shoald.folder,
                           PATH=f"{shoal_fixture.BIN}:{os.environ['PATH']}")

    def test_serving(self):
        text = marked("docs/serving.md", "serving-one")
        config, manifest = re.findall(r"(?ms)^```yaml\n(.*?)^```", text)
        shoald = self.serving_node(config)
        (shoald.folder / "manifests").mkdir()
        (shoald.folder / "manifests" / "digits.yaml").write_text(manifest)
        with shoald:
            shoald.wait_log("manifests_applied")
            self.check_serving(text, shoald, 3)
        text = marked("docs/serving.md", "serving-three")
        etcd = self.enterContext(Etcd())
        config = block(text, "yaml").replace("http://etcd:2379", etcd.url)
        self.assertIn(etcd.url, config)
        config = config.rstrip("\n") + "\n  peers: ['127.0.0.1:0']\n  instance: "
        nodes = [self.enterContext(self.serving_node(f"{config}{name}\n")) for name in "abc"]
        for node_ in nodes:
            node_.wait_log("mesh_session_begun")
        (nodes[1].folder / "digits.yaml").write_text(manifest)
        self.check_serving(text, nodes[1], 6)

    @unittest.skipUnless((shoal_fixture.BUILD / "lib/shoal/libpython_modelet.so").exists(),
                         "this build has no modelets in Python")
    def test_from_python(self):
        """Each service for Shoal gives the labels of the one model. The other servers' code compiles;
        ./dev interop --only from_python runs it."""
        for server in ("mosec", "litserve", "mpservice", "bentoml"):
            with self.subTest(server), tempfile.TemporaryDirectory(prefix="shoal-python.") as name:
                folder = pathlib.Path(name)
                text = marked("docs/from-python.md", server)
                theirs, *ours = re.findall(r"(?ms)^```python\n(.*?)^```", text)
                compile(theirs, server, "exec")
                for code in ours:
                    (folder / re.match(r"# (\w+\.py)\n", code)[1]).write_text(code)
                numpy.save(folder / "weights.npy", WEIGHTS)
                with Shoald(block(text, "yaml"), folder=folder) as shoald:
                    self.check_answer(shoald, "linear", "x=FP32[3,4]:1,0,0,0,0,1,0,0,0,0,1,1", LABELS)

    def compile(self, source):
        """A plug-in beside its source, without a warning but for arguments that it has to take."""
        library = source.with_name(f"lib{source.stem}.so")
        subprocess.run([os.environ.get("CC", "cc"), "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror",
                        "-shared", "-fPIC", "-I", SOURCE / "include", source, "-o", library],
                       check=True, timeout=WAIT_SECONDS)
        return library

    def test_examples_of_the_header(self):
        text = (SOURCE / "include" / "shoal" / "modelet.h").read_text()
        text = re.sub(r"(?m)^ \*(    |$)", "", text[:text.index("#ifndef")])
        found = re.findall(r"(?ms)^ #include.*?^ const struct shoal_modelet .*?\};$", text)
        with tempfile.TemporaryDirectory(prefix="shoal-header.") as name:
            folder = pathlib.Path(name)
            libraries = []
            for stem, source in zip(("echo", "word"), found, strict=True):
                (folder / f"{stem}.c").write_text(source)
                libraries.append(str(self.compile(folder / f"{stem}.c")))
            (folder / "word.txt").write_text("shoal")
            model = {"id": "w", "path": str(folder / "word.txt")}
            with Shoald(node(pipeline("echo", stage(libraries[0])),
                             *(pipeline(f"inverts-{word}", stage(libraries[1], "word", model=model,
                                                                 params={"inverts": word}))
                               for word in ("no", "yes")))) as shoald:
                self.check_answer(shoald, "echo", "x=FP32[3]:1,2,3", [1, 2, 3])
                texts = "texts=BYTES[4]:shoal,,shoa,shoals"
                self.check_answer(shoald, "inverts-no", texts, [True, False, False, False])
                self.check_answer(shoald, "inverts-yes", texts, [False, True, True, True])

    def check_answer(self, shoald, model, tensor, wanted):
        done = shoalctl("infer", model, "--input", tensor, "--json", "--target", shoald.target)
        self.assertEqual(done.json["outputs"][0]["data"], wanted)

    def test_modelet(self):
        with tempfile.TemporaryDirectory(prefix="shoal-readme.") as folder:
            source = pathlib.Path(folder) / "twice.c"
            source.write_text(block((SOURCE / "README.md").read_text(), "c"))
            subprocess.run([os.environ.get("CC", "cc"), "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC",
                            "-I", SOURCE / "include", source, "-o", f"{folder}/libtwice.so"],
                           check=True, timeout=WAIT_SECONDS)
            config = ("pipelines:\n  - name: twice\n    stages:\n"
                      f"      - {{ name: twice, modelet: {folder}/libtwice.so }}\n")
            with Shoald(config) as shoald:
                done = shoalctl("infer", "twice", "--input", "x=FP32[3]:1,2,3", "--json",
                                "--target", shoald.target)
                self.assertEqual(done.json["outputs"][0]["data"], [2, 4, 6])


if __name__ == "__main__":
    shoal_fixture.main()
