/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gRPC C core client under closed load: N calls outstanding, each answered one replaced at once,
 * on one thread and one completion queue. It sends the bytes of a file as they are, and can check
 * the answer byte for byte. The same client is put before Shoal and before the bare echo server, so
 * that its own cost is the same in both figures.
 *
 * Every connection is open before the first call. A call carries no deadline; if nothing at all
 * comes back for STALL_S seconds the program says so and ends with exit code 2. Exit code 1: some
 * calls failed or were answered wrongly.
 */
#include "samples.h"

#include <getopt.h>
#include <stdbool.h>

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>

#define CHANNELS_MAX 64
#define OUTSTANDING_MAX 4096
#define SAMPLES_MAX 8000000
#define STATUS_COUNT 17
#define STALL_S 10

struct options {
    const char *target;
    const char *method;
    const char *message_path;
    const char *expect_path;
    const char *expect_tail_path;
    uint64_t expect_bytes; /* UINT64_MAX: any */
    uint64_t outstanding;
    uint64_t channels; /* 0: 1 for one outstanding call, else 4 */
    uint64_t requests; /* 0: until the time is up */
    double seconds;
    uint64_t warmup;
    pid_t server_pids[64];
    unsigned server_pid_count;
    bool json;
};

struct flight {
    grpc_call *call;
    uint64_t sent_ns;
    void *method;
    grpc_channel *channel;
    grpc_metadata_array initial;
    grpc_metadata_array trailing;
    grpc_byte_buffer *answer;
    grpc_slice details;
    grpc_status_code status;
};

struct load {
    grpc_completion_queue *queue;
    grpc_slice message;
    grpc_slice expect;
    grpc_slice expect_tail;
    grpc_channel *channels[CHANNELS_MAX];
    void *methods[CHANNELS_MAX];
    struct flight flights[OUTSTANDING_MAX];
    unsigned in_flight;
    uint64_t sent;
    uint64_t requests_max;
    uint64_t end_ns;
    uint64_t status_counts[STATUS_COUNT];
    uint64_t wrong;
    struct samples samples;
};

struct figures {
    double seconds;
    double client_cpu_us;
    double server_cpu_us;
};

static struct options options = {
    .method = "/inference.GRPCInferenceService/ModelInfer",
    .expect_bytes = UINT64_MAX,
    .outstanding = 1,
    .warmup = 1000,
};
static struct load load;

static gpr_timespec
within_s(int64_t seconds)
{
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(seconds, GPR_TIMESPAN));
}

static grpc_event
next_event(void)
{
    grpc_event event = grpc_completion_queue_next(load.queue, within_s(STALL_S), NULL);
    if (event.type != GRPC_OP_COMPLETE)
        BENCH_FAIL("nothing came back from %s for %d s, %u calls in flight", options.target,
                   STALL_S, load.in_flight);
    return event;
}

/* Channels with equal arguments share one connection, so each is given a number of its own. */
static grpc_channel *
channel_open(int number)
{
    static char number_key[] = "shoal.bench.channel";
    static char proxy_key[] = "grpc.enable_http_proxy";
    static char receive_key[] = "grpc.max_receive_message_length";
    static char backoff_key[] = "grpc.initial_reconnect_backoff_ms";
    grpc_arg values[] = {
        {.type = GRPC_ARG_INTEGER, .key = number_key, .value.integer = number},
        {.type = GRPC_ARG_INTEGER, .key = proxy_key, .value.integer = 0},
        {.type = GRPC_ARG_INTEGER, .key = receive_key, .value.integer = -1},
        {.type = GRPC_ARG_INTEGER, .key = backoff_key, .value.integer = 100},
    };
    grpc_channel_args args = {.num_args = sizeof(values) / sizeof(values[0]), .args = values};
    grpc_channel_credentials *credentials = grpc_insecure_credentials_create();
    grpc_channel *channel = grpc_channel_create(options.target, credentials, &args);
    grpc_channel_credentials_release(credentials);
    return channel;
}

static void
channels_connect(void)
{
    for (uint64_t i = 0; i < options.channels; i++) {
        load.channels[i] = channel_open((int)i);
        load.methods[i] = grpc_channel_register_call(load.channels[i], options.method, NULL, NULL);
        uint64_t end_ns = bench_now_ns() + STALL_S * BENCH_NS_PER_S;
        for (;;) {
            grpc_connectivity_state state =
                grpc_channel_check_connectivity_state(load.channels[i], 1);
            if (state == GRPC_CHANNEL_READY)
                break;
            if (bench_now_ns() > end_ns)
                BENCH_FAIL("cannot connect to %s", options.target);
            grpc_channel_watch_connectivity_state(load.channels[i], state, within_s(1), load.queue,
                                                  NULL);
            next_event();
        }
    }
}

static void
flight_start(struct flight *flight)
{
    flight->call = grpc_channel_create_registered_call(
        flight->channel, NULL, GRPC_PROPAGATE_DEFAULTS, load.queue, flight->method,
        gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    /* Sending takes the slices out of the buffer, so it is a new one each time; the bytes are
     * shared. */
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(&load.message, 1);
    grpc_metadata_array_init(&flight->initial);
    grpc_metadata_array_init(&flight->trailing);
    flight->answer = NULL;
    grpc_op ops[6] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},  {.op = GRPC_OP_SEND_MESSAGE},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT}, {.op = GRPC_OP_RECV_INITIAL_METADATA},
        {.op = GRPC_OP_RECV_MESSAGE},           {.op = GRPC_OP_RECV_STATUS_ON_CLIENT},
    };
    ops[1].data.send_message.send_message = message;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &flight->initial;
    ops[4].data.recv_message.recv_message = &flight->answer;
    ops[5].data.recv_status_on_client.trailing_metadata = &flight->trailing;
    ops[5].data.recv_status_on_client.status = &flight->status;
    ops[5].data.recv_status_on_client.status_details = &flight->details;
    flight->sent_ns = bench_now_ns();
    grpc_call_error error = grpc_call_start_batch(flight->call, ops, 6, flight, NULL);
    if (error != GRPC_CALL_OK)
        BENCH_FAIL("starting a call: %s", grpc_call_error_to_string(error));
    grpc_byte_buffer_destroy(message);
    load.in_flight++;
    load.sent++;
}

static bool
bytes_right(const uint8_t *bytes, size_t length)
{
    size_t whole = GRPC_SLICE_LENGTH(load.expect);
    size_t tail = GRPC_SLICE_LENGTH(load.expect_tail);
    if (options.expect_path != NULL &&
        (length != whole || memcmp(bytes, GRPC_SLICE_START_PTR(load.expect), whole) != 0))
        return false;
    return options.expect_tail_path == NULL ||
           (length >= tail &&
            memcmp(bytes + length - tail, GRPC_SLICE_START_PTR(load.expect_tail), tail) == 0);
}

static bool
answer_right(grpc_byte_buffer *answer)
{
    if (answer == NULL)
        return false;
    if (options.expect_bytes != UINT64_MAX &&
        grpc_byte_buffer_length(answer) != options.expect_bytes)
        return false;
    if (options.expect_path == NULL && options.expect_tail_path == NULL)
        return true;
    grpc_byte_buffer_reader reader;
    if (!grpc_byte_buffer_reader_init(&reader, answer))
        return false;
    grpc_slice bytes = grpc_byte_buffer_reader_readall(&reader);
    grpc_byte_buffer_reader_destroy(&reader);
    bool right = bytes_right(GRPC_SLICE_START_PTR(bytes), GRPC_SLICE_LENGTH(bytes));
    grpc_slice_unref(bytes);
    return right;
}

static void
flight_end(struct flight *flight, uint64_t now_ns)
{
    load.in_flight--;
    unsigned status = (unsigned)flight->status < STATUS_COUNT ? (unsigned)flight->status
                                                              : (unsigned)GRPC_STATUS_UNKNOWN;
    load.status_counts[status]++;
    if (status == GRPC_STATUS_OK) {
        samples_add(&load.samples, now_ns - flight->sent_ns);
        load.wrong += answer_right(flight->answer) ? 0 : 1;
    } else if (load.status_counts[status] == 1) {
        char *details = grpc_slice_to_c_string(flight->details);
        fprintf(stderr, "first call with status %u: %s\n", status, details);
        gpr_free(details);
    }
    if (flight->answer != NULL)
        grpc_byte_buffer_destroy(flight->answer);
    grpc_slice_unref(flight->details);
    grpc_metadata_array_destroy(&flight->initial);
    grpc_metadata_array_destroy(&flight->trailing);
    grpc_call_unref(flight->call);
}

/* Keeps the loop closed until `requests` were sent (0: any number) or the time is over, then
 * empties it. */
static void
run(uint64_t requests, double seconds)
{
    load.sent = 0;
    load.wrong = 0;
    load.samples.count = 0;
    memset(load.status_counts, 0, sizeof(load.status_counts));
    load.requests_max = requests == 0 ? UINT64_MAX : requests;
    load.end_ns = seconds > 0 ? bench_now_ns() + (uint64_t)(seconds * 1e9) : UINT64_MAX;
    for (uint64_t i = 0; i < options.outstanding && load.sent < load.requests_max; i++)
        flight_start(&load.flights[i]);
    while (load.in_flight > 0) {
        struct flight *flight = next_event().tag;
        uint64_t now_ns = bench_now_ns();
        flight_end(flight, now_ns);
        if (now_ns < load.end_ns && load.sent < load.requests_max && !samples_full(&load.samples))
            flight_start(flight);
    }
}

static uint64_t
servers_cpu_ns(void)
{
    uint64_t sum_ns = 0;
    for (unsigned i = 0; i < options.server_pid_count; i++)
        sum_ns += bench_cpu_ns(options.server_pids[i]);
    return sum_ns;
}

static struct figures
measure(void)
{
    uint64_t servers_ns = servers_cpu_ns();
    uint64_t client_ns = bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    uint64_t begin_ns = bench_now_ns();
    run(options.requests, options.seconds);
    struct figures figures = {.seconds = (double)(bench_now_ns() - begin_ns) / 1e9};
    double calls = load.sent == 0 ? 1 : (double)load.sent;
    figures.client_cpu_us =
        (double)(bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - client_ns) / 1e3 / calls;
    figures.server_cpu_us = (double)(servers_cpu_ns() - servers_ns) / 1e3 / calls;
    samples_sort(&load.samples);
    return figures;
}

static uint64_t
failed_count(void)
{
    return load.sent - load.status_counts[GRPC_STATUS_OK];
}

static void
print_figures(struct figures figures)
{
    const struct samples *samples = &load.samples;
    double answered = (double)load.status_counts[GRPC_STATUS_OK];
    const struct {
        const char *name;
        double value;
        int decimals;
    } fields[] = {
        {"outstanding", (double)options.outstanding, 0},
        {"channels", (double)options.channels, 0},
        {"requests", (double)load.sent, 0},
        {"wrong", (double)load.wrong, 0},
        {"requests_per_s", answered / figures.seconds, 1},
        {"p50_us", samples_percentile_us(samples, 50), 1},
        {"p90_us", samples_percentile_us(samples, 90), 1},
        {"p99_us", samples_percentile_us(samples, 99), 1},
        {"max_us", samples_percentile_us(samples, 100), 1},
        {"client_cpu_us_per_request", figures.client_cpu_us, 2},
        {"server_cpu_us_per_request", figures.server_cpu_us, 2},
    };
    printf(options.json ? "{\"bench\": \"grpc_load\"" : "grpc_load");
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        printf(options.json ? ", \"%s\": %.*f" : "  %s %.*f", fields[i].name, fields[i].decimals,
               fields[i].value);
    }
    printf(options.json ? ", \"errors\": {" : "  errors {");
    const char *separator = "";
    for (unsigned status = 1; status < STATUS_COUNT; status++) {
        if (load.status_counts[status] == 0)
            continue;
        printf("%s\"%u\": %llu", separator, status, (unsigned long long)load.status_counts[status]);
        separator = ", ";
    }
    printf(options.json ? "}}\n" : "}\n");
}

static grpc_slice
read_file(const char *path)
{
    if (path == NULL)
        return grpc_empty_slice();
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0)
        BENCH_FAIL("cannot open %s: %s", path, strerror(errno));
    long length = ftell(file);
    rewind(file);
    if (length < 0)
        BENCH_FAIL("%s has no length", path);
    grpc_slice slice = grpc_slice_malloc((size_t)length);
    if (fread(GRPC_SLICE_START_PTR(slice), 1, (size_t)length, file) != (size_t)length)
        BENCH_FAIL("cannot read %s", path);
    fclose(file);
    return slice;
}

static const struct option OPTIONS[] = {
    {"target", required_argument, NULL, 't'},
    {"method", required_argument, NULL, 'm'},
    {"message", required_argument, NULL, 'f'},
    {"outstanding", required_argument, NULL, 'n'},
    {"channels", required_argument, NULL, 'c'},
    {"requests", required_argument, NULL, 'r'},
    {"seconds", required_argument, NULL, 's'},
    {"warmup", required_argument, NULL, 'w'},
    {"expect", required_argument, NULL, 'e'},
    {"expect-tail", required_argument, NULL, 'T'},
    {"expect-bytes", required_argument, NULL, 'b'},
    {"server-pid", required_argument, NULL, 'p'},
    {"cpu", required_argument, NULL, 'C'},
    {"json", no_argument, NULL, 'j'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static const char usage[] =
    "Usage: grpc_load --target ADDRESS --message FILE (--requests N | --seconds S)\n"
    "  [--method /service/rpc] [--outstanding N] [--channels N] [--warmup REQUESTS]\n"
    "  [--expect FILE] [--expect-tail FILE] [--expect-bytes N] [--server-pid PID]...\n"
    "  [--cpu N] [--json] [--help]\n";

static void
parse(int argc, char **argv)
{
    int option;
    while ((option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
        switch (option) {
        case 't': options.target = optarg; break;
        case 'm': options.method = optarg; break;
        case 'f': options.message_path = optarg; break;
        case 'n':
            options.outstanding = bench_number("outstanding", optarg, 1, OUTSTANDING_MAX);
            break;
        case 'c': options.channels = bench_number("channels", optarg, 1, CHANNELS_MAX); break;
        case 'r': options.requests = bench_number("requests", optarg, 1, SAMPLES_MAX); break;
        case 's': options.seconds = strtod(optarg, NULL); break;
        case 'w': options.warmup = bench_number("warmup", optarg, 0, SAMPLES_MAX); break;
        case 'e': options.expect_path = optarg; break;
        case 'T': options.expect_tail_path = optarg; break;
        case 'b': options.expect_bytes = bench_number("expect-bytes", optarg, 0, 1u << 30); break;
        case 'C': bench_pin((int)bench_number("cpu", optarg, 0, CPU_SETSIZE - 1)); break;
        case 'j': options.json = true; break;
        case 'p':
            if (options.server_pid_count == sizeof(options.server_pids) / sizeof(pid_t))
                BENCH_FAIL("too many --server-pid");
            options.server_pids[options.server_pid_count++] =
                (pid_t)bench_number("server-pid", optarg, 1, INT32_MAX);
            break;
        case 'h': fputs(usage, stdout); exit(0);
        default: BENCH_FAIL("%s", usage);
        }
    }
    if (optind != argc || options.target == NULL || options.message_path == NULL ||
        (options.requests == 0 && !(options.seconds > 0)))
        BENCH_FAIL("%s", usage);
    if (options.channels == 0)
        options.channels = options.outstanding == 1 ? 1 : 4;
}

static void
close_all(void)
{
    for (uint64_t i = 0; i < options.channels; i++)
        grpc_channel_destroy(load.channels[i]);
    grpc_completion_queue_shutdown(load.queue);
    while (grpc_completion_queue_next(load.queue, within_s(STALL_S), NULL).type == GRPC_OP_COMPLETE)
        continue;
    grpc_completion_queue_destroy(load.queue);
    grpc_slice_unref(load.message);
    grpc_slice_unref(load.expect);
    grpc_slice_unref(load.expect_tail);
    samples_fini(&load.samples);
    grpc_shutdown();
}

int
main(int argc, char **argv)
{
    parse(argc, argv);
    grpc_init();
    load.queue = grpc_completion_queue_create_for_next(NULL);
    load.message = read_file(options.message_path);
    load.expect = read_file(options.expect_path);
    load.expect_tail = read_file(options.expect_tail_path);
    samples_init(&load.samples, options.requests > options.warmup ? options.requests
                                : options.requests > 0            ? options.warmup
                                                                  : SAMPLES_MAX);
    channels_connect();
    for (uint64_t i = 0; i < options.outstanding; i++) {
        load.flights[i].channel = load.channels[i % options.channels];
        load.flights[i].method = load.methods[i % options.channels];
    }
    if (options.warmup > 0)
        run(options.warmup, 0);
    struct figures figures = measure();
    print_figures(figures);
    int result = failed_count() > 0 || load.wrong > 0 ? 1 : 0;
    close_all();
    return result;
}
