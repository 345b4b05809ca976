# SPDX-License-Identifier: Apache-2.0
"""image.py LAYOUT: an OCI image starts, answers and drains with as few rights as a pod can have.

Run by `./dev image --check`, as root in namespaces of its own: no capabilities, no new privileges, a
file system that cannot be written but for /tmp, and the image's user. Its file system is unpacked and
entered here, with the image's own configuration; where podman is installed, that runs it, too. Each
runs it twice: by itself, and in the environment of a pod of ModelMesh. Nothing that it starts outlives
it.
"""

import atexit
import fcntl
import hashlib
import json
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

WAIT_SECONDS = 120
LAYERS_BYTES_MAX = 120 << 20
STOP = "/opt/kserve/mmesh/stop.sh"
EXAMPLES = "./usr/share/shoal/examples"
# id -> type, file of an example, its input and elements, the shape of the answer
MODELS = {"digits": ("xgboost", "digits/digits.ubj", "features", 64, [1, 10]),
          "xor": ("onnx", "onnx/xor.onnx", "bits", 2, [1, 1])}
MODELMESH = {"MM_SERVICE_NAME": "digits", "MM_METRICS": "disabled"}
ENTER = """
set -e
mount --bind "$0" "$0"
mount --bind "$1" "$0/models"
mount -o remount,bind,ro "$0/models"
mount -t proc proc "$0/proc"
mount -t tmpfs tmpfs "$0/tmp"
mount -t tmpfs tmpfs "$0/dev"
mkdir "$0/dev/shm"
mount -t tmpfs tmpfs "$0/dev/shm"
for name in null zero full random urandom; do
    touch "$0/dev/$name"
    mount --bind "/dev/$name" "$0/dev/$name"
done
mount -o remount,bind,ro "$0"
shift
exec "$@"
"""

layout = pathlib.Path(sys.argv[1])
work = pathlib.Path(tempfile.mkdtemp(prefix="shoal-image-", dir=layout.parent))
atexit.register(shutil.rmtree, work, ignore_errors=True)


def expect(condition, what):
    if not condition:
        sys.exit(f"image: {what}")


def blob(descriptor):
    """The file of a descriptor, whose digest and size are right."""
    kind, digest = descriptor["digest"].split(":")
    path = layout / "blobs" / kind / digest
    with path.open("rb") as file:
        expect(hashlib.file_digest(file, kind).hexdigest() == digest, f"{path} is another file")
    expect(path.stat().st_size == descriptor["size"], f"{path} has another size")
    return path


def read_layout():
    """The image's configuration, and its layers."""
    index = json.loads((layout / "index.json").read_text())
    manifest = json.loads(blob(index["manifests"][0]).read_text())
    layers = [blob(layer) for layer in manifest["layers"]]
    size = sum(path.stat().st_size for path in layers)
    expect(size < LAYERS_BYTES_MAX, f"{size} bytes of layers")
    print(f"image: {size / (1 << 20):.1f} MiB of compressed layers, {index['manifests'][0]['digest']}")
    return json.loads(blob(manifest["config"]).read_text())["config"], layers


def in_layer(layer, path):
    return subprocess.run(["tar", "-xOf", layer, path], stdout=subprocess.PIPE, check=True).stdout


class Namespace:
    """The image's file system, entered with what a container's runtime would give it."""

    def __init__(self, config, layers):
        self.config = config
        self.root = work / "root"
        self.root.mkdir()
        for layer in layers:
            subprocess.run(["tar", "-xpf", layer, "--numeric-owner", "-C", self.root], check=True)
        self.process = None

    def words(self, environment, command):
        user, group = self.config["User"].split(":")
        pairs = [*self.config["Env"], *(f"{key}={value}" for key, value in environment.items())]
        return ["/usr/bin/env", "-i", "--chdir=/", *pairs, "setpriv", f"--reuid={user}", f"--regid={group}",
                "--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", *command]

    def start(self, environment, models):
        command = self.words(environment, [*self.config["Entrypoint"], *self.config["Cmd"]])
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", ENTER, self.root,
             models, "chroot", self.root, *command], stdin=subprocess.DEVNULL,
            stderr=(work / "log").open("w"))
        atexit.register(self.process.kill)

    def run(self, environment, command):
        pid = self.process.pid
        first = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]
        done = subprocess.run(["nsenter", "-t", first, "-m", "-p", "-r",
                               *self.words(environment, command)], capture_output=True, text=True,
                              timeout=WAIT_SECONDS, check=False)
        return done.returncode, done.stdout + done.stderr

    def wait(self):
        return self.process.wait(WAIT_SECONDS)

    def ended(self):
        return self.process.poll() is not None

    def log(self):
        return (work / "log").read_text()


class Podman:
    """The same by podman, with storage of its own."""

    def __init__(self, _config, _layers):
        run = tempfile.mkdtemp(prefix="shoal-run-")  # podman wants a short path
        atexit.register(shutil.rmtree, run, ignore_errors=True)
        self.podman = ["podman", "--root", work / "storage", "--runroot", run,
                       "--cgroup-manager=cgroupfs"]
        # one hierarchy, as Debian has; in the namespace of this test
        subprocess.run(["mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup"], check=True)
        self.image = self.call("pull", "-q", f"oci:{layout}:latest").strip()
        self.name = None

    def call(self, *words):
        done = subprocess.run([*self.podman, *words], capture_output=True, text=True,
                              timeout=WAIT_SECONDS, check=False)
        expect(done.returncode == 0, f"podman {words}: {done.stdout}{done.stderr}")
        return done.stdout

    def start(self, environment, models):
        pairs = [f"--env={key}={value}" for key, value in environment.items()]
        self.name = self.call("run", "-d", "--cap-drop=all", "--security-opt=no-new-privileges",
                              "--read-only", "--tmpfs=/tmp", "--network=host", "--cgroups=disabled",
                              f"--volume={models}:/models:ro", *pairs, self.image).strip()
        atexit.register(subprocess.run, [*self.podman, "kill", self.name], capture_output=True)

    def run(self, _environment, command):
        done = subprocess.run([*self.podman, "exec", self.name, *command], capture_output=True,
                              text=True, timeout=WAIT_SECONDS, check=False)
        return done.returncode, done.stdout + done.stderr

    def wait(self):
        return int(self.call("wait", self.name))

    def ended(self):
        return self.call("inspect", "-f", "{{.State.Running}}", self.name).strip() != "true"

    def log(self):
        done = subprocess.run([*self.podman, "logs", self.name], capture_output=True, text=True,
                              timeout=WAIT_SECONDS, check=False)
        return done.stdout + done.stderr


def loopback_up():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))


def call_model(container, environment, model):
    """One call over REST, when the node serves; the model is registered with a mesh first."""
    kind, file, name, count, shape = MODELS[model]
    body = json.dumps({"inputs": [{"name": name, "datatype": "FP32", "shape": [1, count],
                                   "data": list(range(count))}]}).encode()
    end = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:8008/v2/models/{model}/infer", body,
                                        WAIT_SECONDS) as answer:
                found = json.load(answer)["outputs"][0]["shape"]
                expect(found == shape, f"{model} answers in another shape: {found}")
                return
        except urllib.error.HTTPError as error:
            last = f"{error.code}: {error.read().decode()}"
            if error.code == 404 and "MM_SERVICE_NAME" in environment:
                code, said = container.run(environment, [
                    "shoalctl", "mesh", "register", f"--type={kind}", "--wait", model,
                    pathlib.Path(file).name])
                expect(code == 0, f"register: {said}")
            else:
                expect(error.code == 503, last)
        except OSError as error:
            last = str(error)
        expect(not container.ended() and time.monotonic() < end, f"{last}\n{container.log()}")


def serve_and_drain(container, models, environment):
    container.start(environment, models)
    for file in models.iterdir():
        call_model(container, environment, file.stem)
    code, said = container.run(environment, ["cat", "/proc/1/status"])
    for line in ("CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"):
        expect(code == 0 and line in said, f"not {line}: {said}")
    code, said = container.run(environment, [STOP, "wait"])
    # the end of the container's first process ends this one, too
    expect(code in (0, -9, 137), f"stop.sh ended with {code}: {said}\n{container.log()}")
    code = container.wait()
    expect(code == 0 and " drained " in container.log(), f"shoald ended with {code}: {container.log()}")


def main():
    loopback_up()
    config, layers = read_layout()
    expect(config["User"].replace(":", "").isdigit() and not config["User"].startswith("0:"),
           f"user {config['User']}")
    models = work / "models"
    models.mkdir()
    # what a pod would have in a volume: models that the image brings as examples
    types = in_layer(layers[-1], "./etc/shoal/shoald.yaml").decode()
    for kind, file, *_ in MODELS.values():
        if f"types: [{kind}]" in types:
            (models / pathlib.Path(file).name).write_bytes(in_layer(layers[-1], f"{EXAMPLES}/{file}"))
    for kind in [Namespace, Podman] if shutil.which("podman") else [Namespace]:
        container = kind(config, layers)
        for environment in ({}, MODELMESH):
            serve_and_drain(container, models, environment)
            print(f"image: by {kind.__name__}, with {environment or 'no environment'}: served, drained")
    if not shutil.which("podman"):
        print("image: podman is not installed")


main()
