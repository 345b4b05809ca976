# SPDX-License-Identifier: Apache-2.0
"""The example clients and the demo do what their READMEs say.

Each is run as a user would run it, against a daemon on the example's own configuration. ctest: timeout=180
"""

import os
import subprocess
import sys
import tempfile
import unittest

import grpc

import shoal_fixture
from shoal_fixture import BIN, BUILD, EXAMPLES, SOURCE, WAIT_SECONDS, Shoald, free_port


class TestExamples(unittest.TestCase):
    def run_client(self, *command, code=0):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=2 * WAIT_SECONDS,
                              env={**os.environ, "SHOAL_BUILD_DIR": str(BUILD)})
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, code, f"{command} ended with {done.returncode}:\n{said}")
        return said

    def run_python_client(self, example, shoald, *more, code=0):
        return self.run_client(sys.executable, SOURCE / "examples" / example / "client.py",
                               "--target", shoald.target, *more, code=code)

    def test_echo(self):
        with Shoald(EXAMPLES / "echo" / "echo.yaml") as shoald:
            self.run_python_client("echo", shoald)

    def test_stream(self):
        with Shoald(EXAMPLES / "stream" / "stream.yaml") as shoald:
            said = self.run_python_client("stream", shoald, "--delay", 0, "3", "1", "4")
            self.assertEqual([line.strip() for line in said.splitlines()],
                             ["3 0", "1 1", "4 2", "the end", "[3, 1, 4]"])

    def test_scale_shift(self):
        with Shoald(EXAMPLES / "scale-shift" / "scale-shift.yaml") as shoald:
            self.run_python_client("scale-shift", shoald)

    def test_text(self):
        with Shoald(EXAMPLES / "text" / "text.yaml") as shoald:
            said = self.run_python_client("text", shoald, "shoal", "Fish", "", "äh?")
            self.assertEqual(said.splitlines(), ["SHOAL 5", "FISH 3", " 0", "äH? 1"])
            self.assertEqual(self.run_python_client("text", shoald, "x" * 100000),
                             "X" * 100000 + " 100000\n")
            with grpc.insecure_channel(shoald.target) as channel:
                upper = channel.unary_unary("/example.Text/Upper")
                for message, answer in ((b"", b"\x0a\0\x10\0"), (b"\x0a\1a", b"\x0a\1A\x10\1"),
                                        (b"\x12\1b\x0a\1a\x18\5\x25\0\0\0\0\x31" + bytes(8),
                                         b"\x0a\1A\x10\1")):
                    self.assertEqual(upper(message, timeout=WAIT_SECONDS), answer)
                for message in (b"\x0a", b"\x0a\2a", b"\x0b\x0c", b"\x25\0", b"\xff" * 11):
                    with self.assertRaises(grpc.RpcError) as caught:
                        upper(message, timeout=WAIT_SECONDS)
                    self.assertEqual(caught.exception.code().name, "INVALID_ARGUMENT", message)

    def test_digits(self):
        port = free_port()
        with Shoald(EXAMPLES / "digits" / "digits.yaml",
                    ["--no-pin", "--listen", f"127.0.0.1:{port}"]) as shoald:
            said = self.run_python_client("digits", shoald)
            self.assertRegex(said, r"\d+ of \d+ held-out digits right")
            data = SOURCE / "examples" / "digits" / "data" / "digits.csv"
            for target in (shoald.target, f"127.0.0.1:{port}"):
                self.run_client(BIN / "digits-client", "--target", target, "--data", data)

    def test_clients_without_a_server(self):
        """They say so, within their time, and fail."""
        said = self.run_client(sys.executable, SOURCE / "examples" / "echo" / "client.py",
                               "--target", "unix:/nowhere/grpc.sock", "--timeout", "0.5", code=1)
        self.assertIn("DEADLINE_EXCEEDED", said)

    def test_demo(self):
        with tempfile.TemporaryDirectory(prefix="shoal-test.") as folder:
            done = subprocess.run(
                ["bash", SOURCE / "examples" / "digits" / "demo.sh"], capture_output=True,
                text=True, stdin=subprocess.DEVNULL, timeout=3 * WAIT_SECONDS,
                env={**os.environ, "SHOAL_BUILD_DIR": str(BUILD), "TMPDIR": folder})
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("demo: stopped cleanly", done.stdout)
            for name in ("normalize", "classify", "label"):
                self.assertIn(name, done.stdout, "the table has no line for this stage")
            self.assertEqual(os.listdir(folder), [], "the demo has left files behind")


if __name__ == "__main__":
    shoal_fixture.main()
