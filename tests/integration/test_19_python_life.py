# SPDX-License-Identifier: Apache-2.0
"""Modelets in Python, in a real node: their starts, and their life.

Mistakes that keep a script from starting; models that come and go; reload; a virtual environment;
scikit-learn's pickles; `shoald serve`; the examples. ctest: timeout=300
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import textwrap
import unittest

import numpy

import shoal_fixture
from shoal_client import Client, failure
from shoal_ctl import NEGATIVE, shoalctl
from shoal_fixture import (BIN, BUILD, EXAMPLES, SOURCE, WAIT_SECONDS, Shoald, node, pipeline,
                           run_shoald, stage, wait_until)
from shoal_serve import Serve
from test_19_python import PythonTest, floats, outputs, tensor

PYTHON = "/usr/bin/python3"  # of the library, even if another is first in the path


def has_sklearn():
    return subprocess.run([PYTHON, "-c", "import sklearn, joblib"], capture_output=True,
                          check=False).returncode == 0


class TestStarts(PythonTest):
    def test_what_keeps_it_from_starting(self):
        for code, pattern, keys in [
                ("def run(x) return", r"code\.py: SyntaxError", {}),
                ("import nowhere", "code.py: ModuleNotFoundError: No module named 'nowhere'", {}),
                ("x = 1", "neither a class Model nor a function run", {}),
                ("def run(x: float): pass", r"input \S+ is <class 'float'>: expected a type", {}),
                ("def run(x) -> shoal.FP32: pass", "outputs are shoal.FP32: expected a dict", {}),
                ("def run(x: shoal.FP32[-2]): pass", "a dimension is -2", {}),
                ("def run(x: shoal.TensorType('FP32', [1])): pass", 'shape of tensor "x" is no tuple', {}),
                (f"def run({'n' * 128}): pass", r"the name of tensor .n+\.\.\.. has more than 127", {}),
                ("def run(x) -> {'y\\0': shoal.FP32}: pass", "embedded null character", {}),
                ("@shoal.batched\ndef run(x: shoal.FP32[2]): pass", "first dimension is -1", {}),
                ("@shoal.batched\ndef run(): pass", "it needs one", {}),
                ("class Model:\n def run(self, x): pass", r"Model\(\) takes no arguments",
                 {"params": {"a": 1}}),
                ("def run(x): pass", "which alone takes `params`", {"params": {"a": 1}}),
                ("def run(x): pass", "batch_size is 4, but run takes single items", {"batch_size": 4}),
                ("sys.exit(0)", "code.py: SystemExit: 0", {}),
                ("open('/etc/passwd')", "sandbox_allow: .files.*PermissionError: ", {}),
                ("def run(x): pass", "no `load", {"model": {"id": "m", "path": "x"}}),
        ]:
            with self.subTest(code):
                self.check_refused(code, pattern, **keys)

    def test_the_plug_in_without_a_script(self):
        config = node(pipeline("code", stage("libpython_modelet.so", name="s"), slots=8))
        code, text = run_shoald(config, folder=self.folder)
        self.assertIn("must be a file NAME.py", text)


class TestLife(PythonTest):
    def test_logging_and_threads(self):
        """A thread goes on while the worker waits."""
        self.start("""
            import logging, threading
            logging.getLogger("mine").warning("a warning")
            print("to stderr", file=sys.stderr)
            ticks, pause = 0, threading.Event()
            def tick():
                global ticks
                while True:
                    ticks += 1
                    pause.wait(0.001)
            threading.Thread(target=tick, daemon=True).start()
            def run(x):
                return {"ticks": ticks}
            """)
        self.shoald.wait_log('warn .*modelet_log modelet=python text="mine: a warning"')
        self.shoald.wait_log('worker_said .*text="to stderr"')
        first = self.infer(floats([1]))["ticks"]
        wait_until(lambda: self.infer(floats([1]))["ticks"] > first + 20, "the thread to go on")

    def test_reload(self):
        """New code of the same name, and of a module beside it."""
        self.write("ANSWER = 1", "other.py")
        self.start("import other\ndef run(x): return {'y': other.ANSWER}")
        self.assertEqual(self.infer(floats([1]))["y"], 1)
        self.write("ANSWER = 2", "other.py")
        shoalctl("reload", "--counters", self.shoald.counters, "code")
        self.assertEqual(self.infer(floats([1]))["y"], 2)
        self.write("def run(x): syntax error", "code.py")
        done = shoalctl("reload", "--counters", self.shoald.counters, "code", code=NEGATIVE)
        self.assertIn("code.py: SyntaxError", done.err)
        self.assertEqual(self.infer(floats([1]))["y"], 2)

    def test_models_that_come_and_go(self):
        """Each with tensors of its own; files that are no model are refused with the text."""
        models = self.folder / "models"
        for name in "two", "three", "bad":
            (models / name).mkdir(parents=True)
            (models / name / "key.json").write_text("{}")
            (models / name / "width").write_text({"two": "2", "three": "3", "bad": "x"}[name])
        self.write("""
            class Model:
                def load(self, id, path):
                    return int(open(os.path.join(path, "width")).read())
                def describe(self, model):
                    return {"x": shoal.FP32[-1, model]}, {"y": shoal.FP32[-1]}
                @shoal.batched
                def run(self, model, x):
                    return {"y": x.sum(axis=1) * model}
            """)
        config = node(pipeline("code", stage("./code.py", name="code", batch_size=8), slots=16,
                               models={"root": "models", "memory_mib": 64}))
        with Shoald(config, folder=self.folder) as shoald, Client(shoald.target) as client:
            for name, width in ("two", 2), ("three", 3):
                said = outputs(client.infer_raw(name, floats(numpy.ones((2, width)))))
                numpy.testing.assert_array_equal(said["y"], [width * width] * 2)
                said = client.call("ModelMetadata", name=name)
                self.assertEqual(list(said.inputs[0].shape), [-1, width])
            code, text = failure(client.start_raw("two", floats([[1, 2, 3]])))
            self.assertEqual(code.name, "INVALID_ARGUMENT", text)
            code, text = failure(client.start_raw("bad", floats([[1]])))
            self.assertEqual(code.name, "FAILED_PRECONDITION", text)
            self.assertIn("bad: ValueError: invalid literal", text)

    def test_virtual_environment(self):
        """Its packages count, relative to the configuration, and the system's only if it says so;
        one of another Python is refused."""
        subprocess.run([PYTHON, "-m", "venv", "--without-pip", self.folder / "venv"], check=True)
        packages, = (self.folder / "venv/lib").glob("python*/site-packages")
        (packages / "mine.py").write_text("ANSWER = 5\n")
        code = "import mine\ndef run(x): return {'y': mine.ANSWER}"
        self.check_refused(code, "there is no NumPy.*VIRTUAL_ENV", env={"VIRTUAL_ENV": "venv"})
        settings = self.folder / "venv/pyvenv.cfg"
        settings.write_text(settings.read_text().replace("packages = false", "packages = true"))
        self.check_refused(code, "No module named 'mine'")
        config = self.node(code, env={"VIRTUAL_ENV": "venv"})
        with Shoald(config, folder=self.folder) as shoald, Client(shoald.target) as client:
            self.assertEqual(outputs(client.infer_raw("code", floats([1])))["y"], 5)
        # the Python that is first in PATH is not the library's, and its own library is nothing
        library = self.folder / "other" / "lib" / packages.parent.name
        (library / "lib-dynload").mkdir(parents=True)
        (library / "os.py").touch()
        (self.folder / "other/bin").mkdir()
        shutil.copy("/bin/true", self.folder / "other/bin/python3")
        config = self.node(code, env={"VIRTUAL_ENV": "venv", "PATH": str(self.folder / "other/bin")})
        with Shoald(config, folder=self.folder) as shoald, Client(shoald.target) as client:
            self.assertEqual(outputs(client.infer_raw("code", floats([1])))["y"], 5)
        packages.parent.rename(packages.parents[1] / "python2.7")
        self.check_refused(code, "make it with the Python of this modelet, python3",
                           env={"VIRTUAL_ENV": "venv"})


class TestServe(PythonTest):
    def check(self, path, inputs, name, values):
        """The service that `shoald serve` starts, not the configuration that it prints."""
        with Serve(self.folder, path) as shoald, Client(shoald.target) as client:
            said = outputs(client.infer_raw(pathlib.Path(path).stem, inputs))
            self.assertEqual(list(said[name]), values)

    def test_code(self):
        self.write("@shoal.batched\ndef run(x: shoal.FP32[-1]): return {'y': x * 2}", "twice.py")
        self.check("twice.py", floats([1, 2]), "y", [2, 4])

    @unittest.skipUnless(has_sklearn(), "there is no python3-sklearn")
    def test_pickle(self):
        subprocess.run([PYTHON, SOURCE / "examples/python/make.py", self.folder / "iris.joblib"],
                       check=True, timeout=WAIT_SECONDS)
        self.check("iris.joblib", tensor("features", [[5.1, 3.5, 1.4, .2]], "FP64"), "label", [0])


@unittest.skipUnless(has_sklearn(), "there is no python3-sklearn")
class TestScikitLearn(PythonTest):
    def make(self, path):
        subprocess.run([PYTHON, SOURCE / "examples/python/make.py", path], check=True,
                       timeout=WAIT_SECONDS)

    def test_the_example(self):
        for name in "python.yaml", "iris.py":
            shutil.copy(EXAMPLES / "python" / name, self.folder)
        self.make(self.folder / "iris.joblib")
        with Shoald(self.folder / "python.yaml", folder=self.folder) as shoald, \
                Client(shoald.target) as client:
            said = outputs(client.infer_raw("iris", floats([[5.1, 3.5, 1.4, .2], [6.2, 3.4, 5.4, 2.3]])))
            self.assertEqual(said["label"], [b"setosa", b"virginica"])

    def test_pickles(self):
        """A classifier with texts as labels, a regressor of two values, and what is no model."""
        subprocess.run([PYTHON, "-c", textwrap.dedent("""
            import pickle, sys, numpy, joblib
            from sklearn.linear_model import LinearRegression
            from sklearn.neighbors import KNeighborsClassifier
            x = numpy.arange(12.).reshape(6, 2)
            joblib.dump(KNeighborsClassifier(1).fit(x, list("aabbcc")), "near.joblib", compress=3)
            pickle.dump(LinearRegression().fit(x, x * 2), open("line.pkl", "wb"))
            pickle.dump({"a": 1}, open("dict.pkl", "wb"))
            """)], cwd=self.folder, check=True, timeout=WAIT_SECONDS)

        def stage_of(name):
            return stage("scikit_learn.py", name="predict", batch_size=8,
                         model={"id": name, "path": name})
        config = node(*[pipeline(name.partition(".")[0], stage_of(name), slots=8)
                        for name in ("near.joblib", "line.pkl")])
        with Shoald(config, folder=self.folder) as shoald, Client(shoald.target) as client:
            shoald.wait_log("warn .*near.joblib: .*line.pkl is a pickle: loading it runs|"
                            "warn .*is a pickle: loading it runs")
            said = client.call("ModelMetadata", name="near")
            self.assertEqual([(one.name, one.datatype, list(one.shape))
                              for one in (*said.inputs, *said.outputs)],
                             [("features", "FP64", [-1, 2]), ("label", "BYTES", [-1]),
                              ("probabilities", "FP64", [-1, 3])])
            x = tensor("features", [[0, 1], [10, 11]], "FP64")
            said = outputs(client.infer_raw("near", x))
            self.assertEqual(said["label"], [b"a", b"c"])
            numpy.testing.assert_array_equal(said["probabilities"], [[1, 0, 0], [0, 0, 1]])
            numpy.testing.assert_allclose(outputs(client.infer_raw("line", x))["prediction"],
                                          [[0, 2], [20, 22]], atol=1e-9)
        code, text = run_shoald(node(pipeline("dict", stage_of("dict.pkl"), slots=8)),
                                folder=self.folder)
        self.assertGreater(code, 0)
        self.assertRegex(text, "dict.pkl: TypeError: a dict, not a fitted model")

    def test_serve(self):
        """Code and a pickle, on the command line; a folder of models does not run pickles."""
        self.make(self.folder / "iris.joblib")
        self.write("@shoal.batched\ndef run(x: shoal.FP32[-1]): return {'y': x * 2}", "twice.py")
        self.write("# not @shoal.batched\ndef run(x: shoal.FP32[-1]): return {'y': x * 3}", "thrice.py")
        done = subprocess.run([BIN / "shoald", "serve", "--print-config", "iris.joblib", "twice.py",
                               "thrice.py"], cwd=self.folder, capture_output=True, text=True,
                              timeout=WAIT_SECONDS, check=True)
        self.assertRegex(done.stdout, r"modelet: scikit_learn.py, workers: \d, batch_size: 64")
        self.assertRegex(done.stdout, r'modelet: ".*/twice.py", workers: \d, batch_size: 64')
        self.assertRegex(done.stdout, r'modelet: ".*/thrice.py", workers: \d, batch_size: 0')
        config = re.sub(r"(?m)^(listen|http|metrics|dashboard|log_level).*\n", "", done.stdout)
        config = config.replace("batch_size", "start_timeout_ms: 120000, batch_size")
        with Shoald(config, folder=self.folder) as shoald, Client(shoald.target) as client:
            x = tensor("features", [[5.1, 3.5, 1.4, .2]], "FP64")
            self.assertEqual(list(outputs(client.infer_raw("iris", x))["label"]), [0])
            numpy.testing.assert_array_equal(outputs(client.infer_raw("twice", floats([1])))["y"], [2])
            numpy.testing.assert_array_equal(outputs(client.infer_raw("thrice", floats([1])))["y"], [3])


class TestSeed(PythonTest):
    def test_the_example(self):
        with Shoald(EXAMPLES / "seed" / "seed.yaml") as shoald:
            done = subprocess.run([sys.executable, SOURCE / "examples/seed/client.py", "--target",
                                   shoald.target], capture_output=True, text=True, check=False,
                                  timeout=2 * WAIT_SECONDS,
                                  env={**os.environ, "SHOAL_BUILD_DIR": str(BUILD)})
            numbers = "[3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0, 17.0, 19.0, 21.0]"
            self.assertEqual(done.stdout, f"python: {numbers}\nc: {numbers}\n", done.stderr)
            for name in "python", "c":
                stat = shoald.stage_stat(name, "scale")
                self.assertLess(stat["batches"], stat["items"], "nothing was batched")


if __name__ == "__main__":
    shoal_fixture.main()
