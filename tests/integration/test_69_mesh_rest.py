# SPDX-License-Identifier: Apache-2.0
"""REST at the nodes of a mesh: real daemons and a real etcd (shoal_meshes.py), and raw HTTP.

Proves: over HTTP, too, any node answers for any model, by itself, through another node, after a
load, or by the name of a vmodel; headers and paths name models as metadata and messages do; answers
and refusals are those of gRPC, with its codes as HTTP has them; deadline, priority and headers go
with the call, and so does the client's going, also to a runtime behind another node; a node that is
told to stop answers what waits, and ends.
ctest: timeout=300
"""

import http.client
import json
import threading
import unittest

import grpc

from shoal_client import Client, failure
from shoal_fixture import BUILD, EXAMPLES, Shoald, main, node, pipeline, stage, wait_until
from shoal_mesh import INFER, OIP
from shoal_meshes import Etcd, Nodes, mesh_node
from shoal_pupil import key, prepare, pupil, said
from shoal_registry import LOADED, Registrar
from shoal_rest import ANY_PORT, Rest, port_of, raw_answers, tensor
from shoal_runtime import Runtime
from shoal_streams import Stream

Code = grpc.StatusCode
CODES = {Code.INVALID_ARGUMENT: 400, Code.NOT_FOUND: 404, Code.UNIMPLEMENTED: 501,
         Code.INTERNAL: 500, Code.UNAVAILABLE: 503}
X = tensor("x", "UINT8", [1], [7])
EVENTS = {"Accept": "text/event-stream"}
LABELS = {"node-a": "here", "node-b": "there"}  # a type needs the label of its name
RULES = json.dumps({label: {"required": [label]} for label in LABELS.values()})


def id_of(answer):
    return answer.data("id")[0]


class TwoNodes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.etcd = cls.enterClassContext(Etcd())
        each = {name: {"mesh": {"address": "127.0.0.1", "type_constraints": RULES,
                                "labels": [label]}} for name, label in LABELS.items()}
        cls.nodes = cls.enterClassContext(
            Nodes(cls.etcd, list(LABELS), each=each, http=ANY_PORT, drain_timeout_ms=1000))
        cls.registrar = cls.nodes.at("node-a")
        for label in LABELS.values():
            cls.registrar.register(label, kind=label)
            for name in LABELS:  # it sees the other one a moment later
                wait_until(lambda name=name, label=label:
                           cls.nodes.at(name).start_infer(label).code() is Code.OK,
                           f"{name} to see who may load {label}")

    def rest(self, name):
        rest = Rest(port_of(self.nodes[name]))
        self.addCleanup(rest.__exit__)
        return rest

    def both(self):
        return [(name, self.rest(name)) for name in LABELS]

    def figures(self, name):
        return self.nodes[name].stat()

    def set_vmodel(self, vmodel, model):
        self.registrar.call("setVModel", vModelId=vmodel, targetModelId=model, sync=True)

    def held(self, name):
        """A model whose load waits."""
        self.registrar.register(name, kind="there", key=key(load=name))
        self.addCleanup((self.nodes["node-b"].folder / f"{name}.go").touch)

    def wait_held(self, name):
        wait_until((self.nodes["node-b"].folder / f"{name}.held").exists, f"{name} to be held")

    # ---- answers ----

    def test_any_node_answers_for_any_model(self):
        for name, rest in self.both():
            for model in LABELS.values():
                with self.subTest(node=name, model=model):
                    answer = rest.infer(model, X, id="7")
                    over_grpc = self.nodes.at(name).infer(model)
                    self.assertEqual(said(over_grpc), id_of(answer))
                    self.assertEqual(answer.json["model_name"], over_grpc.model_name)
                    self.assertEqual((id_of(answer), answer.json["id"]), (model, "7"))
                    self.assertEqual(rest.infer(f"{model}/versions/1", X).code, 200)
                    event = rest.infer(model, X, id="7", headers=EVENTS)  # whole, wherever it is made
                    self.assertEqual(event.headers["Content-Type"], "text/event-stream")
                    answer = {**answer.json, "parameters": {"triton_final_response": True}}
                    self.assertEqual(json.loads(event.body.removeprefix(b"data: ")), answer)

    def test_model_is_loaded_on_demand(self):
        for label in LABELS.values():
            name = f"demand-{label}"
            self.registrar.register(name, kind=label)
            self.assertEqual(id_of(self.rest("node-a").infer(name, X)), name)
            self.registrar.wait_status(name, LOADED)  # its record says so a moment later

    def test_vmodel(self):
        self.set_vmodel("v", "there")
        for _, rest in self.both():
            for header in ("mm-vmodel-id", "Grpc-Metadata-MM-VModel-Id"):
                self.assertEqual(id_of(rest.infer("any", X, headers={header: "v"})), "there")
        self.set_vmodel("v", "here")
        for name, rest in self.both():  # the node that was not asked sees the switch a moment later
            wait_until(lambda rest=rest:
                       id_of(rest.infer("x", X, headers={"MM-VModel-Id": "v"})) == "here",
                       f"{name} to see the switch")

    def test_header_comes_before_path(self):
        for _, rest in self.both():
            for model in LABELS.values():
                answer = rest.infer("nobody", X, headers={"Mm-Model-Id": model})
                self.assertEqual(id_of(answer), model)
                path = "/v2/models/nobody"
                for more in ("", "/ready"):
                    self.assertEqual(
                        rest.ask("GET", path + more, headers={"mm-model-id": model}).code, 200)

    def test_several_models(self):
        body, _ = self.rest("node-a").infer_body([X])
        for name in LABELS:
            request = (b"POST /v2/models/x/infer HTTP/1.1\r\nHost: localhost\r\nmm-model-id: here\r\n"
                       b"mm-model-id: there\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            answer, = raw_answers(port_of(self.nodes[name]), request, 1)
            ids = [one["data"] for one in answer.json["outputs"] if one["name"] == "id"]
            self.assertEqual(ids, [["here"], ["there"]])

    def test_binary_data_goes_through(self):
        head = tensor("x", "UINT8", [700000], binary_data_size=700000)
        for _, rest in self.both():
            for model in LABELS.values():
                answer = rest.infer(model, head, binary=bytes(700000),
                                    parameters={"binary_data_output": True})
                self.assertEqual(answer.code, 200, answer)
                self.assertEqual(answer.binary[:4 + len(model)],
                                 len(model).to_bytes(4, "little") + model.encode())

    def test_model_metadata(self):
        nodes = self.both()
        for model in LABELS.values():
            told = [rest.get(f"/v2/models/{model}") for _, rest in nodes]
            self.assertEqual([one.code for one in told], [200, 200])
            self.assertEqual(told[0].json, told[1].json)
            self.assertEqual((told[0].json["name"], told[0].json["versions"]), (model, ["1"]))
            for _, rest in nodes:
                ready = rest.get(f"/v2/models/{model}/ready")
                self.assertEqual((ready.code, ready.json), (200, {"name": model, "ready": True}))
                self.assertEqual(rest.ask("HEAD", f"/v2/models/{model}/ready").code, 200)

    # ---- refusals ----

    def check_same(self, name, model, metadata=(), wrong=X, inputs=(("x", "UINT8", [1], b"\7"),),
                   asked=True, **members):
        """Both say the same, with the code that belongs to the status."""
        code, text = failure(self.nodes.at(name).start_infer(model, metadata=metadata, inputs=inputs))
        rest = self.rest(name)
        answer = rest.infer(model, wrong, headers=dict(metadata), **members)
        self.assertEqual((answer.code, answer.error), (CODES[code], text))
        if asked:
            code, text = failure(self.nodes.at(name).start_ready(model, metadata=metadata))
            answer = rest.ask("GET", f"/v2/models/{model}/ready", headers=dict(metadata))
            self.assertEqual((answer.code, answer.error), (CODES[code], text))

    def test_refusals_are_those_of_grpc(self):
        long = "m" * 1025
        for name in LABELS:
            with self.subTest(node=name):
                self.check_same(name, "nobody")
                self.check_same(name, "x", metadata=(("mm-vmodel-id", "nobody"),))
                self.check_same(name, "x", metadata=(("mm-model-id", ""),), asked=False)
                self.check_same(name, "x", metadata=(("mm-model-id", long),), asked=False)
                self.check_same(name, "x", asked=False,
                                metadata=(("mm-model-id", "here"), ("mm-vmodel-id", "v")))
                for model in LABELS.values():
                    self.check_same(name, model, wrong=tensor("x", "NOTHING", [1], [7]), asked=False,
                                    inputs=(("x", "NOTHING", [1], b"\7"),))
        self.assertEqual(self.rest("node-a").infer("nobody", X).error, "model not found")

    def test_priority_and_version(self):
        for name, rest in self.both():
            for model in LABELS.values():
                self.assertEqual(rest.infer(model, X, parameters={"priority": 1}).code, 200)
                answer = rest.infer(model, X, parameters={"priority": 9})
                self.assertEqual(answer.code, 400)
                self.assertIn("priority", answer.error)
                for path in ("", "/ready"):
                    answer = rest.get(f"/v2/models/{model}/versions/9{path}")
                    self.assertEqual(answer.code, 404, (name, model))
                    self.assertIn('no version "9"', answer.error)
                self.assertEqual(rest.infer(f"{model}/versions/9", X).code, 404)

    def test_load_that_fails(self):
        self.registrar.register("bad", kind="there", key=key(fail="it is no good"))

        def is_told():
            answer = self.rest("node-a").infer("bad", X)
            self.assertEqual(answer.code, 500)
            return "it is no good" in answer.error
        wait_until(is_told, "node-a to say why")

    # ---- callers that do not wait ----

    def test_deadline(self):
        self.held("late")
        for name, rest in self.both():
            for more in ({"headers": {"Grpc-Timeout": "300m"}}, {"parameters": {"timeout": 300000}},
                         {"headers": {"Grpc-Timeout": "300m", **EVENTS}}):
                answer = rest.infer("late", X, **more)
                self.assertEqual((answer.code, answer.error), (504, "the deadline has passed"), name)
            answer = rest.ask("GET", "/v2/models/late/ready", headers={"Grpc-Timeout": "300m"})
            self.assertEqual((answer.code, answer.error), (504, "the deadline has passed"), name)
        self.wait_held("late")
        (self.nodes["node-b"].folder / "late.go").touch()
        self.assertEqual(id_of(self.rest("node-a").infer("late", X)), "late")

    def test_client_goes_while_a_model_loads(self):
        self.held("slow")
        for name, headers in (("node-a", None), ("node-b", None), ("node-a", EVENTS), ("node-b", EVENTS)):
            before = self.figures(name)["mesh_calls_cancelled"]
            with Rest(port_of(self.nodes[name])) as rest:
                rest.start("slow", X, headers=headers)
                wait_until(lambda name=name: self.figures(name)["mesh_under_way"] == 1,
                           "the call to wait")
                self.wait_held("slow")
            wait_until(lambda name=name, before=before:
                       self.figures(name)["mesh_calls_cancelled"] == before + 1, "it to be cancelled")
        waiting = [self.rest(name) for name in LABELS]
        for rest in waiting:
            rest.start("slow", X)
        (self.nodes["node-b"].folder / "slow.go").touch()
        for rest in waiting:
            self.assertEqual(id_of(rest.receive()), "slow")

    def test_many_at_once(self):
        """Over all queues of the front, and into loads of their own."""
        models = [f"many-{i}" for i in range(8)]
        for model in models:
            self.registrar.register(model, kind="there")
        wrong = []

        def ask(first):
            with Rest(port_of(self.nodes["node-a"])) as rest:
                for i in range(20):
                    model = models[(first + i) % len(models)]
                    answer = rest.infer(model, X)
                    if answer.code != 200 or id_of(answer) != model:
                        wrong.append((model, answer))
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


class BehindAnother(unittest.TestCase):
    """A runtime beside one node, called over HTTP at the other."""

    def setUp(self):
        etcd = self.enterContext(Etcd())
        self.runtime = self.enterContext(Runtime())
        rules = json.dumps({"kind": {"required": ["runs"]}})  # else a pipeline may load it
        of_mesh = {"node-a": {}, "node-b": {"runtime": self.runtime.address, "labels": ["runs"],
                                            "runtime_types": ["kind"]}}
        self.nodes = {name: self.enterContext(mesh_node(
            etcd, name, models={"types": ["pupil"]}, http=ANY_PORT,
            mesh={"address": "127.0.0.1", "type_constraints": rules, **mesh}))
                      for name, mesh in of_mesh.items()}
        registrar = self.enterContext(Registrar(self.nodes["node-a"]))
        self.runtime.says[INFER] = self.answer
        registrar.register("m", kind="kind")
        wait_until(lambda: registrar.start_infer("m").code() is Code.OK, "node-b to be seen")

    def answer(self, _request, context):
        self.runtime.metadata.append(dict(context.invocation_metadata()))
        response = OIP["ModelInferResponse"](model_name="theirs")
        response.outputs.add(name="y", datatype="INT32", shape=[2])
        response.raw_output_contents.append((1).to_bytes(4, "little") + (2).to_bytes(4, "little"))
        return response.SerializeToString()

    def test_runtime_gets_headers_and_answers(self):
        for name in self.nodes:
            rest = self.enterContext(Rest(port_of(self.nodes[name])))
            answer = rest.infer("m", X, headers={"X-Mine": "yes", "Grpc-Metadata-X-Ours": "too", "Authorization": "Bearer of it",
                                                 "Accept-Language": "en", "x-mine-bin": "AA=="})
            self.assertEqual((answer.data("y"), answer.json["model_name"]), ([1, 2], "theirs"))
            told = self.runtime.metadata[-1]
            self.assertEqual((told["x-mine"], told["x-ours"], told["authorization"]),
                             ("yes", "too", "Bearer of it"))
            for key_ in ("accept-language", "content-length", "host", "x-mine-bin", "connection"):
                self.assertNotIn(key_, told)

    def test_typed_contents(self):
        """As some runtimes answer; in JSON and as binary data."""
        fields = [(1, "BOOL", b"\1\0"), (2, "INT8", b"\7" + b"\xff" * 9 + b"\1"), (6, "FP32", bytes(8)),
                  (8, "BYTES", None)]
        message = b""
        for number, datatype, packed in fields:
            contents = (b"\x42\1a\x42\0" if packed is None else
                        bytes([number << 3 | 2, len(packed)]) + packed)
            name = datatype.lower().encode()
            output = (b"\x0a" + bytes([len(name)]) + name + b"\x12" + bytes([len(datatype)]) +
                      datatype.encode() + b"\x1a\1\2" + b"\x2a" + bytes([len(contents)]) + contents)
            message += b"\x2a" + bytes([len(output)]) + output
        self.runtime.says[INFER] = lambda _request, _context: message
        rest = self.enterContext(Rest(port_of(self.nodes["node-a"])))
        answer = rest.infer("m", X)
        self.assertEqual([answer.data(name) for name in ("bool", "int8", "fp32", "bytes")],
                         [[True, False], [7, -1], [0.0, 0.0], ["a", ""]])
        binary = rest.infer("m", X, parameters={"binary_data_output": True}).binary
        self.assertEqual(binary, b"\1\0" + b"\7\xff" + bytes(8) + b"\1\0\0\0a" + bytes(4))
        self.runtime.says[INFER] = lambda _request, _context: message.replace(b"\1\0", b"\1\1\0")
        self.assertEqual(rest.infer("m", X).code, 500)

    def test_client_goes_while_a_runtime_works(self):
        self.runtime.says[INFER] = self.runtime.hang
        for name in self.nodes:
            self.runtime.cancelled.clear()
            before = self.runtime.count(INFER)
            with Rest(port_of(self.nodes[name])) as rest:
                rest.start("m", X)
                wait_until(lambda before=before: self.runtime.count(INFER) > before, "it to work")
            self.assertTrue(self.runtime.cancelled.wait(60), name)

    def test_malformed_answer(self):
        self.runtime.says[INFER] = lambda _request, _context: b"\xff"
        rest = self.enterContext(Rest(port_of(self.nodes["node-a"])))
        answer = rest.infer("m", X)
        self.assertEqual((answer.code, answer.error),
                         (500, "the response is not a ModelInferResponse"))


class OneNode(unittest.TestCase):
    """A mesh whose store is memory."""

    def start(self, **mesh):
        shoald = self.enterContext(prepare(pupil(), http=ANY_PORT, drain_timeout_ms=1000,
                                           mesh={"instance": "one", **mesh}))
        shoald.wait_ready()
        return shoald, self.enterContext(Registrar(shoald))

    def test_node_stops_while_calls_wait(self):
        shoald, registrar = self.start()
        registrar.register("slow", key=key(load="slow"))
        with Rest(port_of(shoald)) as rest:
            rest.start("slow", X)
            wait_until((shoald.folder / "slow.held").exists, "slow to be held")
            shoald.drain()
            try:
                answer = rest.receive()
                self.assertEqual(answer.code, 503)
            except (http.client.HTTPException, ConnectionError):
                self.fail("the connection was closed without an answer")
        (shoald.folder / "slow.go").touch()
        shoald.check_end()

    def test_dataplane_configuration_counts(self):
        infer = "inference.GRPCInferenceService/ModelInfer"
        shoald, registrar = self.start(dataplane=json.dumps(
            {"rpcConfigs": {infer: {"idExtractionPath": [1], "vModelId": True}}}))
        registrar.register("m")
        registrar.call("setVModel", vModelId="v", targetModelId="m", sync=True)
        with Rest(port_of(shoald)) as rest:
            self.assertEqual(id_of(rest.infer("v", X)), "m")
            self.assertEqual(id_of(rest.infer("v", X, headers={"mm-model-id": "nobody"})), "m")
            for path in ("/v2/models/m", "/v2/models/m/ready"):
                answer = rest.get(path)
                code, text = failure(registrar.start_ready("m"))
                self.assertEqual((answer.code, code), (501, Code.UNIMPLEMENTED))
                self.assertEqual(answer.error.replace("ModelMetadata", "ModelReady"), text)
        stream = Stream(self.enterContext(Client(shoald.target)))
        stream.send("m", ("x", "UINT8", [1], b"7"))
        with self.assertRaisesRegex(grpc.RpcError, "not permitted: .*ModelStreamInfer"):
            stream.read_all()


class TestVersion1(unittest.TestCase):
    """KServe's v1, which needs the model's inputs, at a node that has not loaded the model."""

    def start(self, etcd, name):
        rules = json.dumps({"mlp": {"required": ["node-b"]}})
        mlp = pipeline("mlp", stage(BUILD / "lib/shoal/libmlp.so"), models={
            "root": str(EXAMPLES / "mlp"), "memory_mib": 64, "types": ["mlp"]})
        mesh = {"store": f"etcd:{etcd.url}", "service": "test", "instance": name,
                "peers": ["127.0.0.1:0"], "address": "127.0.0.1", "type_constraints": rules,
                "labels": [name]}
        shoald = self.enterContext(Shoald(node(mlp, mesh=mesh, http=ANY_PORT, http_large_kib=64)))
        shoald.wait_log("mesh_session_begun")
        return shoald

    def test_elsewhere(self):
        etcd = self.enterContext(Etcd())
        asked, server = self.start(etcd, "node-a"), self.start(etcd, "node-b")
        registrar = self.enterContext(Registrar(asked))
        registrar.register("xor", path="xor.mlp", kind="mlp")
        rest = self.enterContext(Rest(port_of(asked)))

        def predict(model, rows, headers=None):
            return rest.ask("POST", f"/v1/models/{model}:predict", json.dumps({"instances": rows}), headers)
        wait_until(lambda: predict("xor", [[0, 1]]).code == 200, "node-a to see node-b")
        rows = [[0, 0], [0, 1], [1, 0], [1, 1]]
        over_v2 = rest.infer("xor", tensor("bits", "FP32", [4, 2], sum(rows, [])))
        answer = predict("xor", rows)
        self.assertEqual((answer.code, len(answer.json["predictions"])), (200, 4), answer)
        self.assertEqual([value for row in answer.json["predictions"] for value in row], over_v2.data())
        many = predict("xor", rows * 20_000)  # by the reader of large bodies
        self.assertEqual(many.json["predictions"], answer.json["predictions"] * 20_000)
        self.assertEqual(predict("any", rows, {"mm-model-id": "xor"}).json, answer.json)
        for shoald in asked, server:
            generate, events = (self.enterContext(Rest(port_of(shoald))).ask(
                "POST", f"/v2/models/xor/{word}", '{"bits": [0, 1]}') for word in ("generate", "generate_stream"))
            self.assertEqual((generate.code, generate.json["model_name"]), (200, "xor"), generate)
            self.assertEqual(json.loads(events.body.removeprefix(b"data: ")), generate.json)
        for model, given, code in (("xor", [[1]], 400), ("xor", [["a", 1]], 400), ("nobody", rows, 404)):
            self.assertEqual(predict(model, given).code, code)
        self.assertEqual(rest.ask("POST", "/v1/models/xor:predict", "{", {}).code, 400)
        self.assertEqual(predict("xor", rows, {"Grpc-Timeout": "1n"}).code, 504)
        server.wait_stat("mlp", lambda stat: stat["models_loaded"] == 1, "the model at node-b")
        asked.wait_published()
        self.assertEqual(asked.pipeline_stat("mlp")["models_loaded"], 0)


if __name__ == "__main__":
    main()
