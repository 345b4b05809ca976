# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document: it has every route of the table and no other, each with the method that the
node takes; its references and parameters are whole; and loaded models have the schema that their
metadata gives, a bounded number of them at a time. `./dev interop` has the official validator.
ctest: timeout=180
"""

import json
import pathlib
import re
import tempfile
import unittest

import shoal_fixture
from shoal_fixture import SOURCE, Shoald, node, pipeline, stage
from shoal_rest import ANY_PORT, Rest, port_of, tensor

TABLE = SOURCE / "src" / "coordinator" / "front" / "rest_route.c"
PER_DOCUMENT = 100
MANY = 130


def rows():
    """The paths of the routing table."""
    table = re.search(r"rest_rows\[\] = \{(.*?)\n\};", TABLE.read_text(), re.DOTALL)[1]
    return re.findall(r'^ +\{"(/[^"]*)"', table, re.MULTILINE)


def references(value):
    if isinstance(value, dict):
        yield from [value["$ref"]] if "$ref" in value else []
        value = list(value.values())
    for inner in value if isinstance(value, list) else ():
        yield from references(inner)


class Document(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory(prefix="shoal-test.")))
        for name in cls.names:
            (folder / "models" / name).mkdir(parents=True)
        cls.shoald = cls.enterClassContext(Shoald(node(
            pipeline("more", stage("libsimple.so"), models={"root": "models", "memory_mib": 1024, "preload": "no"}),
            pipeline("echo", stage("libecho.so")), http=ANY_PORT, http_control="on"), folder=folder))
        cls.port = port_of(cls.shoald)

    def setUp(self):
        self.rest = self.enterContext(Rest(self.port))

    def load(self, name):
        answer = self.rest.ask("POST", f"/v2/repository/models/{name.replace(' ', '%20')}/load".replace("ä", "%C3%A4"))
        self.assertEqual(answer.code, 200, answer)

    def get(self, query=""):
        answer = self.rest.get(f"/v2/openapi.json{query}")
        self.assertEqual((answer.code, answer.headers["Content-Type"]), (200, "application/json"))
        return answer.json


class TestRoutes(Document):
    names = ("simple", "not loaded", "simple with ä")

    def test_every_route_and_no_other(self):
        document = self.get()
        self.assertEqual(document["openapi"], "3.1.0")
        self.assertGreater(len(rows()), 20)
        self.assertEqual(sorted(document["paths"]), sorted(rows()))

    def test_methods(self):
        for path, item in self.get()["paths"].items():
            verb, = item
            path = path.replace("{model}", "echo").replace("{version}", "1").replace("{region}", "r")
            wrong = {"get": "POST", "post": "GET"}[verb]
            self.assertEqual(self.rest.ask(wrong, path, "" if wrong == "POST" else None).code, 405, path)
            answer = self.rest.ask(verb.upper(), path, "{}" if verb == "post" else None)
            self.assertNotEqual(answer.code, 405, path)
            if answer.code == 404:
                self.assertNotIn("no such path", answer.error)

    def test_whole(self):
        self.load("simple")
        document = self.get()
        schemas = document["components"]["schemas"]
        used = set()
        for reference in references(document):
            self.assertTrue(reference.startswith("#/components/schemas/"), reference)
            used.add(reference.rpartition("/")[2])
        self.assertEqual(used, set(schemas))
        ids = []
        for path, item in document["paths"].items():
            for operation in item.values():
                ids += [operation["operationId"]] if "operationId" in operation else []
                self.assertTrue(operation["summary"])
                self.assertEqual(set(operation["responses"]), {"200", "default"})
                named = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "path"]
                self.assertEqual(named, re.findall(r"\{(\w+)\}", path))
        self.assertEqual(len(ids), len(set(ids)))
        self.assertEqual(len(ids), len(rows()))

    def test_models(self):
        for name in ("simple", "simple with ä"):
            self.load(name)
        paths = self.get()["paths"]
        own = set(paths) - set(rows())
        self.assertEqual(own, {"/v2/models/simple/infer", "/v2/models/simple%20with%20%C3%A4/infer"})
        for path in own:
            self.check_model(path, paths[path]["post"])

    def check_model(self, path, operation):
        metadata = self.rest.get(path.removesuffix("/infer")).json
        request = operation["requestBody"]["content"]["application/json"]["schema"]["allOf"]
        response = operation["responses"]["200"]["content"]["application/json"]["schema"]["allOf"]
        self.assertEqual([request[0]["$ref"], response[0]["$ref"]],
                         ["#/components/schemas/InferRequest", "#/components/schemas/InferResponse"])
        for schema, member in ((request[1], "inputs"), (response[1], "outputs")):
            array = schema["properties"][member]
            self.assertEqual(array["maxItems"], len(metadata[member]))
            self.assertEqual(array.get("minItems"), len(metadata[member]) if member == "inputs" else None)
            told = []
            for one in array["items"]["oneOf"]:
                one = one["properties"]
                shape = [dimension.get("const", -1) for dimension in one["shape"]["prefixItems"]]
                self.assertEqual([one["shape"]["minItems"], one["shape"]["maxItems"]], [len(shape)] * 2)
                told.append({"name": one["name"]["const"], "datatype": one["datatype"]["const"], "shape": shape})
            self.assertEqual(told, metadata[member])

    def test_queries(self):
        for limit in ("0", str(PER_DOCUMENT + 1), "x"):
            self.assertEqual(self.rest.get(f"/v2/openapi.json?limit={limit}").code, 400)
        self.assertEqual(self.rest.ask("HEAD", "/v2/openapi.json").code, 200)


class TestMany(Document):
    names = tuple(f"m{i:04}" for i in range(MANY))

    def test_bounded(self):
        for name in self.names:
            self.load(name)
        first = self.get()
        own = sorted(set(first["paths"]) - set(rows()))
        count = PER_DOCUMENT - 1  # the echo is among them, and declares no tensors
        self.assertEqual(own, [f"/v2/models/{name}/infer" for name in self.names[:count]])
        after = first["x-next-model"]
        self.assertEqual(after, self.names[count - 1])
        last = self.get(f"?after={after}")
        own = sorted(set(last["paths"]) - set(rows()))
        self.assertEqual(own, [f"/v2/models/{name}/infer" for name in self.names[count:]])
        self.assertNotIn("x-next-model", last)
        self.assertLess(len(json.dumps(first)), 512 * 1024)
        answer = self.rest.infer("m0000", tensor("INPUT0", "INT32", [1, 16], [1] * 16),
                                 tensor("INPUT1", "INT32", [1, 16], [1] * 16))
        self.assertEqual(answer.code, 200)


if __name__ == "__main__":
    shoal_fixture.main()
