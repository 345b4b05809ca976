# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of corpus/extproc: what Envoy sends, in each phase (fuzz_extproc.c).

    python3 tests/fuzz/extproc_seeds.py
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = HERE / "corpus" / "extproc"
sys.path.insert(0, str(HERE.parent / "integration"))

from shoal_extproc import (attributes, modes, number, request_body, request_headers,  # noqa: E402
                           request_trailers, response_body, response_headers, response_trailers, run,
                           subset_hint)

HEADERS = {":path": "/v1/completions", "content-length": "12", "x-request-id": "an-id"}
SEEDS = {
    "request_headers": request_headers(HEADERS) + modes(),
    "request_end": request_headers(HEADERS, end=True),
    "subset": request_headers({}) + subset_hint("10.0.0.1:8000", "[::1]:8000"),
    "subset_text": request_headers({}) + run(8, run(1, run(1, "envoy.lb.subset_hint") + run(2, run(
        1, run(1, "x-gateway-destination-endpoint-subset") + run(2, run(3, "10.0.0.1:1, b")))))),
    "request_body": request_body(b'{"model":"m"}'),
    "request_body_end": request_body(b"", end=True),
    "request_trailers": request_trailers({"a": "b"}),
    "response_headers": response_headers({":status": "503"}) + attributes(
        response__code_details="upstream_reset_before_response_started"),
    "response_body": response_body(b"data: x\n\n"),
    "response_trailers": response_trailers({"grpc-status": "0"}),
    "observes": number(10, 1) + request_headers({}),
    "old_value": run(2, run(1, run(1, run(1, "name") + run(2, "value")))),
}

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, data in SEEDS.items():
        (FOLDER / name).write_bytes(data)
