# SPDX-License-Identifier: Apache-2.0
"""For programs of the tests that do things to a node and print a table: the environment in which a
build's tests run, and the table.
"""

import os
import pathlib
import sys
import textwrap

OWN_VARIABLES = {"SHOAL_BUILD_DIR", "SHOAL_LAUNCHED"}


def take_environment(build):
    """The environment of the tests of this build, and their launcher, as CMake wrote them down."""
    os.environ["SHOAL_BUILD_DIR"] = str(pathlib.Path(build).resolve())
    values = (pathlib.Path(build) / "tests" / "environment").read_text().splitlines()
    launcher = [line[1:] for line in values if line.startswith("!")]
    for line in values:
        name, equals, value = line.partition("=")
        if equals and not line.startswith("!"):
            os.environ.setdefault(name, value)
    if launcher and "SHOAL_LAUNCHED" not in os.environ:
        os.environ["SHOAL_LAUNCHED"] = "1"
        os.execvp(launcher[0], [*launcher, sys.executable, *sys.argv])


def sanitizers(build):
    return (pathlib.Path(build) / "tests" / "sanitize").read_text().strip()


def print_table(columns, rows):
    """`columns`: names and widths, the last one's width is open; cells are wrapped."""
    def line(cells):
        wrapped = [textwrap.wrap(text, width) or [""] for text, (_, width) in zip(cells, columns)]
        for i in range(max(map(len, wrapped))):
            texts = [part[i] if i < len(part) else "" for part in wrapped]
            print("  ".join(f"{text:<{width}}"
                            for text, (_, width) in zip(texts, columns)).rstrip())

    print()
    line([name for name, _ in columns])
    for cells in rows:
        line(cells)
    print(flush=True)
