#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Sends ten numbers at a time through both services, and checks each answer."""

import concurrent.futures
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import open_inference


def main():
    arguments = open_inference.parser(__doc__, "unix:/tmp/shoal-seed.sock").parse_args()
    wrong = 0
    with open_inference.Client(arguments.target, arguments.descriptors,
                               arguments.timeout) as client, \
            concurrent.futures.ThreadPoolExecutor(10) as pool:
        for model in ("python", "c"):
            def predict(x, model=model):
                return client.infer(model, {"x": ("FP64", [1], [x])})["y"][2][0]

            answers = list(pool.map(predict, range(10)))
            print(f"{model}: {answers}")
            wrong += answers != [x * 2 + 3 for x in range(10)]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
