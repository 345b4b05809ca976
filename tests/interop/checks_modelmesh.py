# SPDX-License-Identifier: Apache-2.0
"""ModelMesh's own tests, of a checkout that run.py gets, against nodes: Maven builds a copy of it in which
modelmesh/LitelinksService.java stands before litelinks' class of that name, and starts shoald with the
environment that a test gives to ModelMesh. Their etcd, their runtime and their clients are the real ones.

The tests have fixed ports: they run in a network of their own, where a process may have one. Each test
class has an etcd of its own, since theirs outlives it and would hand on its models.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

SOURCE = pathlib.Path(os.environ["INTEROP_SOURCE"])
FOLDER = pathlib.Path(os.environ["INTEROP_FOLDER"])
SHOALD = pathlib.Path(os.environ["SHOAL_BUILD_DIR"]) / "bin" / "shoald"
BUILD = pathlib.Path("build/interop").resolve()
COPY = BUILD / "modelmesh-source"
LOCAL = f"-Dmaven.repo.local={BUILD / 'maven'}"
MAVEN_MIN, MAVEN = (3, 9, 6), "3.9.9"  # what their build asks for; what it gets where Debian's is older
TESTS = "src/test/java/com/ibm/watson/modelmesh"
REPORTS = COPY / "target" / "surefire-reports"
BUILD_SECONDS, CLASS_SECONDS, RUN_SECONDS = 900, 240, 1200

PAYLOADS = "calls alone: it looks at no payload, and a node sends none"
RUN = {
    "EvictionsModelMeshTest": "",
    "LegacyAddRemoveProtoTest": "with the store `memory` for ZooKeeper",
    "LegacyTasProtoTest": "with the store `memory` for ZooKeeper",
    "ModelMeshAllowAnyMethodTest": "",
    "ModelMeshAllowWithNoInjectionTest": "",
    "ModelMeshClusterSeparateServeTest": "",
    "ModelMeshClusterTest": "",
    "ModelMeshClusterTlsClientAuthTest": "",
    "ModelMeshClusterTlsTest": "",
    "ModelMeshErrorPropagationTest": "",
    "ModelMeshEtcdFailFastTest": "",
    "ModelMeshFailureExpiryTest": "",
    "ModelMeshIdExtractTest": "",
    "ModelMeshIdInjectTest": "",
    "ModelMeshMlServerRefreshMissingModelTest": "",
    "ModelMeshRMMSeparateServeTest": "",
    "ModelMeshRMMSeparateServeTest2": "",
    "ModelMeshRMMUnloadNotFound": "",
    "ModelMeshRefreshMissingModelTest": "",
    "ModelMeshTritonRefreshMissingModelTest": "",
    "ModelMeshVmIdExtractTest": "",
    "SidecarModelMeshPayloadProcessingTest": PAYLOADS,
    "SidecarModelMeshTest": "",
    "UdsSidecarModelMeshTest": "",
    "VModelsTest": "",
}
ZOOKEEPER = "needs ZooKeeper"
LITELINKS = "models in the JVM, called with litelinks' client, over ZooKeeper"
INSIDE = "tests a class of ModelMesh"
SKIPPED = {
    "AsyncPayloadProcessorTest": INSIDE,
    "CompositePayloadProcessorTest": INSIDE,
    "MatchingPayloadProcessorTest": INSIDE,
    "ModelMeshEvictionsTest": LITELINKS,
    "ModelMeshHeaderLoggingTest": "wants callers' headers in log4j's lines: a node logs none",
    "ModelMeshLoadFailureTest": LITELINKS,
    "ModelMeshLoadPriorityTest": LITELINKS,
    "ModelMeshMetricsTest": "metrics by https with the JVM's and per model",
    "ModelMeshTearDownTest": LITELINKS,
    "ModelMeshTest": LITELINKS,
    "ModelMeshZkFailTest": ZOOKEEPER,
    "ProtoSplicerTest": INSIDE,
    "RemotePayloadProcessorTest": INSIDE,
    "ZookeeperSidecarModelMeshTest": ZOOKEEPER,
    "ZookeeperVModelsTest": ZOOKEEPER,
}
# Test -> how it fails, and the difference that it finds.
DIFFERENT = {
    "EvictionsModelMeshTest.basicEvictionTest": (
        r"took \d+, expected \d+", "wants ModelMesh's pause of 200 ms before an unload; a node needs none"),
}
FIRST = "ProtoSplicerTest"  # needs no node: Maven fetches all that tests need


def note(name, result, detail=""):
    with open(os.environ["INTEROP_RESULTS"], "a") as file:
        file.write(json.dumps([name, result, detail[:300]]) + "\n")


def prepare():
    """The copy to build: our class among their tests, for the JDK that is here."""
    shutil.copytree(SOURCE, COPY, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".git", "target"))
    java = COPY / "src/test/java/com/ibm/watson/litelinks/server"
    java.mkdir(parents=True, exist_ok=True)
    shutil.copy2(pathlib.Path(__file__).parent / "modelmesh" / "LitelinksService.java", java)
    version = subprocess.run(["javac", "-version"], capture_output=True, text=True, check=True).stdout
    here = int(re.search(r"\d+", version)[0])
    pom = (COPY / "pom.xml").read_text()
    pom = re.sub(r"<release>(\d+)</release>", lambda found: f"<release>{min(int(found[1]), here)}</release>", pom)
    (COPY / "pom.xml").write_text(pom)


def maven_program():
    """Debian's, or a newer one that it gets as it gets any package."""
    said = subprocess.run(["mvn", "--version"], capture_output=True, text=True, check=True).stdout
    if tuple(map(int, re.search(r"Apache Maven (\d+)\.(\d+)\.(\d+)", said).groups())) >= MAVEN_MIN:
        return "mvn"
    home = BUILD / f"apache-maven-{MAVEN}"
    if not home.exists():
        subprocess.run(["mvn", "--batch-mode", LOCAL,
                        "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy",
                        f"-Dartifact=org.apache.maven:apache-maven:{MAVEN}:tar.gz:bin", f"-DoutputDirectory={FOLDER}"],
                       stdin=subprocess.DEVNULL, timeout=BUILD_SECONDS, check=True)
        shutil.unpack_archive(FOLDER / f"apache-maven-{MAVEN}-bin.tar.gz", BUILD)
    return home / "bin" / "mvn"


def maven(tests, network, seconds, *what):
    """Runs these test classes, and ends what they have started; why not to the end."""
    command = [*own_host(network), maven_program(), "--batch-mode", LOCAL, f"-Dtest={','.join(tests)}",
               f"-Dsurefire.timeout={CLASS_SECONDS}", "-Dmaven.test.failure.ignore=true", *what]
    environment = {**os.environ, "SHOALD": str(SHOALD), "PATH": f"{FOLDER}:{os.environ['PATH']}"}
    process = subprocess.Popen(command, cwd=COPY, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
    try:
        output, why = process.communicate(timeout=seconds)[0], ""
    except subprocess.TimeoutExpired:
        output, why = "", f"not within {seconds} s"
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    print(output, flush=True)
    if process.returncode != 0:
        errors = [line for line in output.splitlines() if "[ERROR]" in line]
        why = why or (errors[0] if errors else f"Maven ended with {process.returncode}")
    return why


def own_etcd():
    """`etcd` with a new folder, which ends with the thread that starts it."""
    real = shutil.which("etcd")
    wrapper = FOLDER / "etcd"
    wrapper.write_text(f'#!/bin/sh\nexec setpriv --pdeathsig KILL {real} --data-dir "$(mktemp -d -p {FOLDER})" "$@"\n')
    wrapper.chmod(0o755)


def own_host(network):
    """The start of a command on a host called localhost, which may have a network of its own; nothing where
    a process may not have them."""
    inside = 'hostname localhost && { [ -z "$1" ] || ip link set lo up; } && shift && exec "$@"'
    command = ["unshare", "--user", "--map-root-user", "--uts", *network, "sh", "-c", inside, "sh", "".join(network)]
    tried = subprocess.run([*command, "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return command if tried.returncode == 0 else []


def outcomes(name):
    """(test, result, detail) of each test of a class."""
    files = list(REPORTS.glob(f"TEST-*.{name}.xml"))
    if not files:
        return [(name, "FAILED", "no report: it did not end")]
    return [outcome(name, case) for case in ElementTree.parse(files[0]).iter("testcase")]


def outcome(name, case):
    test = f"{name}.{case.get('name').partition('(')[0]}".removesuffix(".")
    wrong = case.find("failure") if case.find("error") is None else case.find("error")
    how, difference = DIFFERENT.get(test, (None, ""))
    said = "" if wrong is None else ((wrong.text or wrong.get("type")).strip().splitlines() or [""])[0]
    if wrong is None and case.find("skipped") is not None:
        return test, "skipped", "their own @Disabled"
    if wrong is None:
        return test, "ok", f"{float(case.get('time')):.1f} s {RUN[name]}".strip()
    if how is not None and re.search(how, said):
        return test, "skipped", f"{difference} ({said.partition(' ==>')[0]})"
    return test, "FAILED", said


def run_tests(names):
    why = maven(names, ("--net",), RUN_SECONDS, "--offline", "surefire:test")
    if why:
        note("run", "FAILED", why)
    return {name: outcomes(name) for name in names}


def main():
    os.environ["JAVA_TOOL_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # they run for seconds
    prepare()
    own_etcd()
    why = maven([FIRST], (), BUILD_SECONDS, "test")
    if why:
        note("build", "skipped", why)
        return
    shutil.rmtree(REPORTS)
    run = [name for name in RUN if len(sys.argv) < 2 or name in sys.argv[1:]]
    found = run_tests(run)
    again = [name for name in run if any(result == "FAILED" for _, result, _ in found[name])]
    if again:  # their limits are tight on a busy machine: 20 s for three JVMs and a load of 50 ms
        print("again:", again, flush=True)
        for name, rows in run_tests(again).items():
            found[name] = [(*row[:2], f"{row[2]}; the second time") for row in rows]
    for rows in found.values():
        for row in rows:
            note(*row)
    for name, reason in SKIPPED.items():
        note(name, "skipped", reason)
    known = {*RUN, *SKIPPED}
    for path in sorted((COPY / TESTS).rglob("*Test.java")):
        if path.stem not in known and "abstract class" not in path.read_text():
            note(path.stem, "skipped", "not known to this check: newer than 2026-04")


if __name__ == "__main__":
    main()
