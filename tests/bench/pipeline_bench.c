/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shoal without gRPC: a whole coordinator in this process, real workers beside it, and one thread
 * that submits into a pipeline and gathers its answers as a front thread does
 * (coordinator/pipeline/gatherer.h).
 *
 * The loop is closed: N requests are outstanding, each answer is followed by the next request. A
 * request is a packed ModelInferRequest with one FP32 tensor of its own values; the pipeline is
 * expected to answer scale * x + shift, so an answer that went to the wrong caller is seen. One
 * line is printed for each N. Exit code 0 when all was answered right and once, 1 when something
 * was refused, failed, wrong or answered twice, 2 when nothing could be measured.
 *
 * Latency is from before the submission to the sink. CPU time is this process's and its workers'.
 * `stage_ns` says of each stage what it adds by its own counters: the wait from an item's arrival
 * there to its run, and the run, both medians.
 */
#include "samples.h"

#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "coordinator/assembly.h"
#include "coordinator/config/config.h"
#include "coordinator/pipeline/gatherer.h"
#include "inference/open_inference.pb-c.h"
#include "loop/loop.h"
#include "rpc/rpc.h"

enum {
    FLIGHTS_MAX = 4096,
    NUMBERS_MAX = 16,
    ELEMENTS_MAX = 1 << 20,
    SAMPLES_MAX = 8 << 20,
    VALUES = 1 << 20, /* 0 to VALUES - 1: FP32 holds every answer exactly */
    STALL_S = 30,
};

struct options {
    const char *config_path;
    const char *pipeline;
    const char *worker;
    const char *counters;
    uint64_t outstanding[NUMBERS_MAX];
    unsigned outstanding_count;
    double seconds;
    double warmup;
    uint64_t elements;
    float scale;
    float shift;
    bool json;
};

/* One of the N callers. From submission to answer it belongs to the pipeline. */
struct flight {
    struct flight *next; /* in `answered`, or in the list that was taken from there */
    _Atomic bool in_flight;
    bool right;
    uint32_t value; /* of the first element; the others count on from it */
    uint64_t sent_ns;
    uint64_t answered_ns;
    struct wire_span span; /* the message */
    char *tensor;          /* its contents within the message */
};

struct load {
    struct pipeline *pipeline;
    struct gatherer gatherer;
    struct payload_builder builder;
    struct flight flights[FLIGHTS_MAX];
    _Atomic(struct flight *) answered; /* by any thread; taken as a whole by ours */
    _Atomic bool asleep;
    sem_t wake;
    uint64_t in_flight;
    uint64_t sent;
    uint64_t end_ns;
    uint64_t wrong;
    _Atomic uint64_t failed;
    _Atomic uint64_t twice;
    struct samples samples;
};

/* Counters of a stage's workers. */
struct stage_times {
    uint64_t wait[HISTOGRAM_WORDS];
    uint64_t run[HISTOGRAM_WORDS];
};

/* Surrounding work of the loop thread. */
struct host {
    struct config config;
    struct assembly assembly;
    struct loop *loop;
    pthread_t load_thread;
    bool load_started;
    uint32_t serving_count;
    uint32_t stopped_count;
    int exit_code;
};

static struct options options = {
    .outstanding = {1, 16, 128},
    .outstanding_count = 3,
    .seconds = 3,
    .warmup = 0.2,
    .elements = 1,
    .scale = 2,
    .shift = 3,
};
static struct load load;
static struct host host;

/* ---- requests ---- */

static void *
allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (memory == NULL)
        BENCH_FAIL("no memory for requests");
    return memory;
}

static char *
copy_text(const char *text)
{
    size_t bytes = strlen(text) + 1;
    return memcpy(allocate(bytes), text, bytes);
}

/* Packs the request once; only the tensor's contents, the message's last bytes, change from use to
 * use. */
static void
flight_init(struct flight *flight, uint32_t value)
{
    int64_t shape = (int64_t)options.elements;
    Inference__ModelInferRequest__InferInputTensor input =
        INFERENCE__MODEL_INFER_REQUEST__INFER_INPUT_TENSOR__INIT;
    Inference__ModelInferRequest__InferInputTensor *inputs[] = {&input};
    input.name = copy_text("x");
    input.datatype = copy_text("FP32");
    input.n_shape = 1;
    input.shape = &shape;
    size_t tensor_bytes = options.elements * sizeof(float);
    ProtobufCBinaryData raw = {.len = tensor_bytes, .data = allocate(tensor_bytes)};
    Inference__ModelInferRequest request = INFERENCE__MODEL_INFER_REQUEST__INIT;
    request.model_name = copy_text(options.pipeline);
    request.n_inputs = 1;
    request.inputs = inputs;
    request.n_raw_input_contents = 1;
    request.raw_input_contents = &raw;
    size_t bytes = inference__model_infer_request__get_packed_size(&request);
    char *message = allocate(bytes);
    inference__model_infer_request__pack(&request, (uint8_t *)message);
    flight->span = (struct wire_span){message, bytes};
    flight->tensor = message + bytes - tensor_bytes;
    flight->value = value;
    free(input.name);
    free(input.datatype);
    free(request.model_name);
    free(raw.data);
}

static float
value_at(const struct flight *flight, uint64_t element)
{
    return (float)((flight->value + element) % VALUES);
}

static void
fill(struct flight *flight)
{
    flight->value = (flight->value + 1) % VALUES;
    for (uint64_t i = 0; i < options.elements; i++) {
        float value = value_at(flight, i);
        memcpy(flight->tensor + i * sizeof(value), &value, sizeof(value));
    }
}

/* ---- answers: on the load's thread or a lane's gather thread ---- */

/* The contents of the one output are the last piece, as they lie in the arena. */
static bool
answer_right(const struct flight *flight, const struct rpc_piece *pieces, size_t piece_count)
{
    const struct rpc_piece *last = &pieces[piece_count - 1];
    if (piece_count != 2 || last->bytes != options.elements * sizeof(float))
        return false;
    for (uint64_t i = 0; i < options.elements; i++) {
        float got;
        memcpy(&got, (const char *)last->data + i * sizeof(got), sizeof(got));
        if (got < value_at(flight, i) * options.scale + options.shift ||
            got > value_at(flight, i) * options.scale + options.shift)
            return false;
    }
    return true;
}

static void
flight_end(struct flight *flight, bool right)
{
    flight->answered_ns = bench_now_ns();
    flight->right = right;
    if (!atomic_exchange(&flight->in_flight, false)) {
        atomic_fetch_add(&load.twice, 1);
        return;
    }
    flight->next = atomic_load(&load.answered);
    while (!atomic_compare_exchange_weak(&load.answered, &flight->next, flight))
        continue;
    if (atomic_exchange(&load.asleep, false))
        sem_post(&load.wake);
}

static void
sink_reply(void *call, const struct rpc_piece *pieces, size_t piece_count)
{
    bool right = answer_right(call, pieces, piece_count);
    for (size_t i = 0; i < piece_count; i++)
        if (pieces[i].release != NULL)
            pieces[i].release(pieces[i].release_context);
    flight_end(call, right);
}

static void
sink_fail(void *call, enum status status, const char *text)
{
    if (atomic_fetch_add(&load.failed, 1) == 0)
        fprintf(stderr, "first failure: status %d: %s\n", (int)status, text);
    flight_end(call, true);
}

static const struct request_sink sink = {.reply = sink_reply, .fail = sink_fail};

/* ---- the closed loop ---- */

static void
submit(struct flight *flight)
{
    fill(flight);
    struct wire_message message = {&flight->span, 1, flight->span.bytes};
    struct error error = ERROR_NONE;
    load.in_flight++;
    load.sent++;
    atomic_store(&flight->in_flight, true);
    flight->sent_ns = bench_now_ns();
    struct submission submission = {
        .message = &message,
        .deadline_ns = TIME_NEVER_NS,
        .priority = PRIORITY_NORMAL,
        .sink = &sink,
        .call = flight,
        .builder = &load.builder,
    };
    if (pipeline_submit(load.pipeline, &submission, &error) != STATUS_OK)
        sink_fail(flight, error.status, error.text);
}

/* Newest first as they come out of the list, so turned round: callers are served in turn. */
static struct flight *
take_answered(void)
{
    struct flight *newest = atomic_exchange(&load.answered, NULL);
    struct flight *oldest = NULL;
    while (newest != NULL) {
        struct flight *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    return oldest;
}

/* Stands for a front's step of the gRPC queue: answered callers send their next request. */
static int
step(void *context)
{
    (void)context;
    int count = 0;
    struct flight *next;
    for (struct flight *flight = take_answered(); flight != NULL; flight = next) {
        next = flight->next;
        load.in_flight--;
        load.wrong += flight->right ? 0 : 1;
        samples_add(&load.samples, flight->answered_ns - flight->sent_ns);
        if (flight->answered_ns < load.end_ns && !samples_full(&load.samples) &&
            atomic_load(&load.failed) == 0)
            submit(flight);
        count++;
    }
    return count;
}

/* Sleeps until something was answered; the lanes' own threads gather now. */
static void
block(void)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += STALL_S;
    atomic_store(&load.asleep, true);
    if (atomic_load(&load.answered) != NULL && atomic_exchange(&load.asleep, false))
        return;
    while (sem_timedwait(&load.wake, &end) != 0)
        if (errno != EINTR)
            BENCH_FAIL("nothing was answered for %d s, %llu requests in flight", STALL_S,
                       (unsigned long long)load.in_flight);
}

static void
run(uint64_t outstanding, double seconds)
{
    load.sent = 0;
    load.samples.count = 0;
    load.end_ns = bench_now_ns() + (uint64_t)(seconds * 1e9);
    for (uint64_t i = 0; i < outstanding; i++)
        submit(&load.flights[i]);
    while (load.in_flight > 0) {
        if (gatherer_take(&load.gatherer)) {
            gatherer_poll(&load.gatherer, step, NULL);
            if (!gatherer_hand_over(&load.gatherer))
                continue;
        }
        if (step(NULL) > 0 || load.in_flight == 0)
            continue;
        uint64_t asleep_ns = bench_now_ns();
        block();
        gatherer_woke(&load.gatherer, (int64_t)(bench_now_ns() - asleep_ns));
    }
}

/* ---- figures ---- */

/* Of this process and all workers, each of which has written its id among the counters. */
static uint64_t
cpu_ns(void)
{
    uint64_t sum_ns = bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    const struct counters *counters = &host.assembly.counters;
    for (uint32_t i = 0; i < counters->scope_count; i++) {
        if (counters->scopes[i].kind != SCOPE_WORKER)
            continue;
        uint64_t pid = counter_get(counters_values(counters, i), WORKER_PID);
        if (pid != 0)
            sum_ns += bench_cpu_ns((pid_t)pid);
    }
    return sum_ns;
}

/* A histogram of all workers of a stage, added up. */
static void
stage_histogram(uint32_t stage, enum counter counter, uint64_t words[HISTOGRAM_WORDS])
{
    const struct counters *counters = &host.assembly.counters;
    memset(words, 0, HISTOGRAM_WORDS * sizeof(words[0]));
    for (uint32_t i = 0; i < counters->scope_count; i++) {
        if (counters->scopes[i].kind != SCOPE_WORKER || counters->scopes[i].parent != stage)
            continue;
        _Atomic uint64_t *from = counters_values(counters, i) + counter_offset[counter];
        for (size_t k = 0; k < HISTOGRAM_WORDS; k++)
            words[k] += atomic_load_explicit(&from[k], memory_order_relaxed);
    }
}

/* The stages of our pipeline, in order: scopes of the counters. */
static unsigned
find_stages(uint32_t stages[STAGES_MAX])
{
    const struct counters *counters = &host.assembly.counters;
    unsigned count = 0;
    for (uint32_t i = 0; i < counters->scope_count && count < STAGES_MAX; i++)
        if (counters->scopes[i].kind == SCOPE_STAGE &&
            strcmp(counters->scopes[counters->scopes[i].parent].name, options.pipeline) == 0)
            stages[count++] = i;
    return count;
}

static struct stage_times
stage_times(uint32_t stage)
{
    struct stage_times times;
    stage_histogram(stage, WORKER_WAIT, times.wait);
    stage_histogram(stage, WORKER_RUN, times.run);
    return times;
}

static uint64_t
median_since(const uint64_t before[HISTOGRAM_WORDS], uint64_t now[HISTOGRAM_WORDS])
{
    for (size_t i = 0; i < HISTOGRAM_WORDS; i++)
        now[i] -= before[i];
    return histogram_quantile(now, 0.5);
}

static void
print_stages(const uint32_t *stages, unsigned count, const struct stage_times *before)
{
    printf(options.json ? ", \"stage_ns\": [" : "  stage_ns");
    for (unsigned i = 0; i < count; i++) {
        struct stage_times now = stage_times(stages[i]);
        printf("%s%llu", options.json && i > 0 ? ", " : " ",
               (unsigned long long)(median_since(before[i].wait, now.wait) +
                                    median_since(before[i].run, now.run)));
    }
    printf(options.json ? "]}\n" : "\n");
    fflush(stdout);
}

static void
measure(uint64_t outstanding)
{
    static struct stage_times before[STAGES_MAX];
    uint32_t stages[STAGES_MAX];
    unsigned stage_count = find_stages(stages);
    run(outstanding, options.warmup);
    for (unsigned i = 0; i < stage_count; i++)
        before[i] = stage_times(stages[i]);
    load.wrong = 0;
    uint64_t cpu_begin_ns = cpu_ns();
    uint64_t begin_ns = bench_now_ns();
    run(outstanding, options.seconds);
    double seconds = (double)(bench_now_ns() - begin_ns) / 1e9;
    double requests = (double)load.sent;
    double cpu_us = (double)(cpu_ns() - cpu_begin_ns) / 1e3 / requests;
    samples_sort(&load.samples);
    printf(options.json ? "{\"bench\": \"pipeline\", \"outstanding\": %llu, \"requests\": %llu, "
                          "\"wrong\": %llu, \"requests_per_s\": %.1f, \"p50_us\": %.2f, "
                          "\"p99_us\": %.2f, \"cpu_us_per_request\": %.2f"
                        : "outstanding %llu  requests %llu  wrong %llu  requests_per_s %.1f  "
                          "p50_us %.2f  p99_us %.2f  cpu_us_per_request %.2f",
           (unsigned long long)outstanding, (unsigned long long)load.sent,
           (unsigned long long)load.wrong, requests / seconds,
           samples_percentile_us(&load.samples, 50), samples_percentile_us(&load.samples, 99),
           cpu_us);
    print_stages(stages, stage_count, before);
    if (atomic_load(&load.twice) > 0)
        fprintf(stderr, "requests were answered twice\n");
    if (load.wrong > 0 || atomic_load(&load.failed) > 0 || atomic_load(&load.twice) > 0)
        host.exit_code = 1;
}

static void
stop_assembly(void *context)
{
    (void)context;
    assembly_stop(&host.assembly);
}

static void *
load_main(void *context)
{
    (void)context;
    for (unsigned i = 0; i < options.outstanding_count && host.exit_code == 0; i++)
        measure(options.outstanding[i]);
    gatherer_leave(&load.gatherer);
    loop_post(host.loop, stop_assembly, NULL);
    return NULL;
}

/* ---- the coordinator around it ---- */

static void
on_serving(void *context, struct pipeline *pipeline)
{
    (void)context;
    (void)pipeline;
    if (++host.serving_count < host.assembly.pipeline_count || host.load_started)
        return;
    gatherer_init(&load.gatherer, host.assembly.pipelines, host.assembly.pipeline_count);
    if (pthread_create(&host.load_thread, NULL, load_main, NULL) != 0)
        BENCH_FAIL("cannot start a thread");
    host.load_started = true;
}

static void
on_not_serving(void *context, struct pipeline *pipeline)
{
    (void)context;
    (void)pipeline;
    host.serving_count--;
}

static void
on_start_failed(void *context, struct pipeline *pipeline, const struct error *error)
{
    (void)context;
    (void)pipeline;
    BENCH_FAIL("%s", error->text);
}

static void
on_stopped(void *context, struct pipeline *pipeline)
{
    (void)context;
    (void)pipeline;
    if (++host.stopped_count == host.assembly.pipeline_count)
        loop_stop(host.loop);
}

static void
read_config(void)
{
    struct config_errors errors = {0};
    struct error error = ERROR_NONE;
    if (config_load(options.config_path, NULL, &host.config, &errors, &error) == STATUS_OK) {
        config_errors_free(&errors);
        return;
    }
    for (uint32_t i = 0; i < errors.count; i++)
        fprintf(stderr, "%s\n", errors.lines[i]);
    BENCH_FAIL("%s: %s", options.config_path, errors.count > 0 ? "not valid" : error.text);
}

static void
find_pipeline(void)
{
    for (uint32_t i = 0; i < host.assembly.pipeline_count; i++) {
        struct pipeline *pipeline = host.assembly.pipelines[i];
        if (strcmp(pipeline->name, options.pipeline) == 0)
            load.pipeline = pipeline;
    }
    if (load.pipeline == NULL)
        BENCH_FAIL("%s has no pipeline \"%s\"", options.config_path, options.pipeline);
    for (unsigned i = 0; i < options.outstanding_count; i++)
        if (options.outstanding[i] > load.pipeline->options.config->slot_count)
            BENCH_FAIL("--outstanding %llu: the pipeline has %u slots",
                       (unsigned long long)options.outstanding[i],
                       load.pipeline->options.config->slot_count);
}

static void
serve(void)
{
    struct error error = ERROR_NONE;
    if (loop_create(&host.loop, &error) != STATUS_OK)
        BENCH_FAIL("%s", error.text);
    struct config_source *source = config_source_create(&host.config);
    struct assembly_options assembly = {
        .source = source,
        .counters_path = options.counters,
        .worker_program = options.worker,
        .loop = host.loop,
        .pin = true,
        .log_level = LOG_WARN,
        .events = {on_serving, on_not_serving, on_start_failed, on_stopped, NULL},
    };
    if (assembly_init(&host.assembly, &assembly, &error) != STATUS_OK)
        BENCH_FAIL("%s", error.text);
    find_pipeline();
    if (assembly_start(&host.assembly, &error) != STATUS_OK)
        BENCH_FAIL("%s", error.text);
    loop_run(host.loop);
    pthread_join(host.load_thread, NULL);
    loop_run_posted(host.loop);
    assembly_fini(&host.assembly);
    config_source_unref(source);
    loop_destroy(host.loop);
}

/* ---- command line ---- */

static const char usage[] =
    "Usage: pipeline_bench --config FILE --pipeline NAME [OPTION]...\n"
    "Submits to a pipeline without gRPC, N requests outstanding, and prints rate and latency.\n"
    "\n"
    "  --config FILE         a configuration as of shoald; `cpus` are obeyed, `listen` is not\n"
    "  --pipeline NAME       which of its pipelines\n"
    "  --outstanding N,...   default 1,16,128\n"
    "  --seconds S           measured time for each, default 3\n"
    "  --warmup S            before each, default 0.2\n"
    "  --elements N          of the FP32 tensor, default 1\n"
    "  --scale A --shift B   the right answer is A * x + B, default 2 and 3\n"
    "  --worker PROGRAM      default: ../bin/shoal-worker from this program's folder\n"
    "  --counters FILE       default: one of its own beneath /tmp\n"
    "  --json\n"
    "  --help\n";

static const struct option OPTIONS[] = {
    {"config", required_argument, NULL, 'c'},
    {"pipeline", required_argument, NULL, 'p'},
    {"outstanding", required_argument, NULL, 'n'},
    {"seconds", required_argument, NULL, 's'},
    {"warmup", required_argument, NULL, 'w'},
    {"elements", required_argument, NULL, 'e'},
    {"scale", required_argument, NULL, 'a'},
    {"shift", required_argument, NULL, 'b'},
    {"worker", required_argument, NULL, 'W'},
    {"counters", required_argument, NULL, 'C'},
    {"json", no_argument, NULL, 'j'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static void
parse_outstanding(char *list)
{
    options.outstanding_count = 0;
    for (char *rest, *word = strtok_r(list, ",", &rest); word != NULL;
         word = strtok_r(NULL, ",", &rest)) {
        if (options.outstanding_count == NUMBERS_MAX)
            BENCH_FAIL("--outstanding: more than %d numbers", NUMBERS_MAX);
        options.outstanding[options.outstanding_count++] =
            bench_number("outstanding", word, 1, FLIGHTS_MAX);
    }
}

static double
parse_real(const char *option, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value))
        BENCH_FAIL("--%s: want a number, not \"%s\"", option, text);
    return value;
}

static void
parse(int argc, char **argv)
{
    int option;
    while ((option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
        switch (option) {
        case 'c': options.config_path = optarg; break;
        case 'p': options.pipeline = optarg; break;
        case 'n': parse_outstanding(optarg); break;
        case 's': options.seconds = parse_real("seconds", optarg); break;
        case 'w': options.warmup = parse_real("warmup", optarg); break;
        case 'e': options.elements = bench_number("elements", optarg, 1, ELEMENTS_MAX); break;
        case 'a': options.scale = (float)parse_real("scale", optarg); break;
        case 'b': options.shift = (float)parse_real("shift", optarg); break;
        case 'W': options.worker = optarg; break;
        case 'C': options.counters = optarg; break;
        case 'j': options.json = true; break;
        case 'h': fputs(usage, stdout); exit(0);
        default: BENCH_FAIL("%s", usage);
        }
    }
    if (optind != argc || options.config_path == NULL || options.pipeline == NULL)
        BENCH_FAIL("%s", usage);
}

/* Programs and files that were not named. */
static void
find_defaults(void)
{
    static char worker[PATH_MAX];
    static char counters[64];
    if (options.worker == NULL) {
        ssize_t bytes = readlink("/proc/self/exe", worker, sizeof(worker) - 64);
        char *slash = bytes > 0 ? memrchr(worker, '/', (size_t)bytes) : NULL;
        if (slash == NULL)
            BENCH_FAIL("cannot tell where this program is: %s", strerror(errno));
        strncpy(slash, "/../bin/shoal-worker", 64);
        options.worker = worker;
    }
    if (options.counters == NULL) {
        snprintf(counters, sizeof(counters), "/tmp/shoal-bench-%d.counters", (int)getpid());
        options.counters = counters;
    }
    if (access(options.worker, X_OK) != 0)
        BENCH_FAIL("no worker program at %s", options.worker);
}

int
main(int argc, char **argv)
{
    parse(argc, argv);
    find_defaults();
    log_init("pipeline_bench", LOG_WARN);
    read_config();
    coordinator_pin(&host.config);
    samples_init(&load.samples, SAMPLES_MAX);
    sem_init(&load.wake, 0, 0);
    for (unsigned i = 0; i < FLIGHTS_MAX; i++)
        flight_init(&load.flights[i], i * (VALUES / FLIGHTS_MAX));
    serve();
    config_free(&host.config);
    for (unsigned i = 0; i < FLIGHTS_MAX; i++)
        free((void *)(uintptr_t)load.flights[i].span.data);
    samples_fini(&load.samples);
    return host.exit_code;
}
