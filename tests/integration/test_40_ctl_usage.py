# SPDX-License-Identifier: Apache-2.0
"""shoalctl without a node: its help, and its texts for wrong usage.

Every command has a help with its exit codes and an example; a mistake is reported with the word that
was meant, ends with 2, and nothing is sent; what is not there ends with 3. ctest: timeout=120
"""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import shoal_fixture
from shoal_ctl import LATE, UNREACHABLE, USAGE, environment, shoalctl
from shoal_fixture import BIN

COMMANDS = ("infer", "status", "stat", "top", "reload", "apply", "diff", "get", "describe", "wait", "delete")


class TestHelp(unittest.TestCase):
    def test_the_program(self):
        done = shoalctl("--help")
        for command in COMMANDS:
            self.assertRegex(done.out, rf"(?m)^  {command} +\w")
        self.assertRegex(shoalctl("--version").out, r"^shoalctl \d+\.\d+\.\d+\n$")
        self.assertEqual(shoalctl(code=USAGE).out, "")

    def test_every_command(self):
        for command in COMMANDS:
            done = shoalctl(command, "--help")
            for part in (f"usage: shoalctl {command}", "Options:", "  --json", "Exit codes:",
                         f"Example:\n  shoalctl {command} "):
                self.assertIn(part, done.out, done.told)
            self.assertEqual(done.err, "")
            for line in done.out.splitlines():
                self.assertLessEqual(len(line), 100, f"a line wider than 100: {line}")

    def test_the_counters(self):
        names = [one["name"] for one in shoalctl("stat", "--help-counters", "--json").json]
        table = (shoal_fixture.SOURCE / "src/ipc/counters.def").read_text()
        wanted = re.findall(r"^COUNTER\(\w+, (\w+)", table, re.MULTILINE)
        self.assertEqual(names, [name.lower() for name in wanted])
        text = shoalctl("stat", "--help-counters").out
        for name in names:
            self.assertRegex(text, rf"(?m) {name} ")


class TestMistakes(unittest.TestCase):
    def check(self, words, *arguments, **options):
        done = shoalctl(*arguments, code=USAGE, **options)
        self.assertIn(words, done.err, done.told)
        self.assertEqual(done.out.count("\n"), 1 if "--json" in arguments else 0)

    def test_words(self):
        self.check("did you mean infer", "infre")
        self.check("did you mean status", "statsu")
        self.check('no command "register"', "register")
        self.check("did you mean --input", "infer", "m", "--inptu", "x")
        self.check("did you mean --interval", "stat", "--intervall", "1")
        self.check("--json takes no value", "stat", "--json=yes")
        self.check("--target needs a value", "infer", "m", "--target")
        self.check("unknown option --timeout, did you mean --timeout-ms", "infer", "m", "--timeout", "20")
        self.check("unknown option --timeout, did you mean --timeout-ms", "infer", "m", "--timeout=20")
        self.check("is not KEY=VALUE", "infer", "m", "--metadata", "x")
        self.check("small letters", "infer", "m", "--metadata", "X y=1")
        self.check("the model is missing", "infer")
        self.check("the model is missing", "infer", "--json")
        self.check("more than one model", "infer", "a", "b")
        self.check("unexpected argument", "stat", "digits")
        self.check("unexpected argument", "top", "digits")
        self.check("--count N needs --interval", "stat", "--count", "3")

    def test_values(self):
        self.check("is not an integer", "infer", "m", "--timeout-ms", "0")
        self.check("is not an integer", "infer", "m", "--repeat", "x")
        self.check("is not a number of seconds", "stat", "--interval", "-1")
        self.check("is not a number of seconds", "status", "--wait-ready", "soon")
        self.check("is not A-B", "infer", "m", "--csv-columns", "3-2")
        self.check("KEY=VALUE", "infer", "m", "--param", "k")

    def test_tensors(self):
        self.check("NAME=DATATYPE", "infer", "m", "--input", "x")
        self.check('no datatype "FP33"', "infer", "m", "--input", "x=FP33[1]:1")
        self.check("1 values do not make [2]", "infer", "m", "--input", "x=FP32[2]:1")
        self.check('value 2: "300" is out of range for INT8',
                   "infer", "m", "--input", "x=INT8[2]:1,300")
        self.check("FP16 has no typed contents", "infer", "m", "--input", "x=FP16[1]:1", "--typed")
        self.check("no input is a CSV file", "infer", "m", "--input", "x=FP32[1]:1", "--each-row")

    def test_csv_rows_that_cannot_be_divided(self):
        def check(words, *arguments):
            self.check(words, "infer", "m", *arguments, stdin=b"1,2\n3,4\n5,6\n")
        check("the shape needs 1 rows", "--input", "x=INT8[1,2]@csv:-")
        check("the shape needs 2 rows", "--input", "x=INT8[2,2]@csv:-", "--rows-per-request", "2")
        check("line 1: 2 values, the shape needs 3", "--input", "x=INT8[-1,3]@csv:-")
        with tempfile.NamedTemporaryFile(suffix=".csv") as file:
            file.write(b"1,2\n")
            file.flush()
            check("y has 3 rows", "--input", f"x=INT8[-1,2]@csv:{file.name}",
                  "--input", "y=INT8[-1,2]@csv:-")


class TestNothingThere(unittest.TestCase):
    def test_files(self):
        done = shoalctl("infer", "m", "--input", "x=FP32[1]@/nowhere/x", code=UNREACHABLE)
        self.assertIn("/nowhere/x: No such file", done.err)
        for command in ("stat", "top"):
            done = shoalctl(command, "--counters", "/nowhere/counters", code=UNREACHABLE)
            self.assertIn("/nowhere/counters: No such file", done.err)
        done = shoalctl("stat", "--counters", __file__, "--json", code=UNREACHABLE)
        self.assertIn("not a Shoal counters file", done.json["error"])
        done = shoalctl("status", "--counters", "/nowhere/counters", "--json", code=UNREACHABLE)
        self.assertEqual((done.json["ready"], done.json["workers"]), (False, []))
        self.assertIn("No such file", done.json["node"]["error"])

    def test_the_default_file_is_in_the_runtime_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            done = shoalctl("stat", code=UNREACHABLE, env=environment(XDG_RUNTIME_DIR=folder))
            expected = (pathlib.Path("/run") if os.geteuid() == 0
                        else pathlib.Path(folder)) / "shoal" / "counters"
            self.assertIn(str(expected), done.err)

    def test_a_full_disk_is_no_success(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([BIN / "shoalctl", "stat", "--help-counters"], stdout=full,
                                  stderr=subprocess.PIPE, env=environment())
        self.assertEqual(done.returncode, UNREACHABLE)
        self.assertIn(b"No space left", done.stderr)

    def test_nodes(self):
        with tempfile.TemporaryDirectory() as folder:
            target = f"unix:{folder}/none.sock"
            done = shoalctl("infer", "m", "--input", "x=FP32[1]:1", "--target", target, "--json",
                            "--timeout-ms", 100, code=UNREACHABLE)
            self.assertEqual(done.json["status"], "UNAVAILABLE")
            self.assertIn(target, done.json["error"])
            done = shoalctl("infer", "m", "--timeout-ms", 100, code=UNREACHABLE,
                            env=environment(SHOAL_TARGET=target))
            self.assertIn(target, done.err)
            done = shoalctl("status", "--target", target, "--timeout-ms", 100, "--counters",
                            f"{folder}/none", "--json", code=UNREACHABLE)
            self.assertFalse(done.json["target"]["live"])
            shoalctl("status", "--target", target, "--timeout-ms", 100, "--wait-ready", 0.2,
                     code=LATE)


if __name__ == "__main__":
    shoal_fixture.main()
