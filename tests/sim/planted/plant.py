#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a copy of a core in which every planted bug is present, each behind a switch.

    plant.py FROM TO PATCH...     FROM: such as src/mesh/core; TO: where its copies go

A patch is a unified diff. The text above its first `---` says what is wrong, and ends in
`Found: NAME within N seeds`, or `NAME/NAME`; CHECK is one of the core's own. Line numbers do not
matter: the old text must be in the file exactly once. PLANTED(n) switches the new text, n being the
number that the patch's name begins with. A patch that does not apply is left out, and TO/left_out
says which: so a change of the core breaks a test and never the build.
"""

import os
import re
import shutil
import sys


def hunks(text, home):
    """(file, old text, new text) of each hunk; `home` is where the core is in the sources."""
    name, old, new = None, [], []
    for line in text.split("\n")[:-1] + ["@@"]:
        if line.startswith(("--- ", "+++ ", "@@")):
            if old:
                yield name, "\n".join(old), "\n".join(new)
            old, new = [], []
            if line.startswith("+++ "):
                name = line.strip().partition(f"/{home}/")[2]
        elif name and line[:1] in (" ", "-", "+"):
            if line[0] != "+":
                old.append(line[1:])
            if line[0] != "-":
                new.append(line[1:])


def plant(patch, files, home):
    """The files with the patch's changes; or why it cannot be."""
    number = int(os.path.basename(patch)[:2])
    with open(patch, encoding="utf-8") as file:
        text = file.read()
    made = dict(files)
    for name, old, new in hunks(text[text.index("\n--- "):], home):
        if f"PLANTED({number})" not in new:
            return None, f"{name}: a change is not behind PLANTED({number})"
        if made.get(name, "").count(old) != 1:
            return None, f"{name} does not have this exactly once:\n{old}"
        made[name] = made[name].replace(old, new)
    return made, None


def main():
    source, target, patches = sys.argv[1], sys.argv[2], sorted(sys.argv[3:])
    files = {}
    for folder, _, names in sorted(os.walk(source)):
        for name in sorted(names):
            if name.endswith((".c", ".h")):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    files[os.path.relpath(file.name, source)] = file.read()
    home = source[source.rindex("src/"):].rstrip("/")
    left_out = []
    for patch in patches:
        made, wrong = plant(patch, files, home)
        if wrong:
            left_out.append(f"{os.path.basename(patch)}: {wrong}\n")
        else:
            files = made
    shutil.rmtree(target, ignore_errors=True)
    os.makedirs(target)
    for name, text in files.items():
        os.makedirs(os.path.dirname(os.path.join(target, name)), exist_ok=True)
        with open(os.path.join(target, name), "w", encoding="utf-8") as file:
            file.write(text)
    with open(os.path.join(target, "left_out"), "w", encoding="utf-8") as file:
        file.writelines(left_out)


main()
