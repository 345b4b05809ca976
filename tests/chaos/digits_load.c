/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steady load of real digits, checked answer by answer, for as long as somebody does his worst to
 * the service. N calls are always outstanding on one thread and one completion queue. First each
 * held-out digit is asked once; the line {"event": "reference"} says that this is done and the
 * worst may begin. From then on every answer must be those bytes again (exam.h), until SIGTERM or
 * the end of --seconds; the calls still out are waited for, and the last line, {"event": "end"},
 * has the sums.
 *
 * Each call ends in one of these ways:
 *   ok           answered, and rightly
 *   wrong        answered otherwise: other bytes, another call's id
 *   cancelled    given up by ourselves (--cancel PERCENT of the calls, at a random moment), and
 *                ended as such; a call whose answer came first is judged like any other
 *   unanswered   its deadline came, which is so far away that nothing but a lost request explains
 * it failed       an error was the answer: counted by status and by text (long numbers become #) A
 * call that failed is replaced only after a pause, so that a service that is down is not stormed.
 *
 * Exit code: 0 when the sums were printed; 2 when they could not be had.
 */
#include "../bench/unary_call.h"
#include "../random.h"
#include "base/json.h"
#include "exam.h"

#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>

#include <grpc/byte_buffer_reader.h>
#include <grpc/support/alloc.h>

#define NS_PER_MS 1000000ull

enum {
    CHANNELS_MAX = 64,
    OUTSTANDING_MAX = 4096,
    SAMPLES_MAX = 1 << 18,
    REASONS_MAX = 64,
    REASON_BYTES = 256,
    REFERENCE_OUTSTANDING = 8,
    PAUSE_MS = 10,
    CONNECT_S = 60,
    WRONG_SHOWN = 5,
    TURN_MS_MAX = 100,
    PROGRESS_MS = 250,
};

struct options {
    const char *target;
    const char *data;
    uint64_t outstanding;
    uint64_t channels;
    uint64_t timeout_s;
    uint64_t cancel_percent;
    uint64_t cancel_within_us;
    uint64_t think_ms; /* between an answer and the next call in its place */
    uint64_t seed;
    double seconds; /* 0: until SIGTERM */
    bool wait_for_ready;
};

enum flight_state { FLIGHT_IDLE, FLIGHT_OUT, FLIGHT_PAUSED };

struct flight {
    enum flight_state state;
    struct unary_call call;
    const struct unary_channel *channel;
    struct question *question;
    uint64_t id;
    uint64_t sent_ns;
    uint64_t cancel_ns; /* 0: it won't be */
    uint64_t resume_ns; /* FLIGHT_PAUSED */
    bool cancelled;
};

/* Why calls failed. */
struct reason {
    int status;
    char text[REASON_BYTES];
    uint64_t count;
};

struct sums {
    uint64_t sent;
    uint64_t ok;
    uint64_t wrong;
    uint64_t cancelled;
    uint64_t unanswered;
    uint64_t failed;
    uint64_t cancels; /* requested, with any outcome */
};

static struct options options = {
    .outstanding = 64,
    .channels = 4,
    .timeout_s = 120,
    .cancel_within_us = 20000,
};
static struct exam exam;
static grpc_completion_queue *queue;
static struct unary_channel channels[CHANNELS_MAX];
static struct flight flights[OUTSTANDING_MAX];
static unsigned flight_count;
static unsigned flights_out;
static unsigned flights_paused;
static bool learning;
static struct sums sums;
static struct reason reasons[REASONS_MAX];
static size_t reason_count;
static struct samples samples;
static uint64_t draw_state;
static uint64_t id_next;
static uint64_t begin_ns;
static uint64_t last_ok_ns;
static uint64_t silence_ns_max;
static volatile sig_atomic_t stop_asked;

static void
on_stop(int number)
{
    (void)number;
    stop_asked = 1;
}

static uint64_t
draw(void)
{
    return random_draw(&draw_state);
}

/* ---- connections ---- */

/* Nothing is tried again behind our back, and a daemon that comes back is found soon. */
static void
channels_connect(void)
{
    struct channel_args args = {.count = 0};
    channel_args_add(&args, "grpc.enable_retries", 0);
    channel_args_add(&args, "grpc.initial_reconnect_backoff_ms", 100);
    channel_args_add(&args, "grpc.min_reconnect_backoff_ms", 100);
    channel_args_add(&args, "grpc.max_reconnect_backoff_ms", 100);
    for (uint64_t i = 0; i < options.channels; i++) {
        unary_channel_open(&channels[i], options.target, INFER_METHOD, &args, (int)i);
        unary_channel_wait(&channels[i], queue, options.target, CONNECT_S);
    }
}

/* ---- one call ---- */

static void
flight_start(struct flight *flight, struct question *question)
{
    flight->state = FLIGHT_OUT;
    flight->question = question;
    flight->id = id_next++;
    flight->cancelled = false;
    flight->sent_ns = bench_now_ns();
    flight->cancel_ns = 0;
    if (!learning && draw() % 100 < options.cancel_percent)
        flight->cancel_ns = flight->sent_ns + draw() % (options.cancel_within_us * 1000 + 1);
    grpc_slice bytes = grpc_slice_malloc(question->request_bytes);
    exam_ask(question, flight->id, GRPC_SLICE_START_PTR(bytes));
    const struct unary_options how = {
        .deadline = unary_within_ms(options.timeout_s * 1000),
        .initial_flags = options.wait_for_ready ? GRPC_INITIAL_METADATA_WAIT_FOR_READY : 0,
    };
    unary_call_start(&flight->call, flight->channel, queue, &how, bytes, flight);
    grpc_slice_unref(bytes);
    flights_out++;
    sums.sent++;
}

/* The text with each number of several digits as one #: what differs from call to call. A single
 * digit may be what matters: how many workers died. */
static void
reason_text(const char *text, char *kind)
{
    size_t used = 0;
    while (*text != '\0' && used < REASON_BYTES - 1) {
        size_t digits = strspn(text, "0123456789");
        kind[used++] = digits > 1 ? '#' : *text;
        text += digits > 1 ? digits : 1;
    }
    kind[used] = '\0';
}

static void
reason_add(int status, const char *text)
{
    char kind[REASON_BYTES];
    reason_text(text, kind);
    size_t i = 0;
    while (i < reason_count && (reasons[i].status != status || strcmp(reasons[i].text, kind) != 0))
        i++;
    if (i == REASONS_MAX)
        i--; /* all others count as the last */
    if (i == reason_count) {
        reasons[reason_count++].status = status;
        memcpy(reasons[i].text, kind, sizeof(kind));
    }
    reasons[i].count++;
}

static void
on_right(const struct flight *flight, uint64_t now_ns)
{
    sums.ok++;
    if (last_ok_ns != 0 && now_ns - last_ok_ns > silence_ns_max)
        silence_ns_max = now_ns - last_ok_ns;
    last_ok_ns = now_ns;
    uint64_t ns = now_ns - flight->sent_ns;
    uint64_t place = sums.ok > SAMPLES_MAX ? draw() % sums.ok : SAMPLES_MAX;
    if (!samples_full(&samples))
        samples_add(&samples, ns);
    else if (place < SAMPLES_MAX) /* each call has the same chance to be among them */
        samples.ns[place] = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

static void
on_answer(struct flight *flight, uint64_t now_ns)
{
    grpc_slice bytes = grpc_empty_slice();
    grpc_byte_buffer_reader reader;
    if (flight->call.answer != NULL && grpc_byte_buffer_reader_init(&reader, flight->call.answer)) {
        bytes = grpc_byte_buffer_reader_readall(&reader);
        grpc_byte_buffer_reader_destroy(&reader);
    }
    const uint8_t *answer = GRPC_SLICE_START_PTR(bytes);
    size_t length = GRPC_SLICE_LENGTH(bytes);
    if (learning ? exam_learn(&exam, flight->question, flight->id, answer, length)
                 : exam_check(flight->question, flight->id, answer, length)) {
        on_right(flight, now_ns);
    } else if (sums.wrong++ < WRONG_SHOWN) {
        fprintf(stderr, "wrong answer to call %016" PRIx64 ", digit %zu:", flight->id,
                (size_t)(flight->question - exam.questions));
        for (size_t i = 0; i < length && i < 256; i++)
            fprintf(stderr, "%s%02x", i % 8 == 0 ? " " : "", answer[i]);
        fputc('\n', stderr);
    }
    grpc_slice_unref(bytes);
}

static void
flight_end(struct flight *flight, uint64_t now_ns)
{
    uint64_t pause_ms = learning ? 0 : options.think_ms;
    flights_out--;
    if (flight->call.status == GRPC_STATUS_OK) {
        on_answer(flight, now_ns);
    } else if (flight->cancelled && flight->call.status == GRPC_STATUS_CANCELLED) {
        sums.cancelled++;
    } else if (flight->call.status == GRPC_STATUS_DEADLINE_EXCEEDED) {
        sums.unanswered++;
    } else {
        char *text = grpc_slice_to_c_string(flight->call.details);
        reason_add((int)flight->call.status, text);
        gpr_free(text);
        sums.failed++;
        pause_ms = pause_ms > PAUSE_MS ? pause_ms : PAUSE_MS;
    }
    unary_call_end(&flight->call);
    flight->state = pause_ms > 0 ? FLIGHT_PAUSED : FLIGHT_IDLE;
    flight->resume_ns = now_ns + pause_ms * NS_PER_MS;
    flights_paused += pause_ms > 0;
}

/* ---- all calls ---- */

/* Cancels due calls, ends pauses that are over. */
static void
flights_tend(uint64_t now_ns)
{
    for (unsigned i = 0; i < flight_count; i++) {
        struct flight *flight = &flights[i];
        if (flight->state == FLIGHT_OUT && flight->cancel_ns != 0 && flight->cancel_ns <= now_ns) {
            flight->cancel_ns = 0;
            flight->cancelled = true;
            sums.cancels++;
            grpc_call_cancel(flight->call.core, NULL);
        } else if (flight->state == FLIGHT_PAUSED && flight->resume_ns <= now_ns) {
            flight->state = FLIGHT_IDLE;
            flights_paused--;
        }
    }
}

/* The next call that has ended, or NULL after a short while. */
static struct flight *
next_ended(void)
{
    bool soon = flights_paused > 0 || options.cancel_percent > 0;
    grpc_event event =
        grpc_completion_queue_next(queue, unary_within_ms(soon ? 1 : TURN_MS_MAX), NULL);
    return event.type == GRPC_OP_COMPLETE ? event.tag : NULL;
}

static void
print_progress(uint64_t now_ns)
{
    static uint64_t reported_ns;
    if (learning || now_ns - reported_ns < PROGRESS_MS * NS_PER_MS)
        return;
    reported_ns = now_ns;
    printf("{\"event\": \"progress\", \"seconds\": %.3f, \"sent\": %" PRIu64 ", \"ok\": %" PRIu64
           ", \"wrong\": %" PRIu64 ", \"failed\": %" PRIu64 ", \"unanswered\": %" PRIu64
           ", \"cancelled\": %" PRIu64 "}\n",
           (double)(now_ns - begin_ns) / 1e9, sums.sent, sums.ok, sums.wrong, sums.failed,
           sums.unanswered, sums.cancelled);
    fflush(stdout);
}

/* NULL: there are no more. */
static struct question *
next_question(uint64_t now_ns)
{
    if (learning)
        return sums.sent < exam.count ? &exam.questions[sums.sent] : NULL;
    bool over =
        stop_asked || (options.seconds > 0 && (double)(now_ns - begin_ns) > options.seconds * 1e9);
    return over ? NULL : &exam.questions[draw() % exam.count];
}

/* Keeps every flight out while there are questions, then waits for the last answer. */
static void
fly(void)
{
    uint64_t now_ns = bench_now_ns();
    struct question *question;
    do {
        question = next_question(now_ns);
        for (unsigned i = 0; i < flight_count && question != NULL; i++) {
            if (flights[i].state == FLIGHT_IDLE) {
                flight_start(&flights[i], question);
                question = next_question(now_ns);
            }
        }
        struct flight *ended = next_ended();
        now_ns = bench_now_ns();
        if (ended != NULL)
            flight_end(ended, now_ns);
        if (options.cancel_percent > 0 || flights_paused > 0)
            flights_tend(now_ns);
        print_progress(now_ns);
    } while (question != NULL || flights_out > 0);
}

static void
learn(void)
{
    learning = true;
    flight_count = REFERENCE_OUTSTANDING;
    fly();
    learning = false;
    if (sums.ok != exam.count)
        BENCH_FAIL("of %zu digits in the quiet run %" PRIu64 " were answered%s%s", exam.count,
                   sums.ok, reason_count > 0 ? ": " : "", reason_count > 0 ? reasons[0].text : "");
    printf("{\"event\": \"reference\", \"digits\": %zu, \"right\": %zu}\n", exam.count, exam.right);
    fflush(stdout);
    sums = (struct sums){0};
    samples.count = 0;
    last_ok_ns = 0;
    silence_ns_max = 0;
}

static void
print_json_text(const char *text)
{
    struct bytes quoted = {0};
    json_quote(&quoted, text, strlen(text), JSON_STYLE_ANY);
    printf("%.*s", (int)quoted.used, quoted.data);
    bytes_fini(&quoted);
}

static void
print_end(uint64_t now_ns)
{
    double seconds = (double)(now_ns - begin_ns) / 1e9;
    samples_sort(&samples);
    printf("{\"event\": \"end\", \"seconds\": %.3f, \"reference\": %zu, \"sent\": %" PRIu64
           ", \"ok\": %" PRIu64 ", \"wrong\": %" PRIu64 ", \"failed\": %" PRIu64
           ", \"unanswered\": %" PRIu64 ", \"cancelled\": %" PRIu64 ", \"cancels\": %" PRIu64
           ", \"ok_per_s\": %.1f",
           seconds, exam.count, sums.sent, sums.ok, sums.wrong, sums.failed, sums.unanswered,
           sums.cancelled, sums.cancels, (double)sums.ok / seconds);
    printf(", \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"max_ms\": %.3f, \"silence_ms_max\": %.1f",
           samples_percentile_us(&samples, 50) / 1e3, samples_percentile_us(&samples, 99) / 1e3,
           samples_percentile_us(&samples, 100) / 1e3, (double)silence_ns_max / 1e6);
    printf(", \"failures\": [");
    for (size_t i = 0; i < reason_count; i++) {
        printf("%s{\"status\": %d, \"count\": %" PRIu64 ", \"text\": ", i > 0 ? ", " : "",
               reasons[i].status, reasons[i].count);
        print_json_text(reasons[i].text);
        putchar('}');
    }
    printf("]}\n");
    fflush(stdout);
}

/* ---- start and end ---- */

static const char usage[] =
    "Usage: digits_load --target ADDRESS --data digits.csv [--seconds S] [--outstanding N]\n"
    "  [--channels N] [--timeout SECONDS] [--cancel PERCENT] [--cancel-within-us N]\n"
    "  [--think-ms N] [--wait-for-ready] [--seed N]\n";

static const struct option known[] = {
    {"target", required_argument, NULL, 't'},
    {"data", required_argument, NULL, 'd'},
    {"seconds", required_argument, NULL, 's'},
    {"outstanding", required_argument, NULL, 'n'},
    {"channels", required_argument, NULL, 'c'},
    {"timeout", required_argument, NULL, 'T'},
    {"cancel", required_argument, NULL, 'C'},
    {"cancel-within-us", required_argument, NULL, 'W'},
    {"think-ms", required_argument, NULL, 'k'},
    {"wait-for-ready", no_argument, NULL, 'w'},
    {"seed", required_argument, NULL, 'S'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static void
parse(int argc, char **argv)
{
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (option) {
        case 't': options.target = optarg; break;
        case 'd': options.data = optarg; break;
        case 's': options.seconds = strtod(optarg, NULL); break;
        case 'n':
            options.outstanding = bench_number("outstanding", optarg, 1, OUTSTANDING_MAX);
            break;
        case 'c': options.channels = bench_number("channels", optarg, 1, CHANNELS_MAX); break;
        case 'T': options.timeout_s = bench_number("timeout", optarg, 1, 86400); break;
        case 'C': options.cancel_percent = bench_number("cancel", optarg, 0, 100); break;
        case 'W':
            options.cancel_within_us = bench_number("cancel-within-us", optarg, 0, 60000000);
            break;
        case 'k': options.think_ms = bench_number("think-ms", optarg, 0, 60000); break;
        case 'w': options.wait_for_ready = true; break;
        case 'S': options.seed = bench_number("seed", optarg, 0, UINT64_MAX); break;
        case 'h': fputs(usage, stdout); exit(0);
        default: BENCH_FAIL("%s", usage);
        }
    }
    if (optind != argc || options.target == NULL || options.data == NULL)
        BENCH_FAIL("%s", usage);
}

static void
close_all(void)
{
    for (uint64_t i = 0; i < options.channels; i++)
        grpc_channel_destroy(channels[i].core);
    unary_queue_destroy(queue, 10000);
    samples_fini(&samples);
    grpc_shutdown();
    exam_close(&exam);
}

int
main(int argc, char **argv)
{
    parse(argc, argv);
    struct sigaction stop = {.sa_handler = on_stop};
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
    if (!exam_open(&exam, options.data))
        BENCH_FAIL("no digits");
    draw_state = options.seed;
    id_next = draw() << 20; /* another program's ids begin elsewhere */
    grpc_init();
    queue = grpc_completion_queue_create_for_next(NULL);
    samples_init(&samples, SAMPLES_MAX);
    channels_connect();
    for (uint64_t i = 0; i < OUTSTANDING_MAX; i++) {
        flights[i].channel = &channels[i % options.channels];
    }
    learn();
    begin_ns = bench_now_ns();
    flight_count = (unsigned)options.outstanding;
    fly();
    print_end(bench_now_ns());
    close_all();
    return 0;
}
