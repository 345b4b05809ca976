# SPDX-License-Identifier: Apache-2.0
"""Rights to manage a mesh's models: mmesh.ModelMesh is served apart from inference.

Real nodes, real clients, real certificates. Proves: a caller of models can neither register
nor unregister nor look at them, with any dataplane configuration, under any name of the service,
and is told which key says where one can; the node's own user manages it over the socket beside its
counters, which shoalctl finds by itself and nobody else may open; more addresses are served, in the
clear and over TLS, and no inference is on them; with `allow` a certificate may do what an entry
says and nothing more; one address may be for both, as ModelMesh's environment has it; what would
let strangers manage is refused before anything starts; and no text that a caller gets names an
absolute path of the node, while its log does. ctest: timeout=180
"""

import os
import pathlib
import re
import socket
import stat
import tempfile
import unittest

import grpc

from shoal_certificates import NAME, Certificates
from shoal_client import Client, failure
from shoal_contract import (LOADING_FAILED, NOT_FOUND, NOT_LOADED, OLD_MODEL_MESH, SERVICES, Stub,
                            connect)
from shoal_ctl import NEGATIVE, UNREACHABLE, USAGE, environment, shoalctl
from shoal_fixture import Shoald, free_port, main, node, run_shoald, wait_until
from shoal_pupil import key, prepare, pupil, said
from shoal_registry import SERVICE, Registrar
from shoal_runtime import Refusal, Runtime

Code = grpc.StatusCode
WHERE = "is not served on `listen`, but on the addresses of `mesh: management`"


def port_of(shoald, address):
    """The port chosen for an address with port 0."""
    return int(shoald.wait_log(rf'mesh_management address="{address}" port=(\d+)')[1])


class Case(unittest.TestCase):
    def start(self, management=None, env=None, **keys):
        more = {} if management is None else {"management": management}
        self.shoald = prepare(pupil(), mesh={"instance": "one", **more}, **keys)
        self.shoald.env.update(env or {})
        self.enterContext(self.shoald)
        self.registrar = self.enterContext(Registrar(self.shoald))

    def channel(self, channel):
        self.addCleanup(channel.close)
        return channel

    def stub(self, target, called=SERVICE):
        return Stub(self.channel(connect(target)), SERVICE, called)

    def check(self, call, code, *texts):
        found, text = failure(call)
        self.assertEqual(found, code, text)
        for part in texts:
            self.assertIn(part, text)


class TestApart(Case):
    """A caller of models."""

    def check_calls_are_misplaced(self):
        methods = (*SERVICES["ModelMesh"], "addModel", "deleteModel")
        for called in (SERVICE, OLD_MODEL_MESH):
            stub = self.stub(self.shoald.target, called)
            for method in methods:
                self.check(stub.start(method), Code.UNIMPLEMENTED, WHERE)
        wait_until(lambda: self.shoald.stat()["mesh_management_misplaced"] == 2 * len(methods),
                   lambda: f"the counter: {self.shoald.stat()}")

    def test_callers_do_not_manage(self):
        self.start()
        self.registrar.register("m")
        self.check_calls_are_misplaced()
        self.assertEqual(said(self.registrar.infer("m")), "m")
        with Client(self.shoald.target) as client:
            self.assertNotIn(SERVICE, self.services(client))
            _, check = client.stub("Check", "grpc.health.v1.Health")
            request, _ = client.stub("Check", "grpc.health.v1.Health")
            self.check(check.future(request(service=SERVICE), timeout=60), Code.NOT_FOUND)

    def services(self, client):
        request, stub = client.stub("ServerReflectionInfo", "grpc.reflection.v1.ServerReflection",
                                    "stream_stream")
        answer, = stub(iter([request(list_services="*")]), timeout=60)
        return [one.name for one in answer.list_services_response.service]

    def test_nor_where_any_method_may_be_called(self):
        """An external runtime may have any method; this service is not looked for there."""
        runtime = self.enterContext(Runtime())
        self.shoald = self.enterContext(Shoald({"mesh": {
            "instance": "one", "runtime": runtime.address,
            "dataplane": '{"rpcConfigs": {}, "allowOtherRpcs": true}'}}))
        self.check_calls_are_misplaced()

    def test_the_socket_beside_the_counters(self):
        self.start()
        path = pathlib.Path(self.shoald.management.removeprefix("unix:"))
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        self.check(self.stub_of_inference(self.shoald.management), Code.UNIMPLEMENTED,
                   "models are called on those of `listen`")
        with Client(self.shoald.management) as client:
            self.assertIn(SERVICE, self.services(client))
            self.assertNotIn("inference.GRPCInferenceService", self.services(client))
            request, check = client.stub("Check", "grpc.health.v1.Health")
            for service in ("", SERVICE):
                self.assertEqual(check(request(service=service), timeout=60).status, 1)

    def stub_of_inference(self, target):
        return self.channel(connect(target)).unary_unary(
            "/inference.GRPCInferenceService/ModelInfer").future(b"", timeout=60)

    def test_shoalctl_finds_it(self):
        self.start()
        here = ["--counters", self.shoald.counters]
        self.assertEqual(shoalctl("mesh", "register", "m", "model", "--type", "pupil", *here).out,
                         "m is registered: its first call loads it\n")
        folder = self.shoald.folder / "run"
        (folder / "shoal").mkdir(parents=True)
        for name in ("counters", "counters.manage"):
            (folder / "shoal" / name).symlink_to(self.shoald.folder / name)
        if os.getuid() != 0:  # whose default is elsewhere
            shoalctl("mesh", "status", "m", env=environment(XDG_RUNTIME_DIR=str(folder)))
        told = shoalctl("mesh", "status", "m", "--target", self.shoald.target, code=NEGATIVE).err
        self.assertIn(WHERE, told)
        told = shoalctl("mesh", "status", "m", "--timeout-ms", 500, "--counters",
                        self.shoald.folder / "none", code=UNREACHABLE).err
        self.assertIn("no node of a mesh answers at unix:", told)
        for more in (["--tls-ca", "x"], ["--target", self.shoald.management]):
            shoalctl("mesh", "status", "m", *here, *more, code=USAGE)


class TestAddresses(Case):
    def test_more_addresses(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="shoal-m.")))
        own = f"unix:{folder}/m.sock"
        self.start(management={"addresses": ["127.0.0.1:0", own], "socket_mode": "0660"})
        self.registrar.register("m")
        for target in (f"127.0.0.1:{port_of(self.shoald, '127.0.0.1:0')}", own):
            self.assertEqual(self.stub(target).call("getModelStatus", modelId="m").status,
                             NOT_LOADED)
            self.check(self.stub(target, "inference.GRPCInferenceService").start(
                "getModelStatus", modelId="m"), Code.UNIMPLEMENTED)
        for address in (own, self.shoald.management):
            mode = pathlib.Path(address.removeprefix("unix:")).stat().st_mode
            self.assertEqual(stat.S_IMODE(mode), 0o660, address)

    def connect(self, path):
        """A connection to a unix socket, and whether it is one of those that are served."""
        connection = self.enterContext(socket.socket(socket.AF_UNIX))
        connection.settimeout(60)
        connection.connect(path)
        try:
            return connection, connection.recv(1) != b""
        except ConnectionError:
            return connection, False

    def test_connections_are_bounded(self):
        """Each address has its own, and one that ends makes room."""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="shoal-m.")))
        self.start(management={"addresses": [f"unix:{folder}/m.sock"], "connections_max": 2})
        own, default = f"{folder}/m.sock", self.shoald.management.removeprefix("unix:")
        first, served = self.connect(own)
        self.assertTrue(served)
        self.assertTrue(self.connect(own)[1])
        self.assertFalse(self.connect(own)[1])
        self.assertTrue(self.connect(default)[1])
        wait_until(lambda: self.shoald.stat()["mesh_management_refused"] == 1, "the counter")
        first.close()
        wait_until(lambda: self.connect(own)[1], "room for another one")

    def test_the_same_for_both(self):
        address = f"127.0.0.1:{free_port()}"
        self.start(management=[address], listen=[address])
        self.assertEqual(self.stub(address).call("getModelStatus", modelId="m").status, NOT_FOUND)
        self.registrar.register("m")
        with Client(address) as client:
            self.assertEqual(client.channel.unary_unary(
                "/inference.GRPCInferenceService/ServerReady")(b"", timeout=60), b"\x08\x01")

    def test_the_environment_of_modelmesh(self):
        """Its one port is for both, as it was there; and the socket is there as well."""
        port = free_port()
        shoald = prepare(pupil(), listen=[])
        shoald.env.update(MM_SERVICE_NAME="mine", MM_SVC_GRPC_PORT=str(port), MM_PROBE_PORT="NONE",
                          MM_PRESTOP_WAIT_PORT="NONE")
        self.enterContext(shoald)
        for target in (f"127.0.0.1:{port}", shoald.management):
            self.stub(target).call("registerModel", modelId="m",
                                   modelInfo={"type": "pupil", "path": "model"})
        shoalctl("mesh", "status", "m", "--counters", shoald.counters)

    def test_the_environment_does_not_beat_the_file(self):
        self.start(management=["127.0.0.1:0"], env={"MM_SERVICE_NAME": "mine", "MM_PROBE_PORT": "NONE",
                                                    "MM_PRESTOP_WAIT_PORT": "NONE"})
        self.check(self.stub(self.shoald.target).start("getModelStatus", modelId="m"),
                   Code.UNIMPLEMENTED, WHERE)


class TestCertificates(Case):
    def setUp(self):
        self.certificates = self.enterContext(Certificates("ca", "stranger"))
        for name, authority in (("server", "ca"), ("alien", "stranger")):
            self.certificates.sign(name, authority)
        self.certificates.sign("deployer", "ca", "DNS:deployer.example")
        self.certificates.run("certificate", "reader", "ca", "/CN=reader", "DNS:r.example")

    def tls(self, **more):
        return self.certificates.pair("server", client_ca="ca", **more)

    def secured(self, name, port):
        credentials = self.certificates.credentials("ca", name)
        return Stub(self.channel(grpc.secure_channel(
            f"127.0.0.1:{port}", credentials, options=[
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.ssl_target_name_override", NAME)])), SERVICE)

    def model(self, name):
        return {"modelId": name, "modelInfo": {"type": "pupil", "path": "model"}}

    def test_over_tls(self):
        """Any certificate of the authority; the socket needs none."""
        self.start(management="127.0.0.1:0", tls=self.tls())
        port = port_of(self.shoald, "127.0.0.1:0")
        self.secured("reader", port).call("registerModel", **self.model("m"))
        self.assertEqual(self.registrar.status("m").status, NOT_LOADED)
        for refused in (self.secured(None, port), self.secured("alien", port),
                        self.stub(f"127.0.0.1:{port}")):
            self.check(refused.start("getModelStatus", modelId="m"), Code.UNAVAILABLE)
        pem, key_file = self.certificates.pem, self.certificates.key
        shoalctl("mesh", "status", "m", "--target", f"127.0.0.1:{port}", "--tls-name", NAME,
                 "--tls-ca", pem("ca"), "--tls-cert", pem("reader"), "--tls-key",
                 key_file("reader"))

    def test_allow(self):
        self.start(tls=self.tls(), management={"addresses": ["127.0.0.1:0"], "allow": [
            {"identity": "deployer.example", "models": ["fraud-*", "trees"]},
            {"identity": "reader", "methods": ["getModelStatus", "getVModelStatus"]}]})
        port = port_of(self.shoald, "127.0.0.1:0")
        deployer, reader = self.secured("deployer", port), self.secured("reader", port)
        nobody = self.secured("server", port)

        for model in ("fraud-7", "trees"):
            deployer.call("registerModel", **self.model(model))
            deployer.call("addModel", **self.model(model))
            self.assertEqual(reader.call("getModelStatus", modelId=model).status, NOT_LOADED)
        deployer.call("setVModel", vModelId="fraud-now", targetModelId="fraud-7")
        self.assertEqual(reader.call("getVModelStatus", vModelId="fraud-now").targetModelId,
                         "fraud-7")

        def denied(call, *texts):
            self.check(call, Code.PERMISSION_DENIED, "`mesh: management: allow`", *texts)
        denied(deployer.start("registerModel", **self.model("treason")),
               '"deployer.example" may not call registerModel for model "treason"')
        denied(deployer.start("registerModel", **self.model("frau")))
        denied(deployer.start("setVModel", vModelId="fraud-now", targetModelId="other"),
               'vmodel "fraud-now" and model "other"')
        denied(deployer.start("setVModel", vModelId="other", targetModelId="fraud-7"))
        denied(reader.start("unregisterModel", modelId="trees"),
               '"reader" may not call unregisterModel for model "trees"')
        denied(reader.start("deleteModel", modelId="trees"))
        denied(nobody.start("getModelStatus", modelId="trees"), f'"{NAME}" may not call')
        wait_until(lambda: self.shoald.stat()["mesh_management_denied"] == 7, "the counter")
        self.registrar.register("m")  # over the socket, which only the node's user can open

    def test_allow_where_listen_manages(self):
        address = f"127.0.0.1:{free_port()}"
        self.start(tls=self.tls(), listen=[address], management={
            "addresses": [address], "allow": [{"identity": "reader", "methods": ["getModelStatus"]}]})
        port = address.rpartition(":")[2]
        self.secured("reader", port).call("getModelStatus", modelId="m")
        self.check(self.secured("deployer", port).start("getModelStatus", modelId="m"),
                   Code.PERMISSION_DENIED)

    def refused(self, management, *texts, args=(), **keys):
        config = node(pupil(), mesh={"instance": "one", "management": management}, **keys)
        config["pipelines"][0]["models"]["root"] = "."
        code, told = run_shoald(config, ("--check", *args), listen=keys.get("listen"))
        self.assertEqual(code, 2, told)
        for text in texts:
            self.assertIn(text, told)

    def test_bad_configurations(self):
        allow = [{"identity": "me"}]
        plain = {"address": "port:0", "plain": "yes"}
        unasked = {**self.certificates.pair("server")}
        for tls in ({}, {"tls": unasked}, {"tls": {**self.tls(), "client_auth": "optional"}}):
            self.refused(["port:0"], "port:0 would let anyone who can reach it register and delete", **tls)
        self.refused({"allow": allow}, "`allow` identifies callers by their certificates", tls=unasked)
        self.refused({"allow": allow}, "`allow` identifies callers by their certificates",
                     tls={**self.tls(), "client_auth": "none"})
        self.refused({"addresses": [plain], "allow": allow}, "they show none", tls=self.tls())
        self.refused([{"address": "port:0", "tls": "yes"}], "remove `tls`", tls=self.tls())
        self.refused({"socket_mode": "999"}, "is not a mode such as 0660")
        self.refused({"allow": [{"identity": "me", "models": ["a*b"]}]}, "followed by `*`",
                     tls=self.tls())
        self.refused({"allow": [{"methods": ["register"]}]}, "`identity` is missing",
                     "`methods` must list words of", tls=self.tls())
        self.refused({"adresses": []}, "did you mean `addresses`?")
        self.refused(["127.0.0.1:1"], "127.0.0.1:1 is also in `listen`", "name 127.0.0.1:2 there",
                     listen=["127.0.0.1:1", "127.0.0.1:2"])

    def test_meant_to_be_open(self):
        self.start(management={"address": "port:0", "plain": "yes"}, tls=self.tls())
        self.assertEqual(self.stub(f"127.0.0.1:{port_of(self.shoald, 'port:0')}").call(
            "getModelStatus", modelId="m").status, NOT_FOUND)


class TestErrors(Case):
    """The callers' text for a load that fails."""

    def check_hidden(self, text):
        self.assertNotRegex(text, r"(^|[^\w.])/\w", text)
        self.assertNotIn(str(self.shoald.folder), text)

    def failed(self, model, path="model", **of_key):
        self.registrar.register(model, path=path, key=key(**of_key))
        _, called = failure(self.registrar.start_infer(model))
        info = self.registrar.wait_status(model, LOADING_FAILED)
        texts = [called, *info.errors]
        for text in texts:
            self.check_hidden(text)
        return "\n".join(texts)

    def test_no_absolute_path(self):
        self.start()
        root = self.shoald.folder / "models"
        (root / "out").symlink_to("/etc")
        self.assertIn('"missing"', self.failed("a", path="missing"))
        self.assertIn('"out/passwd"', self.failed("b", path="out/passwd"))
        self.assertIn("cannot read model: it is torn",
                      self.failed("c", fail=f"cannot read {root}/model: it is torn"))
        self.assertIn("needs .../libgone.so.1 and",
                      self.failed("d", fail="needs /usr/lib/libgone.so.1 and '/opt/x y'"))
        self.assertIn("nothing", self.failed("e", path=f"{root}/nothing"))
        self.shoald.wait_log(re.escape(f"cannot read {root}/model: it is torn"))
        self.shoald.wait_log(re.escape(f'root="{root}"'))

    def test_key_that_is_no_json(self):
        """Nobody looks at it before the model is loaded."""
        self.start()
        for model, of_key, why in (("a", "no JSON", "modelKey is not JSON"), ("b", "[1]", "not a JSON object")):
            with self.subTest(of_key):
                self.assertEqual(self.registrar.register(model, key=of_key).status, NOT_LOADED)
                code, text = failure(self.registrar.start_infer(model))
                self.assertEqual(code, Code.INTERNAL, text)
                self.assertIn(why, text)
                told, = self.registrar.wait_status(model, LOADING_FAILED).errors
                self.assertIn(why, told)

    def test_of_an_external_runtime(self):
        runtime = self.enterContext(Runtime())

        def refuse(request, _context):
            self.assertEqual(request.modelKey, "no JSON")
            raise Refusal(Code.INTERNAL, "no file /mnt/models/m/1/model.pt there")
        runtime.says["loadModel"] = refuse
        self.shoald = self.enterContext(Shoald({"mesh": {"instance": "one",
                                                         "runtime": runtime.address}}))
        self.registrar = self.enterContext(Registrar(self.shoald))
        self.registrar.register("m", loadNow=True, key="no JSON")  # which is the runtime's matter
        text, = self.registrar.wait_status("m", LOADING_FAILED).errors
        self.assertIn("no file .../model.pt there", text)
        self.assertIn("/mnt/models/m/1/model.pt", self.shoald.stderr)


if __name__ == "__main__":
    main()
