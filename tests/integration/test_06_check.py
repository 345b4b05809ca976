# SPDX-License-Identifier: Apache-2.0
"""`shoald --check` finds what a start would trip over: every problem, each once, and starts nothing.

Modelets and the models of folders run in real workers, in their sandbox; a running node with the
same configuration does not notice. The files of a mesh are test_69_mesh_check.py's, the mistakes of the file itself
test_20_refusals.py's. ctest: timeout=120 presets=dev
"""

import json
import os
import pathlib
import tempfile
import unittest

import shoal_fixture
from shoal_fixture import Shoald, children, node, pipeline, run_shoald, stage, wait_until


LOAD_MS = 10_000  # one model hangs so long; the others load much faster, with sanitizers, too


class TestCheck(unittest.TestCase):
    def check(self, config, *arguments, **options):
        with tempfile.TemporaryDirectory() as folder:
            code, said = run_shoald(config, ("--check", *arguments), env={"TMPDIR": folder}, **options)
            self.assertEqual(os.listdir(folder), [], "something is left")
        return code, said

    def check_refused(self, config, *wanted, **options):
        """Each line of what is wanted is said once, and nothing else is."""
        code, said = self.check(config, **options)
        self.assertEqual(code, 2, said)
        lines = [line for line in said.splitlines() if line.startswith("shoald: ")
                 and "models tried; loading" not in line]
        self.assertEqual(len(lines), len(wanted), said)
        for words in wanted:
            found = [line for line in lines if all(word in line for word in words)]
            self.assertEqual(len(found), 1, f"{words} in:\n{said}")

    def test_good(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "m").mkdir()
            code, said = self.check(node(
                pipeline("a", stage("libecho.so", "one", workers=3), stage("libecho.so", "two")),
                pipeline("b", stage("libshelf.so"), models={"root": folder, "memory_mib": 1}),
                http="127.0.0.1:0"))
        self.assertEqual(code, 0, said)
        for words in ("configuration is good: 2 pipelines", "in a worker: 3",
                      "folders that were loaded in a worker: 1",
                      "listened on: 2"):
            self.assertIn(words, said)

    def test_all_at_once(self):
        """A broken stage hides neither another one nor an address, and none is reported twice."""
        self.check_refused(
            node(pipeline("a", stage("libwrong_abi_version.so", "first"), stage("libecho.so", "second"),
                          stage("libpuppet.so", "third", params={"open": "crash"})),
                 pipeline("b", stage("libpuppet.so", "fails", params={"open": "fail"})),
                 pipeline("c", stage("libpuppet.so", "hangs", params={"open": "hang"},
                                     start_timeout_ms=300)),
                 pipeline("d", stage("libwrong_workers_max.so", "two", workers=2)),
                 pipeline("e", stage("libmlp.so", "model",
                                     model={"id": "m", "path": "no-such-model"})),
                 http="192.0.2.1:8008", metrics="unix:/no/such/folder/metrics.sock"),
            ('pipeline "a"', 'stage "first"', "abi_version"),
            ('pipeline "a"', 'stage "third"', "before it was ready"),
            ('pipeline "b"', 'stage "fails"'),
            ('pipeline "c"', 'stage "hangs"', "start_timeout_ms"),
            ('pipeline "d"', 'stage "two"', "2 workers", "workers_max is 1"),
            ('pipeline "e"', 'stage "model"', "no-such-model"),
            ("http: 192.0.2.1:8008: cannot listen there", "Cannot assign requested address"),
            ("metrics: unix:/no/such/folder/metrics.sock: cannot listen there", "No such file"))

    def test_every_certificate(self):
        with tempfile.TemporaryDirectory() as folder:
            nothing = pathlib.Path(folder) / "nothing.pem"
            nothing.write_text("")
            files = {"certificate": str(nothing), "key": str(nothing)}
            models = {"root": folder, "memory_mib": 1}
            self.check_refused(
                node(pipeline("shelf", stage("libshelf.so"), models=models), tls=files,
                     mesh={"store": "etcd:http://127.0.0.1:1", "service": "s", "instance": "i",
                           "address": "127.0.0.1", "peers": ["127.0.0.1:0"],
                           "tls": {**files, "ca": str(nothing), "peer_name": "x"}}),
                ("shoald.yaml: tls: ", "no certificate"), ("mesh: tls: ", "no certificate"))

    # ---- models of folders ----

    def shelf(self, folder, **models):
        return pipeline("shelf", stage("libshelf.so", "loads"),
                        models={"root": f"{folder}/models", "memory_mib": 64, **models})

    def put(self, folder, name, do):
        """A model that does what tests/modelets/shelf.h says of these words."""
        path = pathlib.Path(folder) / "models" / name
        path.mkdir(parents=True)
        (path / "model.bin").write_bytes(bytes(8))
        (path / "key.json").write_text(json.dumps({"do": f" {do} "}))

    def test_every_model_of_a_folder(self):
        """One that crashes its worker, hangs or fails hides no other one, before or behind it."""
        with tempfile.TemporaryDirectory() as folder:
            for name, do in (("a", "good"), ("b", "crash"), ("c", "stuck"), ("d", "fail"),
                             ("e", "exit"), ("f", "heap=134217728"), ("g", "crash_unload"),
                             ("z", "good")):
                self.put(folder, name, do)
            self.check_refused(
                node(self.shelf(folder, load_timeout_ms=LOAD_MS)),
                ('pipeline "shelf"', f'model "b" ({folder}/models/b)', "died while they loaded it"),
                (f'model "c" ({folder}/models/c)', f"within load_timeout_ms ({LOAD_MS})"),
                (f'model "d" ({folder}/models/d)', "told to fail"),
                (f'model "e" ({folder}/models/e)', "died while they loaded it"),
                (f'model "f" ({folder}/models/f)', "64 MiB (memory_mib)"),
                (f'model "g" ({folder}/models/g)', "while it unloaded it"))

    def test_a_model_too_large_condemns_no_other(self):
        """Its size predicts those of models with files like its own, but must not refuse them."""
        with tempfile.TemporaryDirectory() as folder:
            self.put(folder, "a", "heap=134217728")
            self.put(folder, "b", "good  good  goo")
            self.check_refused(node(self.shelf(folder)), ('model "a"', "it takes 128 MiB"))

    def test_crashes_delay_no_other(self):
        """Each is a worker's death, after which the next start would wait up to ten seconds."""
        with tempfile.TemporaryDirectory() as folder:
            names = [f"m{i:02}" for i in range(12)]
            for name in names:
                self.put(folder, name, "crash")
            self.check_refused(node(self.shelf(folder)),
                               *((f'model "{name}"', "died while they loaded it") for name in names))

    def test_one_model_at_a_time(self):
        """Together they are larger than memory_mib, and none is left over when the next is loaded."""
        with tempfile.TemporaryDirectory() as folder:
            for i in range(5):
                self.put(folder, f"m{i}", "heap=41943040")
            code, said = self.check(node(self.shelf(folder, load_concurrency=4)))
        self.assertEqual(code, 0, said)
        self.assertIn("models of folders that were loaded in a worker: 5\n", said)

    def test_real_models(self):
        """A truncated file, a version that is broken, and an entry that can be no model."""
        good = (shoal_fixture.EXAMPLES / "mlp" / "xor.mlp").read_bytes()
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder) / "models"
            for path, content in (("good.mlp", good), ("cut.mlp", good[:-9]), ("two/1/model.mlp", good),
                                  ("two/2/model.mlp", good[:-9]), ("odd/model.mlp", good),
                                  ("odd/key.json", b"{")):
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_bytes(content)
            config = node(pipeline("mlp", stage("libmlp.so"),
                                   models={"root": str(root), "memory_mib": 64}))
            code, said = self.check(config)
            self.assertEqual(code, 2, said)
            self.assertIn(f'model "cut" ({root}/cut.mlp): ', said)
            self.assertIn(f'model "two" ({root}/two/2', said)
            self.assertRegex(said, 'model_not_listed .*model="odd"')
            self.assertNotIn('model "good"', said)
            for path in (root / "cut.mlp", root / "two/2/model.mlp", root / "odd/key.json"):
                path.unlink()
            code, said = self.check(config)
            self.assertEqual(code, 0, said)

    def test_a_long_check_tells_how_far_it_is(self):
        with tempfile.TemporaryDirectory() as folder:
            self.put(folder, "a", "good")
            self.put(folder, "b", "stuck")
            code, said = self.check(node(self.shelf(folder, load_timeout_ms=6000)))
        self.assertEqual(code, 2, said)
        self.assertIn('shoald: 1 of 2 models tried; loading "b" of pipeline "shelf"', said)

    def test_without_models(self):
        with tempfile.TemporaryDirectory() as folder:
            self.put(folder, "a", "fail")
            code, said = self.check(node(self.shelf(folder)), "--no-models")
            self.assertEqual(code, 0, said)
            self.assertIn("folders of models read, the models not loaded: 1\n", said)
            code, said = run_shoald(node(self.shelf(folder)), ["--no-models"])
            self.assertEqual((code, "--no-models: only with --check" in said), (2, True), said)

    # ---- beside a node ----

    def test_beside_a_running_node(self):
        """Its addresses are in use, and it keeps its workers and its files."""
        config = node(pipeline("echo", stage("libecho.so")), message_mib=1)
        with Shoald(config) as shoald:
            workers = children(shoald.pid)
            code, said = self.check(config, "--counters", str(shoald.counters),
                                    listen=[shoald.target])
            self.assertEqual(code, 0, said)
            self.assertIn("in use, by a running node: 1", said)
            self.assertEqual(children(shoald.pid), workers)
            self.assertEqual(shoald.stat()["pipelines"][0]["name"], "echo")

    def test_what_a_modelet_leaves_behind(self):
        """A child of a worker ends with the check."""
        with tempfile.TemporaryDirectory() as folder:
            lives = pathlib.Path(folder) / "orphan.lives"
            lives.touch()
            code, said = self.check(node(pipeline("p", stage(
                "libpuppet.so", "s", params={"open": "orphan", "folder": folder},
                sandbox_allow=["all"]))))
            self.assertEqual(code, 2, said)
            pids = [int(path.read_text()) for path in pathlib.Path(folder).glob("*.pid")]
            for pid in pids:
                wait_until(lambda one=pid: not shoal_fixture.is_alive(one), "the end of the orphan")


if __name__ == "__main__":
    shoal_fixture.main()
