# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of corpus/gateway_json: bodies of OpenAI's API (fuzz_gateway_json.c).

    python3 tests/fuzz/gateway_json_seeds.py
"""

import json
import pathlib

FOLDER = pathlib.Path(__file__).parent / "corpus" / "gateway_json"

SEEDS = {
    "chat": json.dumps({"model": "base", "max_tokens": 8, "stream": True, "messages": [
        {"role": "user", "content": "a \"b\" \\ {[c]}"}, {"role": "system", "content": [1, {}]}]}),
    "blanks": ' {\n"model" :\t"m" , "messages" : [ 1 , "2" ,[ ] ] }\r\n',
    "escaped-model": r'{"model":"org\/n\u0061me \u00e4\u20ac\ud83d\ude00\"\\\b\f\n\r\t"}',
    "escaped-name": r'{"model":"a","mo\u0064el":"b"}',
    "half-pair": r'{"model":"\ud83d"}',
    "twice": '{"model":"a","model":"b"}',
    "nested": '{"x":{"model":"z"},"model":"a","y":[{"model":"z"}]}',
    "numbers": '{"a":-1.5e+3,"b":true,"c":null,"model":"m"}',
    "number-as-model": '{"model":1}',
    "deep": '{"x":' + "[" * 40 + "]" * 40 + ',"model":"m"}',
    "cut": '{"model":"m","messages":[{"content":"x',
    "brackets": '{"x":[}],"model":"m"}',
}

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, content in SEEDS.items():
        (FOLDER / name).write_bytes(content.encode())
    (FOLDER / "not-utf8").write_bytes(b'{"model":"\xff\xc0\x80"}')
    (FOLDER / "mark").write_bytes(b'\xef\xbb\xbf{"model":"m"}')
