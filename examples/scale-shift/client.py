#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Sends numbers through the scale-shift service, y = 2x + 3, and checks each answer."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import open_inference


def main():
    options = open_inference.parser(__doc__, "unix:/tmp/shoal-scale-shift.sock")
    options.add_argument("x", type=float, nargs="*", default=[-1.5, 0, 1, 20])
    arguments = options.parse_args()
    with open_inference.Client(arguments.target, arguments.descriptors,
                               arguments.timeout) as client:
        sent = {"x": ("FP64", [len(arguments.x)], arguments.x)}
        _, _, answers = client.infer("scale-shift", sent)["y"]
    for x, y in zip(arguments.x, answers):
        print(f"2 * {x} + 3 = {y}")
    return 0 if answers == [2 * x + 3 for x in arguments.x] else 1


if __name__ == "__main__":
    sys.exit(main())
