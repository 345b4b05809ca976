#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sends numbers to a pipeline on this host through shared memory, and prints the answer."""

import argparse
import array
import os
import pathlib
import sys

import shoal


def library():
    """Returns the library of the build in a source tree, else the installed one."""
    build = os.environ.get("SHOAL_BUILD_DIR")
    if build is None:
        build = pathlib.Path(__file__).resolve().parents[2] / "build" / "release"
    built = pathlib.Path(build) / "lib" / "libshoal.so.1"
    return str(built) if built.exists() else built.name


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--socket", help="of the node, for local clients [$SHOAL_LOCAL, else that "
                         "of the user's own node]")
    options.add_argument("--pipeline", default="echo", help="[%(default)s]")
    options.add_argument("--timeout", type=float, default=10, help="seconds [%(default)s]")
    options.add_argument("--library", default=library(), help="[%(default)s]")
    options.add_argument("values", type=float, nargs="*", default=[1, 2, 3])
    arguments = options.parse_args()
    with shoal.Client(arguments.pipeline, arguments.socket, library=arguments.library) as client:
        sent = {"numbers": array.array("f", arguments.values)}
        for name, values in client.infer(sent, arguments.timeout).items():
            print(name, values.tolist())


if __name__ == "__main__":
    try:
        main()
    except (shoal.Error, OSError) as error:
        sys.exit(f"client.py: {error}")
