# SPDX-License-Identifier: Apache-2.0
"""The document at /v2/openapi.json: the official validator takes it, and its schemas take what the node
takes and answers, and refuse what it refuses."""

import unittest

import jsonschema
import openapi_spec_validator

import peers


class OpenApi(unittest.TestCase):
    def setUp(self):
        code, self.document = peers.raw_json("/v2/openapi.json")
        self.assertEqual(code, 200)
        self.post = self.document["paths"]["/v2/models/digits/infer"]["post"]

    def validator(self, content):
        schema = {**content["content"]["application/json"]["schema"], "components": self.document["components"]}
        return jsonschema.Draft202012Validator(schema)

    def check_validator(self):
        openapi_spec_validator.validate(self.document)
        self.assertGreater(len(self.document["paths"]), 20)

    def check_requests(self):
        schema = self.validator(self.post["requestBody"])
        images, _ = peers.digits(2)
        good = peers.digits_body(images)
        row = good["inputs"][0]
        bodies = [good, {"inputs": [{**row, "shape": [2, 63]}]}, {"inputs": [{**row, "shape": [64]}]},
                  {"inputs": [{**row, "name": "x"}]}, {"inputs": [{**row, "datatype": "INT8"}]}, {"inputs": []}, {}]
        for number, body in enumerate(bodies):
            code, answer = peers.raw_json("/v2/models/digits/infer", body)
            self.assertEqual(code, 200 if number == 0 else 400, answer)
            self.assertEqual(schema.is_valid(body), number == 0, body)
            kind = "200" if number == 0 else "default"
            self.validator(self.post["responses"][kind]).validate(answer)

    def check_answers(self):
        for path in ("/v2", "/v2/health/ready", "/v2/models", "/v2/models/digits", "/v2/models/digits/ready",
                     "/v2/openapi.json", "/v2/systemsharedmemory/status", "/v2/models/stats"):
            code, answer = peers.raw_json(path)
            self.assertEqual(code, 200, answer)
            operation = self.document["paths"][path.replace("/digits", "/{model}")]["get"]
            self.validator(operation["responses"]["200"]).validate(answer)


if __name__ == "__main__":
    peers.main()
