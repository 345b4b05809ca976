# SPDX-License-Identifier: Apache-2.0
"""The groups of contenders, and the cases that all of a group go through.

A contender is started once a round and then measured case by case, in turn with the others of its
group: start(), measure(case, ...) → {figure: value}, stop(). Between two of its turns a server
idles.
"""

import json
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path += [str(ROOT / "tests" / "integration"), str(ROOT / "examples" / "mlp")]
import make as make_mlp
import shoal_boosters
import shoal_loads
from shoal_ports import free_port
from figures import difference, mean_size
from programs import HERE, KEEP_MEMORY, PINNED, Client, Failed, LocalClient, Messages, Missing, Server
from programs import floats, infer_request, run_json
from quiet import cpu_seconds, switches

OUTSTANDING = (1, 16, 128)
FRACTIONS = (0.2, 0.5, 0.8)
# The least of what is spare beside the rate of an open loop: closer to its capacity, a contender's
# latencies say how long was measured.
SPARE = 0.95

DIGITS_CSV = ROOT / "examples" / "digits" / "data" / "digits.csv"
DIGITS_SHOWN = 359
MODEL = "digits.ubj"
PIXELS = 64


@dataclass(frozen=True)
class Case:
    """A load: so many outstanding, or a rate that is a part of what the group's reference does with
    128 outstanding; or, for what is no load, only a name."""

    name: str
    outstanding: int = 0
    fraction: float = 0.0
    only: tuple = ()  # contenders; none: all


def closed(*numbers, only=()):
    return [Case(f"{number} outstanding", outstanding=number, only=only) for number in numbers]


def opened(*fractions, only=()):
    return [Case(f"open loop, {fraction * 100:.0f} %", fraction=fraction, only=only)
            for fraction in fractions]


@dataclass
class Group:
    """`make(setting)` returns {name: contender} for all `names`; `title` and `note` are for
    readers."""

    name: str
    title: str
    names: tuple
    make: object
    cases: list
    reference: str = ""
    placements: tuple = ("pinned", "free")
    times: float = 1.0  # the seconds of a measurement, of those that --seconds says
    figures: list = field(default_factory=lambda: LOAD_FIGURES)
    note: str = ""

    def contenders(self, case):
        return case.only or self.names


LOAD_FIGURES = [("requests_per_s", "requests/s"), ("p50_us", "p50 µs"), ("p99_us", "p99 µs"),
                ("server_cpu_us_per_request", "server CPU µs"),
                ("client_cpu_us_per_request", "client CPU µs"), ("lag_p99_us", "lag p99 µs")]


# ---- servers behind gRPC

KEPT = ("requests_per_s", "p50_us", "p90_us", "p99_us", "server_cpu_us_per_request",
        "client_cpu_us_per_request")
KEPT_OPEN = ("rate", "lag_p99_us", "distribution")


class Served:
    """A server and the client before it. Subclasses say how it is started."""

    kept = ()  # further figures of the client

    def __init__(self, setting, name, messages, size):
        self.setting = setting
        self.name = name
        self.messages = messages
        self.size = size
        self.target = (f"unix:{setting.directory}/{name}.sock" if size.transport == "unix"
                       else f"127.0.0.1:{free_port()}")
        self.server = None
        self.client = None

    def command(self):
        raise NotImplementedError

    def environment(self):
        return None

    def make_client(self):
        return Client(self.setting, self.name, self.target, self.messages, self.size.args)

    def start(self):
        self.client = self.make_client()
        self.server = Server(self.command(), self.setting.directory / f"{self.name}.log",
                             self.environment())
        self.server.wait_until(self.client.answers)

    def stop(self):
        return self.server.stop() if self.server else None

    def pids(self):
        return self.server.pids()

    def measure(self, case, seconds, rate, seed):
        outstanding = case.outstanding if rate is None else self.size.open_outstanding
        line = self.client.measure(seconds, self.pids(), outstanding, rate, seed)
        kept = KEPT + (KEPT_OPEN if rate is not None else ()) + self.kept
        return {name: line[name] for name in kept}


class BareEcho(Served):
    """The minimum that a gRPC server can do."""

    def command(self):
        command = [self.setting.program("bench", "echo_server")] + self.setting.cpu("server")
        for arg in ("grpc.enable_channelz=0", *self.size.args):
            command += ["--arg", arg]
        return command + [self.target]

    def environment(self):
        return KEEP_MEMORY


CONFIG = """\
listen: ["{listen}"]
message_mib: {message_mib}
{cpus}pipelines:
  - name: {pipeline}
    slots: 1024
    arena_mib: {arena_mib}
{keys}    stages:
{stages}"""


def cpus_text(setting, cpus):
    """A stage's workers: one for each of these CPUs."""
    return f"cpus: {list(cpus)}" if setting.pinned else f"workers: {len(cpus)}"


def config_text(setting, listen, pipeline, stages, message_mib=1, arena_mib=64, keys=()):
    """A configuration of one pipeline, with further keys. stages: (name, modelet, CPUs, further
    keys); a modelet that does not come with Shoal has an absolute path."""
    folder = setting.build / "lib" / "shoal"
    lines = ""
    for name, modelet, cpus, more in stages:
        more = f", {more}" if more else ""
        lines += f"      - {{ name: {name}, modelet: {folder / modelet}, "
        lines += f"{cpus_text(setting, cpus)}{more} }}\n"
    return CONFIG.format(listen=listen, pipeline=pipeline, stages=lines, arena_mib=arena_mib,
                         message_mib=message_mib, keys="".join(f"    {key}\n" for key in keys),
                         cpus=f"cpus: [{PINNED['server']}]\n" if setting.pinned else "")


class Shoal(Served):
    """shoald with one pipeline."""

    def __init__(self, setting, name, pipeline, stages, messages, size=None, keys=()):
        size = size or SIZES[0]
        super().__init__(setting, name, messages, size)
        self.memory_mib = size.arena_mib
        text = config_text(setting, self.target, pipeline, stages, size.message_mib,
                           size.arena_mib, keys)
        self.config = setting.write(f"{name}.yaml", text.encode())
        self.counters = f"{setting.directory}/{name}.counters"

    def start(self):
        available = memory_available_mib()
        if self.memory_mib * 2 > available:
            raise Missing(f"wants {self.memory_mib} MiB of memory, {available} MiB are available")
        super().start()

    def command(self):
        return [self.setting.program("bin", "shoald"), "--counters", self.counters, self.config]


def echo_stages(count):
    return [(f"echo{number}", "libecho.so", [PINNED["workers"]], "") for number in range(count)]


# ---- echo


@dataclass(frozen=True)
class Size:
    """A payload, and what is best for it: the transport, and arguments of server and client. An
    open loop has no more than `open_outstanding` calls out: what is due meanwhile waits in the
    client."""

    name: str
    bytes: int
    transport: str
    warmup: int
    args: tuple = ()
    message_mib: int = 1
    arena_mib: int = 64
    local_mib: int = 16
    open_outstanding: int = 512


def memory_available_mib():
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) // 1024
    return 0


LARGE_ARGS = ("grpc.http2.bdp_probe=0", "grpc.http2.lookahead_bytes=4194304",
              "grpc.http2.max_frame_size=1048576")
# A block is up to four times as large as what is in it, and each size of blocks has an equal part
# of the arena: that is why so much is wanted.
SIZES = [
    Size("100 B", 100, "unix", 1000),
    Size("4 KiB", 4096, "unix", 1000),
    Size("64 KiB", 65536, "tcp", 500, arena_mib=400, local_mib=200),
    Size("1 MiB", 1048576, "tcp", 100, LARGE_ARGS, message_mib=2, arena_mib=1500, local_mib=2200,
         open_outstanding=128),
]
OPEN_PAIR = ("bare", "shoal_1")
CHECKED_BYTES = 256  # of each answer's end; the whole of it is compared while the server starts


def echo_messages(size):
    values = [float(index % 251) for index in range(size.bytes // 4)]
    message = infer_request("echo", "x", [len(values)], values)
    return Messages([message], [floats(values)[-CHECKED_BYTES:]], size.warmup)


def echo_contenders(setting, size, stage_counts):
    messages = echo_messages(size)
    contenders = {"bare": BareEcho(setting, "bare", messages, size)}
    for count in stage_counts:
        contenders[f"shoal_{count}"] = Shoal(setting, f"shoal_{count}", "echo", echo_stages(count),
                                             messages, size)
    return contenders


def times_of(size):
    """With 128 outstanding a call of 1 MiB takes 0.1 s: of so few a short measurement says
    nothing."""
    return 3 if size.bytes >= 1 << 20 else 1


def echo_group(size):
    args = f"; {', '.join(size.args)}" if size.args else ""
    return Group(f"echo {size.name}", f"echo, {size.name}, {size.transport}{args}",
                 ("bare", "shoal_1", "shoal_2", "shoal_4"),
                 lambda setting: echo_contenders(setting, size, (1, 2, 4)),
                 closed(*OUTSTANDING) + opened(*FRACTIONS, only=OPEN_PAIR), "shoal_1",
                 times=times_of(size))


def echo_tcp_group():
    size = Size("100 B over TCP", 100, "tcp", 1000)
    return Group(f"echo {size.name}", "echo, 100 B, tcp", OPEN_PAIR,
                 lambda setting: echo_contenders(setting, size, (1,)), closed(*OUTSTANDING))


# ---- the local client

# Of each size but the smallest a client's memory has some 100 blocks at most, and of the largest
# two. So that 128 messages fit, it is asked for so much more than one of them needs that there are
# larger blocks, too.
LOCAL_SPARE, LOCAL_MESSAGE_MIN = 16, 65536


class Drawn(Shoal):
    """Of its closed loops, too, the distribution is kept."""

    kept = ("distribution",)


class Local(Drawn):
    """Called through shared memory; nobody comes over gRPC, so the memory for that stays small."""

    def __init__(self, setting, name, stages, size):
        # a few: when a client comes, the memory of the one before may not have been cleared away
        keys = ("local_clients: 4", f"local_slots: {max(OUTSTANDING)}",
                f"local_mib: {size.local_mib}")
        super().__init__(setting, name, "echo", stages, None, replace(size, arena_mib=64), keys)
        self.memory_mib = size.local_mib

    def make_client(self):
        message_bytes = max(LOCAL_MESSAGE_MIN, LOCAL_SPARE * self.size.bytes)
        return LocalClient(self.setting, f"{self.counters}.local", self.size.bytes, message_bytes,
                           self.size.warmup)


def local_contenders(setting, size):
    return {"shoal_grpc": Drawn(setting, "local_grpc", "echo", echo_stages(1),
                                     echo_messages(size), size),
            "local": Local(setting, "local", echo_stages(1), size)}


def local_group(size):
    return Group(f"local {size.name}", f"the local client and gRPC, {size.transport}: echo, {size.name}",
                 ("shoal_grpc", "local"), lambda setting: local_contenders(setting, size),
                 closed(*OUTSTANDING), figures=LOAD_FIGURES[:5], times=times_of(size),
                 note="Both call one stage of echo. The coordinator takes no part in a local client's "
                 "requests: pinned, the client has its CPU.")


# ---- digits

BATCH = 64
WAITS_MS = (0, 0.5, 1, 2, 5)
ADAPTIVE_MS_MAX = 5  # the bound that an adaptive wait is given
CALLS = (1, 64)  # images per call of the library


def digit_rows():
    rows = [line.split(",")[:PIXELS] for line in DIGITS_CSV.read_text().splitlines()]
    return [[float(pixel) for pixel in row] for row in rows[:DIGITS_SHOWN]]


class XGBoost:
    """The job itself in one process; also says what the right answers are."""

    def __init__(self, setting):
        self.setting = setting
        self.model = setting.program("examples", "digits", MODEL)
        self.rows = setting.write("digits.rows", b"".join(map(floats, digit_rows())))

    def command(self):
        return [self.setting.program("bench", "xgboost_bench"), "--json", "--model", self.model,
                "--rows", self.rows]

    def start(self):
        self.command()

    def stop(self):
        return None

    def pids(self):
        return []

    def measure(self, case, seconds, _rate, _seed):
        command = self.command() + ["--seconds", str(seconds), "--batch", case.name.split()[0]]
        (line,) = run_json(command + self.setting.cpu("workers"))
        line["server_cpu_us_per_request"] = line["cpu_us_per_request"]
        return {name: line[name] for name in KEPT if name in line}

    def answers(self):
        """Of each image the end of a right answer: the label, then the probabilities, raw."""
        path = self.setting.directory / "digits.answers"
        run_json(self.command() + ["--seconds", "0.001", "--answers", str(path)])
        data, record = path.read_bytes(), 8 + 4 * 10
        records = [data[at:at + record] for at in range(0, len(data), record)]
        return [one[:8] + field_head(6, one[8:]) + one[8:] for one in records]


def field_head(number, payload):
    return bytes([number << 3 | 2, len(payload)])


class Digits(Shoal):
    """The digits pipeline of the example, its batching as given; reports its batches' sizes, whose
    the CPU time was and how often the server's processes were switched to. The model lies beside
    the configuration, where a modelet may read."""

    kept = ("process_cpu_us_per_request", "requests")

    def __init__(self, setting, name, wait, messages):
        """`wait`: the keys of classify's; the other stages take what is there. None: no batches."""
        one = [PINNED["workers"]]
        batch = "" if wait is None else f"batch_size: {BATCH}, batch_wait_ms: 0"
        size = "" if wait is None else f"batch_size: {BATCH}"
        classify = [size, wait, f"params: {{ model: {MODEL} }}"]
        stages = [("normalize", "libnormalize.so", one, batch),
                  ("classify", "libxgboost_modelet.so", one * 2, ", ".join(filter(None, classify))),
                  ("label", "liblabel.so", one, batch)]
        super().__init__(setting, f"digits_{name}", "digits", stages, messages)

    def sizes(self):
        command = [self.setting.program("bin", "shoalctl"), "stat", "--counters", self.counters,
                   "--json"]
        (stat,) = run_json(command)
        (stage,) = [one for one in stat["pipelines"][0]["stages"] if one["name"] == "classify"]
        return stage["batch_items"]["buckets"]

    def measure(self, case, seconds, rate, seed):
        before, switched = self.sizes(), sum(map(switches, self.pids()))
        figures = super().measure(case, seconds, rate, seed)
        switched = sum(map(switches, self.pids())) - switched
        figures["switches"] = switched / (figures.pop("requests") + self.client.warmups(seconds))
        shares = figures.pop("process_cpu_us_per_request")
        figures["coordinator_cpu_us"] = shares[0]
        figures["classify_cpu_us"] = sum(share for pid, share in zip(self.pids(), shares)
                                         if "classify" in process_name(pid))
        figures["others_cpu_us"] = sum(shares) - shares[0] - figures["classify_cpu_us"]
        figures["batch_sizes"] = difference(before, self.sizes())
        figures["batch_mean"] = mean_size(figures["batch_sizes"])
        return figures


def process_name(pid):
    return Path(f"/proc/{pid}/comm").read_text().strip()


class Absent:
    """A contender that this build does not have."""

    def __init__(self, why):
        self.why = why

    def start(self):
        raise Missing(self.why)


def knows_key(setting, key):
    """True if the configuration has a key of that name."""
    done = subprocess.run([setting.program("bin", "shoald"), "--help-config=markdown"],
                          capture_output=True, text=True, timeout=60, check=False)
    return f"`{key}`" in done.stdout


def digits_contenders(setting):
    direct = XGBoost(setting)
    setting.write(MODEL, Path(direct.model).read_bytes())
    messages = Messages([infer_request("digits", "image", [1, PIXELS], row)
                         for row in digit_rows()], direct.answers())
    contenders = {"xgboost": direct, "off": Digits(setting, "off", None, messages)}
    for wait in WAITS_MS:
        name = f"wait_{wait:g}"
        contenders[name] = Digits(setting, name, f"batch_wait: fixed, batch_wait_ms: {wait:g}", messages)
    adaptive = f"batch_wait: adaptive, batch_wait_ms: {ADAPTIVE_MS_MAX}"
    contenders["adaptive"] = (Digits(setting, "adaptive", adaptive, messages)
                              if knows_key(setting, "batch_wait")
                              else Absent("the configuration has no key batch_wait"))
    return contenders


def digits_group():
    served = ("off", *(f"wait_{wait:g}" for wait in WAITS_MS), "adaptive")
    direct = [Case(f"{count} per call", only=("xgboost",)) for count in CALLS]
    return Group("digits", "digits: normalize, XGBoost, label; one image per request",
                 ("xgboost", *served), digits_contenders, direct + closed(*OUTSTANDING, only=served)
                 + opened(*FRACTIONS, only=served), "wait_0",
                 figures=LOAD_FIGURES + [("coordinator_cpu_us", "of it coordinator µs"),
                                         ("classify_cpu_us", "classify µs"),
                                         ("others_cpu_us", "other stages µs"),
                                         ("switches", "switches"),
                                         ("batch_mean", "requests per batch")])


# ---- models that come and go

SERVED_MODELS, LOADS_PER_S = 50, 10
MODELS_MIB = 512
MLP_OTHER_WIDTH = 384  # as large a file as the digits' model


class Engine:
    """A modelet and its models: what is asked for, and what is loaded meanwhile."""

    def __init__(self, library, model_input, other):
        self.library, self.input, self.other = library, model_input, other


class Boosters(Engine):
    def __init__(self):
        super().__init__("libxgboost_modelet.so", shoal_boosters.INPUT, MODEL)

    def write(self, setting, root):
        shoal_boosters.write_many(root, SERVED_MODELS)
        (root / MODEL).write_bytes(Path(setting.program("examples", "digits", MODEL)).read_bytes())

    def name(self, number):
        return shoal_boosters.name(number)

    def answer(self, number):
        return shoal_boosters.answers(number)[0]


class Networks(Engine):
    """A single neuron each, whose answer is its bias."""

    def __init__(self):
        super().__init__("libmlp.so", "input", "other.mlp")

    def write(self, _setting, root):
        for number in range(SERVED_MODELS):
            neuron = [{"weights": [[1.0]], "bias": [self.answer(number)], "activation": "identity"}]
            folder = root / self.name(number)
            folder.mkdir()
            (folder / "model.mlp").write_bytes(make_mlp.encode(1, neuron))
        width = MLP_OTHER_WIDTH
        layer = {"weights": [[0.5] * width] * width, "activation": "relu"}
        (root / self.other).write_bytes(make_mlp.encode(width, [layer]))

    def name(self, number):
        return f"network-{number:05}"

    def answer(self, number):
        return 2.0 * number + 1


class Models(Shoal):
    """One request after another to each model; meanwhile others are loaded, or not."""

    def __init__(self, setting, name, messages, root, engine, rate):
        stages = [("models", engine.library, [PINNED["workers"]], f"batch_size: {BATCH}")]
        keys = (f"models: {{ root: {root}, memory_mib: {MODELS_MIB}, default_size_mib: 1, preload: no }}",)
        super().__init__(setting, name, "models", stages, messages, keys=keys)
        self.other = engine.other
        self.rate = rate

    def measure(self, case, seconds, rate, seed):
        if self.rate == 0:
            return super().measure(case, seconds, rate, seed)
        begun = time.monotonic()
        with shoal_loads.Loads(f"{self.counters}.control", self.other, self.rate) as loads:
            figures = super().measure(case, seconds, rate, seed)
        if loads.failed:
            raise Failed(f"{self.name}: {loads.failed}")
        figures["loads_per_s"] = loads.count / (time.monotonic() - begun)
        return figures


BURNED_MS = 10  # what XGBoost takes to parse one of them


class Burned(Models):
    """Nothing is loaded: another program takes as much of the CPU, whenever nobody else wants
    it."""

    def measure(self, case, seconds, rate, seed):
        command = [sys.executable, HERE / "burner.py", str(BURNED_MS), str(LOADS_PER_S)]
        with subprocess.Popen(command) as burner:
            try:
                return super().measure(case, seconds, rate, seed)
            finally:
                burner.kill()


LOADING = {"alone": (Models, 0), "loads": (Models, LOADS_PER_S), "burned": (Burned, 0)}


def models_contenders(setting, engine, names):
    kind = type(engine).__name__.lower()
    root = setting.directory / kind
    if not root.exists():
        root.mkdir()
        engine.write(setting, root)
    messages = Messages([infer_request(engine.name(number), engine.input, [1, 1], [0.0])
                         for number in range(SERVED_MODELS)],
                        [floats([engine.answer(number)]) for number in range(SERVED_MODELS)])
    return {name: LOADING[name][0](setting, f"{kind}_{name}", messages, root, engine, LOADING[name][1])
            for name in names}


def models_group(name, what, engine, note, names=("alone", "loads")):
    return Group(name, f"{SERVED_MODELS} {what} of one stage, while {LOADS_PER_S} others a second are "
                 "loaded, and not", names, lambda setting: models_contenders(setting, engine, names),
                 closed(64), times=5, figures=LOAD_FIGURES[:4] + [("loads_per_s", "loads/s")], note=note)


def models_groups():
    short = "which keep requests so short that nothing hides the loads"
    return [models_group("models", "models of XGBoost", Boosters(), "Each load parses the digits' model, "
                         f"0.6 MB; the requests are for boosters with a single split, {short}. Burned: instead "
                         f"of a load, another program burns {BURNED_MS} ms of CPU at the lowest priority.",
                         ("alone", "loads", "burned")),
            models_group("models mlp", "networks", Networks(), "Each load maps a layer of 0.6 MB; the requests "
                         f"are for single neurons, {short}.")]


# ---- programs that measure themselves


class Program:
    """A bench program that prints a line for the number of outstanding requests it is given."""

    def __init__(self, make_command):
        self.make_command = make_command
        self.command = None

    def start(self):
        self.command = self.make_command()

    def stop(self):
        return None

    def pids(self):
        return []

    def measure(self, case, seconds, _rate, _seed):
        command = self.command + ["--seconds", str(seconds), "--outstanding", str(case.outstanding)]
        (line,) = run_json(command)
        figures = {name: line[name] for name in ("requests_per_s", "p50_us", "p99_us")}
        figures["server_cpu_us_per_request"] = line["cpu_us_per_request"]
        for index, nanoseconds in enumerate(line.get("stage_ns", [])):
            if index == 1:
                figures["second_stage_ns"] = nanoseconds
        return figures


def pipeline_bench(setting, name, pipeline, stages, factors):
    text = config_text(setting, f"unix:{setting.directory}/unused.sock", pipeline, stages)
    config = setting.write(f"{name}.yaml", text.encode())
    return Program(lambda: [
        setting.program("bench", "pipeline_bench"), "--json", "--config", config, "--pipeline",
        pipeline, "--scale", str(factors[0]), "--shift", str(factors[1]),
        "--counters", f"{setting.directory}/{name}.counters"])


def stages_contenders(setting):
    """Stages on the two CPUs in turn, so that the second has one to itself."""
    cpus = [PINNED["server"], PINNED["workers"]]
    return {
        f"shoal_{count}": pipeline_bench(
            setting, f"stages_{count}", "echo",
            [(f"echo{number}", "libecho.so", [cpus[number % 2]], "") for number in range(count)],
            (1, 0))
        for count in (1, 2, 4)
    }


# Each service as it is best at 128 outstanding: Shoal takes what is there, up to 32 requests,
# without waiting for more; the Python service, pinned as here, is faster without batches: compare
# `python_service.py --outstanding 128 --cpu 0 --scale-cpus 1,1 --shift-cpus 1` with and without
# `--batch-size 32 --batch-wait-ms 1`.
def service_contenders(setting):
    one = [PINNED["workers"]]
    stages = [("scale", "libscale.so", one * 2, "batch_size: 32"),
              ("shift", "libshift.so", one, "batch_size: 32")]
    python = [sys.executable, str(HERE / "python_service.py")] + setting.cpu("server")
    python += setting.cpu("workers", "--scale-cpus", 2) + setting.cpu("workers", "--shift-cpus")
    messages = Messages([infer_request("scale-shift", "x", [1], [5.0])], [floats([13.0])])
    return {
        "python": Program(lambda: python),
        "shoal": pipeline_bench(setting, "service", "scale-shift", stages, (2, 3)),
        "shoal_grpc": Shoal(setting, "service_grpc", "scale-shift", stages, messages),
    }


class Rings:
    """ring_bench alternates by itself, between threads of one process: one run serves them all."""

    NAMES = ("plain", "plain_cached", "plain_record", "shoal")
    ROUNDS = 3

    def __init__(self, setting):
        self.setting = setting
        self.lines = []

    def line(self, ring, figure):
        if not self.lines:
            self.lines = run_json([self.setting.program("bench", "ring_bench"), "--json",
                                   "--rounds", str(self.ROUNDS)])
        (found,) = [line for line in self.lines
                    if (line["ring"], line["figure"]) == (ring, figure)]
        return found


class Ring:
    def __init__(self, rings, name):
        self.rings = rings
        self.name = name

    def start(self):
        self.rings.setting.program("bench", "ring_bench")

    def stop(self):
        return None

    def pids(self):
        return []

    def measure(self, case, _seconds, _rate, _seed):
        return {"ns": self.rings.line(self.name, case.name)["ns"]}


def ring_contenders(setting):
    rings = Rings(setting)
    return {name: Ring(rings, name) for name in Rings.NAMES}


# ---- idle


class Idle:
    """The cost of a server without calls, after it has served for a while."""

    settle_s = 3

    def __init__(self, served):
        self.served = served
        self.settled = False

    def start(self):
        self.served.start()
        self.served.client.measure(0.1, self.served.pids(), 16)
        self.settled = False

    def stop(self):
        return self.served.stop()

    def pids(self):
        return self.served.pids()

    def wait_seconds(self, seconds):
        time.sleep(seconds)
        if self.served.server.process.poll() is not None:
            raise Failed(f"it ended by itself\n{self.served.server.log()}")

    def measure(self, _case, seconds, _rate, _seed):
        if not self.settled:
            self.wait_seconds(self.settle_s)
            self.settled = True
        pids = self.pids()
        begin = time.monotonic()
        cpu, count = cpu_seconds(pids), sum(map(switches, pids))
        self.wait_seconds(seconds)
        elapsed = time.monotonic() - begin
        used = cpu_seconds(pids) - cpu
        return {"cpu_s_per_minute": used * 60 / elapsed, "core_percent": 100 * used / elapsed,
                "wakes_per_s": (sum(map(switches, pids)) - count) / elapsed,
                "processes": len(pids)}


def idle_contenders(setting):
    messages = echo_messages(SIZES[0])
    return {
        "bare": Idle(BareEcho(setting, "bare", messages, SIZES[0])),
        "shoal_4": Idle(Shoal(setting, "shoal_4", "echo", echo_stages(4), messages)),
    }
