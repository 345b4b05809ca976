# SPDX-License-Identifier: Apache-2.0
"""The dashboard in a real Chromium, on real nodes.

Under load it shows what shoalctl shows, asks nobody but its node, and says nothing on the console.
It is used by keyboard, on a phone, in light and dark, with text that can be read; over TLS, too.
Names of models are text, with any content; ten thousand models are no more elements than
fifty. A peer that is gone is marked. A fetch tells how far it is. ctest: timeout=300
"""

import concurrent.futures
import itertools
import json
import os
import re
import pathlib
import signal
import subprocess
import tempfile
import threading
import time
import unittest

import shoal_fixture
from shoal_attacks import puppet
from shoal_browser import BROWSER, Browser
from shoal_certificates import Certificates
from shoal_client import Client, failure, said
from shoal_dashboard import ANY_PORT, dashboard_port
from shoal_fixture import WAIT_SECONDS, Shoald, node, pipeline, stage, wait_until
from shoal_meshes import Etcd, Nodes
from shoal_ctl import shoalctl
from shoal_pupil import MIB, key, prepare, pupil
from shoal_registry import Registrar
from shoal_rest import Rest, port_of, tensor
from shoal_store import Store
from shoal_streams import Stream, repeat

ELEMENTS_MAX = 3000
MODELS = 10000
ROWS = 50  # of a page
HOSTILE = "<img src=x onerror=\"document.title='broken'\">'&amp;\u202e"

CONTRAST = """
const light = text => {
  const parts = text.match(/[\\d.]+/g).slice(0, 3).map(one => one / 255)
    .map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
  return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
};
const ground = element => {
  for (let at = element; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if (!/, 0\\)|transparent/.test(colour)) return colour;
  }
  return 'rgb(255, 255, 255)';
};
return [...document.querySelectorAll('body *')]
  .filter(one => one.checkVisibility() && [...one.childNodes].some(
    child => child.nodeType === 3 && child.textContent.trim()))
  .map(one => {
    const style = getComputedStyle(one);
    const back = light(ground(one));
    const front = light(one.ownerSVGElement ? style.fill : style.color);
    return [(Math.max(back, front) + 0.05) / (Math.min(back, front) + 0.05), one.textContent];
  })
  .filter(([ratio]) => ratio < 4.5);
"""


XOR = {"id": "xor", "path": str(shoal_fixture.EXAMPLES / "mlp/xor.mlp")}
MLP = stage(shoal_fixture.BUILD / "lib/shoal/libmlp.so", "first", batch_size=8, model=XOR)
BITS = tensor("bits", "FP32", [1, 2], [0, 1])


def seconds(text):
    """A duration as pages show it."""
    units = {"µs": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+) (\w+)", text))


class Load:
    """Calls that do not pause until the block is left."""

    def __init__(self, port, model, *inputs):
        self.port, self.model, self.inputs = port, model, inputs
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        with Rest(self.port) as rest:
            while not self.ends.is_set():
                rest.infer(self.model, *self.inputs)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join(WAIT_SECONDS)


class Callers:
    """One of each model of a mesh, whose calls do not pause until the block is left, and all must
    succeed; `calls` is then their number."""

    def __init__(self, registrar, *models):
        self.registrar, self.models = registrar, models
        self.ends = threading.Event()

    def run(self, model):
        calls = 0
        while not self.ends.is_set():
            self.registrar.infer(model)
            calls += 1
        return calls

    def __enter__(self):
        pool = concurrent.futures.ThreadPoolExecutor(len(self.models))
        self.runs = [pool.submit(self.run, model) for model in self.models]
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.calls = sum(run.result() for run in self.runs)


class InBrowser(unittest.TestCase):
    """The tests of a class have a browser, which has complained about nothing when each ends."""

    @classmethod
    def setUpClass(cls):
        cls.browser = cls.enterClassContext(Browser())

    def setUp(self):
        self.browser.renew()
        self.expected = []  # complaints that are meant

    def go(self, shoald, page="", scheme="http"):
        self.origin = f"{scheme}://127.0.0.1:{dashboard_port(shoald)}"
        self.browser.open(f"{self.origin}/#/{page}")
        self.browser.wait_text("ready")

    def facts(self):
        """The page's named figures."""
        return self.browser.run("""return Object.fromEntries([...document.querySelectorAll('dl.figures dt')]
            .map(one => [one.textContent, one.nextElementSibling.textContent]))""")

    def check(self):
        said = [line for line in self.browser.complaints()
                if not any(text in line for text in self.expected)]
        self.assertEqual(said, [])
        self.assertEqual(self.browser.asked(), {self.origin})

    def table(self, caption):
        """Its rows, by the columns' titles."""
        return self.browser.run(f"""
            const table = [...document.querySelectorAll('table')].find(
                one => one.caption.textContent === '{caption}');
            return [...table.tBodies[0].rows].filter(row => !row.hidden).map(row => Object.fromEntries(
                [...row.cells].map((cell, at) => [table.tHead.rows[0].cells[at].textContent, cell.textContent])))""")


@BROWSER
class TestNode(InBrowser):
    def start(self, **keys):
        config = node(pipeline("xor", MLP, stage("libecho.so", "second")),
                      pipeline("other", stage("libecho.so")),
                      **{"http": ANY_PORT, "dashboard": ANY_PORT, **keys})
        return self.enterContext(Shoald(config))

    def counters(self):
        """The page's text of each counter, by its name."""
        return self.browser.run("""return Object.fromEntries(
            [...document.querySelectorAll('[data-counter]')].map(
                one => [one.dataset.counter, one.textContent]))""")

    def test_figures_under_load(self):
        shoald = self.start()
        self.go(shoald)
        with Load(port_of(shoald), "xor", BITS):
            self.browser.wait(".chart path.line[d*=L]", 6)
            wait_until(lambda: all(re.fullmatch(r"[\d.,]+/s", rate) and rate != "0/s"
                                   for rate in self.rates()), self.rates)
        with Rest(port_of(shoald)) as rest:
            self.assertEqual(rest.infer("xor", tensor("bits", "FP32", [1, 3], [0, 1, 2])).code, 400)
        stat = shoald.wait_all_returned("xor")
        wanted = {f"xor.{name}": stat[name] for name in
                  ("requests", "replies_ok", "replies_failed", "cancelled", "run_again", "poison",
                   "rejected_invalid", "rejected_full", "rejected_predicted", "rejected_share",
                   "rejected_unavailable", "rejected_late", "streams_slow", "streams_broken")}
        for one in stat["stages"]:
            wanted.update({f"xor.{one['name']}.{name}": value for name, value in one.items()
                           if name.startswith("closed_") and value > 0})
        self.assertGreater(wanted["xor.requests"], wanted["xor.rejected_invalid"])
        self.assertEqual(wanted["xor.rejected_invalid"], 1)
        wanted = {name: f"{value:,}" for name, value in wanted.items()}
        wait_until(lambda: self.counters() == wanted,
                   lambda: f"{wanted}, not {self.counters()}")
        self.browser.wait_text("worker ready")
        self.check()

    def rates(self):
        """Of callers, each stage and replies."""
        return [self.figures()["Callers"], *self.facts("items"), self.figures()["Replies"]]

    def figures(self):
        """Those of the pipeline as it is wired that can be seen."""
        return self.browser.run("""return Object.fromEntries(
            [...document.querySelectorAll('.wiring .figures div')].filter(one => one.checkVisibility())
            .map(one => [one.firstChild.textContent, one.lastChild.textContent]))""")

    def test_streams(self):
        """They are shown for pipelines that have answered in pieces."""
        shoald = self.enterContext(Shoald(node(
            pipeline("repeat", stage(shoal_fixture.EXAMPLES / "stream/librepeat.so")), dashboard=ANY_PORT)))
        stream = Stream(self.enterContext(Client(shoald.target)))
        self.go(shoald)
        wait_until(lambda: self.figures().get("waiting for a slot") == "0", self.figures)
        self.assertNotIn("open streams", self.figures())
        stream.send("repeat", *repeat([0] * 10000, delay=10))
        wait_until(lambda: self.figures().get("open streams") == "1" and
                   self.figures().get("pieces") not in (None, "0/s"), self.figures)
        stream.call.cancel()
        wait_until(lambda: self.figures().get("open streams") == "0", self.figures)
        self.check()

    def facts(self, name):
        """One of each stage as it is wired."""
        return self.browser.run("""const [name] = arguments;
            return [...document.querySelectorAll('.wiring .stage:not(.entry)')].map(
                box => [...box.querySelectorAll('dt')].find(one => one.textContent === name)
                    .nextElementSibling.textContent)""", name)

    def marks(self, event):
        """How each chart marks an event of the log on its axis, by the chart's title."""
        return self.browser.run("""const [event] = arguments;
            return Object.fromEntries([...document.querySelectorAll('figure.chart g.mark')]
                .filter(mark => mark.querySelector('title').textContent.includes(event))
                .map(mark => [mark.closest('figure').querySelector('figcaption b').textContent,
                              mark.getAttribute('class')]))""", event)

    def check_workers(self, shoald):
        """The table's are those of shoalctl."""
        def same():
            stage, = shoald.pipeline_stat("p")["stages"]
            wanted = [["puppet", *(str(one[key]) for key in ("name", "pid", "items", "batches"))]
                      for one in stage["workers"]]
            titles = "Stage", "Worker", "Pid", "Items", "Batches"
            return wanted == [[row[title] for title in titles] for row in self.table("Workers")]
        wait_until(same, lambda: f"{shoald.pipeline_stat('p')}, not {self.table('Workers')}")

    def test_request_whose_worker_dies(self):
        """The oldest request is shown where it is, and so are its worker's death and successor."""
        config = node(pipeline("p", puppet(workers=1)), dashboard=ANY_PORT)
        shoald = self.enterContext(Shoald(config))
        # without it a failing test waits for the drain
        self.addCleanup((shoald.folder / "a.go").touch)
        client = self.enterContext(Client(shoald.target))
        self.go(shoald)
        self.browser.wait_text("No request is in flight.")
        said(client.tell("echo a", "p").result())
        held = client.tell("hold a", "p")
        worker, = shoald.workers("p")

        def oldest():
            return [{title: row[title] for title in ("Where", "Stage", "Worker", "Deaths")}
                    for row in self.table("Oldest requests in flight")]

        def wait_oldest(pid, deaths):
            wanted = [{"Where": "runs", "Stage": "puppet", "Worker": f"0 (pid {pid})",
                       "Deaths": deaths}]
            wait_until(lambda: oldest() == wanted, lambda: f"{wanted}, not {oldest()}")
            row, = self.table("Oldest requests in flight")
            self.assertRegex(row["Deadline in"], r"^[\d.]+ s$")
            self.assertRegex(row["Age"], r"^[\d.]+ (µs|ms|s)$")
        wait_oldest(worker.pid, "0")
        self.assertEqual(self.facts("restarts"), ["0"])
        self.assertEqual(self.marks("worker_died"), {})
        os.kill(worker.pid, signal.SIGKILL)
        wait_oldest(shoald.wait_successor(worker).pid, "1")
        wait_until(lambda: self.facts("restarts") == ["1"], lambda: self.facts("restarts"))
        slots = f"{shoald.pipeline_stat('p')['slots_max']:,}"
        self.assertEqual(self.figures()["In flight"], f"1 of {slots}")
        self.assertEqual([row["In flight"] for row in self.table("Pipelines")], [f"1 of {slots}"])
        charts = {title: "mark grave" for title in self.lines()}
        wait_until(lambda: self.marks("worker_died") == charts, lambda: self.marks("worker_died"))
        died, = [row for row in self.table("Events, newest first") if row["Event"] == "worker died"]
        self.assertIn(f"pid={worker.pid}", died["What"])
        (shoald.folder / "a.go").touch()
        said(held.result())
        wait_until(lambda: oldest() == [], oldest)
        self.check_workers(shoald)
        self.check()

    def lines(self):
        """How many points each line of a chart has, by the chart's title."""
        return self.browser.run("""return Object.fromEntries([...document.querySelectorAll('figure.chart')].map(
            one => [one.querySelector('figcaption b').textContent, [...one.querySelectorAll('path.line')].map(
                line => line.getAttribute('d').split('L').length)]))""")

    def test_charts_over_time(self):
        """Each has a line of points, and that of latency two: p50 and p99."""
        shoald = self.start()
        self.go(shoald)
        wanted = {"Answers": 3, "Latency": 2, "Queue depth": 2, "Batch size": 2, "Wait per stage": 2,
                  "Run per stage": 2}
        with Load(port_of(shoald), "xor", BITS):
            wait_until(lambda: {title: sum(points > 2 for points in lines)
                                for title, lines in self.lines().items()} == wanted,
                       lambda: f"{wanted}, not {self.lines()}")
        self.check()

    def test_keyboard(self):
        self.go(self.start())
        self.browser.wait_text("other")
        reached = []
        self.browser.run("document.body.focus()")
        for _ in range(30):
            self.browser.press("tab")
            reached.append(self.browser.focused())
            if reached[-1] == "other":
                break
        for wanted in ("Skip to content", "Node", "Mesh", "Models", "xor", "other"):
            self.assertIn(wanted, reached)
        self.browser.press("enter")
        wait_until(lambda: self.browser.run("return document.querySelector('h1').textContent") ==
                   "other", "the other pipeline")
        self.assertEqual(self.browser.focused(), "other", "the focus stays where it was")
        self.browser.run("document.querySelector('.choice button:last-child').focus()")
        self.browser.press("space")
        self.assertEqual(self.browser.run("return document.activeElement.ariaPressed"), "true")
        wait_until(lambda: self.browser.run("""const plot = document.querySelector('svg.plot');
            plot.focus(); return document.activeElement === plot"""), "the focus on a chart")
        self.check()

    def links(self):
        """In one look: the page may replace a button between two."""
        return self.browser.run("""return [...document.querySelectorAll('button.link')]
            .map(one => one.textContent)""")

    def test_models_by_keyboard(self):
        """A model that is chosen gets the focus, and the list stays as it was."""
        self.go(self.start(), "models")
        self.browser.wait_text("xor")
        self.browser.run("document.getElementById('search').focus()")
        self.browser.press("o")
        wait_until(lambda: self.links() == ["other"], "the search")
        self.browser.run("document.querySelector('button.link').focus()")
        self.browser.press("enter")
        wait_until(lambda: self.browser.run("return document.activeElement.tagName") == "H1", "the model")
        self.assertEqual(self.browser.focused(), "other")
        self.assertEqual(self.browser.run("return document.getElementById('search').value"), "o")
        wait_until(lambda: self.links() == ["other"], "the list")
        self.check()

    def test_phone_and_schemes(self):
        shoald = self.start()
        grounds = set()
        for scheme, width in itertools.product(("light", "dark"), (390, 1280)):
            self.browser.scheme(scheme)
            self.browser.resize(width, 844)
            for page in ("node", "mesh", "models/xor"):
                self.go(shoald, page)
                self.browser.wait(".card")
                self.assertLessEqual(
                    self.browser.run("return document.documentElement.scrollWidth"), width, page)
                self.assertEqual(self.browser.run(CONTRAST), [], (scheme, width, page))
            grounds.add(self.browser.run("return getComputedStyle(document.body).backgroundColor"))
        self.assertEqual(len(grounds), 2)
        self.check()

    def test_node_that_ends(self):
        shoald = self.start()
        self.go(shoald)
        self.browser.wait_text("xor")
        self.check()
        self.assertEqual(shoald.terminate(), 0)
        self.browser.wait_text("The node does not answer.")
        self.assertIn("xor", self.browser.text())

    def log_in(self, scheme, **keys):
        file = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()), "token")
        file.write_text("0123456789-of-the-test\n")
        shoald = self.start(dashboard_token=str(file), **keys)
        self.origin = f"{scheme}://127.0.0.1:{dashboard_port(shoald)}"
        self.browser.open(f"{self.origin}/#/models")
        self.browser.wait_text("dashboard_token")
        self.browser.press(*"wrong", "enter")
        self.browser.wait("input[name=token]")
        self.browser.run("document.querySelector('input').focus()")
        self.browser.press(*file.read_text().strip(), "enter")
        self.browser.wait_text("ready")
        self.expected = ["401"]
        self.check()
        cookie, = self.browser.driver.get_cookies()
        self.assertEqual((cookie["httpOnly"], cookie["sameSite"], cookie["secure"]),
                         (True, "Strict", scheme == "https"))
        return shoald

    def test_log_in(self):
        self.log_in("http")

    def test_tls(self):
        """With the token; all of the page, its stream, lists and the form come by TLS."""
        files = self.enterContext(Certificates("ca"))
        files.sign("node", "ca")
        secure = {"address": ANY_PORT, "tls": "yes"}
        shoald = self.log_in("https", dashboard=secure, dashboard_infer="on", tls=files.pair("node"))
        self.go(shoald, "models/xor", scheme="https")
        self.browser.wait_text("bits")
        self.browser.run("document.querySelector('button.primary').click()")
        self.browser.wait_text("200 OK")
        self.go(shoald, "node", scheme="https")
        self.browser.wait_text("worker ready")
        self.check()


@BROWSER
class TestModels(InBrowser):
    def test_form_and_command(self):
        for infer in ("on", "off"):
            shoald = self.enterContext(Shoald(node(
                pipeline("xor", MLP), http=f"127.0.0.1:{shoal_fixture.free_port()}",
                dashboard=ANY_PORT, dashboard_infer=infer)))
            self.browser.renew()  # the page of the node before goes on asking that one
            self.go(shoald, "models/xor")
            self.browser.wait_text("bits")
            command = self.browser.run("return document.querySelector('form > pre:last-child').textContent")
            done = subprocess.run(["sh", "-c", command], capture_output=True, text=True,
                                  timeout=WAIT_SECONDS)
            answer = json.loads(done.stdout)
            self.assertEqual(answer["model_name"], "xor", command)
            if infer == "on":
                self.browser.run("document.querySelector('button.primary').click()")
                self.browser.wait_text("200 OK")
                shown = self.browser.run("return document.querySelector('form pre').textContent")
                self.assertEqual(json.loads(shown), answer)
                self.check_facts(shoald)
            else:
                self.browser.wait_text("dashboard_infer: off")
                self.assertEqual(self.browser.all("button.primary"), [])
            self.check()


    def check_facts(self, shoald):
        """The latency is the pipeline's, and its label says so."""
        def same():
            latency, shown = shoald.pipeline_stat("xor")["latency"], self.facts()
            return latency["count"] == 2 and all(
                abs(seconds(shown[f"Pipeline's {name}"]) * 1e9 / latency[name] - 1) < 0.01
                for name in ("p50", "p99"))
        wait_until(same, lambda: f"{shoald.pipeline_stat('xor')['latency']} {self.facts()}")
        with Rest(port_of(shoald)) as rest:
            versions = rest.get("/v2/models/xor").json["versions"]
        self.assertEqual(self.facts()["Versions"], ", ".join(versions))

    def test_one_that_serves_its_old_version(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="shoal-test.")))
        (folder / "m.mlp").write_bytes(pathlib.Path(XOR["path"]).read_bytes())
        shoald = self.enterContext(Shoald(node(
            pipeline("mlp", stage(shoal_fixture.BUILD / "lib/shoal/libmlp.so"),
                     models={"root": str(folder), "memory_mib": 64}), dashboard=ANY_PORT)))
        shoald.wait_log('model_loaded .*model="m"')
        (folder / ".m").write_text("no network")
        (folder / ".m").rename(folder / "m.mlp")
        shoald.wait_log('model_kept .*model="m"')
        self.go(shoald, "models/m")
        self.browser.wait_text("Its new version could not be loaded, and the one before serves: ")
        self.browser.wait_text("model kept")
        self.check()


@BROWSER
class TestMesh(InBrowser):
    def elements(self):
        return self.browser.run("return document.querySelectorAll('*').length")

    def rows(self):
        """The models in the list; their order is the node's, not that of their names."""
        return re.findall(r"^(model-\d{5})\t", self.browser.text(), re.MULTILINE)

    def is_age(self, text, since_ms):
        """Whether a page that was opened at `opened` may show that text by now."""
        age = seconds(text)
        return bool(age) and self.opened - since_ms / 1e3 - 1 <= age <= time.time() - since_ms / 1e3 + 1

    def test_figures(self):
        """The page's are those of shoalctl: a third model takes the room of the first, one is held
        as it loads, and a vmodel waits for it."""
        shoald = self.enterContext(prepare(pupil(), mesh={"instance": "alone"}, dashboard=ANY_PORT))

        def rows(kind):
            return shoalctl("mesh", kind, "--json", "--counters", shoald.counters).json_lines
        with Registrar(shoald) as registrar:
            for name in "abc":
                registrar.register(name, key=key(bytes=30 * MIB))
                self.assertTrue(registrar.infer(name))
            registrar.register("slow", key=key(load="slow"))
            for model in "c", "slow":
                registrar.call("setVModel", vModelId="v", targetModelId=model)
            wait_until((shoald.folder / "slow.held").exists, "the load")
            waits = registrar.start_infer("slow")
            self.opened = time.time()
            with Callers(registrar, "b", "c") as callers:
                self.go(shoald, "mesh")
                self.browser.wait_text("model unloaded")
                wait_until(lambda: {row["Rate"] for row in self.table("Methods")} - {"–", "0/s"},
                           lambda: f"a rate: {self.table('Methods')}")
            for text in ("Miss delay", "Loads and unloads", "Cache age", "Sizes of models",
                         "Age of evicted models"):
                self.browser.wait_text(text)
            vmodel, = rows("vmodels")
            version = shoalctl("--version").out.split()[1]
            self.assertEqual(vmodel["state"], "going over")
            vmodel["state"] = "switching"  # the page's word for it

            def same():
                stat, (one,) = shoald.stat(), rows("nodes")
                if stat["mesh_calls_here"] != callers.calls:
                    return None  # it is written every now and then
                shown = self.browser.run("""return [...document.querySelectorAll('[data-counter^="node."]')]
                    .map(one => [one.dataset.counter.slice(5), one.textContent])""")
                node, = self.table("Nodes")
                moving, = self.table("Vmodels")
                full = round(100 * (1 - one["free_bytes"] / one["capacity_bytes"]))
                return [[[name, f"{stat[name]:,}"] for name, _ in shown], *[
                    one["id"], f"{full} %", str(one["copies"]), str(one["loading"]), version],
                    *[vmodel[name] for name in ("id", "state", "active", "target")]] == [shown, *[
                        node[name] for name in ("Node", "Fullness", "Models", "Loading", "Version")],
                        *[moving[name] for name in ("Vmodel", "State", "Active", "Target")]] and shown
            shown = dict(wait_until(same, lambda: f"{callers.calls} calls; {shoald.stat()} "
                                                  f"{rows('nodes')} {self.table('Nodes')} "
                                                  f"{self.table('Vmodels')}"))
            self.assertEqual((shown["mesh_models"], shown["mesh_vmodels_moving"], shown["mesh_calls_waited"]),
                             ("4", "1", "3"))
            method, = self.table("Methods")
            self.assertEqual([method[title] for title in ("Method", "Code", "Called here")],
                             ["ModelInfer", "OK", f"{callers.calls + 3:,}"])
            hints = self.browser.run("""return [...document.querySelectorAll('figure.chart p.hint')].map(
                one => one.textContent)""")
            self.assertEqual([hint.split(";")[0] for hint in hints],
                             [f"{stat['count']} in all" for stat in map(shoald.stat().get, (
                                 "mesh_loaded_size", "mesh_evicted_age"))])
            wait_until(lambda: self.is_age(self.table("Nodes")[0]["Cache age"], rows("nodes")[0]["oldest_ms"]),
                       lambda: f"{self.table('Nodes')} {rows('nodes')}")
            (shoald.folder / "slow.go").touch()
            self.assertTrue(waits.result())
            wait_until(lambda: self.points("Miss delay"), "a miss in the chart")
            called = lambda: next(row for row in self.table("Methods") if row["Method"] == "ModelInfer")
            wait_until(lambda: called()["Called here"] == f"{callers.calls + 4:,}", called)
            self.assertRegex(called()["Mean time"], r"^[\d.]+ (µs|ms|s)$")
            self.check()

    def points(self, title):
        """Whether the chart has one in any line."""
        return self.browser.run("""return [...document.querySelectorAll('figure.chart')].find(
            one => one.querySelector('figcaption b').textContent === arguments[0])
            .querySelector('path.line[d*=M]') !== null""", title)

    def test_why_a_model_is_not_loaded(self):
        """The page and shoalctl give the text with which a call fails."""
        rules = json.dumps({"bound": {"required": ["x"]}})
        shoald = self.enterContext(prepare(pupil(), dashboard=ANY_PORT, mesh={
            "instance": "alone", "type_constraints": rules}))

        def copies(model, *options):
            return shoalctl("mesh", "copies", model, *options, "--counters", shoald.counters)
        registrar = self.enterContext(Registrar(shoald))
        registrar.register("large", key=key(bytes=60 * MIB))
        self.assertTrue(registrar.infer("large"))  # no memory is left for loads in advance
        registrar.register("idle")
        self.go(shoald, "models/idle")
        self.browser.wait_text("It is not loaded: models are loaded on demand, and the next call loads it.")
        self.assertEqual(copies("idle", "--json").json_lines[0]["refusal"], "")
        self.assertNotIn("no node would", copies("idle").out)
        self.assertRegex(self.facts()["Counts as used"], r"^6 h \d+ min ago$")
        self.browser.wait_text("A model that was never called counts as used 6 hours before its registration")
        self.browser.wait_text("Only a node that has loaded it can describe it.")
        self.assertEqual(copies("idle", "--json").json_lines[0]["state"], "not loaded")  # by this page
        self.browser.run("[...document.querySelectorAll('button')].find(one => one.textContent === 'Load it').click()")
        wait_until(lambda: self.facts()["State"] == "loaded", "the load")
        self.browser.wait_text("It declares no inputs")
        self.assertTrue(self.browser.run("return document.querySelector('main p.note').hidden"))
        wait_until(lambda: not self.facts()["Counts as used"].startswith("6 h"), "the use")

        registrar.register("homeless", kind="bound")
        registrar.register("broken", key=key(fail="it is no good"))
        for model, state, words, reason in (
                ("homeless", "not loaded", "It is not loaded, and no node would load it now: ",
                 "There are no running instances that meet the label requirements of type bound: [x]"),
                ("broken", "failed", "It could not be loaded, and no node would try again now: ",
                 "it is no good")):
            _, told = failure(registrar.start_infer(model))
            self.assertIn(reason, told)
            self.go(shoald, f"models/{model}")
            self.browser.wait_text(f"{words}{told}")
            self.assertEqual(self.facts()["State"], state)
            self.assertEqual(copies(model, "--json").json_lines[0]["refusal"], told)
            self.assertIn(f"no node would load it now: {told}\n", copies(model).out)
        self.check()

    def test_how_far_a_fetch_is(self):
        store = self.enterContext(Store())
        store.plain["/plain/m"] = bytes(4 * MIB)
        store.hold = threading.Event()
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="shoal-test."))
        shoald = self.enterContext(prepare(pupil(), dashboard=ANY_PORT, mesh={"instance": "alone"},
                                           models_cache_gib=0.1, models_cache=f"{folder}/cache"))
        registrar = self.enterContext(Registrar(shoald))
        self.addCleanup(store.hold.set)
        registrar.register("m", f"{store.url}/plain/m", key(), loadNow=True, sync=False)
        self.go(shoald, "models/m")
        self.browser.wait_text("It is being fetched: 2.00 MiB of 4.00 MiB.")
        store.hold.set()
        wait_until(lambda: self.facts()["State"] == "loaded", "the load")
        self.assertNotIn("being fetched", self.browser.run("return document.querySelector('main').innerText"))
        self.check()

    def test_ten_thousand_models(self):
        shoald = self.enterContext(prepare(pupil(), mesh={"instance": "alone"}, dashboard=ANY_PORT))
        with Registrar(shoald) as registrar:
            for first in range(0, MODELS, 1000):  # each has a deadline, and many take their time
                for future in [registrar.start("registerModel", modelId=f"model-{i:05}", modelInfo={
                        "type": "pupil", "path": "model", "key": ""}) for i in range(first, first + 1000)]:
                    future.result()
            registrar.register(HOSTILE, path="nothing")
            registrar.call("setVModel", vModelId="v", targetModelId="model-00007")
            self.assertTrue(registrar.infer("model-00007"))
        self.go(shoald, "mesh")
        seen = wait_until(lambda: self.rows() if len(self.rows()) == ROWS else None, "a page of models")
        wait_until(lambda: "10,001" in self.browser.text(), "the number of models")
        for text in ("alone", "this node", "leader", "connected", "ModelInfer", "model loaded"):
            self.browser.wait_text(text)
        before = self.elements()
        self.assertLess(before, ELEMENTS_MAX)
        for page in (2, 3):
            self.browser.run("document.querySelector('.pager button:last-child').click()")
            self.browser.wait_text(f"page {page}")
            seen += wait_until(lambda: self.rows() if len(self.rows()) == ROWS and
                               self.rows()[0] not in seen else None, "other models")
        self.assertEqual(len(set(seen)), 3 * ROWS)
        self.assertLess(self.elements(), ELEMENTS_MAX)
        self.browser.run("document.getElementById('search').focus()")
        self.browser.press(*"model-0999")
        self.browser.wait_text("model-09990")
        wait_until(lambda: all(row.startswith("model-0999") for row in self.rows()), "the rows of before to go")
        self.assertLess(self.elements(), ELEMENTS_MAX)
        self.browser.run("document.getElementById('search').value = ''")
        self.browser.run("document.getElementById('search').focus()")
        self.browser.press("<")
        self.browser.wait_text(HOSTILE)
        self.browser.run("[...document.querySelectorAll('button.link')].at(-1).click()")
        wait_until(lambda: self.browser.run("return document.querySelector('main h1').textContent") ==
                   HOSTILE, "the page of the hostile model")
        self.assertEqual(self.browser.run("return document.title"), "Models · Shoal")
        self.assertEqual(self.browser.all("main img"), [])
        self.go(shoald, "models/model-00007")
        for text in ("loaded", "alone", "model loaded"):
            self.browser.wait_text(text)
        self.check()

    def test_unreachable_peer(self):
        etcd = self.enterContext(Etcd())
        rules = json.dumps({"only-b": {"required": ["node-b"]}})
        nodes = self.enterContext(Nodes(
            etcd, ["node-a", "node-b"], mesh={"type_constraints": rules}, dashboard=ANY_PORT,
            each={"node-b": {"mesh": {"type_constraints": rules, "labels": ["node-b"]}}}))
        self.opened = time.time()
        self.go(nodes["node-a"], "mesh")
        self.browser.wait_text("node-b")
        registrar = nodes.at("node-a")
        registrar.register("m", kind="only-b")
        self.assertTrue(registrar.infer("m"))  # by node-b
        self.assertNotIn("unreachable", self.browser.text())

        def same():
            """Times are those of the last look, which was after the page opened. A node's rate is that
            of its last ten seconds."""
            for _ in range(10):
                registrar.infer("m")
            listed = shoalctl("mesh", "nodes", "--json", "--counters", nodes["node-a"].counters).json_lines
            shown = {row["Node"]: row for row in self.table("Nodes")}
            return len(shown) == 2 and all(
                row["address"] and shown[row["id"]]["Address"] == row["address"] and
                shown[row["id"]]["Req/min"] == f"{row['calls_per_minute']:,}" and
                self.is_age(shown[row["id"]]["Up"], row["start_ms"]) for row in listed) and \
                any(row["calls_per_minute"] for row in listed)
        wait_until(same, lambda: self.table("Nodes"))
        nodes["node-b"].kill()
        row = "[...document.querySelectorAll('tr')].find(one => one.textContent.startsWith('node-b'))"
        wait_until(lambda: self.browser.run(f"""const row = {row};
            return !row || row.textContent.includes('unreachable for')"""), "the mark")
        self.assertEqual(self.browser.run(f"""return {row}.cells[1].dataset.tone"""), "bad")
        self.browser.wait_text("peer lost")  # the event
        nodes["node-b"].start().wait_ready()
        wait_until(lambda: self.browser.run(f"""const row = {row};
            return row && row.textContent.includes('serving')"""), "it to be back")
        self.check()


if __name__ == "__main__":
    shoal_fixture.main()
