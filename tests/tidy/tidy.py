#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rules that are read off the sources: includes between folders, lengths, words that are banned.

    tidy.py [ROOT]      prints FILE:LINE: RULE: what to do; exit code 1 if there is any

Each rule is a function that takes a Source and yields (line, what to do); those that need the whole
tree take all sources. The tables at the top are the rules' data: a new module, library or exception
is a line there, with its reason. test_rules.py plants a violation of every rule and sees it found.
"""

import fnmatch
import os
import re
import sys

FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 800
COLUMNS_MAX = 100
PARAMETERS_MAX = 6

# Folders of the coordinator, each with those below it whose headers it may include.
COORDINATOR = {
    "config": set(),
    "loop": set(),
    "protocol": set(),
    "telemetry": set(),
    "pipeline": {"config", "loop", "protocol", "telemetry"},
    "workers": {"config", "loop", "pipeline"},
    "runtimes": {"workers"},
    "models": {"config", "loop", "protocol", "pipeline", "workers"},
    "entry": {"config", "loop", "protocol", "telemetry", "pipeline", "models"},
    "mesh": {"config", "loop", "protocol", "telemetry", "pipeline", "models", "entry",
             "runtimes", "workers"},
    "front": {"config", "loop", "protocol", "telemetry", "pipeline", "models", "entry", "mesh"},
    "dashboard": {"config", "loop", "telemetry", "front"},
}


def coordinator_layers():
    """The same as rows of LAYERS. Of Shoal's mesh only the folder `mesh` knows, and the node
    itself, which stands above all of them."""
    outside = {"base", "wire", "loop", "shm", "ipc", "rpc", "shoal"}
    rows = {f"src/coordinator/{folder}": outside | {f"coordinator/{name}" for name in {folder} | below}
            for folder, below in COORDINATOR.items()}
    rows["src/coordinator/mesh"] |= {"mesh", "mesh/core", "mesh/etcd", "mesh/record", "mesh/store",
                                     "mesh/edge", "serving/adapter", "serving/leader", "serving/manifest", "serving/runtimes"}
    rows["src/coordinator/runtimes"] |= {"serving/manifest", "serving/runtimes"}
    rows["src/coordinator/config"] |= {"yaml"}
    for folder in "front", "dashboard":
        rows[f"src/coordinator/{folder}"] |= {"http"}
    for folder in "models", "mesh":
        rows[f"src/coordinator/{folder}"] |= {"serving/storage"}
    rows["src/coordinator"] = outside | {"serving/storage"} | {"coordinator"} | {f"coordinator/{folder}" for folder in COORDINATOR}
    return rows


# Folder of a module -> modules whose headers it may include. `shoal` is the public <shoal/*.h>.
LAYERS = {
    "src/base": {"base"},
    "src/yaml": {"base", "yaml"},
    "src/wire": {"base", "wire"},
    "src/loop": {"base", "loop"},
    "src/shm": {"base", "shm", "shoal"},
    "src/ipc": {"base", "shm", "ipc", "shoal"},
    "src/rpc": {"base", "wire", "rpc"},
    "src/http": {"base", "loop", "http"},
    "src/serving/storage": {"base", "loop", "serving/storage"},
    "src/client": {"base", "shm", "ipc", "client", "shoal"},
    "src/worker": {"base", "shm", "ipc", "worker", "shoal"},
    "src/harness": {"base", "worker", "shoal"},
    **coordinator_layers(),
    "src/serving/reconcile": {"base", "serving/reconcile"},
    "src/serving/manifest": {"base", "yaml", "serving/reconcile", "serving/manifest"},
    "src/serving/adapter": {"base", "wire", "rpc", "mesh/edge", "serving/storage", "serving/adapter"},
    "src/serving/runtimes": {"base", "yaml", "serving/manifest", "serving/runtimes"},
    "src/serving/leader": {"base", "loop", "yaml", "mesh", "mesh/core", "mesh/record", "mesh/store", "mesh/edge",
                           "serving/reconcile", "serving/manifest", "serving/leader"},
    "src/ctl": {"base", "ipc", "rpc", "serving/manifest", "ctl", "shoal"},
    "src/mesh/core": {"base", "mesh", "mesh/core"},
    "src/mesh/etcd": {"base", "loop", "mesh/etcd"},
    "src/mesh/record": {"base", "mesh/core", "mesh/record"},
    "src/mesh/store": {"base", "loop", "mesh/etcd", "mesh/record", "mesh/store"},
    "src/mesh/edge": {"base", "wire", "loop", "rpc", "mesh", "mesh/core", "mesh/etcd", "mesh/record",
                      "mesh/store", "mesh/edge"},
    "src/gateway/core": {"base", "gateway/core"},
    "src/gateway/scan": {"base", "wire", "gateway/core", "gateway/scan"},
    "src/gateway/config": {"base", "yaml", "gateway/core", "gateway/config"},
    "src/gateway/resources": {"base", "yaml", "serving/manifest", "gateway/core",
                              "gateway/resources"},
    "src/gateway/store": {"base", "loop", "serving/manifest", "mesh/etcd", "mesh/record",
                          "gateway/config", "gateway/resources", "gateway/store"},
    "src/gateway/endpoints": {"base", "loop", "http", "gateway/core", "gateway/scan", "gateway/config",
                              "gateway/resources", "gateway/store", "gateway/endpoints"},
    "src/gateway/proxy": {"base", "loop", "wire", "http", "gateway/core", "gateway/scan", "gateway/config",
                          "gateway/endpoints", "gateway/proxy"},
    "src/gateway/extproc": {"base", "loop", "wire", "http", "gateway/core", "gateway/scan", "gateway/config",
                            "gateway/endpoints", "gateway/proxy", "gateway/extproc"},
    "src/gateway/dashboard": {"base", "loop", "http", "gateway/core", "gateway/config",
                              "gateway/endpoints", "gateway/dashboard"},
    "src/gateway": {"base", "loop", "gateway/config", "gateway/resources", "gateway/store", "gateway/proxy",
                    "gateway/extproc", "gateway/dashboard"},
    "include/shoal": {"shoal"},
}

# The form of an include of a third-party library -> the only files under src/, include/ and
# examples/ that may hold it. Tests may look past these walls, the product may not.
LIBRARIES = [
    (r"<grpc/", ["src/rpc/*"]),
    (r"<event2/", ["src/loop/*", "src/http/*", "src/gateway/extproc/grpc_*.c", "src/mesh/etcd/exchange.c"]),
    (r"<nghttp2/", ["src/http/http2*.c", "src/gateway/extproc/grpc_connection.c"]),
    (r"<jansson\.h>", ["src/gateway/scan/json_scan.c", "src/coordinator/protocol/oip_json*", "src/coordinator/telemetry/trace_json.c",
                       "src/coordinator/models/model_look.c", "src/coordinator/models/sidecar.c",
                       "src/coordinator/models/runtime_request.c",
                       "src/coordinator/mesh/mesh_etcd_place.c",
                       "src/coordinator/mesh/mesh_dataplane.c",
                       "src/coordinator/mesh/mesh_fetch.c",
                       "src/coordinator/mesh/mesh_listed.c",
                       "src/coordinator/loop/control_request.c", "src/ctl/ask.h",
                       "src/worker/model_key.c", "src/mesh/etcd/json.*",
                       "src/mesh/etcd/answer.c", "src/mesh/record/*",
                       "src/serving/storage/place.c", "src/serving/storage/role_answer.c",
                       "src/serving/adapter/layout*.c"]),
    (r"<openssl/", ["src/worker/model_files.c", "src/rpc/tls_files.c", "src/http/tls*.c",
                    "src/gateway/proxy/keys.c",
                    "src/serving/manifest/model.c",
                    "src/serving/storage/digest.c",
                    "src/serving/storage/role*.c", "src/serving/storage/sigv4.c"]),
    (r"<zlib\.h>", ["src/rpc/inflate.c", "src/http/inflate.c", "src/serving/storage/unpack.c"]),
    (r"<yaml\.h>", ["src/yaml/tree.c"]),
    (r"<xxhash\.h>", ["src/gateway/core/prefix.c"]),
    (r"<curl/", ["src/coordinator/telemetry/trace_http.c", "src/mesh/etcd/exchange.c",
                 "src/serving/storage/transfer.c"]),
    (r"<expat\.h>", ["src/serving/storage/listing.c", "src/serving/storage/role_answer.c"]),
    (r"<archive(_entry)?\.h>", ["src/serving/storage/unpack.c"]),
    (r"<protobuf-c/|\.pb-c\.h|\"descriptors\.h\"",
     ["src/coordinator/protocol/*", "src/coordinator/models/runtime_answer.c",
      "src/coordinator/mesh/mesh_answer.c", "src/coordinator/mesh/mesh_manifests.c", "src/ctl/*", "examples/*/client*.c"]),
    (r"<dlfcn\.h>", ["src/worker/modelet.c", "src/worker/crash_symbols.c", "src/harness/harness.c",
                     "examples/onnx/library.c", "examples/python/interpreter.c"]),
    (r"<seccomp\.h>|<linux/seccomp\.h>", ["src/worker/sandbox_calls.c"]),
    (r"<linux/landlock\.h>", ["src/worker/sandbox_landlock.c"]),
    (r"<linux/futex\.h>", ["src/shm/*"]),
    (r"<jemalloc/", ["src/worker/*"]),
    (r"<xgboost/", ["examples/*"]),
    (r"<Python\.h>", ["examples/python/*"]),
    (r"<cblas\.h>", ["examples/mlp/forward.c"]),
    (r"<cmocka\.h>", []),
]

# Words of C that no file may use -> what to do instead.
BANNED = [
    (r"\b(strcpy|strcat|sprintf|vsprintf|gets)\s*\(",
     "no bounds: use snprintf, or memcpy with a size"),
    (r"\balloca\s*\(", "the stack has no limit check: use an array with a named size"),
    (r"(?<!asm )(?<!asm__ )\bvolatile\b(?!\s+sig_atomic_t)",
     "not for sharing: _Atomic with an explicit order, in src/shm"),
]

# A sentence whose subject is a relative clause without a noun, after a comment's decoration.
HEADLESS = r"(?:\A|[.:!]\s|\n[\s*#]*\n)[\s*#/\"-]*\b(What|Who|Whoever|Whatever)\b(?![^.]*\?)"
COMMENT = {
    "c": r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|(?P<text>/\*.*?\*/|//[^\n]*)",
    "script": r"(?P<text>^[ \t]*#[^\n]*(?:\n[ \t]*#[^\n]*)*|(?<=\s)#[^\n]*|\"\"\".*?\"\"\")",
    "page": r"(?P<text>^(?!#).+\n(?:(?![ ]*[-*] |\|).+\n)*)",
}
# Written by `./dev bench`, figures included.
WIDE_PAGES = ["docs/performance.md"]

# Shared words belong to src/shm and src/ipc; everyone else goes through its functions.
ATOMICS = r"<stdatomic\.h>|\b(_Atomic|atomic_\w+\s*\(|__atomic_\w+|__sync_\w+)"
ATOMICS_HOME = ["src/shm/*", "src/ipc/*", "tests/*"]

# The operators' page, and the counters that call for no action: `shoalctl stat --help-counters` is
# their manual.
OPERATORS_PAGE = "docs/operating.md"
FOR_INFORMATION = set("""
    arrived batch_items batches blocks_max blocks_used calls closed_adaptive closed_draining
    closed_full closed_single closed_wait company_wait dashboard_cut dashboard_skipped
    dashboard_viewers deadline deaths depth forecast_base forecast_item generation grpc_connections heartbeat
    http_connections http_large_bodies http_requests items items_local items_ok local_clients
    local_ended local_moved mesh_calls_elsewhere mesh_calls_here mesh_capacity mesh_clocks
    mesh_copies mesh_free mesh_load_time mesh_loaded_size mesh_loading mesh_loads mesh_models
    mesh_models_held mesh_on mesh_peer_calls_cancelled mesh_peer_calls_elsewhere
    mesh_peer_calls_here mesh_peer_calls_waited mesh_peer_received mesh_peer_sent mesh_peers
    mesh_published mesh_reserve mesh_size_time mesh_store_events mesh_transitions mesh_txns_lost mesh_txns_ok
    mesh_unload_time mesh_unloads mesh_used mesh_vmodels model_bytes model_bytes_max model_loads
    models_kept models_known models_loaded models_unloaded orphans_killed owner owner_pid pid pieces
    reclaim recovery reloads replies_ok requests sandbox sandbox_allow slots_max slots_used spans_exported
    stage streams storage_cache storage_fetches storage_fetching storage_hits suspected traces waited waiting_bytes where workers_live workers_wanted
""".split())

# (rule, files) that are allowed all the same, each with its reason.
EXCEPTIONS = [
    ("atomics", ["src/base/log.c"], "the level may change while other threads write lines"),
    ("atomics", ["src/mesh/edge/peer_pipe.c"],
     "a lent piece that was cut is given back by whoever of the library's threads is last"),
    ("atomics", ["src/rpc/*"], "a call is ended by another thread than its queue's: private words"),
    ("atomics", [f"src/coordinator/{name}.*" for name in (
         "assembly", "front/dispatch", "front/front", "front/http_thread", "front/rest", "front/rest_call", "front/stream_infer", "front/web", "front/web_listen",
         "models/catalog", "models/catalog_load", "models/catalog_workers", "models/model_describe",
         "models/worker_models",
        "models/model", "models/model_wait", "models/models", "pipeline/admit", "pipeline/audit",
        "pipeline/probe", "pipeline/submit", "pipeline/suspects", "pipeline/wait_queue",
        "pipeline/gather", "pipeline/gatherer", "pipeline/lane", "pipeline/oldest", "pipeline/pieces",
        "pipeline/pipeline", "pipeline/request_id", "pipeline/share", "workers/death", "workers/client_region", "workers/hang",
        "workers/local", "workers/worker_pools", "workers/pool_member", "workers/worker_pool", "workers/worker_log")],
     "front, gather and loop threads of the one process hand state to each other without a lock"),
    ("atomics", [f"src/coordinator/mesh/mesh_{name}.*" for name in (
        "call", "manage", "many", "node", "pending")],
     "who answers a caller of the mesh, and who is the last to look at its call, is decided between "
     "threads"),
    ("atomics", [f"src/coordinator/mesh/mesh_{name}.*" for name in ("counters", "hosting", "runtime")],
     "the counters that they write"),
    ("atomics", ["src/coordinator/telemetry/meters.c"],
     "threads that answer count, the HTTP thread reads: private words, without a lock"),
    ("atomics", ["src/coordinator/dashboard/viewers.*"], "the counters that it writes"),
    ("atomics", ["src/coordinator/front/probes.c"],
     "the HTTP thread tells what the loop thread last said"),
    ("atomics", ["src/coordinator/telemetry/trace*", "src/coordinator/pipeline/trace_request.c"],
     "threads that answer hand traces to the one that writes them, without a lock"),
    ("atomics", ["src/worker/model_table.*"],
     "the two threads of one worker hand models to each other without a lock"),
    ("atomics", ["src/worker/crash.c"], "which of two threads that crash reports it"),
    ("atomics", ["src/worker/running_cpu.h"], "the kernel writes that word of each thread"),
    ("sleep", ["tests/tidy/test_rules.py"], "plants them"),
    ("parameters", ["src/worker/model_pages.c"], "jemalloc's extent hooks"),
    ("parameters", ["src/http/http2*.c", "src/gateway/extproc/grpc_connection.c"],
     "nghttp2's callbacks"),
]

# (file, tag): a test defines an opaque type of src/ itself, in the place of its module.
TAG_STAND_INS = {("tests/unit/test_model_table.c", "loaded_model"), ("tests/fuzz/fuzz_stream.c", "rpc_call")}

SLEEPS = {
    ".c": r"\b(sleep|usleep|nanosleep|clock_nanosleep|thrd_sleep)\s*\(",
    ".h": r"\b(sleep|usleep|nanosleep|clock_nanosleep|thrd_sleep)\s*\(",
    ".py": r"\btime\.sleep\s*\(",
    ".sh": r"^[ \t]*sleep\b|[;&|]\s*sleep\b|\bdo sleep\b",
}

# A call with its format, which is string literals and PRI words; the conversions that it may have.
LOG_CALL = (r'\blog_(?:(?:error|warn|info|debug)(?:_limited)?|beside|line|limited)\s*\('
            r'(?:\s*(?:[^",;()]|\([^()]*\))*,)?\s*((?:"(?:\\.|[^"\\\n])*"|PRI\w+|\s)+)')
PRI = re.compile(r"PRI([dux])\d*|PRI\w+")
LOG_CONVERSION = re.compile(r"%(%|(\.(\*|\d+))?s|(l|ll|z)?[diux])")

UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b")
LICENSED = (".c", ".h", ".def", ".py", ".sh", ".cmake", ".proto", ".pml")
LICENSED_NAMES = ("CMakeLists.txt", "dev", "run")
SKIPPED_FOLDERS = {".git", "build", "__pycache__"}


class Source:
    """A text file: its path relative to the root, its lines, and its code without comments."""

    def __init__(self, root, path):
        self.path = path
        self.name = os.path.basename(path)
        self.suffix = os.path.splitext(path)[1]
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            self.text = file.read()
        self.lines = self.text.splitlines()
        self.is_c = self.suffix in (".c", ".h", ".def")
        self.code = blank_comments(self.text) if self.is_c else self.text

    def under(self, *patterns):
        return any(fnmatch.fnmatch(self.path, pattern) for pattern in patterns)

    def find(self, pattern, text=None):
        """(line number, match) of every match of the pattern in the code."""
        text = self.code if text is None else text
        for match in re.finditer(pattern, text, re.MULTILINE):
            yield text.count("\n", 0, match.start()) + 1, match

    def includes(self):
        # Comments are blanked, strings are not a matter here: an include has no other quotes.
        for line, match in self.find(r'^[ \t]*#\s*include\s+(<[^>]+>|"[^"]+")', blank_comments(
                self.text, strings=False)):
            yield line, match.group(1)


def blank_comments(text, strings=True):
    """C code with comments, and the insides of strings, replaced by spaces; lines stay in place."""
    def blank(match):
        word = match.group(0)
        if word.startswith("/"):
            return re.sub(r"[^\n]", " ", word)
        return word[0] + " " * (len(word) - 2) + word[-1] if strings else word
    return re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", blank, text,
                  flags=re.DOTALL)


def module_of(path):
    folders = [folder for folder in LAYERS if path.startswith(folder + "/")]
    return max(folders, key=len) if folders else None


# ---- rules on one file ----

def rule_layers(source):
    folder = module_of(source.path)
    for line, include in source.includes():
        name = include[1:-1]
        if name.endswith(".pb-c.h") or name == "descriptors.h":
            continue
        if include.startswith('"') and source.path.startswith("src/") and "/" not in name:
            yield line, f'write "{os.path.dirname(source.path)[4:]}/{name}": name the module'
            continue
        module = "/".join(name.split("/")[:2])
        known = {other[4:] for other in LAYERS if other.startswith("src/")} | {"mesh", "shoal"}
        if module not in known:
            module = name.split("/")[0]
        if module not in known or (include.startswith("<") and module != "shoal"):
            continue
        if folder is not None and module not in LAYERS[folder]:
            yield line, f"{folder} may not include {module}/: see LAYERS in tests/tidy/tidy.py"
        if source.path.startswith("examples/") and module not in example_modules(source):
            yield line, f"a modelet knows <shoal/modelet.h> alone, not {module}/"


def example_modules(source):
    return {"shoal", "base", "rpc"} if source.name.startswith("client") else {"shoal"}


def rule_libraries(source):
    if not source.is_c or not source.under("src/*", "include/*", "examples/*"):
        return
    for line, include in source.includes():
        for pattern, homes in LIBRARIES:
            if re.search(pattern, include) and not source.under(*homes):
                where = ", ".join(homes) or "tests"
                yield line, f"{include} belongs to {where} alone: go through that module"


def rule_atomics(source):
    if source.is_c and not source.under(*ATOMICS_HOME):
        for line, match in source.find(ATOMICS):
            yield line, f"{match.group(0).strip('( ')} outside src/shm and src/ipc: use what they offer"


def functions(code):
    """(name, first line, last line) of each function: a brace at depth 0 that follows a `)`."""
    code = re.sub(r"\bTEST_CASE(?:_WITH)?\((\w+)[^()]*\)", r"\1()", drop_directives(code))
    depth, start, opened, line = 0, 0, None, 1
    for at, char in enumerate(code):
        if char == "\n":
            line += 1
        elif char == "{":
            if depth == 0 and code[start:at].rstrip().endswith(")"):
                head = re.search(r"\b(?!__attribute__)(\w+)\s*\(", code[start:at])
                first = code.count("\n", 0, start + head.start()) + 1
                opened = (head.group(1), first)
            depth += 1
        elif char == "}":
            depth = max(0, depth - 1)
            if depth == 0:
                if opened:
                    yield (*opened, line)
                opened, start = None, at + 1
        elif char == ";" and depth == 0:
            start = at + 1


def drop_directives(code):
    """Blanks preprocessor lines, and all branches of an #if but its first: braces stay balanced."""
    kept, skipping, continued = [], [], False
    for line in code.split("\n"):
        word = re.match(r"\s*#\s*(\w+)", line)
        if word and not continued:
            if word.group(1).startswith("if"):
                skipping.append(False)
            elif word.group(1).startswith("el") and skipping:
                skipping[-1] = True
            elif word.group(1) == "endif" and skipping:
                skipping.pop()
        directive = bool(word) or continued
        continued = directive and line.endswith("\\")
        kept.append("" if directive or any(skipping) else line)
    return "\n".join(kept)


def rule_function_length(source):
    if source.is_c:
        for name, first, last in functions(source.code):
            if last - first + 1 > FUNCTION_LINES_MAX:
                yield first, (f"{name} has {last - first + 1} lines, more than {FUNCTION_LINES_MAX}: "
                              "leave the control flow, move the steps out")


def rule_file_length(source):
    if source.is_c and len(source.lines) > FILE_LINES_MAX:
        yield len(source.lines), f"more than {FILE_LINES_MAX} lines: a file is one idea, split it"


def rule_columns(source):
    """Pages may have wide tables, code and links."""
    is_page = source.suffix == ".md" and not source.under(*WIDE_PAGES)
    if source.is_c or is_page:
        text = re.sub(r"^```.*?^```", lambda code: "\n" * code.group(0).count("\n"), source.text,
                      flags=re.DOTALL | re.MULTILINE) if is_page else source.text
        for number, line in enumerate(text.splitlines(), 1):
            if is_page and re.match(r"    |\s*\||(- `[^`]*`|\S+)$", line):
                continue
            if len(line) > COLUMNS_MAX:
                yield number, f"{len(line)} columns, more than {COLUMNS_MAX}"


def declarations(source):
    """(name, line, parameters) of each function that a header declares, and of each pointer to one:
    what stands between the parentheses behind a name. In a .c file that name begins a line."""
    code = drop_directives(source.code)
    begin = "^" if source.suffix == ".c" else ""
    for match in re.finditer(
            begin + r"(?:\b(\w+)\s*(?=\((?!\s*\*))|\(\s*\*\s*(?:const\s+)?(\w+)(?:\[\w*\])?\s*\)\s*)\(",
            code, re.MULTILINE):
        name, start = match.group(1) or match.group(2), match.end()
        depth, commas, at = 1, [], start
        while depth > 0 and at < len(code):
            depth += {"(": 1, ")": -1}.get(code[at], 0)
            if depth == 1 and code[at] == ",":
                commas.append(at)
            at += 1
        ends = [*commas, at - 1]
        parameters = [" ".join(code[a:b].split()) for a, b in zip([start, *(c + 1 for c in commas)], ends)]
        if all(re.fullmatch(r"void|\.\.\.|[A-Za-z_][\w \t*\[\]]*[\s*][\w\[\]]+|.*\(\*.*", text)
               for text in parameters):
            yield name, code.count("\n", 0, match.start()) + 1, parameters


def rule_booleans(source):
    """A caller's `true` says nothing. Two kinds of function say it in their name: NAME_set_WHAT(...,
    bool WHAT) and a writer's NAME_bool(..., bool value)."""
    if source.suffix != ".h" or not source.under("src/*", "include/*"):
        return
    for name, line, parameters in declarations(source):
        for parameter in parameters:
            match = re.fullmatch(r"(?:const )?(?:bool|_Bool) (\w+)", parameter)
            if match and not name.endswith("_bool") and not (
                    "_set_" in name and name.endswith("_" + match.group(1))):
                yield line, f"{name} takes `{parameter}`: an enum, or two functions, say what it means"


def rule_parameters(source):
    if not source.is_c or not source.under("src/*", "include/*"):
        return
    for name, line, parameters in declarations(source):
        if len(parameters) > PARAMETERS_MAX:
            yield line, f"{name} has {len(parameters)} parameters, more than {PARAMETERS_MAX}: use a struct"


def rule_banned(source):
    if source.is_c:
        for pattern, instead in BANNED:
            for line, match in source.find(pattern):
                yield line, f"{match.group(0).strip('( ')}: {instead}"


def enclosing_function(source, line):
    """Name of the function around a line: of C by its braces, else the last head above it."""
    if source.is_c:
        around = [name for name, first, last in functions(source.code) if first <= line <= last]
        return around[0] if around else ""
    heads = [match.group(1) for _, match in source.find(
        r"^[ \t]*(?:def )?(\w+)\([^)\n]*\)[^\n]*[:{]$", "\n".join(source.lines[:line]))]
    return heads[-1] if heads else ""


def rule_sleep(source):
    pattern = SLEEPS.get(source.suffix)
    if pattern and source.under("tests/*"):
        for line, _ in source.find(pattern):
            if not enclosing_function(source, line).startswith("wait_"):
                yield line, "a test waits on a condition with a deadline: pause only in a wait_...()"


def rule_log_formats(source):
    """The log formats its lines itself (base/log_line.c), with few of printf's conversions."""
    if not source.is_c or not source.under("src/*"):
        return
    text = blank_comments(source.text, strings=False)
    for line, match in source.find(LOG_CALL, text):
        format = "".join(PRI.sub(lambda word: word[1], part) if part[0] != '"' else part[1:-1]
                         for part in re.findall(r'"(?:\\.|[^"\\])*"|\w+', match.group(1)))
        for conversion in re.findall(r"%[^a-zA-Z%]*[a-zA-Z%]+?(?<![lzhjtLq])", format):
            if not LOG_CONVERSION.fullmatch(conversion):
                yield line, f"{conversion}: log_line.c does not know it; see `convert` there"


def rule_unfinished(source):
    for number, line in enumerate(source.lines, 1):
        match = UNFINISHED.search(line)
        if match:
            yield number, f"{match.group(1)}: do it, or write it under the DESIGN's open questions"


def rule_licence(source):
    if source.suffix not in LICENSED and source.name not in LICENSED_NAMES:
        return
    head = source.lines[:1] if not source.text.startswith("#!") else source.lines[1:2]
    if not head or not re.fullmatch(
            r"(/\* |# |// )SPDX-License-Identifier: Apache-2\.0( \*/)?", head[0]):
        yield 1, "the first line is the SPDX-License-Identifier"


def rule_header(source):
    if source.suffix != ".h":
        return
    public = source.under("include/*")
    guarded = re.search(r"^#ifndef SHOAL_\w+_H$", source.text, re.MULTILINE)
    once = re.search(r"^#pragma once$", source.text, re.MULTILINE)
    if public and (once or not guarded):
        yield 1, "a public header has an include guard SHOAL_<NAME>_H (other compilers read it)"
    if not public and (guarded or not once):
        yield 1, "a header of ours has #pragma once, not a guard"


def rule_opening(source):
    """Headers say what the module is, tests what they prove: the first thing below the licence."""
    is_test = source.under("tests/*") and source.name.startswith("test_") and source.suffix == ".c"
    if source.suffix != ".h" and not is_test:
        return
    rest = [line for line in source.lines[1:] if line.strip()]
    if not rest or not rest[0].startswith("/*"):
        yield 2, "open with a comment: " + ("what it proves and how" if is_test else "what this is")


def rule_headless(source):
    kind = "c" if source.is_c else "page" if source.suffix == ".md" else "script"
    if kind == "script" and source.suffix not in (".py", ".sh", ".cmake", ".yaml", ".txt", ""):
        return
    for comment in re.finditer(COMMENT[kind], source.text, re.MULTILINE | re.DOTALL
                               if kind != "page" else re.MULTILINE):
        for match in re.finditer(HEADLESS, comment.group("text") or ""):
            yield (source.text.count("\n", 0, comment.start("text") + match.start(1)) + 1,
                   f"begins with {match.group(1)}: name the subject")


# ---- rules on the whole tree ----

def rule_counters(sources):
    """COUNTER(SCOPE, ID, ...) is asserted as SCOPE_ID in C, or by the name that shoalctl prints."""
    tests = "\n".join(source.text for source in sources if source.under("tests/*")
                      and not source.under("tests/tidy/*"))
    asserted = set(re.findall(r"\w+", tests))
    compared = set(re.findall(r"[\"'./\[](\w+)(?=[\"'./\]])", tests))
    for source in sources:
        if not source.under("src/*.def"):
            continue
        for line, match in source.find(r"^[ \t]*COUNTER\(\s*(\w+)\s*,\s*(\w+)"):
            scope, name = match.groups()
            printed = name.lower()
            if f"{scope}_{name}" not in asserted and printed not in compared:
                yield source, line, f"no test asserts the {scope.lower()}'s counter {printed}"


def rule_operators_page(sources):
    """Each counter that calls for action, and each event of grave log lines, stands in backticks in
    the operators' page."""
    page = "\n".join(source.text for source in sources if source.under(OPERATORS_PAGE))
    for source in sources:
        if source.under("src/*.def"):
            what, expression = "counter", r"^[ \t]*COUNTER\(\s*\w+\s*,\s*(\w+)"
        elif source.under("src/coordinator/*.c", "src/worker/*.c"):
            what, expression = "log event", r"\blog_(?:warn|error)\(\s*\"(\w+)"
        else:
            continue
        for line, match in source.find(expression, source.text):
            name = match.group(1).lower()
            if f"`{name}`" not in page and not (what == "counter" and name in FOR_INFORMATION):
                yield source, line, f"{OPERATORS_PAGE} does not say what to do about the {what} {name}"


def rule_tags(sources):
    """A struct, enum or union tag is defined once in src/ and include/, and a file elsewhere that
    defines it again would give it a second meaning."""
    defined = {}
    found = [(source, line, match.group(1)) for source in sources if source.is_c
             and source.under("src/*", "include/*", "tests/*", "examples/*")
             for line, match in source.find(r"\b(?:struct|enum|union)\s+(\w+)\s*\{")]
    ours = [entry for entry in found if entry[0].under("src/*", "include/*")]
    for source, line, tag in ours + [entry for entry in found if entry not in ours]:
        if (source.path, tag) in TAG_STAND_INS:
            continue
        if tag not in defined and source.under("src/*", "include/*"):
            defined[tag] = f"{source.path}:{line}"
        elif tag in defined:
            yield source, line, f"{tag} is also at {defined[tag]}: put the module's noun in front"


def rule_planted(sources):
    """Each planted bug has its own number; the mesh core's and the suite's share one series."""
    taken = {}
    for source in sources:
        if not source.under("tests/*planted/[0-9]*.patch"):
            continue
        folder, number = os.path.dirname(source.path), source.name.partition("-")[0]
        series = "tests/planted" if folder == "tests/sim/planted" else folder
        first = taken.setdefault((series, number), source.path)
        if first != source.path:
            yield source, 1, f"{first} has this number: take the next free one"


FILE_RULES = {
    "layers": rule_layers,
    "libraries": rule_libraries,
    "atomics": rule_atomics,
    "function-length": rule_function_length,
    "file-length": rule_file_length,
    "columns": rule_columns,
    "booleans": rule_booleans,
    "parameters": rule_parameters,
    "banned": rule_banned,
    "sleep": rule_sleep,
    "log-formats": rule_log_formats,
    "unfinished": rule_unfinished,
    "licence": rule_licence,
    "header": rule_header,
    "opening": rule_opening,
    "headless": rule_headless,
}
TREE_RULES = {
    "counters": rule_counters,
    "operators-page": rule_operators_page,
    "tags": rule_tags,
    "planted": rule_planted,
}


def excepted(rule, source):
    return any(rule == other and source.under(*files) for other, files, _ in EXCEPTIONS)


def is_text(path):
    with open(path, "rb") as file:
        return b"\0" not in file.read(4096)


def read_tree(root):
    sources = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS)
        for name in sorted(files):
            path = os.path.join(folder, name)
            if not os.path.islink(path) and name != "LICENSE" and is_text(path):
                sources.append(Source(root, os.path.relpath(path, root)))
    return sources


def findings(sources):
    """(path, line, rule, what to do) of everything that breaks a rule, in the order of the
    files."""
    found = []
    for rule, function in FILE_RULES.items():
        for source in sources:
            if not excepted(rule, source):
                found += [(source.path, line, rule, what) for line, what in function(source)]
    for rule, function in TREE_RULES.items():
        found += [(source.path, line, rule, what) for source, line, what in function(sources)
                  if not excepted(rule, source)]
    return sorted(found)


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "../..")
    sources = read_tree(root)
    found = findings(sources)
    for path, line, rule, what in found:
        print(f"{path}:{line}: {rule}: {what}")
    print(f"{len(sources)} files, {len(FILE_RULES) + len(TREE_RULES)} rules, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
