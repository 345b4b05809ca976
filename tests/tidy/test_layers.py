#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The built objects keep the tables of layers.py; a planted use that they forbid is found, and so is a
row that nothing needs, or a cycle, in the table or of the objects of one folder."""

import os
import subprocess
import tempfile
import unittest

import layers

SOURCE, BUILD = os.environ["SHOAL_SOURCE_DIR"], os.environ["SHOAL_BUILD_DIR"]

# high/a.c calls low/b.c.
PLANTED = {
    "high/a.c": "int low_b(void);\nint high_a(void);\nint high_a(void) { return low_b(); }\n",
    "low/b.c": "int low_b(void);\nint low_b(void) { return 1; }\n",
}


def uses_planted(folder):
    """The uses of a small tree: its folders, its objects where CMake would put them, and an object
    that was left behind by a source that is gone."""
    build = os.path.join(folder, "build")
    target = os.path.join(build, "src", "lib", "CMakeFiles", "lib.dir")
    for name, text in PLANTED.items():
        path = os.path.join(folder, "src", "lib", name)
        made = os.path.join(target, name + ".o")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.makedirs(os.path.dirname(made), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        subprocess.run(["cc", "-O0", "-c", path, "-o", made], check=True)
    os.makedirs(os.path.join(target, "gone"))
    os.link(os.path.join(target, "low", "b.c.o"), os.path.join(target, "gone", "c.c.o"))
    return layers.uses(layers.objects(build, folder))


class Layers(unittest.TestCase):
    def setUp(self):
        with tempfile.TemporaryDirectory() as folder:
            self.planted = uses_planted(folder)

    def test_tree_keeps_the_table(self):
        found = layers.objects(BUILD, SOURCE)
        missing = set(layers.MAY_USE) - {folder for _, folder in found}
        self.assertEqual(missing, set(), "these are not built (or not in src/)")
        self.assertEqual(list(layers.findings(layers.uses(found), layers.MAY_USE)), [])

    def test_uses_are_read_from_objects(self):
        self.assertEqual(self.planted, {("lib/high", "lib/low"): "a.c uses low_b"})

    def test_allowed_use_passes(self):
        self.assertEqual(list(layers.findings(self.planted, {"lib/high": {"lib/low"}})), [])

    def test_forbidden_use_is_found(self):
        self.assertEqual(list(layers.findings(self.planted, {"lib/high": set()})),
                         ["src/lib/high may not use src/lib/low: a.c uses low_b"])

    def test_row_that_nothing_needs_is_found(self):
        allowed = {"lib/high": {"lib/low", "lib/other"}}
        self.assertEqual(list(layers.findings(self.planted, allowed)),
                         ["src/lib/high no longer uses src/lib/other: delete it from MAY_USE"])

    def test_cycle_in_the_table_is_found(self):
        used = {("a", "b"): "", ("b", "c"): "", ("c", "a"): ""}
        self.assertEqual(list(layers.findings(used, {"a": {"b"}, "b": {"c"}, "c": {"a"}})),
                         ["MAY_USE has a cycle: a -> b -> c -> a"])

    def test_objects_of_a_folder_form_no_cycle(self):
        found = layers.objects(BUILD, SOURCE)
        self.assertEqual(list(layers.tangles(found, layers.CYCLIC)), [])

    def test_planted_cycle_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            uses_planted(folder)
            place = os.path.join(folder, "build/src/lib/CMakeFiles/lib.dir")
            found = [(os.path.join(place, name + ".o"), "lib") for name in PLANTED]
            self.assertEqual(list(layers.tangles(found, {"lib"})),
                             ["src/lib has no cycle any more: delete it from CYCLIC"])
            text = "int high_a(void);\nint low_b(void);\nint low_b(void) { return high_a(); }\n"
            subprocess.run(["cc", "-O0", "-xc", "-c", "-", "-o", found[1][0]], check=True, input=text.encode())
            self.assertEqual(list(layers.tangles(found, set())), ["src/lib has a cycle: a.c -> b.c -> a.c"])


if __name__ == "__main__":
    unittest.main()
