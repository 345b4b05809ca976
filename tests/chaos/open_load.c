/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An open loop: calls are sent at random moments (Poisson) at a given rate, whether the earlier
 * ones were answered or not, as callers out there do it. Each has a deadline. The run has phases,
 * each with a rate of its own; what is printed of a phase counts the calls that were sent in it:
 *
 *     open_load --target unix:/tmp/s --pipeline p --deadline-ms 100 --phase 900:2 --phase 9000:3
 *
 * `recovered_ms`: from the phase's start until nine calls in ten succeed in each of three tenths of
 * a second in a row; -1: they never did. `lag_p99_ms`: how late the client itself was in sending;
 * beyond a few milliseconds its figures say more of the client than of the service.
 */
#include "../random.h"
#include "../bench/unary_call.h"

#include <getopt.h>
#include <math.h>
#include <stdbool.h>

#include "inference/open_inference.pb-c.h"

#define NS_PER_S 1000000000ll

enum {
    PHASES_MAX = 32,
    CALLERS_MAX = 16,
    CHANNELS_MAX = 16,
    STATUS_COUNT = 17,
    WINDOW_MS = 100,
    WINDOWS_MAX = 6000,
    WINDOWS_GOOD = 3,
    STALL_S = 20,
    LATE_MS = 2, /* a client sees its own deadline this much late and more */
};

struct sample_list {
    float *ms;
    size_t count;
    size_t capacity;
};

/* One kind of call. */
struct caller {
    char name[64]; /* "": sends no metadata */
    int priority;  /* 0: not sent */
    double weight;
    grpc_slice message;
};

/* Outcomes of one caller's calls in one phase. */
struct outcome {
    uint64_t sent;
    uint64_t status_counts[STATUS_COUNT];
    uint64_t late; /* OK, but after the deadline */
    uint64_t pushed_back;
    struct sample_list accepted;
    struct sample_list refused;
};

struct phase {
    double rate;
    double seconds;
    struct outcome outcomes[CALLERS_MAX];
    struct sample_list lag;
    uint32_t window_sent[WINDOWS_MAX];
    uint32_t window_ok[WINDOWS_MAX];
};

struct flight {
    struct flight *next;
    struct phase *phase;
    struct outcome *outcome;
    uint32_t window;
    int64_t sent_ns;
    struct unary_call call;
};

static struct {
    const char *target;
    const char *pipeline;
    double deadline_ms;
    unsigned channel_count;
    uint64_t random;
    struct phase *phases;
    unsigned phase_count;
    struct caller callers[CALLERS_MAX];
    unsigned caller_count;
    double weights;
    grpc_completion_queue *queue;
    struct unary_channel channels[CHANNELS_MAX];
    struct flight *free;
    uint64_t in_flight;
    unsigned turn;
} load = {.pipeline = "sluggish", .deadline_ms = 100, .channel_count = 4, .random = 1};

/* ---- time and chance ---- */

static int64_t
now_ns(void)
{
    return (int64_t)bench_now_ns();
}

static gpr_timespec
core_time(int64_t ns)
{
    return (gpr_timespec){.tv_sec = ns / NS_PER_S,
                          .tv_nsec = (int32_t)(ns % NS_PER_S),
                          .clock_type = GPR_CLOCK_MONOTONIC};
}

static unsigned
draw_caller(void)
{
    double at = random_unit(&load.random) * load.weights;
    unsigned index = 0;
    while (index + 1 < load.caller_count && at > load.callers[index].weight)
        at -= load.callers[index++].weight;
    return index;
}

/* ---- samples ---- */

static void
sample(struct sample_list *list, double ms)
{
    if (list->count == list->capacity) {
        list->capacity = list->capacity == 0 ? 4096 : 2 * list->capacity;
        list->ms = realloc(list->ms, list->capacity * sizeof(list->ms[0]));
        if (list->ms == NULL)
            BENCH_FAIL("no memory for samples");
    }
    list->ms[list->count++] = (float)ms;
}

static int
order(const void *left, const void *right)
{
    float a = *(const float *)left;
    float b = *(const float *)right;
    return (a > b) - (a < b);
}

static double
percentile(struct sample_list *list, unsigned percent)
{
    if (list->count == 0)
        return 0;
    qsort(list->ms, list->count, sizeof(list->ms[0]), order);
    size_t rank = (list->count * percent + 99) / 100;
    return (double)list->ms[rank == 0 ? 0 : rank - 1];
}

static void
samples_join(struct sample_list *into, const struct sample_list *from)
{
    for (size_t i = 0; i < from->count; i++)
        sample(into, (double)from->ms[i]);
}

/* ---- requests ---- */

static grpc_slice
make_message(const struct caller *caller)
{
    static char x[] = "x", type[] = "INT64", key[] = "priority";
    int64_t shape = 1;
    int64_t value = 7;
    Inference__ModelInferRequest__InferInputTensor input =
        INFERENCE__MODEL_INFER_REQUEST__INFER_INPUT_TENSOR__INIT;
    Inference__ModelInferRequest__InferInputTensor *inputs[] = {&input};
    input.name = x;
    input.datatype = type;
    input.n_shape = 1;
    input.shape = &shape;
    ProtobufCBinaryData raw = {.len = sizeof(value), .data = (uint8_t *)&value};
    Inference__InferParameter priority = INFERENCE__INFER_PARAMETER__INIT;
    priority.parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM;
    priority.int64_param = caller->priority;
    Inference__ModelInferRequest__ParametersEntry entry =
        INFERENCE__MODEL_INFER_REQUEST__PARAMETERS_ENTRY__INIT;
    Inference__ModelInferRequest__ParametersEntry *entries[] = {&entry};
    entry.key = key;
    entry.value = &priority;
    char name[128];
    snprintf(name, sizeof(name), "%s", load.pipeline);
    Inference__ModelInferRequest request = INFERENCE__MODEL_INFER_REQUEST__INIT;
    request.model_name = name;
    request.n_inputs = 1;
    request.inputs = inputs;
    request.n_raw_input_contents = 1;
    request.raw_input_contents = &raw;
    request.n_parameters = caller->priority != 0 ? 1 : 0;
    request.parameters = entries;
    grpc_slice slice = grpc_slice_malloc(inference__model_infer_request__get_packed_size(&request));
    inference__model_infer_request__pack(&request, GRPC_SLICE_START_PTR(slice));
    return slice;
}

static struct flight *
flight_take(void)
{
    struct flight *flight = load.free;
    if (flight != NULL)
        load.free = flight->next;
    else if ((flight = calloc(1, sizeof(*flight))) == NULL)
        BENCH_FAIL("no memory for %llu calls", (unsigned long long)load.in_flight);
    return flight;
}

static void
flight_start(struct flight *flight, const struct caller *caller)
{
    flight->sent_ns = now_ns();
    grpc_metadata name = {.key = grpc_slice_from_static_string("shoal-caller"),
                          .value = grpc_slice_from_static_string(caller->name)};
    const struct unary_options how = {
        .deadline = core_time(flight->sent_ns + (int64_t)(load.deadline_ms * 1e6)),
        .metadata = &name,
        .metadata_count = caller->name[0] != '\0' ? 1 : 0,
    };
    unary_call_start(&flight->call, &load.channels[load.turn++ % load.channel_count], load.queue,
                     &how, caller->message, flight);
    load.in_flight++;
}

static void
send_one(struct phase *phase, int64_t began_ns, int64_t due_ns)
{
    unsigned caller = draw_caller();
    struct flight *flight = flight_take();
    flight->phase = phase;
    flight->outcome = &phase->outcomes[caller];
    flight->window = (uint32_t)((due_ns - began_ns) / (WINDOW_MS * 1000000ll)) % WINDOWS_MAX;
    flight_start(flight, &load.callers[caller]);
    flight->outcome->sent++;
    phase->window_sent[flight->window]++;
    sample(&phase->lag, (double)(flight->sent_ns - due_ns) / 1e6);
}

static bool
has_pushback(const struct unary_call *call)
{
    for (size_t i = 0; i < call->trailing.count; i++)
        if (grpc_slice_str_cmp(call->trailing.metadata[i].key, "grpc-retry-pushback-ms") == 0)
            return true;
    return false;
}

static void
flight_end(struct flight *flight)
{
    double ms = (double)(now_ns() - flight->sent_ns) / 1e6;
    struct outcome *outcome = flight->outcome;
    unsigned status = (unsigned)flight->call.status < STATUS_COUNT ? (unsigned)flight->call.status
                                                                   : (unsigned)GRPC_STATUS_UNKNOWN;
    outcome->status_counts[status]++;
    if (status == GRPC_STATUS_OK) {
        sample(&outcome->accepted, ms);
        bool in_time = ms <= load.deadline_ms + LATE_MS;
        outcome->late += in_time ? 0 : 1;
        flight->phase->window_ok[flight->window] += in_time ? 1 : 0;
    } else if (status == GRPC_STATUS_RESOURCE_EXHAUSTED || status == GRPC_STATUS_UNAVAILABLE) {
        sample(&outcome->refused, ms);
        outcome->pushed_back += has_pushback(&flight->call) ? 1 : 0;
    }
    unary_call_end(&flight->call);
    flight->next = load.free;
    load.free = flight;
    load.in_flight--;
}

/* ---- the run ---- */

/* Handles what comes until `until_ns`; false: nothing came. */
static bool
turn(int64_t until_ns)
{
    grpc_event event = grpc_completion_queue_next(load.queue, core_time(until_ns), NULL);
    if (event.type != GRPC_OP_COMPLETE)
        return false;
    flight_end(event.tag);
    return true;
}

static void
connect_all(void)
{
    const struct channel_args none = {.count = 0};
    for (unsigned i = 0; i < load.channel_count; i++) {
        unary_channel_open(&load.channels[i], load.target, INFER_METHOD, &none, (int)i);
        unary_channel_wait(&load.channels[i], load.queue, load.target, STALL_S);
    }
}

static void
run_phase(struct phase *phase)
{
    int64_t began_ns = now_ns();
    int64_t end_ns = began_ns + (int64_t)(phase->seconds * 1e9);
    double due_ns = (double)began_ns;
    for (;;) {
        due_ns += -log(random_unit(&load.random)) / phase->rate * 1e9;
        if ((int64_t)due_ns >= end_ns)
            break;
        while (now_ns() < (int64_t)due_ns)
            turn((int64_t)due_ns);
        send_one(phase, began_ns, (int64_t)due_ns);
        turn(0); /* answers are read between the calls of a burst, too */
    }
    while (now_ns() < end_ns)
        turn(end_ns);
}

static void
run(void)
{
    for (unsigned i = 0; i < load.phase_count; i++)
        run_phase(&load.phases[i]);
    int64_t end_ns = now_ns() + (int64_t)(load.deadline_ms * 1e6) + STALL_S * NS_PER_S;
    while (load.in_flight > 0)
        if (!turn(end_ns))
            BENCH_FAIL("%llu calls were never answered", (unsigned long long)load.in_flight);
}

/* ---- the figures ---- */

static long
recovered_ms(const struct phase *phase)
{
    unsigned windows = (unsigned)(phase->seconds * 1000 / WINDOW_MS);
    unsigned in_a_row = 0;
    for (unsigned i = 0; i < windows && i < WINDOWS_MAX; i++) {
        in_a_row = phase->window_ok[i] * 10 < phase->window_sent[i] * 9 ? 0 : in_a_row + 1;
        if (in_a_row == WINDOWS_GOOD)
            return (long)(i + 1 - WINDOWS_GOOD) * WINDOW_MS;
    }
    return -1;
}

static void
print_outcome(struct outcome *outcome, double seconds)
{
    uint64_t in_time = outcome->status_counts[GRPC_STATUS_OK] - outcome->late;
    printf("\"sent\": %llu, \"ok\": %llu, \"late\": %llu, \"goodput_per_s\": %.1f, \"failed\": {",
           (unsigned long long)outcome->sent, (unsigned long long)in_time,
           (unsigned long long)outcome->late, (double)in_time / seconds);
    const char *separator = "";
    for (unsigned i = 1; i < STATUS_COUNT; i++) {
        if (outcome->status_counts[i] == 0)
            continue;
        printf("%s\"%u\": %llu", separator, i, (unsigned long long)outcome->status_counts[i]);
        separator = ", ";
    }
    printf("}, \"pushed_back\": %llu, \"p50_ms\": %.2f, \"p99_ms\": %.2f, "
           "\"refusal_p50_ms\": %.2f, \"refusal_p99_ms\": %.2f",
           (unsigned long long)outcome->pushed_back, percentile(&outcome->accepted, 50),
           percentile(&outcome->accepted, 99), percentile(&outcome->refused, 50),
           percentile(&outcome->refused, 99));
}

static void
print_phase(struct phase *phase)
{
    struct outcome all = {0};
    for (unsigned i = 0; i < load.caller_count; i++) {
        const struct outcome *one = &phase->outcomes[i];
        all.sent += one->sent;
        all.late += one->late;
        all.pushed_back += one->pushed_back;
        for (unsigned k = 0; k < STATUS_COUNT; k++)
            all.status_counts[k] += one->status_counts[k];
        samples_join(&all.accepted, &one->accepted);
        samples_join(&all.refused, &one->refused);
    }
    printf("{\"rate\": %.1f, \"seconds\": %.1f, ", phase->rate, phase->seconds);
    print_outcome(&all, phase->seconds);
    printf(", \"lag_p99_ms\": %.2f, \"recovered_ms\": %ld, \"callers\": [",
           percentile(&phase->lag, 99), recovered_ms(phase));
    for (unsigned i = 0; i < load.caller_count; i++) {
        printf("%s{\"name\": \"%s\", \"priority\": %d, ", i > 0 ? ", " : "", load.callers[i].name,
               load.callers[i].priority);
        print_outcome(&phase->outcomes[i], phase->seconds);
        printf("}");
    }
    printf("]}");
    free(all.accepted.ms);
    free(all.refused.ms);
}

/* ---- start and end ---- */

static double
number(const char *text, double least, double most, char **end)
{
    double value = strtod(text, end);
    if (*end == text || !(value >= least && value <= most))
        BENCH_FAIL("\"%s\": want a number from %g to %g", text, least, most);
    return value;
}

static void
add_phase(const char *text)
{
    char *end;
    struct phase *phase = &load.phases[load.phase_count];
    phase->rate = number(text, 0.1, 1e6, &end);
    if (load.phase_count++ == PHASES_MAX || *end != ':')
        BENCH_FAIL("--phase RATE:SECONDS, at most %d", PHASES_MAX);
    phase->seconds = number(end + 1, 0.1, WINDOWS_MAX * WINDOW_MS / 1000, &end);
}

/* NAME:PRIORITY:WEIGHT; an empty name sends none, priority 0 sends none. */
static void
add_caller(const char *text)
{
    struct caller *caller = &load.callers[load.caller_count];
    const char *colon = strchr(text, ':');
    if (load.caller_count++ == CALLERS_MAX || colon == NULL ||
        (size_t)(colon - text) >= sizeof(caller->name))
        BENCH_FAIL("--caller NAME:PRIORITY:WEIGHT, at most %d", CALLERS_MAX);
    memcpy(caller->name, text, (size_t)(colon - text));
    char *end;
    caller->priority = (int)number(colon + 1, 0, 3, &end);
    if (*end != ':')
        BENCH_FAIL("--caller NAME:PRIORITY:WEIGHT");
    caller->weight = number(end + 1, 0, 1e6, &end);
}

static const char usage[] =
    "Usage: open_load --target ADDRESS --phase RATE:SECONDS... [--pipeline NAME]\n"
    "  [--deadline-ms MS] [--caller NAME:PRIORITY:WEIGHT]... [--channels N] [--seed N]\n"
    "RATE is in calls per second. Prints one object of JSON. Exit code 2: no figures.\n";

static void
parse(int argc, char **argv)
{
    static const struct option options[] = {
        {"target", required_argument, NULL, 't'},
        {"pipeline", required_argument, NULL, 'm'},
        {"phase", required_argument, NULL, 'p'},
        {"deadline-ms", required_argument, NULL, 'd'},
        {"caller", required_argument, NULL, 'c'},
        {"channels", required_argument, NULL, 'n'},
        {"seed", required_argument, NULL, 's'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int option;
    char *end;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 't': load.target = optarg; break;
        case 'm': load.pipeline = optarg; break;
        case 'p': add_phase(optarg); break;
        case 'd': load.deadline_ms = number(optarg, 1, 1e6, &end); break;
        case 'c': add_caller(optarg); break;
        case 'n': load.channel_count = (unsigned)number(optarg, 1, CHANNELS_MAX, &end); break;
        case 's': load.random = (uint64_t)number(optarg, 0, 1e15, &end); break;
        case 'h': fputs(usage, stdout); exit(0);
        default: BENCH_FAIL("%s", usage);
        }
    }
    if (load.target == NULL || load.phase_count == 0 || optind != argc)
        BENCH_FAIL("%s", usage);
    if (load.caller_count == 0)
        add_caller(":0:1");
}

static void
close_all(void)
{
    for (unsigned i = 0; i < load.channel_count; i++)
        grpc_channel_destroy(load.channels[i].core);
    unary_queue_destroy(load.queue, STALL_S * 1000);
    for (unsigned i = 0; i < load.caller_count; i++)
        grpc_slice_unref(load.callers[i].message);
    while (load.free != NULL) {
        struct flight *flight = load.free;
        load.free = flight->next;
        free(flight);
    }
    for (unsigned i = 0; i < load.phase_count; i++) {
        free(load.phases[i].lag.ms);
        for (unsigned k = 0; k < load.caller_count; k++) {
            free(load.phases[i].outcomes[k].accepted.ms);
            free(load.phases[i].outcomes[k].refused.ms);
        }
    }
    free(load.phases);
    grpc_shutdown();
}

int
main(int argc, char **argv)
{
    load.phases = calloc(PHASES_MAX + 1, sizeof(*load.phases));
    if (load.phases == NULL)
        BENCH_FAIL("no memory");
    parse(argc, argv);
    grpc_init();
    load.queue = grpc_completion_queue_create_for_next(NULL);
    for (unsigned i = 0; i < load.caller_count; i++) {
        load.callers[i].message = make_message(&load.callers[i]);
        load.weights += load.callers[i].weight;
    }
    connect_all();
    run();
    printf("{\"deadline_ms\": %.1f, \"phases\": [", load.deadline_ms);
    for (unsigned i = 0; i < load.phase_count; i++) {
        printf("%s", i > 0 ? ",\n " : "");
        print_phase(&load.phases[i]);
    }
    printf("]}\n");
    close_all();
    return 0;
}
