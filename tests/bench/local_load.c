/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A local client under load: what grpc_load is to gRPC, through libshoal and shared memory. The
 * pipeline is expected to give its one input back, as examples/echo does.
 *
 * The loop is closed, on one thread: N requests are outstanding, each answered one is replaced at
 * once. One is waited for by itself, as a synchronous caller would; several as they come. A request
 * is an FP32 tensor that is copied into shared memory from elsewhere, as by a program that could
 * not make it there, with a number of its own in front: so an answer that went to the wrong request
 * is seen. Checked of each answer is that number, the size, and the last CHECKED_BYTES.
 *
 * Latency is from before the request is begun to its answer in hand; the copy is in it, the check
 * is not, as with grpc_load. Exit code 1: some failed or were answered wrongly; 2: no figures.
 */
#include "samples.h"

#include <getopt.h>
#include <inttypes.h>

#include <shoal/client.h>

#define NEVER_NS INT64_MAX

enum {
    OUTSTANDING_MAX = 256,
    BYTES_MAX = 1 << 28,
    SAMPLES_MAX = 8000000,
    NUMBERS = 1 << 20, /* FP32 holds each of them exactly */
    CHECKED_BYTES = 256,
    STALL_S = 10,
};

/* The node makes hundreds of MiB for large tensors, and this is no measurement of that. */
#define CONNECT_TIMEOUT_NS (60 * (int64_t)BENCH_NS_PER_S)

struct options {
    const char *socket;
    const char *pipeline;
    uint64_t bytes;
    uint64_t message_bytes_max;
    uint64_t outstanding;
    uint64_t requests; /* 0: until the time is up */
    double seconds;
    uint64_t warmup;
    struct bench_servers servers;
    bool json;
};

/* One of the N callers. */
struct flight {
    uint64_t begun_ns;
    float number;
};

struct load {
    struct shoal_client *client;
    float *values;
    int64_t shape[1];
    struct flight flights[OUTSTANDING_MAX];
    struct shoal_request *lone; /* with one outstanding */
    uint64_t in_flight;
    uint64_t sent;
    uint64_t answered_ns; /* the last one */
    uint64_t failed;
    uint64_t wrong;
    struct samples samples;
};

static struct options options = {
    .pipeline = "echo", .bytes = 100, .outstanding = 1, .warmup = 1000};
static struct load load;

static void
load_open(void)
{
    struct shoal_client_options how = {.struct_size = SHOAL_CLIENT_OPTIONS,
                                       .requests_max = (uint32_t)options.outstanding,
                                       .pipeline = options.pipeline,
                                       .socket = options.socket,
                                       .message_bytes_max = options.message_bytes_max,
                                       .connect_timeout_ns = CONNECT_TIMEOUT_NS};
    struct shoal_error error = {""};
    if (shoal_client_open(&how, &load.client, &error) != SHOAL_OK)
        BENCH_FAIL("%s", error.text);
    load.shape[0] = (int64_t)(options.bytes / sizeof(load.values[0]));
    load.values = malloc(options.bytes);
    if (load.values == NULL)
        BENCH_FAIL("no memory for %" PRIu64 " bytes", options.bytes);
    for (int64_t i = 0; i < load.shape[0]; i++)
        load.values[i] = (float)(i % 251);
}

static void
load_close(void)
{
    shoal_client_close(load.client);
    free(load.values);
    samples_fini(&load.samples);
}

/* ---- one request ---- */

static void
flight_start(struct flight *flight)
{
    struct shoal_request *request;
    struct shoal_error error = {""};
    flight->begun_ns = bench_now_ns();
    flight->number = (float)(load.sent++ % NUMBERS);
    if (shoal_request_begin(load.client, &request, &error) != SHOAL_OK)
        BENCH_FAIL("a request: %s", error.text);
    float *data = shoal_request_input(request, "x", SHOAL_FP32, 1, load.shape);
    if (data != NULL) {
        memcpy(data, load.values, options.bytes);
        data[0] = flight->number;
    }
    if (shoal_request_submit(request, NEVER_NS) != SHOAL_OK)
        BENCH_FAIL("submitting: %s", shoal_request_text(request));
    shoal_request_set_tag(request, flight);
    load.lone = request;
    load.in_flight++;
}

static bool
answer_right(const struct shoal_request *request, float number)
{
    const struct shoal_tensor *x = shoal_request_output_named(request, "x");
    if (x == NULL || x->bytes != options.bytes || ((const float *)x->data)[0] != number)
        return false;
    size_t checked = options.bytes - sizeof(number);
    if (checked > CHECKED_BYTES)
        checked = CHECKED_BYTES;
    size_t offset = options.bytes - checked;
    return memcmp((const char *)x->data + offset, (const char *)load.values + offset, checked) == 0;
}

static struct flight *
flight_end(struct shoal_request *request, uint64_t now_ns)
{
    struct flight *flight = shoal_request_tag(request);
    load.answered_ns = now_ns;
    load.in_flight--;
    if (shoal_request_status(request) == SHOAL_OK) {
        samples_add(&load.samples, now_ns - flight->begun_ns);
        load.wrong += answer_right(request, flight->number) ? 0 : 1;
    } else if (load.failed++ == 0) {
        fprintf(stderr, "first request with status %d: %s\n", shoal_request_status(request),
                shoal_request_text(request));
    }
    shoal_request_release(request);
    return flight;
}

/* ---- all of them ---- */

static struct shoal_request *
wait_answer(void)
{
    int64_t until_ns = (int64_t)(bench_now_ns() + STALL_S * BENCH_NS_PER_S);
    struct shoal_request *request = load.lone;
    if (options.outstanding > 1)
        request = shoal_client_wait_any(load.client, until_ns);
    else if (shoal_request_wait(request, until_ns) == SHOAL_UNSET)
        request = NULL;
    if (request == NULL)
        BENCH_FAIL("no answer for %d s, with %" PRIu64 " requests in flight", STALL_S,
                   load.in_flight);
    return request;
}

/* Keeps the loop closed until `requests` were sent (0: any number) or the time is over, then
 * empties it. */
static void
run(uint64_t requests, double seconds)
{
    load.sent = load.failed = load.wrong = load.samples.count = 0;
    uint64_t requests_max = requests == 0 ? UINT64_MAX : requests;
    uint64_t end_ns = seconds > 0 ? bench_now_ns() + (uint64_t)(seconds * 1e9) : UINT64_MAX;
    for (uint64_t i = 0; i < options.outstanding && load.sent < requests_max; i++)
        flight_start(&load.flights[i]);
    while (load.in_flight > 0) {
        struct shoal_request *request = wait_answer();
        uint64_t now_ns = bench_now_ns();
        struct flight *flight = flight_end(request, now_ns);
        if (now_ns < end_ns && load.sent < requests_max && !samples_full(&load.samples))
            flight_start(flight);
    }
}

static void
measure(void)
{
    uint64_t servers_ns = bench_servers_cpu_ns(&options.servers);
    uint64_t client_ns = bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    uint64_t begin_ns = bench_now_ns();
    run(options.requests, options.seconds);
    double seconds = (double)(load.answered_ns - begin_ns) / 1e9;
    client_ns = bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - client_ns;
    servers_ns = bench_servers_cpu_ns(&options.servers) - servers_ns;
    samples_sort(&load.samples);
    double sent = (double)load.sent;
    const struct bench_field fields[] = {
        {"outstanding", (double)options.outstanding, 0},
        {"bytes", (double)options.bytes, 0},
        {"requests", sent, 0},
        {"failed", (double)load.failed, 0},
        {"wrong", (double)load.wrong, 0},
        {"requests_per_s", (sent - (double)load.failed) / seconds, 1},
        {"p50_us", samples_percentile_us(&load.samples, 50), 2},
        {"p90_us", samples_percentile_us(&load.samples, 90), 2},
        {"p99_us", samples_percentile_us(&load.samples, 99), 2},
        {"max_us", samples_percentile_us(&load.samples, 100), 2},
        {"client_cpu_us_per_request", (double)client_ns / 1e3 / sent, 2},
        {"server_cpu_us_per_request", (double)servers_ns / 1e3 / sent, 2},
    };
    bench_print_fields("local_load", fields, sizeof(fields) / sizeof(fields[0]), options.json);
    if (options.json)
        samples_print_distribution(&load.samples);
    printf(options.json ? "}\n" : "\n");
}

/* ---- command line ---- */

static const struct option OPTIONS[] = {
    {"socket", required_argument, NULL, 'o'},
    {"pipeline", required_argument, NULL, 'l'},
    {"bytes", required_argument, NULL, 'b'},
    {"message-bytes", required_argument, NULL, 'B'},
    {"outstanding", required_argument, NULL, 'n'},
    {"requests", required_argument, NULL, 'r'},
    {"seconds", required_argument, NULL, 's'},
    {"warmup", required_argument, NULL, 'w'},
    {"server-pid", required_argument, NULL, 'p'},
    {"cpu", required_argument, NULL, 'C'},
    {"json", no_argument, NULL, 'j'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static const char usage[] =
    "Usage: local_load (--requests N | --seconds S) [OPTION]...\n"
    "Sends tensors through shared memory, N outstanding; prints rates and latencies.\n"
    "\n"
    "  --socket PATH         the node's socket for local clients, default: that of the user's own\n"
    "  --pipeline NAME       gives its input back, default echo\n"
    "  --bytes N             of a tensor, a multiple of 4, default 100\n"
    "  --message-bytes N     the size that the node is asked to allow, default: its own\n"
    "  --outstanding N       requests at a time, default 1\n"
    "  --warmup N            requests before the measurement, default 1000\n"
    "  --server-pid PID      its CPU time counts as the server's; several times\n"
    "  --cpu N               run on this CPU\n"
    "  --json\n"
    "  --help\n";

static void
parse(int argc, char **argv)
{
    int option;
    while ((option = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1) {
        switch (option) {
        case 'o': options.socket = optarg; break;
        case 'l': options.pipeline = optarg; break;
        case 'b': options.bytes = bench_number("bytes", optarg, sizeof(float), BYTES_MAX); break;
        case 'B':
            options.message_bytes_max = bench_number("message-bytes", optarg, 1, UINT32_MAX);
            break;
        case 'n':
            options.outstanding = bench_number("outstanding", optarg, 1, OUTSTANDING_MAX);
            break;
        case 'r': options.requests = bench_number("requests", optarg, 1, SAMPLES_MAX); break;
        case 's': options.seconds = strtod(optarg, NULL); break;
        case 'w': options.warmup = bench_number("warmup", optarg, 0, SAMPLES_MAX); break;
        case 'p': bench_servers_add(&options.servers, optarg); break;
        case 'C': bench_pin((int)bench_number("cpu", optarg, 0, CPU_SETSIZE - 1)); break;
        case 'j': options.json = true; break;
        case 'h': fputs(usage, stdout); exit(0);
        default: BENCH_FAIL("%s", usage);
        }
    }
    if (optind != argc || (options.requests == 0 && !(options.seconds > 0)) ||
        options.bytes % sizeof(float) != 0)
        BENCH_FAIL("%s", usage);
}

int
main(int argc, char **argv)
{
    parse(argc, argv);
    samples_init(&load.samples, SAMPLES_MAX);
    load_open();
    if (options.warmup > 0)
        run(options.warmup, 0);
    measure();
    int result = load.failed > 0 || load.wrong > 0 ? 1 : 0;
    load_close();
    return result;
}
