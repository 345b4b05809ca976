# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of corpus/gateway_resources: documents (fuzz_gateway_resources.c).

    python3 tests/fuzz/gateway_resources_seeds.py
"""

import pathlib

FOLDER = pathlib.Path(__file__).parent / "corpus" / "gateway_resources"

POOL = """apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: all}
spec:
  selector: {matchLabels: {a: b}}
  targetPorts: [{number: 8000}]
  endpointPickerRef: {name: gw, failureMode: FailOpen}
"""

ROUTE = """kind: LLMRoute
metadata: {name: assistant}
spec:
  parentRefs: [{name: ai-gw}]
  backendRefs:
  - {name: all, weight: 3, adapter: {name: red, path: /red}, priority: 100}
  - {name: gone, weight: 0, adapter: {name: red}, metrics: {format: Prometheus}}
  objectives: [{type: OutputTokenLatency, latency: {value: 50ms, quantile: {numerator: 99}}}]
  fallbacks: [blue, base]
  retry: {attempts: 2}
"""

REWRITE = """apiVersion: inference.networking.x-k8s.io/v1alpha2
kind: InferenceModelRewrite
metadata: {name: canary}
spec:
  poolRef: {name: all}
  rules:
  - matches: [{model: {type: Exact, value: red}}]
    targets: [{modelRewrite: red-1, weight: 9}, {modelRewrite: red-2, weight: 1}]
  - targets: [{modelRewrite: other}]
"""

MODEL = """kind: InferenceModel
metadata: {name: old}
spec:
  modelName: b
  criticality: Sheddable
  targetModels: [{name: blue}, {name: green}]
  poolRef: {name: all}
"""

OBJECTIVE = """kind: InferenceObjective
metadata: {name: batch}
spec: {priority: -1, poolRef: {name: all}}
"""

HTTP = """apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: any}
spec:
  parentRefs: [{name: ai-gw}]
  rules:
  - matches: [{path: {type: PathPrefix, value: /v1}}]
    backendRefs: [{kind: InferencePool, name: all, weight: 2}]
    retry: {attempts: 1}
"""

SERVICE = """apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: digits, annotations: {a: b}}
spec: {predictor: {model: {modelFormat: {name: xgboost, version: "1"}, storage: {path: d.ubj}}}}
"""

RUNTIME = """apiVersion: serving.kserve.io/v1alpha1
kind: ServingRuntime
metadata: {name: r}
spec:
  supportedModelFormats: [{name: f, autoSelect: true}]
  multiModel: true
  grpcEndpoint: "port:8085"
  containers: [{name: c, image: i, env: [{name: A, value: b}], resources: {limits: {memory: 1Gi}}}]
"""

ALL = [POOL, ROUTE, REWRITE, MODEL, OBJECTIVE, HTTP]

SEEDS = {
    **{f"resource-{i}": text for i, text in enumerate(ALL)},
    "all": "---\n".join(ALL),
    "without-pools": "---\n".join(ALL[1:]),
    "twice": POOL + "---\n" + POOL,
    "split": "---\n".join([REWRITE, REWRITE.replace("canary", "b")]),
    "service": SERVICE,
    "runtime": RUNTIME,
    "mixed": SERVICE + "---\n" + POOL,
    "comment": "# nothing\n",
    "weights": ROUTE.replace("weight: 3", "weight: 0"),
    "port": POOL.replace("number: 8000", "number: "),
    "nul": "kind: A\0\n",
    "json": '{"kind": "InferenceObjective", "metadata": {"name": "x"}, "spec": {"priority": 9e9}}',
}

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in SEEDS.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
