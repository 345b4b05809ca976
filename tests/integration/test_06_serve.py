# SPDX-License-Identifier: Apache-2.0
"""`shoald serve`: models named on the command line are served, without a configuration file.

Files, model folders and a folder of mixed models; what the node prints about each model is true, and
the command that it prints works when pasted into a shell; what cannot be served is refused by name,
with a remedy; the printed configuration is one that shoald takes.
ctest: timeout=180
"""

import json
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import unittest
import urllib.request

import shoal_boosters
import shoal_fixture
from shoal_dashboard import Dashboard
from shoal_fixture import BIN, EXAMPLES, WAIT_SECONDS, free_port
from shoal_serve import Serve


class TestServe(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory(prefix="shoal-test.")))

    def booster(self, path, number):
        making = self.folder / "making"
        shoal_boosters.write(making, number)
        (making / "model.json").rename(path)
        making.rmdir()

    def paste(self, shoald, model):
        """The answer to the command that was printed for a model."""
        command = shoald.wait_log(fr"^  ((?:curl|{{) .*/v2/models/{model}/infer .*)$").group(1)
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=WAIT_SECONDS)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_models_by_name(self):
        self.booster(self.folder / "bst.json", 3)
        (self.folder / "exclusive-or").mkdir()
        (self.folder / "exclusive-or/model.mlp").write_bytes((EXAMPLES / "mlp/xor.mlp").read_bytes())
        digits = EXAMPLES / "digits/digits.ubj"
        with Serve(self.folder, self.folder / "bst.json", "exclusive-or", digits) as shoald:
            shoald.wait_log(r"^exclusive-or: bits FP32 \[-1, 2\] -> xor FP32 \[-1, 1\]$")
            shoald.wait_log(r"^digits: features FP32 \[-1, 64\] -> probabilities FP32 \[-1, 10\], "
                            r"label INT64 \[-1\]$")
            shoald.wait_log(r"^bst: features FP32 \[-1, 1\] -> prediction FP32 \[-1, 1\]$")
            shoald.wait_log("^A changed file is read by `shoalctl reload`") # the last line of all
            self.assertIn(f"gRPC on {shoald.target}, HTTP on http://{shoald.http}, metrics on "
                          f"http://{shoald.metrics}", shoald.stderr)
            self.assertIn(f"See it at http://{shoald.dashboard}/", shoald.stderr)
            page = Dashboard(int(shoald.dashboard.rpartition(":")[2]))
            self.assertTrue(page.json("/about")["infer"])
            answer = self.paste(shoald, "digits")
            probabilities, label = answer["outputs"]
            self.assertEqual((probabilities["shape"], label["shape"]), ([1, 10], [1]))
            self.assertEqual(label["data"],
                             [max(range(10), key=lambda digit: probabilities["data"][digit])])
            self.assertEqual(self.ask(shoald, "digits", 64, ["label"]), [label])
            self.assertEqual(self.paste(shoald, "exclusive-or")["model_name"], "exclusive-or")
            value, = self.paste(shoald, "bst")["outputs"][0]["data"]
            self.assertAlmostEqual(value, shoal_boosters.answers(3)[0], places=5)

    def code(self, name, inputs):
        """A file whose model answers the elements and the sum of all its inputs."""
        names = re.findall(r"(\w+):", inputs)
        (self.folder / f"{name}.py").write_text(
            "import numpy, shoal\n\n\nclass Model:\n"
            f"    def run(self, {inputs}) -> {{'y': shoal.FP64[2]}}:\n"
            f"        x = numpy.concatenate([x.ravel() for x in [{', '.join(names)}]])\n"
            "        if x.dtype == object:\n"
            "            x = numpy.array([len(text) for text in x])\n"
            "        return {'y': numpy.array([x.size, x.sum()], float)}\n")
        return f"{name}.py"

    def test_commands_of_any_size(self):
        """Also those that are longer than a shell passes in one argument."""
        models = {
            "few": ("x: shoal.UINT8[-1, 16]", [16, 0]),
            "image": ("x: shoal.FP32[-1, 3, 224, 224]", [150528, 150528]),
            "large": ("x: shoal.INT64[1000000]", [1e6, 1e6]),
            "pixels": ("x: shoal.UINT8[-1, 28, 28]", [784, 784]),
            "shorts": ("x: shoal.INT16[27648]", [27648, 27648]),
            "flags": ("x: shoal.BOOL[784]", [784, 0]),
            "texts": ("x: shoal.BYTES[784]", [784, 784 * len("text")]),
            "several": ("x: shoal.UINT8[784], y: shoal.FP32[2, 1], z: shoal.INT32[17]", [803, 801])}
        files = [self.code(name, inputs) for name, (inputs, _) in models.items()]
        with Serve(self.folder, "--workers", 1, *files) as shoald:
            for name, (_, wanted) in models.items():
                with self.subTest(name):
                    self.assertEqual(self.paste(shoald, name)["outputs"][0]["data"], wanted)
            self.assertRegex(shoald.stderr, "(?m)^  curl .*/few/infer ")

    def test_models_without_a_command(self):
        """A line says why."""
        models = {"half": ("x: shoal.FP16[-1, 4]", "JSON has no FP16, send it as binary data"),
                  "huge": ("x: shoal.INT64[2097152]", "the input is larger than `message_mib`"),
                  "free": ("**inputs", "the model declares no inputs"),
                  "much": (", ".join(f"tensor_{i}: shoal.FP32[17]" for i in range(16)), "it would be too long")}
        files = [self.code(name, inputs) for name, (inputs, _) in models.items()]
        with Serve(self.folder, "--workers", 1, *files) as shoald:
            shoald.wait_log("^A changed file is read by `shoalctl reload`")  # the last line of all
            for name, (_, reason) in models.items():
                self.assertRegex(shoald.stderr, f"(?m)^{name}: .*\n  \\(no command: {reason}\\)$")

    def ask(self, shoald, model, features, outputs):
        """The outputs that were asked for, as in the printed command."""
        body = {"inputs": [{"name": "features", "datatype": "FP32", "shape": [1, features],
                            "data": list(range(1, features + 1))}],
                "outputs": [{"name": name} for name in outputs]}
        request = urllib.request.Request(f"http://{shoald.http}/v2/models/{model}/infer",
                                         json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:
            return json.load(answer)["outputs"]

    @unittest.skipIf(shoal_fixture.has_onnxruntime(), "there is an ONNX Runtime")
    def test_without_onnxruntime(self):
        """A model alone is refused with the command that helps; in a folder it is the only one that
        does not serve."""
        models = self.folder / "models"
        models.mkdir()
        shutil.copy(EXAMPLES / "onnx/xor.onnx", models)
        command = "there is no ONNX Runtime: `pip install --no-deps --target DIR onnxruntime`"
        code, out, error = self.serve("--http-port", free_port(), "--grpc-port", free_port(),
                                      "--metrics-port", "0", "--dashboard-port", "0", models / "xor.onnx")
        self.assertEqual((code, out), (2, ""))
        self.assertIn(f"{command}, and start shoald with SHOAL_ONNXRUNTIME_DIR=DIR", error)
        self.booster(models / "bst.json", 3)
        with Serve(self.folder, "models") as shoald:
            self.paste(shoald, "bst")
            shoald.wait_log(f'model_failed .*model="xor".*{re.escape(command)}')

    def test_numbered_versions(self):
        """Of a folder that is named itself; a higher one takes over."""
        fraud = self.folder / "fraud"
        fraud.mkdir()
        for number in 1, 2:
            (fraud / str(number)).mkdir()
            self.booster(fraud / str(number) / "model.json", number)
        with Serve(self.folder, "fraud") as shoald:
            def answer():
                value, = self.ask(shoald, "fraud", 1, [])[0]["data"]
                return (value - 2) / 2
            self.paste(shoald, "fraud")
            self.assertEqual(answer(), 2)
            making = self.folder / "making-3"
            making.mkdir()
            self.booster(making / "model.json", 3)
            making.rename(fraud / "3")
            shoal_fixture.wait_until(lambda: answer() == 3, "version 3 serves")
        (fraud / "config.pbtxt").write_text('name: "other"')
        with Serve(self.folder, "fraud") as shoald:
            shoald.wait_log('model_not_listed .*model="fraud" error="config.pbtxt: line 1: name')

    def test_a_folder_of_models(self):
        models = self.folder / "models"
        models.mkdir()
        self.booster(models / "flat.json", 1)
        (models / "xor.mlp").write_bytes((EXAMPLES / "mlp/xor.mlp").read_bytes())
        (models / "README.md").write_text("not a model")
        (models / "set").mkdir()
        self.booster(models / "set/model.json", 4)
        (models / "set/config.pbtxt").write_text("dynamic_batching {}")
        with Serve(self.folder, "models") as shoald:
            self.assertNotIn("shoalctl reload", shoald.stderr)
            self.assertEqual(self.paste(shoald, "xor")["outputs"][0]["name"], "xor")
            self.paste(shoald, "flat")
            self.booster(models / "later.json", 2)
            value, = self.paste(shoald, "later")["outputs"][0]["data"]
            self.assertAlmostEqual(value, shoal_boosters.answers(2)[0], places=5)
            (models / "broken.ubj").write_text("no booster")
            shoald.wait_log('model_not_listed pipeline=\\S+ model="broken.ubj"')
            self.booster(models / "last.json", 3)
            self.paste(shoald, "last")  # all pipelines have looked since
            self.assertEqual(shoald.stderr.count('model="broken.ubj"'), 1)
            self.assertEqual(shoald.stderr.count("model_settings_ignored"), 1)

    def serve(self, *arguments):
        done = subprocess.run([BIN / "shoald", "serve", *map(str, arguments)], capture_output=True,
                              text=True, timeout=WAIT_SECONDS, cwd=self.folder)
        return done.returncode, done.stdout, done.stderr

    def test_refused(self):
        (self.folder / "notes.txt").write_text("text")
        (self.folder / "a").mkdir()
        (self.folder / "b").mkdir()
        self.booster(self.folder / "a/same.json", 1)
        self.booster(self.folder / "b/same.ubj", 2)
        self.booster(self.folder / "not a name.json", 1)
        cases = [([], "expected a model"), (["gone.ubj"], "gone.ubj: No such file"),
                 (["notes.txt"], "notes.txt: no model of a known format"),
                 (["a", "b"], "are both folders of models: put the models into one folder"),
                 (["a/same.json", "b/same.ubj"], 'are both model "same": rename one of them'),
                 (["not a name.json"], "rename it"),
                 (["--workers", "0", "a"], "--workers: a number from 1 to 64, not 0"),
                 (["--http-port", "80x", "a"], "--http-port: a number from 0 to 65535, not 80x"),
                 (["--log-level", "loud", "a"], "--log-level"), (["--nonsense"], "unknown option")]
        for arguments, said in cases:
            code, out, error = self.serve(*arguments)
            self.assertEqual((code, out), (2, ""), arguments)
            self.assertIn(said, error, arguments)

    def test_ports_of_others(self):
        """Of those that other programs have, the options that choose further ones are named."""
        self.booster(self.folder / "one.json", 1)
        with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as too:
            ports = [str(one.getsockname()[1]) for one in (taken, too)]
            code, out, error = self.serve(
                "--counters", self.folder / "counters", "--grpc-port", ports[0], "--http-port", ports[1],
                "--metrics-port", free_port(), "--dashboard-port", "0", "one.json")
        self.assertEqual((code, out), (2, ""))
        for name, port in zip(("grpc", "http"), ports):
            self.assertIn(f"another program listens on 127.0.0.1:{port}; --{name}-port", error)
        self.assertNotIn("--metrics-port", error)

    def test_configuration(self):
        """It can be saved, changed and served."""
        models = self.folder / "models"
        models.mkdir()
        self.booster(self.folder / "one.json", 1)
        code, text, error = self.serve("--print-config", "--listen", "[::1]", "--memory", "300",
                                       "--workers", "1", "models", "one.json")
        self.assertEqual((code, error), (0, ""))
        self.assertEqual(re.findall("memory_mib: (\\d+)", text)[0:1], [str(300 // text.count("memory_mib"))])
        self.assertIn('listen: ["[::1]:8033"]', text)
        code, usual, error = self.serve("--print-config", "one.json")
        self.assertEqual((code, error), (0, ""))
        for key, port in (("listen", 8033), ("http", 8008), ("metrics", 2112), ("dashboard", 8088)):
            self.assertIn(f'{key}: ["127.0.0.1:{port}"]\n', usual)
        self.assertNotIn("server_name", usual)
        code, named, error = self.serve("--print-config", "--server-name", "triton", "one.json")
        self.assertEqual((code, error), (0, ""))
        self.assertIn('server_name: "triton"\n', named)
        (self.folder / "saved.yaml").write_text(text)
        done = subprocess.run([BIN / "shoald", "--check", self.folder / "saved.yaml"],
                              capture_output=True, text=True, timeout=WAIT_SECONDS)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    shoal_fixture.main()
