/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gRPC C core client under load, on one completion queue. It sends the bytes of a file as they
 * are, and can check the answers byte for byte. The same client is put before Shoal and before the
 * bare echo server, so that its own cost is the same in both figures.
 *
 * Closed loop (default): N calls outstanding, each answered one replaced at once, on one thread.
 *
 * Open loop (--rate): calls are due at random moments (Poisson), whether earlier ones were answered
 * or not. A second thread sleeps until each moment and sends; latency counts from the moment when
 * the call was due, not from when it was sent, so that a service that stalls is charged for all
 * calls due meanwhile. `lag` says how late the client itself was: where that is not small beside
 * the latencies, they are the client's.
 *
 * Every connection is open before the first call. A call carries no deadline; if nothing at all
 * comes back for STALL_S seconds the program says so and ends with exit code 2. Exit code 1: some
 * calls failed or were answered wrongly.
 */
#include "../random.h"
#include "unary_call.h"

#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/prctl.h>

#include <grpc/byte_buffer_reader.h>
#include <grpc/support/alloc.h>

#define CHANNELS_MAX 64
#define OUTSTANDING_MAX 4096
#define MESSAGES_MAX 4096
#define SAMPLES_MAX 8000000
#define STATUS_COUNT 17
#define STALL_S 10
#define WARMUP_OUTSTANDING 16 /* before an open loop */
#define TURN_MS 20            /* so late is the end of an open loop seen */
#define SERIAL_MARKER "################"
#define SERIAL_DIGITS 16

struct options {
    const char *target;
    const char *method;
    const char *message_path;
    const char *expect_path;
    const char *expect_tail_path;
    uint64_t message_count;
    uint64_t expect_bytes; /* UINT64_MAX: any */
    uint64_t outstanding;  /* in an open loop: at most */
    uint64_t channels;     /* 0: 1 for one outstanding call, else 4 */
    uint64_t requests;     /* 0: until the time is up */
    double seconds;
    double rate; /* 0: closed loop */
    bool serial;
    uint64_t seed;
    uint64_t warmup;
    struct channel_args args;
    struct bench_servers servers;
    bool json;
};

struct flight {
    struct unary_call call;
    const struct unary_channel *channel;
    struct flight *next; /* in `idle` */
    uint64_t message;
    uint64_t due_ns;
};

struct load {
    grpc_completion_queue *queue;
    grpc_slice messages[MESSAGES_MAX];
    grpc_slice expect;
    grpc_slice expect_tails; /* one for each message, equally long */
    size_t tail_bytes;
    struct unary_channel channels[CHANNELS_MAX];
    struct flight flights[OUTSTANDING_MAX];
    _Atomic unsigned in_flight;
    uint64_t sent;
    uint64_t serial; /* of the last call, --serial */
    uint64_t requests_max;
    uint64_t end_ns;
    uint64_t answered_ns; /* the last one */
    uint64_t status_counts[STATUS_COUNT];
    uint64_t wrong;
    struct samples samples;
};

/* The thread that sends in an open loop; it alone adds to load.sent and to `lag`. */
struct sender {
    pthread_t thread;
    _Atomic bool over;
    uint64_t draw_state;
    struct samples lag;
    pthread_mutex_t lock;
    pthread_cond_t returned;
    struct flight *idle;
};

struct figures {
    double seconds;
    double client_cpu_us;
    double server_cpu_us;
    double process_cpu_us[BENCH_SERVERS_MAX]; /* of it each --server-pid's */
};

static struct options options = {
    .method = INFER_METHOD,
    .message_count = 1,
    .expect_bytes = UINT64_MAX,
    .seed = 1,
    .warmup = 1000,
};
static struct load load;
static struct sender sender = {.lock = PTHREAD_MUTEX_INITIALIZER,
                               .returned = PTHREAD_COND_INITIALIZER};

static void
channels_connect(void)
{
    channel_args_add(&options.args, "grpc.max_receive_message_length", -1);
    channel_args_add(&options.args, "grpc.initial_reconnect_backoff_ms", 100);
    for (uint64_t i = 0; i < options.channels; i++) {
        unary_channel_open(&load.channels[i], options.target, options.method, &options.args,
                           (int)i);
        unary_channel_wait(&load.channels[i], load.queue, options.target, STALL_S);
    }
}

/* ---- one call ---- */

/* A copy of the message, its marker replaced by a number that no call of any run had before. */
static grpc_slice
message_numbered(grpc_slice message)
{
    grpc_slice copy = grpc_slice_malloc(GRPC_SLICE_LENGTH(message));
    char *bytes = (char *)GRPC_SLICE_START_PTR(copy);
    char digits[sizeof(SERIAL_MARKER)];
    memcpy(bytes, GRPC_SLICE_START_PTR(message), GRPC_SLICE_LENGTH(message));
    char *marker = memmem(bytes, GRPC_SLICE_LENGTH(copy), SERIAL_MARKER, SERIAL_DIGITS);
    if (marker == NULL)
        BENCH_FAIL("--serial: a message has no %s", SERIAL_MARKER);
    snprintf(digits, sizeof(digits), "%0*llu", SERIAL_DIGITS, (unsigned long long)++load.serial);
    memcpy(marker, digits, SERIAL_DIGITS);
    return copy;
}

static void
flight_start(struct flight *flight, uint64_t due_ns)
{
    const struct unary_options how = {.deadline = gpr_inf_future(GPR_CLOCK_REALTIME)};
    flight->message = load.sent++ % options.message_count;
    flight->due_ns = due_ns;
    atomic_fetch_add(&load.in_flight, 1);
    grpc_slice message = options.serial ? message_numbered(load.messages[flight->message])
                                        : grpc_slice_ref(load.messages[flight->message]);
    unary_call_start(&flight->call, flight->channel, load.queue, &how, message, flight);
    grpc_slice_unref(message);
}

/* True if the answer's bytes from `offset` on are those; they are compared where they lie. */
static bool
bytes_at(grpc_byte_buffer *answer, size_t offset, const uint8_t *bytes, size_t count)
{
    grpc_byte_buffer_reader reader;
    if (!grpc_byte_buffer_reader_init(&reader, answer))
        return false;
    bool same = true;
    grpc_slice *piece;
    size_t compared = 0;
    while (same && compared < count && grpc_byte_buffer_reader_peek(&reader, &piece)) {
        size_t length = GRPC_SLICE_LENGTH(*piece);
        size_t skipped = offset < length ? offset : length;
        size_t part = length - skipped < count - compared ? length - skipped : count - compared;
        same = memcmp(GRPC_SLICE_START_PTR(*piece) + skipped, bytes + compared, part) == 0;
        compared += part;
        offset -= skipped;
    }
    grpc_byte_buffer_reader_destroy(&reader);
    return same && compared == count;
}

static bool
answer_right(const struct flight *flight)
{
    grpc_byte_buffer *answer = flight->call.answer;
    if (answer == NULL)
        return false;
    size_t length = grpc_byte_buffer_length(answer);
    if (options.expect_bytes != UINT64_MAX && length != options.expect_bytes)
        return false;
    if (options.expect_path != NULL &&
        (length != GRPC_SLICE_LENGTH(load.expect) ||
         !bytes_at(answer, 0, GRPC_SLICE_START_PTR(load.expect), length)))
        return false;
    const uint8_t *tail =
        GRPC_SLICE_START_PTR(load.expect_tails) + flight->message * load.tail_bytes;
    return options.expect_tail_path == NULL ||
           (length >= load.tail_bytes &&
            bytes_at(answer, length - load.tail_bytes, tail, load.tail_bytes));
}

static void
flight_end(struct flight *flight, uint64_t now_ns)
{
    struct unary_call *call = &flight->call;
    unsigned status = (unsigned)call->status < STATUS_COUNT ? (unsigned)call->status
                                                            : (unsigned)GRPC_STATUS_UNKNOWN;
    load.status_counts[status]++;
    load.answered_ns = now_ns;
    if (status == GRPC_STATUS_OK) {
        samples_add(&load.samples, now_ns - flight->due_ns);
        load.wrong += answer_right(flight) ? 0 : 1;
    } else if (load.status_counts[status] == 1) {
        char *details = grpc_slice_to_c_string(call->details);
        fprintf(stderr, "first call with status %u: %s\n", status, details);
        gpr_free(details);
    }
    unary_call_end(call);
    atomic_fetch_sub(&load.in_flight, 1);
}

static void
run_init(void)
{
    load.sent = 0;
    load.wrong = 0;
    load.samples.count = 0;
    memset(load.status_counts, 0, sizeof(load.status_counts));
}

static void
fail_stalled(void)
{
    BENCH_FAIL("nothing came back from %s for %d s, %u calls in flight", options.target, STALL_S,
               atomic_load(&load.in_flight));
}

/* ---- closed loop ---- */

/* Keeps the loop closed until `requests` were sent (0: any number) or the time is over, then
 * empties it. */
static void
run_closed(uint64_t outstanding, uint64_t requests, double seconds)
{
    run_init();
    load.requests_max = requests == 0 ? UINT64_MAX : requests;
    load.end_ns = seconds > 0 ? bench_now_ns() + (uint64_t)(seconds * 1e9) : UINT64_MAX;
    for (uint64_t i = 0; i < outstanding && load.sent < load.requests_max; i++)
        flight_start(&load.flights[i], bench_now_ns());
    while (atomic_load(&load.in_flight) > 0) {
        grpc_event event =
            grpc_completion_queue_next(load.queue, unary_within_ms(STALL_S * 1000), NULL);
        if (event.type != GRPC_OP_COMPLETE)
            fail_stalled();
        uint64_t now_ns = bench_now_ns();
        flight_end(event.tag, now_ns);
        if (now_ns < load.end_ns && load.sent < load.requests_max && !samples_full(&load.samples))
            flight_start(event.tag, bench_now_ns());
    }
}

/* ---- open loop ---- */

/* An exponentially distributed pause. */
static double
draw_pause_ns(void)
{
    uint64_t drawn = random_draw(&sender.draw_state) >> 11;
    double uniform = ((double)drawn + 1) / (double)(UINT64_C(1) << 53);
    return -log(uniform) / options.rate * 1e9;
}

static void
wait_until(uint64_t ns)
{
    struct timespec due = {(time_t)(ns / BENCH_NS_PER_S), (long)(ns % BENCH_NS_PER_S)};
    if (bench_now_ns() < ns)
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
}

/* Waits for one if all are out: calls due meanwhile are sent late, and their latency shows it. */
static struct flight *
flight_take(void)
{
    pthread_mutex_lock(&sender.lock);
    while (sender.idle == NULL)
        pthread_cond_wait(&sender.returned, &sender.lock);
    struct flight *flight = sender.idle;
    sender.idle = flight->next;
    pthread_mutex_unlock(&sender.lock);
    return flight;
}

static void
flight_return(struct flight *flight)
{
    pthread_mutex_lock(&sender.lock);
    bool waited_for = sender.idle == NULL;
    flight->next = sender.idle;
    sender.idle = flight;
    pthread_mutex_unlock(&sender.lock);
    if (waited_for)
        pthread_cond_signal(&sender.returned);
}

static void *
sender_main(void *context)
{
    (void)context;
    prctl(PR_SET_TIMERSLACK, 1ul); /* ns, instead of 50 µs */
    double due_ns = (double)bench_now_ns();
    double end_ns = due_ns + options.seconds * 1e9;
    while ((due_ns += draw_pause_ns()) < end_ns && !samples_full(&sender.lag)) {
        wait_until((uint64_t)due_ns);
        struct flight *flight = flight_take();
        uint64_t now_ns = bench_now_ns();
        samples_add(&sender.lag, now_ns > (uint64_t)due_ns ? now_ns - (uint64_t)due_ns : 0);
        flight_start(flight, (uint64_t)due_ns);
    }
    atomic_store(&sender.over, true);
    return NULL;
}

static void
run_open(void)
{
    run_init();
    sender.draw_state = options.seed;
    for (uint64_t i = 0; i < options.outstanding; i++)
        flight_return(&load.flights[i]);
    if (pthread_create(&sender.thread, NULL, sender_main, NULL) != 0)
        BENCH_FAIL("no thread to send from");
    uint64_t received_ns = bench_now_ns();
    while (!atomic_load(&sender.over) || atomic_load(&load.in_flight) > 0) {
        grpc_event event = grpc_completion_queue_next(load.queue, unary_within_ms(TURN_MS), NULL);
        uint64_t now_ns = bench_now_ns();
        if (event.type == GRPC_OP_COMPLETE) {
            flight_end(event.tag, now_ns);
            flight_return(event.tag);
        } else if (atomic_load(&load.in_flight) > 0 &&
                   now_ns - received_ns > STALL_S * BENCH_NS_PER_S) {
            fail_stalled();
        }
        if (event.type == GRPC_OP_COMPLETE || atomic_load(&load.in_flight) == 0)
            received_ns = now_ns;
    }
    pthread_join(sender.thread, NULL);
    samples_sort(&sender.lag);
}

/* ---- figures ---- */

static struct figures
measure(void)
{
    uint64_t servers_ns[BENCH_SERVERS_MAX];
    for (unsigned i = 0; i < options.servers.count; i++)
        servers_ns[i] = bench_cpu_ns(options.servers.pids[i]);
    uint64_t client_ns = bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    uint64_t begin_ns = bench_now_ns();
    if (options.rate > 0)
        run_open();
    else
        run_closed(options.outstanding, options.requests, options.seconds);
    struct figures figures = {.seconds = (double)(load.answered_ns - begin_ns) / 1e9};
    double calls = load.sent == 0 ? 1 : (double)load.sent;
    figures.client_cpu_us =
        (double)(bench_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - client_ns) / 1e3 / calls;
    for (unsigned i = 0; i < options.servers.count; i++) {
        uint64_t used_ns = bench_cpu_ns(options.servers.pids[i]) - servers_ns[i];
        figures.process_cpu_us[i] = (double)used_ns / 1e3 / calls;
        figures.server_cpu_us += figures.process_cpu_us[i];
    }
    samples_sort(&load.samples);
    return figures;
}

static uint64_t
failed_count(void)
{
    return load.sent - load.status_counts[GRPC_STATUS_OK];
}

/* Of each --server-pid, in their order. */
static void
print_processes(struct figures figures)
{
    printf(options.json ? ", \"process_cpu_us_per_request\": [" : "  process_cpu_us_per_request [");
    for (unsigned i = 0; i < options.servers.count; i++)
        printf("%s%.2f", i > 0 ? ", " : "", figures.process_cpu_us[i]);
    printf("]");
}

static void
print_figures(struct figures figures)
{
    const struct samples *samples = &load.samples;
    double answered = (double)load.status_counts[GRPC_STATUS_OK];
    const struct bench_field fields[] = {
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
        {"rate", options.rate, 1},
        {"lag_p50_us", samples_share_us(&sender.lag, 5000), 1},
        {"lag_p99_us", samples_share_us(&sender.lag, 9900), 1},
    };
    bench_print_fields("grpc_load", fields, sizeof(fields) / sizeof(fields[0]), options.json);
    printf(options.json ? ", \"errors\": {" : "  errors {");
    const char *separator = "";
    for (unsigned status = 1; status < STATUS_COUNT; status++) {
        if (load.status_counts[status] == 0)
            continue;
        printf("%s\"%u\": %llu", separator, status, (unsigned long long)load.status_counts[status]);
        separator = ", ";
    }
    printf("}");
    print_processes(figures);
    if (options.json)
        samples_print_distribution(&load.samples);
    printf(options.json ? "}\n" : "\n");
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

/* Cuts the file into as many messages as it holds, and finds how long each one's tail is. */
static void
read_messages(void)
{
    grpc_slice all = read_file(options.message_path);
    size_t bytes = GRPC_SLICE_LENGTH(all) / options.message_count;
    load.expect_tails = read_file(options.expect_tail_path);
    load.tail_bytes = GRPC_SLICE_LENGTH(load.expect_tails) / options.message_count;
    if (bytes * options.message_count != GRPC_SLICE_LENGTH(all) ||
        load.tail_bytes * options.message_count != GRPC_SLICE_LENGTH(load.expect_tails))
        BENCH_FAIL("--messages %llu: the messages, or their tails, are not equally long",
                   (unsigned long long)options.message_count);
    for (size_t i = 0; i < options.message_count; i++)
        load.messages[i] = grpc_slice_sub(all, i * bytes, (i + 1) * bytes);
    grpc_slice_unref(all);
}

static const struct option OPTIONS[] = {
    {"target", required_argument, NULL, 't'},
    {"method", required_argument, NULL, 'm'},
    {"message", required_argument, NULL, 'f'},
    {"messages", required_argument, NULL, 'M'},
    {"rate", required_argument, NULL, 'R'},
    {"seed", required_argument, NULL, 'S'},
    {"arg", required_argument, NULL, 'a'},
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
    {"serial", no_argument, NULL, 'N'},
    {"json", no_argument, NULL, 'j'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static const char usage[] =
    "Usage: grpc_load --target ADDRESS --message FILE (--requests N | --seconds S) [OPTION]...\n"
    "Calls with the bytes of FILE, N outstanding, or at random moments; prints rates and "
    "latencies.\n"
    "\n"
    "  --outstanding N       calls at a time, default 1; with --rate: at most, default 4096\n"
    "  --rate R              an open loop: R calls per second on average, for --seconds\n"
    "  --seed N              the seed of its moments, default 1\n"
    "  --channels N          connections, default 4, or 1 for one outstanding call\n"
    "  --arg KEY=N           a channel argument; several times\n"
    "  --method /service/rpc default: Open Inference's ModelInfer\n"
    "  --warmup N            calls before the measurement, default 1000\n"
    "  --messages N          FILE is N messages of equal length, sent in turn\n"
    "  --expect FILE         the one right answer\n"
    "  --expect-tail FILE    how the right answer ends; with --messages: N tails of equal length\n"
    "  --expect-bytes N      how long the right answer is\n"
    "  --server-pid PID      its CPU time counts as the server's, and is given by itself; several\n"
    "                        times\n"
    "  --serial              each message has " SERIAL_MARKER ", which becomes another number\n"
    "                        for each call\n"
    "  --cpu N               run on this CPU\n"
    "  --json\n"
    "  --help\n";

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
        case 'M': options.message_count = bench_number("messages", optarg, 1, MESSAGES_MAX); break;
        case 'R': options.rate = strtod(optarg, NULL); break;
        case 'S': options.seed = bench_number("seed", optarg, 0, UINT64_MAX); break;
        case 'a': channel_args_parse(&options.args, optarg); break;
        case 'r': options.requests = bench_number("requests", optarg, 1, SAMPLES_MAX); break;
        case 's': options.seconds = strtod(optarg, NULL); break;
        case 'w': options.warmup = bench_number("warmup", optarg, 0, SAMPLES_MAX); break;
        case 'e': options.expect_path = optarg; break;
        case 'T': options.expect_tail_path = optarg; break;
        case 'b': options.expect_bytes = bench_number("expect-bytes", optarg, 0, 1u << 30); break;
        case 'C': bench_pin((int)bench_number("cpu", optarg, 0, CPU_SETSIZE - 1)); break;
        case 'j': options.json = true; break;
        case 'N': options.serial = true; break;
        case 'p': bench_servers_add(&options.servers, optarg); break;
        case 'h': fputs(usage, stdout); exit(0);
        default: BENCH_FAIL("%s", usage);
        }
    }
    if (optind != argc || options.target == NULL || options.message_path == NULL ||
        (options.requests == 0 && !(options.seconds > 0)) || options.rate < 0 ||
        (options.rate > 0 && !(options.seconds > 0)))
        BENCH_FAIL("%s", usage);
    if (options.outstanding == 0)
        options.outstanding = options.rate > 0 ? OUTSTANDING_MAX : 1;
    if (options.rate > 0 && options.outstanding < WARMUP_OUTSTANDING)
        BENCH_FAIL("--outstanding: at least %d with --rate", WARMUP_OUTSTANDING);
    if (options.channels == 0)
        options.channels = options.outstanding == 1 ? 1 : 4;
}

static void
close_all(void)
{
    for (uint64_t i = 0; i < options.channels; i++)
        grpc_channel_destroy(load.channels[i].core);
    unary_queue_destroy(load.queue, STALL_S * 1000);
    for (size_t i = 0; i < options.message_count; i++)
        grpc_slice_unref(load.messages[i]);
    grpc_slice_unref(load.expect);
    grpc_slice_unref(load.expect_tails);
    samples_fini(&load.samples);
    samples_fini(&sender.lag);
    grpc_shutdown();
}

static size_t
samples_wanted(void)
{
    if (options.requests == 0)
        return SAMPLES_MAX;
    return options.requests > options.warmup ? options.requests : options.warmup;
}

int
main(int argc, char **argv)
{
    parse(argc, argv);
    load.serial = bench_clock_ns(CLOCK_REALTIME) / 1000; /* fewer than a million calls a second */
    grpc_init();
    load.queue = grpc_completion_queue_create_for_next(NULL);
    read_messages();
    load.expect = read_file(options.expect_path);
    samples_init(&load.samples, samples_wanted());
    samples_init(&sender.lag, options.rate > 0 ? SAMPLES_MAX : 1);
    channels_connect();
    for (uint64_t i = 0; i < options.outstanding; i++)
        load.flights[i].channel = &load.channels[i % options.channels];
    if (options.warmup > 0)
        run_closed(options.rate > 0 ? WARMUP_OUTSTANDING : options.outstanding, options.warmup, 0);
    struct figures figures = measure();
    print_figures(figures);
    int result = failed_count() > 0 || load.wrong > 0 ? 1 : 0;
    close_all();
    return result;
}
