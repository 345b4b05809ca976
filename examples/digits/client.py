#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Draws held-out digits, classifies them with the digits service, and prints its confidence."""

import csv
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import open_inference

DATA = pathlib.Path(__file__).resolve().parent / "data" / "digits.csv"
HELD_OUT_EVERY = 5  # as in digits.h


def held_out(path):
    """Pairs of an image (64 values of 0..16) and the digit it shows."""
    with path.open(newline="") as file:
        rows = [[int(value) for value in row] for row in csv.reader(file)]
    return [(row[:64], row[64]) for row in rows[HELD_OUT_EVERY - 1::HELD_OUT_EVERY]]


def draw(pixels):
    for row in range(8):
        print("  " + "".join(" .:-=+*#%"[pixel // 2] * 2 for pixel in pixels[row * 8:row * 8 + 8]))


def main():
    options = open_inference.parser(__doc__, "unix:/tmp/shoal-digits.sock")
    options.add_argument("--data", type=pathlib.Path, default=DATA, help="[%(default)s]")
    options.add_argument("--count", type=int, default=3, help="digits to draw [%(default)s]")
    arguments = options.parse_args()
    images = held_out(arguments.data)
    # All images in one request: the rows of one tensor.
    pixels = [pixel for image, _ in images for pixel in image]
    with open_inference.Client(arguments.target, arguments.descriptors,
                               arguments.timeout) as client:
        answer = client.infer("digits", {"image": ("FP32", [len(images), 64], pixels)})
    labels = answer["label"][2]
    probabilities = answer["probabilities"][2]
    for i, (image, digit) in enumerate(images[:arguments.count]):
        draw(image)
        print(f"  is a {digit}, read as {labels[i]}, sure to "
              f"{probabilities[i * 10 + labels[i]]:.1%}\n")
    right = sum(label == digit for label, (_, digit) in zip(labels, images))
    print(f"{right} of {len(images)} held-out digits right: {right / len(images):.2%}")
    return 0 if right >= 0.95 * len(images) else 1


if __name__ == "__main__":
    sys.exit(main())
