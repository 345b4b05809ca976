#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Sends numbers to the echo service and prints the answer."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import open_inference


def main():
    options = open_inference.parser(__doc__, "unix:/tmp/shoal-echo.sock")
    options.add_argument("values", type=float, nargs="*", default=[1, 2, 3])
    arguments = options.parse_args()
    with open_inference.Client(arguments.target, arguments.descriptors,
                               arguments.timeout) as client:
        sent = {"numbers": ("FP32", [len(arguments.values)], arguments.values)}
        for name, (datatype, shape, values) in client.infer("echo", sent).items():
            print(name, datatype, shape, values)


if __name__ == "__main__":
    main()
