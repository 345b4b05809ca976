# SPDX-License-Identifier: Apache-2.0
"""Manual pages and completion know every command, option and key that the programs know.

The output of --help and the table of keys are compared with the pages; the
completion of bash is run by bash, and zsh's is read by zsh where there is one.
ctest: timeout=120
"""

import re
import shutil
import subprocess
import unittest

import shoal_fixture
from shoal_fixture import BIN, SOURCE, WAIT_SECONDS


def said(program, *arguments, code=0):
    done = subprocess.run([BIN / program, *arguments], stdin=subprocess.DEVNULL, text=True,
                          capture_output=True, timeout=WAIT_SECONDS)
    assert done.returncode == code, f"{program} {arguments}: {done.returncode}\n{done.stderr}"
    return done.stdout if code == 0 else done.stderr


def options_of(text):
    return re.findall(r"(?m)^  --([a-z-]+)", text)


def commands():
    """Every command of shoalctl, as words, with its options: what people find in --help."""
    found = {}
    for word in re.findall(r"(?m)^  ([a-z]+) +\w", said("shoalctl", "--help")):
        text = said("shoalctl", word, "--help")
        found[word] = options_of(text)
        if word in ("model", "mesh", "new"):
            for part in re.findall(r"(?m)^  ([a-z-]+) .*", text.split("Options:")[0]):
                found[f"{word} {part}"] = options_of(said("shoalctl", word, part, "--help"))
    return found


def rendered(page):
    """As `man` shows it; fails where it warns."""
    done = subprocess.run(["groff", "-Kutf8", "-man", "-Tutf8", "-ww", "-P-cbou", "-rLL=200n"], input=page,
                          text=True, capture_output=True, timeout=WAIT_SECONDS)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


class TestPages(unittest.TestCase):
    def sections(self, page):
        """The text below each heading of the second order."""
        parts = re.split(r"(?m)^\.SS (.*)$", page)
        return {name.replace("\\-", "-"): text for name, text in zip(parts[1::2], parts[2::2])}

    def named(self, text):
        return [name.replace("\\-", "-") for name in re.findall(r"(?m)^\\fB\\-\\-(.*?)\\fR", text)]

    def test_shoalctl(self):
        found = commands()
        self.assertGreater(len(found), 20)
        sections = self.sections(said("shoalctl", "--help=man"))
        self.assertEqual(sorted(sections), sorted(found))
        for name, options in found.items():
            self.assertEqual(self.named(sections[name]) + ["help"], options, name)

    def test_programs(self):
        for program in ("shoald", "shoal-worker"):
            options = options_of(said(program, "--help"))
            self.assertGreater(len(options), 1)
            if program == "shoald":
                options += options_of(said(program, "serve", "--help"))
            self.assertEqual(self.named(said(program, "--help=man")), options)
            self.assertIn("unknown" if program == "shoal-worker" else "bash or zsh",
                          said(program, "--help=no", code=2))
        self.assertIn("bash or zsh", said("shoalctl", "--help=no", code=2))

    def test_keys(self):
        table = (SOURCE / "src/coordinator/config/config_keys.def").read_text()
        keys = re.findall(r'(?m)^KEY(?:_MAP)?\(\w+, \w+, "(\w+)"', table)
        self.assertGreater(len(keys), 100)
        page = said("shoald", "--help-config=man")
        self.assertEqual(sorted(re.findall(r"(?m)^\.TP\n\\fB([a-z_]+)\\fR$", page)), sorted(keys))
        self.assertIn("MM_SERVICE_NAME", page)
        self.assertIn("man", said("shoald", "--help-config=html", code=2))

    @unittest.skipUnless(shutil.which("groff"), "groff is not installed")
    def test_they_can_be_read(self):
        for program, option in (("shoald", "--help=man"), ("shoal-worker", "--help=man"),
                                ("shoald", "--help-config=man"), ("shoalctl", "--help=man")):
            self.assertIn("NAME", rendered(said(program, option)))


class TestCompletion(unittest.TestCase):
    def complete(self, program, *words):
        """The words that bash offers after these, the last of which is being typed."""
        script = (said(program, "--help=bash") + f'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
                  f'_{program}; printf "%s\\n" "${{COMPREPLY[@]}}"')
        done = subprocess.run(["bash", "-c", script, "bash", program, *words], text=True,
                              capture_output=True, timeout=WAIT_SECONDS)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_bash(self):
        found = commands()
        top = [name for name in found if " " not in name]
        self.assertEqual(sorted(self.complete("shoalctl", "")),
                         sorted([*top, "--help", "--version"]))
        for name, options in found.items():
            parts = [other.split()[1] for other in found if other.startswith(f"{name} ")]
            self.assertEqual(sorted(self.complete("shoalctl", *name.split(), "")),
                             sorted([*parts, *(f"--{option}" for option in options)]), name)
        self.assertEqual(self.complete("shoalctl", "inf"), ["infer"])
        self.assertEqual(self.complete("shoalctl", "model", "load", "--ke"), ["--key"])
        self.assertEqual(self.complete("shoalctl", "reload", "--counters", ""), [],
                         "the value of an option is a file's name")
        self.assertIn("--check", self.complete("shoald", "--"))

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_zsh_reads_its_own(self):
        for program in ("shoald", "shoalctl"):
            done = subprocess.run(["zsh", "-n"], input=said(program, "--help=zsh"), text=True,
                                  capture_output=True, timeout=WAIT_SECONDS)
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_zsh(self):
        text = said("shoalctl", "--help=zsh")
        for name, options in commands().items():
            case = text[text.index(f"\n    '{name}')\n"):].split(";;\n")[0]
            self.assertEqual(set(re.findall(r"--([a-z-]+)=?\[", case)), set(options), name)


if __name__ == "__main__":
    shoal_fixture.main()
