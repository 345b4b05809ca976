# SPDX-License-Identifier: Apache-2.0
"""Thousands of small XGBoost models whose answers are known.

One booster is trained, a single split at 0.5, by the library that the modelet uses; the others are its
file with other leaves. Model number i answers 2 i + 1 for 0 and 2 i + 2 for 1: exactly, in single
precision, so an answer shows which model gave it.
"""

import ctypes
import ctypes.util
import functools
import json
import pathlib
import struct
import tempfile

LEAVES = ("@left", "@right")


def library():
    return ctypes.CDLL(ctypes.util.find_library("xgboost") or "libxgboost.so")


def train(path):
    """Writes a booster of one tree with one split."""
    xgboost = library()
    xgboost.XGBGetLastError.restype = ctypes.c_char_p

    def call(name, *arguments):
        if getattr(xgboost, name)(*arguments) != 0:
            raise RuntimeError(f"{name}: {xgboost.XGBGetLastError().decode()}")

    rows = (ctypes.c_float * 2)(0, 1)
    matrix, booster = ctypes.c_void_p(), ctypes.c_void_p()
    call("XGDMatrixCreateFromMat", rows, ctypes.c_uint64(2), ctypes.c_uint64(1),
         ctypes.c_float(float("nan")), ctypes.byref(matrix))
    call("XGDMatrixSetFloatInfo", matrix, b"label", rows, ctypes.c_uint64(2))
    call("XGBoosterCreate", (ctypes.c_void_p * 1)(matrix), ctypes.c_uint64(1), ctypes.byref(booster))
    for name, value in (("objective", "reg:squarederror"), ("base_score", "0"), ("max_depth", "1"),
                        ("min_child_weight", "0"), ("eta", "1"), ("lambda", "0"), ("nthread", "1"),
                        ("tree_method", "exact")):
        call("XGBoosterSetParam", booster, name.encode(), value.encode())
    call("XGBoosterUpdateOneIter", booster, 0, matrix)
    call("XGBoosterSaveModel", booster, str(path).encode())
    call("XGBoosterFree", booster)
    call("XGDMatrixFree", matrix)


@functools.cache
def template():
    """The trained booster's file as a text with two marks where its leaves were."""
    with tempfile.TemporaryDirectory(prefix="shoal-booster.") as folder:
        path = pathlib.Path(folder) / "model.json"
        train(path)
        model = json.loads(path.read_text())
    (tree,) = model["learner"]["gradient_booster"]["model"]["trees"]
    assert len(tree["split_conditions"]) == 3, f"another tree than expected: {tree}"
    tree["split_conditions"] = [0.5, *LEAVES]
    return json.dumps(model)


def text(number, features=1):
    """The split is by the first of the features."""
    left, right = answers(number)
    leaves = template().replace(f'"{LEAVES[0]}"', repr(left)).replace(f'"{LEAVES[1]}"', repr(right))
    return leaves.replace('"num_feature": "1"', f'"num_feature": "{features}"')


def answers(number):
    """For an input of 0, and of 1."""
    return 2.0 * number + 1, 2.0 * number + 2


def write(folder, number, features=1, more_bytes=0):
    """Makes a folder with a model's file in it, with so many more bytes that a loaded model keeps."""
    folder = pathlib.Path(folder)
    folder.mkdir()
    attributes = json.dumps({"more": more_bytes * "x"} if more_bytes > 0 else {})
    (folder / "model.json").write_text(
        text(number, features).replace('"attributes": {}', f'"attributes": {attributes}'))


def name(number):
    return f"booster-{number:05}"


def write_many(root, count):
    for number in range(count):
        write(pathlib.Path(root) / name(number), number)


INPUT = "features"  # what the modelet calls it


def tensor(value, features=1):
    """An input for infer_raw: a row whose features are all that value."""
    return INPUT, "FP32", [1, features], struct.pack("<f", value) * features


def value_of(answer):
    """The one number of an answer."""
    (raw,) = answer.raw_output_contents
    (value,) = struct.unpack("<f", raw)
    return value
