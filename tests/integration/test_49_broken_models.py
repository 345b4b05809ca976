# SPDX-License-Identifier: Apache-2.0
"""Files that are no models, through the whole daemon: each fails clearly, and alone.

Empty, truncated, of another type, with a length that nothing stands behind, missing, a FIFO, a directory
where a file should be, a link out of the root; for each engine that is built, asked for by a request and by
orders to load it. A model beside them is asked
all the while; no worker may be lost, nothing hang, and each is served once it has been repaired.
ctest: timeout=300 presets=dev
"""

import os
import pathlib
import shutil
import tempfile
import threading
import unittest

import shoal_boosters
import shoal_fixture
from shoal_client import Client, failure
from shoal_ctl import NEGATIVE, shoalctl
from shoal_fixture import EXAMPLES, Shoald, node, pipeline, stage, wait_until

GIBIBYTE = 1 << 30


def code_of(way):
    """The operator's fault, not the caller's."""
    return "PERMISSION_DENIED" if way is Broken.a_link_out_of_the_root else "FAILED_PRECONDITION"


class Broken:
    """For each engine: how a good model's folder is made, and what is done to it."""

    def __init__(self, name, modelet, file, content):
        self.name, self.modelet, self.file, self.content = name, modelet, file, content

    def good(self, folder):
        folder.mkdir()
        (folder / self.file).write_bytes(self.content)

    def empty(self, folder):
        (folder / self.file).write_bytes(b"")

    def truncated(self, folder):
        (folder / self.file).write_bytes(self.content[:-len(self.content) // 3])

    def wrong_type(self, folder):
        (folder / self.file).write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8)

    def claims_10_gib(self, folder):
        with (folder / self.file).open("wb") as file:
            file.write(self.content[:200])
            file.truncate(10 * GIBIBYTE)

    def no_model_in_it(self, folder):
        (folder / self.file).unlink()

    def a_fifo(self, folder):
        (folder / self.file).unlink()
        os.mkfifo(folder / self.file)

    def a_directory(self, folder):
        (folder / self.file).unlink()
        (folder / self.file).mkdir()

    def a_link_out_of_the_root(self, folder):
        outside = folder.parent.parent / f"outside-{self.file}"
        outside.write_bytes(self.content)
        (folder / self.file).unlink()
        (folder / self.file).symlink_to(outside)

    WAYS = (empty, truncated, wrong_type, claims_10_gib, no_model_in_it, a_fifo, a_directory,
            a_link_out_of_the_root)


def engines():
    yield Broken("xgboost", "libxgboost_modelet.so", "model.json",
                 shoal_boosters.text(1).encode()), shoal_boosters.tensor(0)
    yield Broken("mlp", "libmlp.so", "model.mlp", (EXAMPLES / "mlp" / "xor.mlp").read_bytes()), \
        ("bits", "FP32", [1, 2], bytes(8))
    if shoal_fixture.has_onnxruntime():
        yield Broken("onnx", "libonnx_modelet.so", "model.onnx",
                     (EXAMPLES / "onnx" / "xor.onnx").read_bytes()), \
            ("bits", "FP32", [1, 2], bytes(8))


class Asking:
    """A thread that asks the good model, over and over."""

    def __init__(self, target, tensor):
        self.target, self.tensor = target, tensor
        self.ends = threading.Event()
        self.answered = 0
        self.problems = []
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        with Client(self.target) as client:
            while not self.ends.is_set():
                try:
                    client.infer_raw("good", self.tensor)
                    self.answered += 1
                except Exception as error:  # pylint: disable=broad-except
                    self.problems.append(str(error))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join(shoal_fixture.WAIT_SECONDS)


class TestBrokenModels(unittest.TestCase):
    def prepare(self, engine):
        """A root with a good model and a broken one of each kind; their names."""
        root = self.folder / f"{engine.name}-models"
        root.mkdir()
        engine.good(root / "good")
        for way in Broken.WAYS:
            engine.good(root / way.__name__)
            way(engine, root / way.__name__)
        (root / "leads_out").symlink_to("/etc")
        return root

    def check_each_fails(self, client, tensor):
        texts = {}
        for way in Broken.WAYS:
            code, text = failure(client.start_raw(way.__name__, tensor))
            self.assertEqual(code.name, code_of(way), f"{way.__name__}: {text}")
            self.assertGreater(len(text), 10, f"{way.__name__}: {code} {text}")
            texts[way.__name__] = text
            code, text = failure(client.start("RepositoryModelLoad", model_name=way.__name__))
            self.assertEqual(code.name, code_of(way), f"{way.__name__}, ordered: {text}")
        code, _ = failure(client.start_raw("leads_out", tensor))
        self.assertEqual(code.name, "NOT_FOUND")
        self.assertRegex(texts["empty"], "empty")
        self.assertRegex(texts["a_fifo"], "regular")
        return texts

    def check(self, engine, tensor):
        root = self.prepare(engine)
        config = node(pipeline(engine.name, stage(engine.modelet, workers=2),
                               models={"root": str(root), "memory_mib": 1024}, slots=64),
                      http_control="on")
        with Shoald(config) as shoald, Client(shoald.target) as client:
            client.infer_raw("good", tensor)
            workers = {worker.pid for worker in shoald.workers()}
            with Asking(shoald.target, tensor) as asking:
                self.check_each_fails(client, tensor)
                for way in Broken.WAYS:
                    done = shoalctl("model", "load", "--counters", shoald.counters, "--json",
                                    f"{way.__name__}-ordered", way.__name__, code=NEGATIVE)
                    self.assertEqual(done.json["status"], code_of(way), done.told)
                before = asking.answered
                wait_until(lambda: asking.answered > before, "an answer of the good one")
            self.assertEqual(asking.problems, [])
            self.assertEqual({worker.pid for worker in shoald.workers()}, workers)
            listed = shoalctl("model", "list", "--counters", shoald.counters, "--json").json_lines
            self.assertEqual({row["id"] for row in listed},
                             {"good", *(way.__name__ for way in Broken.WAYS)})
            self.assertEqual([row["id"] for row in listed if row["state"] == "loaded"], ["good"])
            self.repair(engine, root, client, tensor)
            shoald.wait_all_returned(engine.name)

    def repair(self, engine, root, client, tensor):
        right = client.infer_raw("good", tensor).raw_output_contents
        for way in Broken.WAYS:
            shutil.rmtree(root / way.__name__)
            making = self.folder / "making"
            engine.good(making)
            making.rename(root / way.__name__)

        def answers(name):
            future = client.start_raw(name, tensor)
            return future.code().name == "OK" and future.result().raw_output_contents == right
        for way in Broken.WAYS:
            wait_until(lambda name=way.__name__: answers(name), f"{way.__name__} repaired")

    def test_each_engine(self):
        for engine, tensor in engines():
            with self.subTest(engine=engine.name), \
                    tempfile.TemporaryDirectory(prefix="shoal-test.") as folder:
                self.folder = pathlib.Path(folder)
                self.check(engine, tensor)


if __name__ == "__main__":
    shoal_fixture.main()
