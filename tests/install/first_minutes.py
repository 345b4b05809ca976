# SPDX-License-Identifier: Apache-2.0
"""first_minutes.py USER FOLDER: a new user's first minutes with the packages, in a bare Debian.

USER is data_scientist, modelet_author or operator. Each types what the installed documents and the
programs themselves say, as a user of their own, and each step prints the seconds that it took, with
the typing left out. Run by `./dev package --check`, in a machine with the tools of their trade but
nothing of Shoal: /packages has the packages, and apt's cache what they need.
"""

import contextlib
import json
import pathlib
import re
import subprocess
import sys
import textwrap
import threading
import time
import urllib.error
import urllib.request

from machine import LATER_VERSION, WAIT_SECONDS, Machine

DIGITS = "/usr/share/shoal/examples/digits/digits.ubj"
TRAIN = """
import json
import xgboost
from sklearn.datasets import load_iris
from sklearn.neural_network import MLPClassifier
x, y = load_iris(return_X_y=True)
rows = x[::50]
wanted = {"rows": rows.tolist()}
for name, count in ("iris", 20), ("changed", 2):
    trees = xgboost.XGBClassifier(n_estimators=count, max_depth=3).fit(x, y)
    trees.save_model(name + ".json")
    wanted[name] = trees.predict_proba(rows).tolist()
net = MLPClassifier((16,), max_iter=300, random_state=0).fit(x, y)
SAVE_NET
wanted["net"] = net.predict_proba(rows).tolist()
"""
TRAIN_ONNX = """
import onnx
from onnx import helper, numpy_helper
from sklearn.linear_model import LogisticRegression
line = LogisticRegression(max_iter=1000).fit(x, y)
onnx.save(helper.make_model(helper.make_graph(
    [helper.make_node("Gemm", ["x", "w", "b"], ["z"]), helper.make_node("Softmax", ["z"], ["p"])],
    "line", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None, 4])],
    [helper.make_tensor_value_info("p", onnx.TensorProto.FLOAT, [None, 3])],
    [numpy_helper.from_array(line.coef_.T.astype("f4"), "w"),
     numpy_helper.from_array(line.intercept_.astype("f4"), "b")])), "line.onnx")
wanted["line"] = line.predict_proba(rows).tolist()
"""
# MODEL..., or MODEL=NAME: calls until the answer is that of NAME.
CALL = """
import json, sys, time
import numpy, shoal
wanted = json.load(open("wanted.json"))
client = shoal.Client("localhost:8033")
end = time.monotonic() + 60
for word in sys.argv[1:]:
    model, _, name = word.partition("=")
    while True:
        answer = client.infer(model, wanted["rows"])
        if isinstance(answer, dict): # a classifier has labels, too
            answer = answer["probabilities"]
        right = numpy.allclose(answer, wanted[name or model], atol=1e-4)
        if right or not name or time.monotonic() > end:
            break
    assert right, (word, answer)
"""
# As tritonclient.http sends it: a JSON header, then the numbers.
CALL_REST = """
import json, urllib.request
import numpy
url = "http://localhost:8008/v2/models/iris"
told = json.load(urllib.request.urlopen(url))
wanted = json.load(open("wanted.json"))
x = numpy.float32(wanted["rows"])
head = json.dumps({
    "inputs": [{"name": told["inputs"][0]["name"], "shape": x.shape, "datatype": "FP32",
                "parameters": {"binary_data_size": x.nbytes}}],
    "outputs": [{"name": told["outputs"][0]["name"], "parameters": {"binary_data": True}}]}).encode()
answer = urllib.request.urlopen(urllib.request.Request(url + "/infer", head + x.tobytes(), {
    "Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))}))
numbers = answer.read()[int(answer.headers["Inference-Header-Content-Length"]):]
assert numpy.allclose(numpy.frombuffer(numbers, "f4").reshape(len(x), -1), wanted["iris"], atol=1e-4)
"""

user = sys.argv[1]
machine = Machine(sys.argv[2], f"first minutes, {user.replace('_', ' ')}")
shell, expect = machine.shell, machine.expect
began = None


def document(name):
    """As the package has it, which some read before they install it."""
    package, = (machine.root / "packages").glob("shoal_*.deb")
    files = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], check=True, stdout=subprocess.PIPE)
    done = subprocess.run(["tar", "-xO", f"./usr/share/doc/shoal/{name}"], input=files.stdout, check=True,
                          stdout=subprocess.PIPE)
    return done.stdout.decode()


SERVE, OPERATING = document("serve.md"), document("operating.md")


@contextlib.contextmanager
def step(what):
    global began
    start = time.monotonic()
    began = began or start
    yield
    machine.say(f"{what}: {time.monotonic() - start:.1f} s")


def commands(text, heading):
    """The indented blocks below a heading, each a script."""
    section = re.search(rf"(?ms)^## {heading}\n(.*?)(?=^## |\Z)", text)[1]
    return [textwrap.dedent(block) for block in re.findall(r"(?m)(?:^    .*\n)+", section)]


def write(path, text):
    (machine.root / path).write_text(text)


def install(*packages):
    """As the document says, with further packages behind."""
    line, = [line for block in commands(OPERATING, "Install") for line in block.splitlines()
             if line.startswith("apt install")]
    shell(f"cd /packages && {line} {' '.join(f'./{name}_*.deb' for name in packages)}")


# ---- the data scientist ----

def train():
    """The models that they bring, and what those predict; their files."""
    save, = re.findall(r"(?s)<!-- scikit-learn-example -->\n```python\n(.*?)```", SERVE)
    files = {"iris": "iris.json", "net": "net.mlp"}
    code = TRAIN.replace("SAVE_NET", save)
    if (machine.root / "usr/lib/python3/dist-packages/onnx").exists():
        code += TRAIN_ONNX
        files["line"] = "line.onnx"
    # They have not installed the package yet, whose program this runs.
    shell("mkdir -p /tmp/modelets && dpkg-deb -x /packages/shoal-modelets_*.deb /tmp/modelets")
    code = code.replace("/usr/share/doc", "/tmp/modelets/usr/share/doc")
    write("home/ada/train.py", code + 'json.dump(wanted, open("wanted.json", "w"))\n')
    shell("python3 train.py", "ada")
    write("home/ada/call.py", CALL)
    write("home/ada/call_rest.py", CALL_REST)
    return files


def paste(output, model):
    """The command that shoald prints for a model, as it stands there."""
    command = output.wait_for(rf"(?m)^{model}: .* -> .*\n +(curl .*)$")[1]
    answer = json.loads(shell(command, "ada"))
    expect(answer["model_name"] == model and answer["outputs"][0]["shape"][0] == 1, f"{answer}")


def data_scientist():
    files = train()
    with step("install the packages"):
        install("python3-shoal")
        if "line" in files:
            shell(re.search(r"`(apt install libonnxruntime[\d.]*)`", SERVE)[1])
    with contextlib.ExitStack() as stack:
        with step("`shoald serve iris.json`, and the command that it prints"):
            output = stack.enter_context(machine.running("shoald serve iris.json", "ada"))
            paste(output, "iris")
        with step("call it from Python"):
            shell("python3 call.py iris", "ada")
        with step("call it as tritonclient does, over REST"):
            shell("python3 call_rest.py", "ada")
        check_hints()
    shell(f"mkdir models && mv {' '.join(files.values())} models/", "ada")
    with contextlib.ExitStack() as stack:
        with step(f"`shoald serve models`, {len(files)} formats, and call each"):
            output = stack.enter_context(machine.running("shoald serve models", "ada"))
            for model in files:
                paste(output, model)
            shell(f"python3 call.py {' '.join(files)}", "ada")
        with step("replace a model"):
            shell("mv changed.json models/iris.json && python3 call.py iris=changed", "ada")


def check_hints():
    """Errors name the mistake and its remedy."""
    said = shell("shoald serve net.mlp", "ada", code=2)
    expect("127.0.0.1:8033" in said and "--grpc-port" in said, f"a port is taken: {said}")
    write("home/ada/model.h5", "\x89HDF")
    said = shell("shoald serve model.h5", "ada", code=2)
    expect("XGBoost" in said and "ONNX" in said, f"an unknown format: {said}")


# ---- the modelet's author ----

def edit(name, old, new):
    path = machine.root / "home/ada/twice" / name
    text = path.read_text()
    expect(old in text, f"{name} has no {old}")
    path.write_text(text.replace(old, new))


def build():
    for script in commands((machine.root / "home/ada/twice/README.md").read_text(), "Build and test"):
        shell(f"cd twice && {script}", "ada")


def crash(output):
    """The log of a crash leads to the line of source."""
    edit("twice.c", "y[k] = ", "y[k] = (k > 2 ? *(volatile float *)NULL : 0) + ")
    shell("cd twice && cmake --build build && shoalctl reload twice", "ada")
    said = shell("shoalctl infer twice --input 'x=FP32[4]:1,2,3,4'", "ada", code=1)
    expect("died" in said, said)
    frame = output.wait_for(r'worker_frame .* frame=0 at="(\S+)\+(0x[0-9a-f]+)" in="run')
    said = shell(f"addr2line -Cfie {frame[1]} {frame[2]}", "ada")
    source = (machine.root / "home/ada/twice/twice.c").read_text().splitlines()
    line = next(n for n, text in enumerate(source, 1) if "volatile" in text)
    expect(said.startswith("run\n") and f"/twice.c:{line}" in said, f"{said}, not line {line}")
    shell("shoalctl infer twice --input 'x=FP32[1]:1'", "ada")


def modelet_author():
    with step("install the packages"):
        install("libshoal1", "libshoal-harness1", "libshoal-dev")
    with step("make a modelet, build and test it"):
        shell("shoalctl new modelet twice", "ada")
        build()
    serve, *calls = commands((machine.root / "home/ada/twice/README.md").read_text(), "Serve and call")
    with contextlib.ExitStack() as stack:
        with step("serve and call it"):
            output = stack.enter_context(
                machine.running(f"bash -c 'cd twice && exec {serve.strip()}'", "ada"))
            output.wait_for("ready")
            for call_it in calls:
                said = shell(call_it, "ada")
                expect(re.search(r"2(\.0)?\D+4(\.0)?\D+6", said), f"`{call_it}`: {said}")
        with step("change it, build, reload"):
            edit("twice.c", "self->factor *", "1 + self->factor *")
            shell("cd twice && cmake --build build && shoalctl reload twice", "ada")
            said = shell("shoalctl infer twice --input 'x=FP32[1]:1'", "ada")
            expect("3" in said, f"not changed: {said}")
        with step("a crash, from the log to the line of source"):
            crash(output)


# ---- the operator ----

def call(path, body=None):
    with urllib.request.urlopen(path, json.dumps(body).encode() if body else None, WAIT_SECONDS) as answer:
        return answer.read().decode()


def infer():
    return json.loads(call("http://localhost:8008/v2/models/digits/infer", {"inputs": [
        {"name": "features", "datatype": "FP32", "shape": [1, 64], "data": list(range(64))}]}))


@contextlib.contextmanager
def called_all_the_time():
    """Calls, one after the other; none may fail."""
    over, failures, count = threading.Event(), [], 0

    def calls():
        nonlocal count
        while not over.is_set():
            count += 1
            try:
                infer()
            except OSError as error:
                failures.append(f"call {count}: {error}")
    thread = threading.Thread(target=calls, daemon=True)
    thread.start()
    yield
    over.set()
    thread.join(WAIT_SECONDS)
    expect(count > 1 and failures == [], f"{failures} of {count} calls failed")
    machine.say(f"{count} calls during the upgrade")


def break_configuration():
    shell("sed -i 's/batch_size: 64/batch_size: many/' /etc/shoal/shoald.yaml")
    said = shell("shoald --check /etc/shoal/shoald.yaml", code=2)
    expect(re.search(r"shoald.yaml:\d+: .*batch_size", said), f"--check says: {said}")
    shell("systemctl reload shoald", code=1)
    infer()
    shell("sed -i 's/batch_size: many/batch_size: 32/' /etc/shoal/shoald.yaml && "
          "shoald --check /etc/shoal/shoald.yaml && systemctl reload shoald")


def keep_sockets():
    """As the document says: the unit is in its text."""
    unit, = [block for block in commands(OPERATING, "Stop and restart") if "[Socket]" in block]
    head, _, text = unit.partition("\n")
    path = re.search(r"# (\S+); then: (.*)", head)
    write(path[1].lstrip("/"), text)
    shell(path[2])


def operator():
    with step("install and start"):
        for script in commands(OPERATING, "Install"):
            shell(f"cd /packages && {script}")
    with step("add a model and call it"):
        shell(f"cp {DIGITS} /var/lib/shoal/models/")
        end = time.monotonic() + WAIT_SECONDS
        while "digits" not in shell("shoalctl model list"): # once the file has not changed for a second
            expect(time.monotonic() < end, "the model is not listed")
        expect(infer()["outputs"][0]["shape"] == [1, 10], "another shape")
    with step("look: status, counters, metrics, dashboard"):
        expect("ready" in shell("shoalctl status"), "status")
        shell("shoalctl stat")
        expect("shoal_pipeline_requests_total{" in call("http://localhost:2112/metrics"), "metrics")
        expect("<html" in call("http://localhost:8088/"), "dashboard")
    with step("break the configuration, check, mend, reload"):
        break_configuration()
    with step("let systemd keep the sockets"):
        keep_sockets()
    machine.add_later_packages()
    with step("upgrade, called all the time"), called_all_the_time():
        shell("cd /later && apt install ./shoal_*.deb ./shoal-modelets_*.deb")
        expect(LATER_VERSION in shell("dpkg-query -W shoal"), "not upgraded")
        infer()
    with step("read the log"):
        expect("upgrade_ready" in shell("journalctl -u shoald"), "the log has no upgrade")
    with step("remove"):
        shell("systemctl disable --now shoald.socket")
        shell("apt purge shoal shoal-modelets")
        expect(not (machine.root / "etc/shoal").exists(), "/etc/shoal is left")


machine.boot()
shell("useradd --create-home --shell /bin/bash ada")
{"data_scientist": data_scientist, "modelet_author": modelet_author, "operator": operator}[user]()
machine.say(f"in all {(time.monotonic() - began) / 60:.1f} minutes")
