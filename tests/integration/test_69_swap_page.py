# SPDX-License-Identifier: Apache-2.0
"""docs/from-modelmesh.md's swap of the container works as it stands there.

The page's file, with its folder moved, is all that a node gets beside what modelmesh-serving gives its `mm`
container: the environment, the connection to etcd in a file, type constraints and the data plane's
configuration. Then the controller's calls are made: a vmodel with a model described in it, a type that
nobody serves, the status; a caller names the vmodel in its request; and the preStop hook ends the node.
ctest: timeout=120
"""

import base64
import json
import os
import re
import struct
import subprocess
import unittest

from shoal_ctl import environment
from shoal_fixture import BIN, BUILD, SOURCE, WAIT_SECONDS, Shoald, free_port, main, wait_until
from shoal_meshes import Etcd
from shoal_metrics import Scrape, fetch
from shoal_registry import DEFINED, LOADED, LOADING_FAILED, Registrar

YAML = re.compile(r"^## Swapping the container\n.*?^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MODELS = BUILD / "examples" / "digits"
SERVICE = "modelmesh-serving"
KEY = json.dumps({"storage_key": "default", "storage_params": {"bucket": "b"},
                  "model_type": {"name": "xgboost", "version": "1"}})
TYPES = {"rt:xgb": {"required": ["rt:xgb"]}, "mt:xgboost": {"required": ["mt:xgboost"]},
         "mt:xgboost:1": {"required": ["mt:xgboost:1"]}, "_default": {"required": ["_no_runtime"]}}
NAMED = {"idExtractionPath": [1], "vModelId": True}
DATAPLANE = {"rpcConfigs": {"inference.GRPCInferenceService/ModelInfer": NAMED,
                            "inference.GRPCInferenceService/ModelMetadata": NAMED},
             "allowOtherRpcs": True}
NOBODY = "There are no running instances that meet the label requirements of type mt:other: [_no_runtime]"


class TestSwap(unittest.TestCase):
    def setUp(self):
        self.etcd = self.enterContext(Etcd())
        text, = YAML.findall((SOURCE / "docs" / "from-modelmesh.md").read_text())
        self.assertIn("root: /models ", text)
        peers = 'mesh: {peers: ["127.0.0.1:0"]}\n'  # another node of this machine may have port 8080
        self.shoald = Shoald(text.replace("/models", str(MODELS)) + peers, listen=[])
        self.grpc, self.probes, self.prestop, self.metrics = (free_port() for _ in range(4))
        self.shoald.env.update(self.environment())

    def file(self, name, content):
        path = self.shoald.folder / name
        path.write_text(json.dumps(content))
        return str(path)

    def environment(self):
        connection = self.file("etcd_connection", {
            "endpoints": self.etcd.url, "userid": "", "password": "", "root_prefix": "root/mm_ns/space"})
        return {
            "MM_SERVICE_NAME": SERVICE, "MM_SVC_GRPC_PORT": str(self.grpc),
            "WKUBE_POD_NAME": f"{SERVICE}-xgb-5d4f8b7c9d-abcde", "WKUBE_POD_IPADDR": "127.0.0.1",
            "MM_LOCATION": "10.0.0.1", "KV_STORE": f"etcd:{connection}", "MM_KVSTORE_PREFIX": "mm",
            "MM_METRICS": f"prometheus:port={self.metrics};scheme=https", "SHUTDOWN_TIMEOUT_MS": "90000",
            "INTERNAL_GRPC_PORT": "8085", "INTERNAL_SERVING_GRPC_PORT": "8001",
            "MM_LOG_EACH_INVOKE": "true", "MM_SVC_GRPC_MAX_MSG_SIZE": "16777216",
            "MM_DEFAULT_VMODEL_OWNER": "ksp", "MM_LABELS": "mt:xgboost,mt:xgboost:1,pv:grpc-v2,rt:xgb",
            "MM_TYPE_CONSTRAINTS_PATH": self.file("type_constraints", TYPES),
            "MM_DATAPLANE_CONFIG_PATH": self.file("dataplane_api_config", DATAPLANE),
            "MM_PROBE_PORT": str(self.probes), "MM_PRESTOP_WAIT_PORT": str(self.prestop),
            "SHOAL_MODELET_PATH": str(BUILD / "examples" / "xgboost")}

    def set_vmodel(self, registrar, name, kind):
        return registrar.call("setVModel", vModelId=name, targetModelId=f"{name}__isvc-0123456789",
                              owner="isvc", autoDeleteTargetModel=True, loadNow=True,
                              modelInfo={"type": kind, "path": "digits.ubj", "key": KEY})

    def test_controller(self):
        with self.shoald as shoald, Registrar(f"127.0.0.1:{self.grpc}") as registrar:
            shoald.wait_log(r"mesh_setting_ignored name=INTERNAL_GRPC_PORT ")
            self.assertEqual([fetch(self.probes, path)[0] for path in ("/ready", "/live")], [200, 200])
            self.set_vmodel(registrar, "a", "mt:xgboost:1")

            def status_of(vmodel):
                return registrar.call("getVModelStatus", vModelId=vmodel, owner="isvc")
            wait_until(lambda: status_of("a").activeModelStatus.status == LOADED, "a to be loaded")
            self.assertEqual(status_of("a").status, DEFINED)
            copy, = status_of("a").activeModelStatus.modelCopyInfos
            self.assertEqual(copy.location, "8b7c9d-abcde")
            self.assertEqual(self.set_vmodel(registrar, "a", "mt:xgboost:1"), status_of("a"))
            other = self.set_vmodel(registrar, "b", "mt:other").activeModelStatus
            self.assertEqual((other.status, list(other.errors)), (LOADING_FAILED, [NOBODY]))
            image = struct.pack("<64f", *range(64))
            answer = registrar.infer("a", inputs=(("features", "FP32", [1, 64], image),))
            self.assertEqual(len(answer.raw_output_contents), 1)
            wait_until(lambda: Scrape(self.metrics).samples.get(
                ("modelmesh_models_managed_total", frozenset())) == 2, "two models to be counted")
            self.assertEqual(self.keys("registry"), ["a__isvc-0123456789", "b__isvc-0123456789"])
            self.assertEqual(self.keys("vmodels"), ["a", "b"])
            registrar.call("deleteVModel", vModelId="b", owner="isvc")
            self.assertEqual(self.keys("registry"), ["a__isvc-0123456789"])
            self.stop()
            shoald.check_end()

    def keys(self, table):
        prefix = f"root/mm_ns/space/mm/{SERVICE}/{table}/"
        found = self.etcd.ask("/v3/kv/range", key=prefix, range_end=prefix[:-1] + "0").get("kvs", [])
        return [base64.b64decode(one["key"]).decode().removeprefix(prefix) for one in found]

    def stop(self):
        """The preStop hook of that container."""
        hook = self.shoald.folder / "stop.sh"
        hook.symlink_to(SOURCE / "src" / "ctl" / "stop.sh")
        done = subprocess.run([hook, "wait"], capture_output=True, text=True, timeout=WAIT_SECONDS,
                              env=environment(SHOAL_COUNTERS=str(self.shoald.counters),
                                              PATH=f"{BIN}:{os.environ['PATH']}"))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    main()
