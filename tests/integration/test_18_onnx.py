# SPDX-License-Identifier: Apache-2.0
"""The onnx modelet in a real service and its whole sandbox: as a stage's own model, as one that is
loaded, and with models that come and go.

Results are tests/modelets' matter (test_onnx.c); here it is that nothing ONNX Runtime wants is
refused by the sandbox, that nothing of its noise reaches the log, whose memory the weights are in,
and that models are loaded while others run, and leave nothing behind.
ctest: timeout=240
"""

import importlib.util
import os
import re
import sys
import unittest

import shoal_fixture
from shoal_client import Client, failure
from shoal_ctl import shoalctl
from shoal_fixture import (EXAMPLES, SOURCE, Shoald, node, pipeline, read_proc, run_shoald,
                           stage, wait_until)
from test_17_engines import Folder, floats, mapping

sys.path.insert(0, str(SOURCE / "examples" / "mlp"))
import make as mlp  # noqa: E402

MODELET = "libonnx_modelet.so"
WORKERS = 2
BITS = ("bits", "FP32", [4, 2], floats([0, 0, 0, 1, 1, 0, 1, 1]))
RUNS = unittest.skipUnless(shoal_fixture.has_onnxruntime(), "there is no ONNX Runtime: neither the "
                           "system's nor in SHOAL_ONNXRUNTIME_DIR")


def onnx_make():
    """examples/onnx/make.py; that of mlp has the same name."""
    place = SOURCE / "examples" / "onnx" / "make.py"
    found = importlib.util.spec_from_file_location("onnx_make", place)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


onnx = onnx_make()


def times(factor):
    """A model of one number: x times `factor`, plus its square."""
    return {"inputs": 1, "input_name": "x", "output_name": "y",
            "layers": [{"weights": [[factor]], "bias": [factor * factor], "activation": "identity"}]}


def number(value):
    return ("x", "FP32", [1, 1], floats([value]))


def check_shared(test, shoald, weights, start):
    """Every worker has used them, and none has a copy."""
    size = weights.stat().st_size

    def used():
        # many at once: one by one, the worker that is awake would get them all
        for future in [start() for _ in range(32)]:
            future.result()
        return all(mapping(worker.pid, weights.name)[1]["Rss"] > 0.9 * size
                   for worker in shoald.workers())
    wait_until(used, "every worker has used the weights")
    for worker in shoald.workers():
        mode, sizes = mapping(worker.pid, weights.name)
        test.assertEqual(mode, "r--s")
        test.assertEqual(sizes["Private_Dirty"], 0)
        test.assertLess(sizes["Pss"], 0.6 * sizes["Rss"])


@RUNS
class TestOwnModel(Folder):
    def check_example(self, shoald):
        with Client(shoald.target) as client:
            for _ in range(3):  # copied at first, then computed in place
                self.assertEqual(self.answer(client, "onnx", *BITS), [0, 1, 1, 0])
            code, text = failure(client.start_raw("onnx", ("bits", "FP32", [1, 3], bytes(12))))
            self.assertEqual(code.name, "INVALID_ARGUMENT", text)

    def test_example(self):
        with Shoald(EXAMPLES / "onnx" / "onnx.yaml") as shoald, Client(shoald.target) as client:
            self.check_example(shoald)
            metadata = client.call("ModelMetadata", name="onnx")
            self.assertEqual(metadata.platform, "onnxruntime")
            self.assertEqual([(one.name, one.datatype, list(one.shape)) for one in metadata.inputs],
                             [("bits", "FP32", [-1, 2])])
            self.assertEqual([(one.name, one.datatype, list(one.shape)) for one in metadata.outputs],
                             [("xor", "FP32", [-1, 1])])
            self.assertNotRegex(shoald.stderr, "Schema error|Unknown CPU|[Ff]ailed")

    def test_a_model_that_is_loaded(self):
        model = {"id": "xor", "path": str(EXAMPLES / "onnx" / "xor.onnx")}
        config = node(pipeline("onnx", stage(MODELET, workers=WORKERS, model=model)))
        with Shoald(config) as shoald:
            self.check_example(shoald)

    def test_threads(self):
        """They are started in the sandbox."""
        path = self.folder / "large.onnx"
        onnx.write_dense(path, **mlp.draw("256,256:relu,8", seed=1))
        config = node(pipeline("onnx", stage(MODELET, workers=1, params={
            "model": path.name, "intra_threads": 2, "inter_threads": 2})))
        with Shoald(config, folder=self.folder) as shoald, Client(shoald.target) as client:
            answer = self.answer(client, "onnx", "input", "FP32", [64, 256], bytes(64 * 256 * 4))
            self.assertEqual(len(answer), 64 * 8)
            (worker,) = shoald.workers()
            self.assertGreaterEqual(len(os.listdir(f"/proc/{worker.pid}/task")), 3)

    def test_weights_in_a_file_of_their_own(self):
        """Without prepacking they are used where they are mapped: one copy for all workers."""
        path = self.folder / "large"
        onnx.write_dense(path, folder=True, **mlp.draw("512,512:relu,512:relu,8", seed=1))
        asked = ("input", "FP32", [3, 512], floats(range(3 * 512)))
        answers = {}
        for prepacking in ("on", "off"):
            config = node(pipeline("onnx", stage(MODELET, workers=WORKERS, params={
                "model": path.name, "prepacking": prepacking})))
            with Shoald(config, folder=self.folder) as shoald, Client(shoald.target) as client:
                answers[prepacking] = self.answer(client, "onnx", *asked)
                if prepacking == "off":
                    check_shared(self, shoald, path / "weights.bin",
                                 lambda: client.start_raw("onnx", asked))
        for one, two in zip(*answers.values()):
            self.assertAlmostEqual(one, two, delta=1e-4 * (1 + abs(two)))

    def test_broken_files(self):
        (self.folder / "empty").touch()
        (self.folder / "text").write_text("hello")
        with (self.folder / "sparse").open("wb") as file:
            file.truncate(10 << 30)
        os.mkfifo(self.folder / "fifo")
        content, _ = onnx.dense(**times(2))
        (self.folder / "cut").write_bytes(content[:-9])
        for name, words in {"empty": "is empty", "text": "a field has no type",
                            "sparse": "a field has no number", "fifo": "is not a regular file",
                            "cut": "it is truncated", "nothing": "No such file"}.items():
            for keys in ({"params": {"model": name}}, {"model": {"id": "m", "path": name}}):
                with self.subTest(name=name, keys=keys):
                    config = node(pipeline("broken", stage(MODELET, workers=1, **keys), slots=8))
                    code, text = run_shoald(config, folder=self.folder)
                    self.assertGreater(code, 0, text)
                    self.assertRegex(text, rf"failed \(\w+\): .*{name}.*{words}")


@RUNS
class TestModelsComeAndGo(Folder):
    COUNT = 40  # fewer than half of the slots: all may wait for their models at once

    def start(self, models, **params):
        self.root = self.folder / "models"
        self.root.mkdir()
        for name, network, folder in models:
            (self.root / name).mkdir()
            onnx.write_dense(self.root / name / ("." if folder else "any-name.onnx"), folder=folder,
                             **network)
        config = node(pipeline("engines", stage(MODELET, workers=WORKERS, batch_size=8,
                                                params=params),
                               models={"root": "models", "memory_mib": 512, "preload": "no"}, slots=128))
        self.shoald = self.enterContext(Shoald(config, folder=self.folder))
        self.client = self.enterContext(Client(self.shoald.target))

    def rows(self):
        done = shoalctl("model", "list", "--json", "--counters", self.shoald.counters)
        return {row["id"]: row for row in done.json_lines}

    def order(self, what, *words):
        return shoalctl("model", what, "--counters", self.shoald.counters, *words)

    def test_each_answers_for_itself(self):
        self.start([(f"m{i}", times(i), i % 2 == 1) for i in range(self.COUNT)])
        for turn in range(3):
            flying = [(self.client.start_raw(f"m{i}", number(turn)), i) for i in range(self.COUNT)]
            for future, i in flying:
                (raw,) = future.result().raw_output_contents
                self.assertEqual(raw, floats([turn * i + i * i]), f"m{i}")
        self.assertEqual({row["state"] for row in self.rows().values()}, {"loaded"})
        metadata = self.client.call("ModelMetadata", name="m1")
        self.assertEqual([(one.name, list(one.shape)) for one in metadata.inputs], [("x", [-1, 1])])
        code, text = failure(self.client.start_raw("m2", ("x", "FP32", [1, 2], bytes(8))))
        self.assertEqual(code.name, "INVALID_ARGUMENT", text)

    def test_loads_while_others_run(self):
        """And what is unloaded leaves nothing: not in memory, not in the file table."""
        self.start([("asked", times(3), False), ("other", times(5), True)])
        self.assertEqual(self.answer(self.client, "asked", *number(1)), [12])
        workers = {worker.pid for worker in self.shoald.workers()}
        open_files = {}
        for turn in range(20):
            flying = [self.client.start_raw("asked", number(i)) for i in range(16)]
            self.order("load", f"ordered-{turn}", "other")
            self.assertEqual(self.answer(self.client, f"ordered-{turn}", *number(2)), [35])
            self.order("unload", f"ordered-{turn}")
            for i, future in enumerate(flying):
                self.assertEqual(future.result().raw_output_contents[0], floats([3 * i + 9]))
            if turn == 10:
                open_files = {pid: len(os.listdir(f"/proc/{pid}/fd")) for pid in workers}
        self.assertEqual({worker.pid for worker in self.shoald.workers()}, workers)
        for pid, count in open_files.items():
            self.assertEqual(len(os.listdir(f"/proc/{pid}/fd")), count)
            self.assertNotIn("weights.bin", read_proc(pid, "maps"))
        self.assertNotRegex(self.shoald.stderr, "Schema error|level=error")

    def test_weights_are_shared(self):
        self.start([("large", mlp.draw("512,512:relu,512:relu,8", seed=1), True)],
                   prepacking="off")
        asked = ("input", "FP32", [3, 512], floats(range(3 * 512)))
        check_shared(self, self.shoald, self.root / "large" / "weights.bin",
                     lambda: self.client.start_raw("large", asked))
        print(f"a model of {self.rows()['large']['bytes']} bytes", flush=True)

    def test_a_file_that_is_not_what_the_key_states(self):
        self.start([("m", times(1), True)])
        digest = "0" * 64
        done = shoalctl("model", "load", "--counters", self.shoald.counters, "--json", "--key",
                        f'{{"sha256": {{"weights.bin": "{digest}"}}}}', "wrong", "m", code=1)
        self.assertEqual(done.json["status"], "DATA_LOSS", done.told)
        self.assertTrue(re.search("weights.bin.*sha256", done.told), done.told)


if __name__ == "__main__":
    shoal_fixture.main()
