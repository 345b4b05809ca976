# SPDX-License-Identifier: Apache-2.0
"""ServingRuntimes that a node runs: shoald starts the containers of a manifest as processes of this host
(shoal_container.py).

Proves: a runtime is started with its arguments, variables, limits and folder, becomes READY and serves;
what this node cannot run is reported by name, and both documents' full examples run once only image,
command and secret are there, also with our modelets; a changed manifest is run instead, unless this
node cannot run it.
ctest: timeout=240
"""

import json
import os
import pathlib
import signal
import tempfile
import unittest

import shoal_boosters
from shoal_ctl import NEGATIVE
from shoal_fixture import BIN, BUILD, free_port, main, node, pipeline, sanitized, stage, wait_until
from shoal_hosting import PROGRAM, Case, container, runtime, service
from shoal_store import Store


class TestOneNode(Case):
    def test_a_runtime_from_its_manifest_to_an_answer(self):
        self.start(node_labels=["zone=east"])
        self.assertEqual(self.at.wait_ready(), self.at)
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"},
                  "stringData": {"token": "hush $(NAME)"}}
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"},
                  "data": {"mode": "fast"}}
        env = [self.mark, {"name": "WORD", "value": "one"}, {"name": "MORE", "value": "$(WORD)+$(NONE)+$$(WORD)"},
               {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
               {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "mode"}}},
               {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
               {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
               {"name": "MODEL_SERVER_MEM_REQ_BYTES",
                "valueFrom": {"resourceFieldRef": {"containerName": "server", "resource": "requests.memory"}}}]
        self.apply(secret, config, service("life"),
                   runtime("sorter", self.address,
                           container(f"serve={self.address}", "word=$(WORD)", env=env, workingDir="/no/such/folder",
                                     image="registry.example/team/server:v7",
                                     resources={"requests": {"memory": "300Mi"},
                                                "limits": {"memory": "1.5Gi", "cpu": "1500m"}}),
                           nodeSelector={"zone": "east"}))
        self.wait_ready("life")
        told = self.call("life")
        self.assertEqual(told["args"], [f"serve={self.address}", "word=one"])
        self.assertEqual({key: told["env"].get(key) for key in ("MORE", "TOKEN", "MODE", "NODE", "CPUS")},
                         {"MORE": "one+$(NONE)+$(WORD)", "TOKEN": "hush $(NAME)", "MODE": "fast", "NODE": "node-1",
                          "CPUS": "1500"})
        self.assertEqual(told["env"]["MODEL_SERVER_MEM_REQ_BYTES"], str(300 << 20))
        self.assertNotIn("SHOAL_MODELET_PATH", told["env"])
        self.assertRegex(told["folder"], "/shoal-[A-Za-z0-9]{6}$")
        self.assertIn("rt:sorter", self.ctl("mesh", "nodes", "--json").out)
        self.wait_state("sorter", "Ready", restarts="^0$", message="^$")
        self.assertRegex(self.ctl("get", "servingruntimes").out,
                         r"(?m)^ +NAME +DISABLED +MODELTYPE +CONTAINERS +READY +RESTARTS +AGE")
        self.assertRegex(self.ctl("get", "servingruntimes").out, r"(?m)^ +sorter +sort +server +1/1 +0 ")
        self.ctl("delete", "servingruntime", "sorter")
        self.wait_gone()
        wait_until(lambda: not pathlib.Path(told["folder"]).exists(), "its folder to go")
        wait_until(lambda: "rt:sorter" not in self.ctl("mesh", "nodes", "--json").out, "the label to go")

    def test_a_runtime_of_the_cluster(self):
        """A ClusterServingRuntime is run like a ServingRuntime."""
        self.start()
        of_cluster = runtime("sorter", self.address, container(f"serve={self.address}", env=[self.mark]))
        of_cluster["kind"] = "ClusterServingRuntime"
        self.assertIn("clusterservingruntime.serving.kserve.io/sorter created",
                      self.apply(service("life"), of_cluster).out)
        self.wait_ready("life")
        self.assertEqual(self.call("life")["args"], [f"serve={self.address}"])
        self.ctl("wait", "--for=condition=Ready", "clusterservingruntime/sorter")
        labels = self.ctl("mesh", "nodes", "--json").out
        self.assertIn("rt:sorter", labels)
        self.assertIn("runs:cluster/sorter", labels)
        self.assertRegex(self.ctl("get", "clusterservingruntimes").out, r"(?m)^ +sorter +sort +server +1/1 +0 ")
        self.assertRegex(self.ctl("describe", "clusterservingruntime", "sorter").out,
                         r"(?s)kind:  ClusterServingRuntime\n.*node:  node-1\n +state:  Ready\n")
        self.ctl("get", "servingruntime", "sorter", code=NEGATIVE)
        self.assertEqual(self.ctl("delete", "clusterservingruntime", "sorter").out,
                         "clusterservingruntime.serving.kserve.io/sorter deleted\n")
        self.wait_gone()
        wait_until(lambda: "sorter" not in self.ctl("mesh", "nodes", "--json").out, "the labels to go")

    def test_a_folder_that_exists_and_an_endpoint_for_calls(self):
        self.start()
        calls = f"127.0.0.1:{free_port()}"
        folder = self.at.folder / "working dir"
        folder.mkdir()
        self.apply(service("life"), runtime(
            "split", self.address, container(f"serve={self.address}", f"calls={calls}", env=[self.mark],
                                             workingDir=str(folder)),
            grpcDataEndpoint=f"port:{calls.rpartition(':')[2]}"))
        self.wait_ready("life")
        told = self.call("life")
        self.assertEqual((told["folder"], told["address"]), (str(folder), calls))

    def test_a_killed_one_comes_back_and_a_changed_one_replaces_it(self):
        self.start()  # the runtime is called as the part of reports' keys behind its name
        folder = self.at.folder / "sockets"
        address = f"unix:{folder}/runtime.sock"
        self.apply(service("life"), runtime("node", address, container(f"serve={address}", env=[self.mark])))
        self.wait_ready("life")
        first = self.call("life")["pid"]
        os.kill(first, signal.SIGKILL)
        self.wait_state("node", "Ready", restarts="^1$", message="ended by signal 9")
        second = wait_until(lambda: self.call_or_none("life"), "the model to come back")
        self.assertNotEqual(second["pid"], first)
        wait_until(lambda: self.at.stat()["mesh_runtime_restarts"] == 1, "the counter")
        self.apply(runtime("node", address, container(f"serve={address}", "new", env=[self.mark])))
        wait_until(lambda: (self.call_or_none("life") or second)["args"][1:] == ["new"], "the new manifest to run")
        self.apply(runtime("node", address, container(f"serve={address}", image="none")))
        self.wait_state("node", "Ready", message='image "none" is no program of this node')
        self.assertEqual(self.call("life")["args"][1:], ["new"])
        self.apply(runtime("node", address, container(f"serve={address}", image="none"), disabled=True))
        self.wait_gone()

    def test_calls_of_a_model_at_once_are_limited(self):
        """Those beyond the annotation's limit wait on the node until earlier ones have been answered."""
        self.start()
        gate = self.at.folder / "gate"
        os.mkfifo(gate)
        limited = runtime("limited", self.address, container(f"serve={self.address}", f"gate={gate}", env=[self.mark]))
        limited["metadata"]["annotations"] = {"perModelConcurrencyLimit": "2"}
        self.apply(service("life"), limited)
        self.wait_ready("life")
        opened = os.open(gate, os.O_RDWR)
        self.addCleanup(os.close, opened)
        calls = [self.start_call("life") for _ in range(5)]
        wait_until(lambda: 'text="inside: 2"' in self.at.stderr, lambda: "two calls to be inside: "
                   f"{[call.done() and call.code() for call in calls]} {self.at.stat()}\n{self.at.stderr}")
        wait_until(lambda: self.at.stat()["mesh_under_way"] == 5, "all calls to have come")
        os.write(opened, b"12345")
        told = [json.loads(call.result()) for call in calls]
        self.assertEqual(max(one["most"] for one in told), 2)
        limited["metadata"]["annotations"] = {"perModelConcurrencyLimit": "many"}
        self.apply(limited)
        self.wait_state("limited", "Ready", message="perModelConcurrencyLimit is ignored")

    def test_what_cannot_run_here_is_told_by_name(self):
        self.start(node_taints=["gpu=yes:NoSchedule"], node_labels=["zone=east"])
        wrong = runtime("wrong", self.address, container(
            "--", command=["/bin/sh", "-c", "touch /tmp/owned"], env=[
                {"name": "LD_PRELOAD", "value": "/tmp/evil.so"},
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": "nowhere", "key": "k"}}},
                {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "spec.magic"}}},
                {"name": "C", "valueFrom": {"resourceFieldRef": {"containerName": "absent", "resource": "limits.cpu"}}},
                {"name": "D", "valueFrom": {"secretKeyRef": {"name": "nowhere", "key": "k", "optional": True}}}]))
        del wrong["spec"]["grpcEndpoint"]
        self.apply(wrong, runtime("selective", self.address, container(), nodeSelector={"zone": "west"}))
        message = self.wait_state("wrong", "Unable")["message"]
        for part in ("tolerations: none is for this node's taint gpu=yes:NoSchedule", "grpcEndpoint is missing",
                     'command "/bin/sh" is not the one that `images` names for it',
                     'env "LD_PRELOAD" makes programs run other code',
                     'env "A": Secret "nowhere" does not exist; its key is "k"',
                     'env "B": there is no field spec.magic', 'env "C": there is no container "absent"'):
            self.assertIn(part, message)
        self.assertNotIn('env "D"', message)
        self.assertIn('zone must be "west", and this node\'s is "east"',
                      self.wait_state("selective", "Unable")["message"])
        self.assertRegex(self.ctl("describe", "servingruntime", "selective").out, 'message: .*must be "west"')
        self.apply(runtime("selective", self.address, container(f"serve={self.address}", env=[self.mark]),
                           tolerations=[{"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}],
                           affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                               "nodeSelectorTerms": [{"matchExpressions": [
                                   {"key": "zone", "operator": "In", "values": ["north", "east"]},
                                   {"key": "kubernetes.io/os", "operator": "Exists"},
                                   {"key": "zone", "operator": "NotIn", "values": ["west"]}]}]}}}))
        self.wait_state("selective", "Ready")
        self.apply(runtime("other", self.address, container(), tolerations=[{"operator": "Exists"}]))
        self.assertIn('runs "selective"', self.wait_state("other", "Busy")["message"])


# "Full Example" of both documents, but for the format's name and the comments.
EXAMPLE = """
apiVersion: serving.kserve.io/v1alpha1
kind: ServingRuntime
metadata:
  name: example-runtime
spec:
  supportedModelFormats:
    - name: my_model_format # name of the model
      version: "1"
      autoSelect: true
  containers:
    - args:
        - arg1
        - arg2
      command:
        - command
        - command2
      env:
        - name: name
          value: value
        - name: fromSecret
          valueFrom:
            secretKeyRef:
              key: mykey
      image: image
      name: name
      resources:
        limits:
          memory: 200Mi
      imagePullPolicy: IfNotPresent
      workingDir: "/container/working/dir"
  multiModel: true
  disabled: false
  storageHelper:
    disabled: true
  grpcEndpoint: port:1234 # or unix:/path
  grpcDataEndpoint: port:1234 # or unix:/path
  # To influence pod scheduling, one or more of the following can be used
  nodeSelector: # https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#nodeselector
    kubernetes.io/arch: "amd64"
  affinity: # https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#affinity-and-anti-affinity
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
          - matchExpressions:
              - key: "kubernetes.io/arch"
                operator: In
                values:
                  - "amd64"
  tolerations: # https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
    - key: "example-key"
      operator: "Exists"
      effect: "NoSchedule"
"""
OF_SERVICES = """
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: my-mnist-isvc
  annotations:
    serving.kserve.io/deploymentMode: ModelMesh
spec:
  predictor:
    model:
      modelFormat:
        name: my_model_format
        version: "1"
      storage:
        key: my_storage
        path: my_models/mnist-model
        parameters:
          bucket: my_bucket
"""
OF_PREDICTORS = """
apiVersion: serving.kserve.io/v1alpha1
kind: Predictor
metadata:
  name: my-mnist-predictor
spec:
  modelType:
    name: my_model_type
    version: "1"
  path: my_models/mnist-model
  storage:
    s3:
      secretKey: my_storage
      bucket: my_bucket
"""


class TestDocuments(Case):
    """The full examples of both documents, at a node that can fetch what they name."""

    def start_node(self):
        self.store = self.enterContext(Store())
        self.store.keys = {"AKTEST": ("s3cr3t", None)}
        self.store.objects = {"my_bucket": {"my_models/mnist-model/model": bytes(2415)}}
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="shoal-test.")))
        self.cache = folder / "cache"
        (folder / "config").mkdir()
        (folder / "config" / "my_storage").write_text(json.dumps(self.store.entry()))
        self.start(node_labels=["kubernetes.io/arch=amd64"], images={"there": "/bin/true"}, run_commands="on",
                   node={"models_cache_gib": 0.1, "models_cache": str(self.cache),
                         "storage_config": str(folder / "config")})

    def check_helper(self, name, told, model_type, manifest):
        """The path and the key as both documents have them, without the storage helper and with it."""
        key = {"model_type": {"name": model_type, "version": "1"}, "storage_key": "my_storage"}
        self.assertEqual(told["path"], "my_models/mnist-model")
        self.assertEqual(json.loads(told["key"]), {**key, "storage_params": {"bucket": "my_bucket"}})
        self.assertEqual(self.store.requests, [])
        self.apply(manifest.replace("storageHelper:\n    disabled: true", "storageHelper:\n    disabled: false"))
        told = wait_until(lambda: self.call_of_another(name, told), f"{name} to answer from a new process")
        self.assertEqual(json.loads(told["key"]), {**key, "bucket": "my_bucket", "disk_size_bytes": 2415})
        path = pathlib.Path(told["path"])
        self.assertEqual(path.parent, self.cache.resolve() / "models")
        self.assertEqual({file.name: file.read_bytes() for file in path.iterdir()}, {"model": bytes(2415)})

    def call_of_another(self, name, former):
        """The answer of another process than the former answer's; None: there is none yet."""
        told = self.call_or_none(name)
        return told if told and told["pid"] != former["pid"] else None

    def replaced(self, example, *command):
        """With other words only where a node of this host lacks what they name."""
        lines = "".join(f"        - {json.dumps(str(word))}\n" for word in command)
        return (example.replace("key: mykey", "key: mykey\n              name: my-secret")
                .replace("image: image", "image: there")
                .replace("        - command\n        - command2\n", lines))

    def check(self, example, user, kind, name, model_type):
        self.start_node()
        self.apply(example, user)
        message = self.wait_state("example-runtime", "Unable")["message"]
        parts = message.split("; ")
        self.assertEqual(len(parts), 3, message)
        self.assertIn('env "fromSecret": no Secret is named: set the name of the one with the key "mykey"', parts[0])
        self.assertIn('image "image" is no program of this node: add `images: {"image": COMMAND}`', parts[1])
        self.assertIn('command "command" is no program of this host', parts[2])
        manifest = self.replaced(example, *PROGRAM.split(), "serve=127.0.0.1:1234")
        self.apply(manifest)
        self.assertIn('Secret "my-secret" does not exist; its key is "mykey"',
                      self.wait_state("example-runtime", "Unable", message="my-secret")["message"])
        self.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "my-secret"},
                    "data": {"mykey": "aHVzaA=="}})
        self.wait_state("example-runtime", "Ready")
        self.ctl("wait", "--for=condition=Ready", "servingruntime/example-runtime")
        told = wait_until(lambda: self.call_or_none(name), f"{kind}/{name} to answer")
        self.assertEqual(told["args"], ["serve=127.0.0.1:1234", "arg1", "arg2"])
        self.assertEqual((told["env"]["name"], told["env"]["fromSecret"]), ("value", "hush"))
        self.check_helper(name, told, model_type, manifest)

    @unittest.skipIf(sanitized(), "a sanitizer takes more memory than the example's limit")
    def test_with_our_modelets(self):
        """The container is a shoald, whose address, arguments and limits are the example's."""
        self.start(node_labels=["kubernetes.io/arch=amd64"], images={"there": "/bin/true"}, run_commands="on")
        (self.at.folder / "my_models").mkdir()
        shoal_boosters.write(self.at.folder / "my_models" / "mnist-model", 1)
        modelet = BUILD / "lib" / "shoal" / "libxgboost_modelet.so"
        config = self.at.folder / "container.yaml"
        config.write_text(json.dumps(node(
            pipeline("boosters", stage(modelet), slots=8,
                     models={"root": str(self.at.folder), "memory_mib": 64, "watch": "no"}),
            listen=["127.0.0.1:1234"], runtime=["127.0.0.1:1234"])))
        self.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "my-secret"},
                    "data": {"mykey": "aHVzaA=="}},
                   self.replaced(EXAMPLE, "/bin/sh", "-c", f"exec {BIN / 'shoald'} {config}"), OF_SERVICES)
        self.wait_ready("my-mnist-isvc")
        answer = self.registrar.infer(metadata=(("mm-vmodel-id", "my-mnist-isvc"),),
                                      inputs=(shoal_boosters.tensor(0),))
        self.assertEqual(shoal_boosters.value_of(answer), shoal_boosters.answers(1)[0])

    def test_of_inference_services(self):
        self.check(EXAMPLE, OF_SERVICES, "isvc", "my-mnist-isvc", "my_model_format")

    def test_of_predictors(self):
        self.check(EXAMPLE.replace("my_model_format", "my_model_type"), OF_PREDICTORS, "predictor",
                   "my-mnist-predictor", "my_model_type")


if __name__ == "__main__":
    main()
