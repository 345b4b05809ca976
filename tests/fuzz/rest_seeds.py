# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of corpus/json_rows and corpus/http_inflate.

    python3 tests/fuzz/rest_seeds.py
"""

import gzip
import json
import pathlib
import zlib

CORPUS = pathlib.Path(__file__).parent / "corpus"
MATRIX, TEXTS, ANY_RANK, PAIR = range(4)
GENERATE = 0x80
GZIP, DEFLATE = 0x41, 0x40  # limits of 8 KiB


def rows(model, text=None, **members):
    return bytes([model]) + (json.dumps(members) if text is None else text).encode()


def packed(data):
    return gzip.compress(data, mtime=0)


SEEDS = {
    "json_rows": {
        "matrix": rows(MATRIX, instances=[[1, 2], [3, 4]], signature_name="s"),
        "matrix-named": rows(MATRIX, instances=[{"x": [1, 2]}]),
        "matrix-ragged": rows(MATRIX, instances=[[1, 2], [3]]),
        "matrix-empty": rows(MATRIX, instances=[]),
        "texts": rows(TEXTS, instances=[["a", "]\"\\"], ["\u00e4", ""]]),
        "any-rank": rows(ANY_RANK, instances=[[[1, 2.5]], [["NaN", "-Infinity"]]]),
        "any-rank-empty": rows(ANY_RANK, instances=[[], []]),
        "pair": rows(PAIR, instances=[{"a": [1, 2**64 - 1], "b": "x"}, {"b": "}", "a": [0, 3]}]),
        "pair-escaped": rows(PAIR, '{"inst\\u0061nces":[{"\\u0061":[1],"b":""}]}'),
        "pair-cut": rows(PAIR, '{"instances":[{"a":[1],"b'),
        "deep": rows(ANY_RANK, '{"instances":' + "[" * 40),
        "twice": rows(MATRIX, '{"instances":[[1,2]],"instances":[[1,2]]}'),
        "generate-matrix": rows(GENERATE | MATRIX, x=[1, 2], id="7", parameters={"top_k": 3, "stream": False}),
        "generate-text": rows(GENERATE | TEXTS, x="]\"\\ \u00e4", temperature=0.5),
        "generate-pair": rows(GENERATE | PAIR, '{"\\u0061":[[1],[2]],"b":["x","}"]}'),
        "generate-in-parameters": rows(GENERATE | PAIR, parameters={"a": 1, "b": ["x"]}),
        "generate-any-rank": rows(GENERATE | ANY_RANK, x=[[[1, 2.5]]]),
        "generate-twice": rows(GENERATE | MATRIX, '{"x":[1,2],"\\u0078":[3,4]}'),
        "generate-deep": rows(GENERATE | ANY_RANK, '{"x":' + "[" * 40),
        "generate-cut": rows(GENERATE | PAIR, '{"a":[1],"parameters":{"b'),
    },
    "http_inflate": {
        "gzip": bytes([GZIP]) + packed(b'{"inputs":[]}'),
        "members": bytes([GZIP]) + packed(b"a") + packed(b"") + packed(b"b"),
        "bomb": bytes([GZIP]) + packed(bytes(1 << 19)),
        "deflate": bytes([DEFLATE]) + zlib.compress(bytes(range(256)) * 40),
        "deflate-more": bytes([DEFLATE]) + zlib.compress(b"a") + b"x",
        "cut": bytes([GZIP]) + packed(b"hello")[:-3],
        "no-header": bytes([GZIP]) + b'{"inputs":[]}',
    },
}

if __name__ == "__main__":
    for target, seeds in SEEDS.items():
        (CORPUS / target).mkdir(parents=True, exist_ok=True)
        for name, content in seeds.items():
            (CORPUS / target / name).write_bytes(content)
