#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the pieces of an answer as they come, and then the whole one."""

import array
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import open_inference


def main():
    options = open_inference.parser(__doc__, "unix:/tmp/shoal-stream.sock")
    options.add_argument("values", type=int, nargs="*", default=[1, 2, 3])
    options.add_argument("--delay", type=int, default=100, help="ms before each piece [%(default)s]")
    arguments = options.parse_args()
    sent = {"IN": ("INT32", [len(arguments.values)], arguments.values),
            "DELAY": ("UINT32", [len(arguments.values)], [arguments.delay] * len(arguments.values)),
            "WAIT": ("UINT32", [1], [0])}
    with open_inference.Client(arguments.target, arguments.descriptors,
                               arguments.timeout) as client:
        for piece in client.stream("repeat_int32", sent):
            if piece.error_message:
                sys.exit(piece.error_message)
            answer = piece.infer_response
            final = answer.parameters["triton_final_response"].bool_param
            print(*(array.array("i", raw)[0] for raw in answer.raw_output_contents),
                  "the end" if final else "", flush=True)
        print(client.infer("repeat_int32", sent)["OUT"][2])


if __name__ == "__main__":
    main()
