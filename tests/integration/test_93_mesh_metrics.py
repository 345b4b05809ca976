# SPDX-License-Identifier: Apache-2.0
"""The figures of a mesh, as operators and Prometheus see them: of a real node alone, and of two
with an etcd, after traffic of which every call and load is known (shoal_pupil.py reports the loads).

Proves: the counters are exact; /metrics says the same, under our names and
under KServe ModelMesh's; promtool has nothing against ours; the pages name every metric; MM_METRICS
is obeyed, or the log says that it does not. ctest: timeout=240
"""

import re
import unittest

import grpc

from shoal_client import failure
from shoal_fixture import SOURCE, free_port, main, wait_until
from shoal_meshes import Etcd, Nodes
from shoal_metrics import Scrape, metrics_port
from shoal_pupil import MIB, SIZE, Rig, key, prepare, pupil, said
from shoal_registry import LOADED, LOADING_FAILED, Registrar

Code = grpc.StatusCode
METRICS = "127.0.0.1:0"
UNIT = 8192


def wait_figures(shoald, condition, what):
    """The counters, when they fulfil a condition: they are written a few times a second."""
    last = {}

    def look():
        last.clear()
        last.update({name: value for name, value in shoald.stat().items()
                     if name.startswith("mesh_")})
        return condition(last)
    wait_until(look, lambda: f"{what}; the last figures: {last}")
    return last


def families(scrape, prefix):
    return {name for name in scrape.types if name.startswith(prefix)}


class OneNode(Rig, unittest.TestCase):
    def infer_in_time(self, model):
        """A call is refused while all that is loaded was loaded a moment ago. How often it was: it
        says so, or that no other node is there."""
        refused = []

        def look():
            call = self.registrar.start_infer(model)
            if call.code() == Code.INTERNAL:
                refused.append(model)
                return None
            return call.result()
        self.assertEqual(said(wait_until(look, f"{model} to be loaded")), model)
        return len(refused)

    def learn(self):
        """After a few loads it is known how long they take: models may go sooner then."""
        for i in range(4):
            self.registrar.register(f"w{i}", loadNow=True, sync=True)
            self.registrar.unregister(f"w{i}")
        wait_until(lambda: all(self.lessons(f"w{i}") == ["load", "unload"] for i in range(4)),
                   "the first models to go")

    def lessons_of(self, what):
        lines = (self.shoald.folder / "lessons").read_text().splitlines()
        return [line.split()[1] for line in lines if line.split()[0] == what]

    def test_counters_are_exact(self):
        self.shoald = prepare(pupil(models={"memory_mib": 40, "default_size_mib": 4}),
                              mesh={"instance": "one"}, metrics=METRICS)
        with self.shoald as shoald, Registrar(shoald) as self.registrar:
            registrar = self.registrar
            self.learn()
            registrar.register("m")
            for _ in range(4): # the first waits for the load
                self.assertEqual(said(registrar.infer("m")), "m")
            self.assertEqual(failure(registrar.start_infer("nobody"))[0], Code.NOT_FOUND)
            registrar.register("bad", key=key(fail="no good"), loadNow=True)
            registrar.wait_status("bad", LOADING_FAILED) # the registry says it: so do calls
            self.assertIn("no good", failure(registrar.start_infer("bad"))[1])
            refused = self.fill()
            registrar.register("slow", key=key(load="slow"))
            late = registrar.start_infer("slow")
            self.wait_held("slow")
            held = wait_figures(shoald, lambda now: now["mesh_loading"] == 1, "a load under way")
            self.assertEqual((held["mesh_under_way"], held["mesh_queued"]), (1, 0))
            late.cancel()
            wait_figures(shoald, lambda now: now["mesh_calls_cancelled"] == 1, "the caller to go")
            self.give("slow")
            registrar.wait_status("slow", LOADED)
            registrar.call("setVModel", vModelId="v", targetModelId="m")
            registrar.call("setVModel", vModelId="v", targetModelId="slow", sync=True)
            self.assertEqual(said(registrar.infer(metadata=[("mm-vmodel-id", "v")])), "slow")
            self.check(wait_figures(
                shoald, lambda now: now["mesh_calls_here"] == 4 and now["mesh_copies"] ==
                len(self.lessons_of("load")) - len(self.lessons_of("unload"))
                and now["mesh_unloads"] == len(self.lessons_of("unload")), "all calls"), refused)
            self.check_scrape()

    def fill(self):
        """More than there is room for, each called once: the first ones go."""
        refused = 0
        for i in range(8):
            self.registrar.register(f"big{i}", key=key(bytes=8 * MIB))
            refused += self.infer_in_time(f"big{i}")
        return refused

    def check(self, now, refused):
        loads = self.lessons_of("load")
        unloads = self.lessons_of("unload")
        evicted = [model for model in unloads if not model.startswith("w")]
        self.assertGreaterEqual(len(evicted), 3)
        for name, value in {
                "mesh_on": 1, "mesh_calls_waited": 1 + 8, "mesh_calls_elsewhere": 0,
                "mesh_calls_not_found": 1, "mesh_calls_full": 0, "mesh_calls_overloaded": 0, "mesh_calls_unavailable": 0,
                "mesh_calls_deadline": 0, "mesh_calls_cancelled": 1, "mesh_peer_calls_here": 0,
                "mesh_peer_calls_waited": 0, "mesh_peer_calls_elsewhere": 0,
                "mesh_peer_calls_returned": 0, "mesh_peer_calls_cancelled": 0, "mesh_under_way": 0,
                "mesh_forwards": 0, "mesh_tries_failed_unreachable": 0,
                "mesh_tries_failed_overloaded": 0, "mesh_tries_failed_other": 0,
                "mesh_loads": len(loads) + 1, "mesh_loads_failed": 1, "mesh_unloads": len(unloads),
                "mesh_unloads_failed": 0, "mesh_evictions": len(evicted), "mesh_given_up": 0,
                "mesh_queued": 0, "mesh_loading": 0, "mesh_lost": 0,
                "mesh_copies": len(loads) - len(unloads), "mesh_leads": 1, "mesh_instances": 1,
                "mesh_models": 11, "mesh_models_held": len(loads) - len(unloads),
                "mesh_models_failed": 1, "mesh_vmodels": 1, "mesh_vmodels_moving": 0,
                "mesh_transitions": 1, "mesh_connected": 1, "mesh_txns_unknown": 0, "mesh_watches": 0,
                "mesh_lists": 0, "mesh_sessions": 1, "mesh_emptied": 0, "mesh_bad_records": 0,
                "mesh_store_full": 0, "mesh_writes_full": 0, "mesh_store_waiting": 0, "mesh_writes_busy": 0,
                "mesh_batch_max": 0,
                "mesh_peers": 0, "mesh_out": 0, "mesh_peer_sent": 0, "mesh_peer_received": 0}.items():
            self.assertEqual(now[name], value, name)
        self.assertEqual(now["mesh_calls_load_failed"], 1)
        self.assertEqual(now["mesh_calls_failed"], refused)
        for name in ("mesh_tries_failed_not_here", "mesh_tries_failed_not_loaded"):
            self.assertEqual(now[name], 0, name)
        for name, count in {"mesh_wait": 9, "mesh_seat_time": 0, "mesh_queue_time": len(loads) + 1,
                            "mesh_load_time": len(loads), "mesh_loaded_size": len(loads),
                            "mesh_unload_time": len(unloads),
                            "mesh_evicted_age": len(evicted)}.items():
            self.assertEqual(now[name]["count"], count, name)
        self.assertGreaterEqual(now["mesh_size_time"]["count"], len(loads) + 1)
        big = [model for model in loads if model.startswith("big")]
        self.assertEqual(now["mesh_loaded_size"]["sum"],
                         len(big) * 8 * MIB + (len(loads) - len(big)) * SIZE)
        self.assertEqual(now["mesh_capacity"] + now["mesh_reserve"], 40 * MIB)
        self.assertEqual(now["mesh_used"] + now["mesh_free"], now["mesh_capacity"])
        here = [model for model in loads if model not in unloads]
        self.assertEqual(now["mesh_used"], sum(8 * MIB if model in big else UNIT for model in here))
        for name in ("mesh_revision", "mesh_store_events", "mesh_txns_ok", "mesh_published",
                     "mesh_heard", "mesh_oldest"):
            self.assertGreater(now[name], 0, name)
        self.assertGreaterEqual(now["mesh_txns_lost"], 0)

    def look(self):
        """Of one moment: the counters and what /metrics says, between two writes of the counters."""
        before, scrape, stat = self.shoald.stat(), Scrape(metrics_port(self.shoald)), self.shoald.stat()
        return (stat, scrape) if all(before[name] == stat[name] for name in stat if name.startswith("mesh_")
                                     and name not in ("mesh_heard", "mesh_oldest")) else None

    def check_scrape(self):
        stat, scrape = wait_until(self.look, "counters that do not change")
        result = "shoal_mesh_calls_total"
        for value in ("here", "waited", "not_found", "cancelled", "load_failed", "failed"):
            self.assertEqual(scrape[result, {"result": value}], stat[f"mesh_calls_{value}"], value)
        for name in ("mesh_loads", "mesh_evictions", "mesh_loads_failed", "mesh_transitions",
                     "mesh_sessions"):
            self.assertEqual(scrape[f"shoal_{name}_total"], stat[name], name)
        for name in ("mesh_models", "mesh_copies", "mesh_instances", "mesh_leads", "mesh_connected"):
            self.assertEqual(scrape[f"shoal_{name}"], stat[name], name)
        self.assertEqual(scrape["shoal_mesh_capacity_bytes"], stat["mesh_capacity"])
        self.assertEqual(scrape["shoal_mesh_txns_total", {"result": "ok"}], stat["mesh_txns_ok"])
        self.assertEqual(scrape["shoal_mesh_evicted_age_seconds_count"], stat["mesh_evictions"])
        self.check_modelmesh(scrape, stat)
        pages = "".join((SOURCE / "docs" / page).read_text()
                        for page in ("operating.md", "from-modelmesh.md"))
        for name in families(scrape, "modelmesh_"):
            self.assertIn(f"`{name}`", pages)
        table = "".join(re.findall(r"^\| (`modelmesh_.*?) \|", pages, re.M))
        self.assertEqual(set(re.findall(r"`(modelmesh_\w+)`", table)), families(scrape, "modelmesh_"))

    def check_modelmesh(self, scrape, stat):
        for name, count in {"cache_miss": "mesh_wait", "loadmodel": "mesh_load_time",
                            "unloadmodel": "mesh_unload_time", "model_sizing": "mesh_size_time",
                            "loading_queue_delay": "mesh_queue_time",
                            "age_at_eviction": "mesh_evicted_age"}.items():
            family = f"modelmesh_{name}_milliseconds"
            self.assertEqual(scrape.types[family], "histogram")
            self.assertEqual(scrape[f"{family}_count"], stat[count]["count"], name)
        size = "modelmesh_loaded_model_size_bytes"
        self.assertEqual(scrape[f"{size}_sum"], stat["mesh_loaded_size"]["sum"])
        small = scrape[f"{size}_bucket", {"le": "262144.0"}]
        self.assertEqual(small, scrape[f"{size}_count"] - 8)
        for name, value in {"modelmesh_loadmodel_failure": 1, "modelmesh_unloadmodel_failure": 0,
                            "modelmesh_models_managed_total": 11,
                            "modelmesh_models_with_failure_total": 1,
                            "modelmesh_models_loaded_total": stat["mesh_copies"],
                            "modelmesh_instance_models_total": stat["mesh_copies"],
                            "modelmesh_instance_capacity_bytes": stat["mesh_capacity"],
                            "modelmesh_instance_used_bytes": stat["mesh_used"]}.items():
            self.assertEqual(scrape[name], value, name)
        self.assertEqual(scrape["modelmesh_instance_used_bps"],
                         stat["mesh_used"] * 10000 // stat["mesh_capacity"])
        self.assertLess(scrape["modelmesh_instance_lru_age_seconds"], 3600)
        ok = {"method": "ModelInfer", "code": "OK"}
        answered = stat["mesh_calls_here"] + stat["mesh_calls_waited"]
        for name in ("api_request_milliseconds", "invoke_model_milliseconds", "request_size_bytes",
                     "response_size_bytes"):
            self.assertEqual(scrape[f"modelmesh_{name}_count", ok], answered, name)
            self.assertEqual(scrape[f"modelmesh_{name}_bucket", {**ok, "le": "+Inf"}], answered)
            self.assertGreater(scrape[f"modelmesh_{name}_sum", ok], 0, name)
        for code, count in {"NOT_FOUND": 1, "CANCELLED": 1,
                            "INTERNAL": stat["mesh_calls_load_failed"]
                            + stat["mesh_calls_failed"]}.items():
            labels = {"method": "ModelInfer", "code": code}
            self.assertEqual(scrape["modelmesh_api_request_milliseconds_count", labels], count, code)
            self.assertNotIn(("modelmesh_invoke_model_milliseconds_count",
                              frozenset(labels.items())), scrape.samples)

    def test_as_modelmesh_is_told(self):
        port = free_port()
        self.shoald = prepare(pupil())
        self.shoald.env.update(
            MM_SERVICE_NAME="mine", MM_PROBE_PORT="NONE", MM_PRESTOP_WAIT_PORT="NONE",
            MM_METRICS=f"prometheus:port={port};scheme=https;fq_names=true;per_model_metrics=true")
        with self.shoald as shoald, Registrar(shoald) as registrar:
            for asked in ("scheme=https", "per_model_metrics"):
                shoald.wait_log(rf'mesh_metrics_differ asked="MM_METRICS: {asked}"')
            registrar.register("m")
            registrar.infer("m")
            labels = {"method": "inference.GRPCInferenceService/ModelInfer", "code": "OK"}
            self.assertEqual(
                Scrape(port)["modelmesh_api_request_milliseconds_count", labels], 1)

    def test_none_without_a_mesh(self):
        self.shoald = prepare(pupil(), metrics=METRICS)
        with self.shoald as shoald:
            scrape = Scrape(metrics_port(shoald))
            self.assertFalse(families(scrape, "shoal_mesh_") | families(scrape, "modelmesh_"))
            self.assertEqual(shoald.stat()["mesh_on"], 0)


class TwoNodes(unittest.TestCase):
    def setUp(self):
        self.etcd = Etcd().__enter__()
        self.addCleanup(self.etcd.__exit__, None, None, None)

    def test_calls_through_another_node(self):
        with Nodes(self.etcd, ["node-a", "node-b"], metrics=METRICS) as nodes:
            for node in nodes.nodes.values():
                wait_figures(node, lambda now: now["mesh_instances"] == 2, "both to be seen")
            nodes.at("node-a").register("m")
            self.assertEqual(said(nodes.at("node-a").infer("m")), "m")
            status = nodes.at("node-a").wait_status("m", LOADED)
            holder = status.modelCopyInfos[0].location
            other = "node-b" if holder == "node-a" else "node-a"
            was = self.figures(nodes, lambda now: now["mesh_models_held"] == 1
                               and now["mesh_under_way"] == 0)
            message = 50000
            for _ in range(5):
                nodes.at(other).infer("m", inputs=(("x", "UINT8", [message], bytes(message)),))
            calls = ("mesh_calls_elsewhere", "mesh_peer_calls_here")
            now = {name: wait_figures(node, lambda now, before=was[name]: now["mesh_under_way"] == 0
                                      and sum(now[key] - before[key] for key in calls) >= 5, name)
                   for name, node in nodes.nodes.items()}
            grew = {name: {key: now[name][key] - value for key, value in was[name].items()
                           if isinstance(value, int)} for name in was}
            for name, value in {"mesh_calls_elsewhere": 5, "mesh_forwards": 5,
                                "mesh_calls_here": 0, "mesh_calls_waited": 0, "mesh_loads": 0,
                                "mesh_tries_failed_not_here": 0}.items():
                self.assertEqual(grew[other][name], value, name)
            self.assertEqual(grew[holder]["mesh_peer_calls_here"], 5)
            self.assertEqual(grew[holder]["mesh_forwards"], 0)
            self.assertGreaterEqual(grew[other]["mesh_peer_sent"], 5 * message)
            self.assertGreater(grew[other]["mesh_peer_received"], 0)
            self.assertEqual((now[other]["mesh_peers"], now[other]["mesh_out"]), (1, 0))
            self.assertEqual(now["node-a"]["mesh_leads"] + now["node-b"]["mesh_leads"], 1)
            for one in now.values():
                for name in ("mesh_models", "mesh_connected", "mesh_sessions"):
                    self.assertEqual(one[name], 1, name)
                self.assertGreaterEqual(one["mesh_watches"], 1)
                self.assertGreaterEqual(one["mesh_lists"], 1)
            self.assertEqual(now["node-a"]["mesh_loads"] + now["node-b"]["mesh_loads"], 1)
            self.check_scrapes(nodes, holder, other)
            self.check_a_death(nodes, holder, other)

    def figures(self, nodes, condition):
        return {name: wait_figures(node, condition, name) for name, node in nodes.nodes.items()}

    def check_scrapes(self, nodes, holder, other):
        """The node that took the call, and the one that served it."""
        ok = {"method": "ModelInfer", "code": "OK"}
        asked, has = (Scrape(metrics_port(nodes[name])) for name in (other, holder))
        self.assertGreaterEqual(asked["modelmesh_api_request_milliseconds_count", ok], 5)
        self.assertNotIn(("modelmesh_invoke_model_milliseconds_count", frozenset(ok.items())),
                         asked.samples)
        self.assertGreaterEqual(has["modelmesh_invoke_model_milliseconds_count", ok], 6)
        managed = [scrape.samples.get(("modelmesh_models_managed_total", frozenset()))
                   for scrape in (asked, has)]
        self.assertEqual([value for value in managed if value is not None], [1])

    def check_a_death(self, nodes, holder, other):
        nodes[holder].kill()
        self.assertEqual(said(nodes.at(other).infer("m")), "m")
        now = wait_figures(nodes[other], lambda now: now["mesh_calls_waited"] == 1, "the call")
        self.assertGreaterEqual(now["mesh_tries_failed_unreachable"], 1)
        self.assertEqual((now["mesh_loads"], now["mesh_peers"]), (1, 0))


class Pages(unittest.TestCase):
    def test_every_counter_has_a_name_of_its_own(self):
        """Every counter of the mesh in the page exists; tidy finds those that it lacks."""
        page = (SOURCE / "docs" / "operating.md").read_text()
        table = (SOURCE / "src" / "ipc" / "counters.def").read_text()
        there = {name.lower() for name in re.findall(r"COUNTER\(NODE, (MESH_\w+)", table)}
        named = set(re.findall(r"`(mesh_\w+)`", page))
        code = "".join(path.read_text() for path in (SOURCE / "src").rglob("*.c"))
        events = set(re.findall(r'log_\w+\(\s*"(mesh_\w+)', code))
        self.assertGreater(len(named & there), 40)
        self.assertEqual(named - events - there, set())

    def test_every_line_of_the_log_is_explained(self):
        page = (SOURCE / "docs" / "operating.md").read_text()
        explained = page[page.index("\n## The log\n"):]
        code = "".join(path.read_text() for path in (SOURCE / "src").rglob("*.c"))
        for event in set(re.findall(r'log_\w+\(\s*"((?:mesh|peer|external|model|tls)_\w+)', code)):
            self.assertIn(f"`{event}`", explained)


if __name__ == "__main__":
    main()
