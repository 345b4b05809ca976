# SPDX-License-Identifier: Apache-2.0
"""The modelets that read model files, in a real service and its whole sandbox.

tests/modelets checks their results; these tests check their configuration: a model as a
parameter, whose shapes callers then see and are held to, or as the stage's `model`, which is
loaded; that the workers of a stage share the pages of an mlp; and that a broken file keeps the
service from starting with a text that says which and why, at once, for each kind of fault.
"""

import array
import os
import pathlib
import re
import struct
import sys
import tempfile
import unittest

import shoal_fixture
from shoal_client import Client, failure
from shoal_fixture import (EXAMPLES, SOURCE, Shoald, node, pipeline, read_proc, run_shoald, stage)

sys.path.insert(0, str(SOURCE / "examples" / "mlp"))
import make

WORKERS = 2


def floats(numbers):
    return array.array("f", numbers).tobytes()


def mapping(pid, name):
    """A process's mapping of a file by /proc, in bytes by name."""
    text = read_proc(pid, "smaps")
    found = re.search(rf"^[0-9a-f-]+ (\S+) .*/{re.escape(name)}\n((?:\w+:.*\n)+)", text, re.MULTILINE)
    assert found, f"no {name} in\n{text}"
    sizes = {key: 1024 * int(value) for key, value in re.findall(r"(\w+): +(\d+) kB", found.group(2))}
    return found.group(1), sizes


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory(prefix="shoal-test.")))

    def answer(self, client, model, *tensor):
        (raw,) = client.infer_raw(model, tensor).raw_output_contents
        return list(array.array("f", raw))


class TestModels(Folder):
    BITS = ("bits", "FP32", [4, 2], floats([0, 0, 0, 1, 1, 0, 1, 1]))

    def test_mlp_example(self):
        with Shoald(EXAMPLES / "mlp" / "mlp.yaml") as shoald, Client(shoald.target) as client:
            self.assertEqual(self.answer(client, "mlp", *self.BITS), [0, 1, 1, 0])
            metadata = client.call("ModelMetadata", name="mlp")
            self.assertEqual(metadata.platform, "mlp")
            self.assertEqual([(one.name, one.datatype, list(one.shape)) for one in metadata.inputs],
                             [("bits", "FP32", [-1, 2])])
            self.assertEqual([(one.name, one.datatype, list(one.shape)) for one in metadata.outputs],
                             [("xor", "FP32", [-1, 1])])
            code, text = failure(client.start_raw("mlp", ("bits", "FP32", [1, 3], bytes(12))))
            self.assertEqual(code.name, "INVALID_ARGUMENT", text)

    def test_xgboost_example(self):
        """Its model is loaded, and its tensors are those of the pipeline."""
        with Shoald(EXAMPLES / "xgboost" / "xgboost.yaml") as shoald, \
                Client(shoald.target) as client:
            answer = client.infer_raw("xgboost", ("features", "FP32", [2, 64], bytes(2 * 64 * 4)))
            self.assertEqual([one.name for one in answer.outputs], ["probabilities", "label"])
            chances = struct.unpack("<20f", answer.raw_output_contents[0])
            self.assertAlmostEqual(sum(chances[:10]), 1, places=4)
            best = max(range(10), key=lambda digit: chances[digit])
            self.assertEqual(answer.raw_output_contents[1], struct.pack("<2q", best, best))
            code, text = failure(client.start_raw("xgboost", ("features", "FP32", [1, 63], bytes(252))))
            self.assertEqual(code.name, "INVALID_ARGUMENT", text)
            self.assertRegex(text, r"\[1, ?63\].*\[-1, ?64\]")
            inputs = client.call("ModelMetadata", name="xgboost").inputs
            self.assertEqual([(one.name, list(one.shape)) for one in inputs], [("features", [-1, 64])])

    def test_an_mlp_that_is_loaded(self):
        model = {"id": "xor", "path": str(EXAMPLES / "mlp" / "xor.mlp")}
        config = node(pipeline("mlp", stage("libmlp.so", workers=WORKERS, model=model)))
        with Shoald(config) as shoald, Client(shoald.target) as client:
            self.assertEqual(self.answer(client, "mlp", *self.BITS), [0, 1, 1, 0])

    def test_no_model_at_all(self):
        with Shoald(node(pipeline("mlp", stage("libmlp.so")))) as shoald, \
                Client(shoald.target) as client:
            code, text = failure(client.start_raw("mlp", self.BITS))
            self.assertEqual(code.name, "FAILED_PRECONDITION", text)
            self.assertIn('give the stage a `model`, or the parameter "model"', text)

    def test_workers_share_the_pages_of_a_model(self):
        path = self.folder / "large.mlp"
        make.write(path, make.encode(**make.draw("512,512:relu,8", seed=1)))
        config = node(pipeline("mlp", stage("libmlp.so", workers=WORKERS,
                                            params={"model": path.name})))
        with Shoald(config, folder=self.folder) as shoald, Client(shoald.target) as client:
            self.assertEqual(len(self.answer(client, "mlp", "input", "FP32", [3, 512],
                                             bytes(3 * 512 * 4))), 24)
            pages = -(-path.stat().st_size // 4096) * 4096
            shared = [mapping(worker.pid, path.name) for worker in shoald.workers("mlp")]
            self.assertEqual(len(shared), WORKERS)
            for mode, sizes in shared:
                self.assertEqual(mode, "r--s")
                self.assertEqual(sizes["Rss"], pages)
                self.assertEqual(sizes["Private_Dirty"], 0)
                self.assertLess(sizes["Pss"], 0.6 * pages)


class TestBrokenModels(Folder):
    def broken(self):
        """Name of a file in the folder, and what is said about it."""
        (self.folder / "empty").touch()
        yield "empty", "is empty"
        (self.folder / "folder").mkdir()
        yield "folder", r"is a folder with no file that ends in \.(mlp|json or \.ubj)"
        os.mkfifo(self.folder / "fifo")
        yield "fifo", "is not a regular file"
        (self.folder / "text").write_text("hello")
        yield "text", "less than the 160 of a header|neither JSON nor UBJSON"
        with (self.folder / "sparse").open("wb") as file:  # no more than its length
            file.truncate(10 << 30)
        yield "sparse", "does not begin with SHOALMLP|neither JSON nor UBJSON"
        yield "nothing", "No such file or directory"

    def check_refused(self, modelet, name, words):
        for keys in ({"params": {"model": name}}, {"model": {"id": "m", "path": name}}):
            with self.subTest(modelet=modelet, name=name, keys=keys):
                config = node(pipeline("broken", stage(modelet, workers=1, **keys), slots=8))
                code, text = run_shoald(config, folder=self.folder)
                self.assertGreater(code, 0, text)
                self.assertRegex(text, rf"failed \(\w+\): (model )?\S*/{name}:? .*({words})")

    def test_each_is_refused_by_both(self):
        for name, words in self.broken():
            for modelet in ("libmlp.so", "libxgboost_modelet.so"):
                self.check_refused(modelet, name, words)

    def test_lengths_that_lie(self):
        whole = make.encode(2, [{"weights": [[1], [1]], "activation": "relu"}])
        (self.folder / "cut").write_bytes(whole[:-1])
        self.check_refused("libmlp.so", "cut", "it was truncated")
        (self.folder / "claims").write_bytes(whole[:16] + struct.pack("=Q", 10 << 30) + whole[24:])
        self.check_refused("libmlp.so", "claims", "states 10737418240 bytes")
        (self.folder / "claims").write_bytes(b"{i\1a[$d#L" + struct.pack(">q", 10 << 30))
        self.check_refused("libxgboost_modelet.so", "claims", "claims more than it has")


if __name__ == "__main__":
    shoal_fixture.main()
