/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends every held-out image to the digits service, one image per request and many requests at a
 * time, so that the classifier can form batches. Prints how many digits were classified correctly,
 * the latency, and the rate.
 */
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "digits.h"
#include "inference/open_inference.pb-c.h"
#include "rpc/rpc.h"

#define SERVICE "/inference.GRPCInferenceService/"
#define CALL_TIMEOUT_NS (10 * NS_PER_S)
#define READY_POLL_NS (20 * NS_PER_MS)
#define ACCURACY_MIN 0.95

enum { THREADS_MAX = 256 };

/* The generated message code takes non-const strings but does not change them. */
static char model_name[] = "digits";
static char input_name[] = "image";
static char input_datatype[] = "FP32";

struct options {
    const char *target;
    const char *data;
    size_t thread_count;
    size_t round_count;
    long wait_s;
    bool json;
};

/* One thread's part of the work: the images whose number modulo the number of threads is its
 * own. */
struct sender {
    pthread_t thread;
    const struct options *options;
    const struct digits *digits;
    size_t index;
    struct rpc_channel *channel;
    size_t answered;
    size_t right;
    int64_t *latencies_ns; /* of the answered requests */
    struct error error;    /* why it stopped early */
};

struct summary {
    size_t answered;
    size_t right;
    int64_t duration_ns;
    int64_t *latencies_ns; /* sorted */
};

/* ---- one request ---- */

/* Packs the message and makes the call; the caller frees `*response`. */
static enum status
call(struct rpc_channel *channel, const char *method, const ProtobufCMessage *message,
     int64_t deadline_ns, void **response, size_t *response_bytes, struct error *error)
{
    size_t bytes = protobuf_c_message_get_packed_size(message);
    uint8_t *packed = malloc(bytes > 0 ? bytes : 1);
    if (packed == NULL)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory");
    protobuf_c_message_pack(message, packed);
    enum status status =
        rpc_channel_call(channel, &(struct rpc_channel_ask){method, packed, bytes, deadline_ns},
                         response, response_bytes, error);
    free(packed);
    return status;
}

/* Reads the tensor "label" of an answer: one INT64. */
static enum status
label_read(const Inference__ModelInferResponse *answer, int64_t *label, struct error *error)
{
    for (size_t i = 0; i < answer->n_outputs && i < answer->n_raw_output_contents; i++) {
        const ProtobufCBinaryData *raw = &answer->raw_output_contents[i];
        if (strcmp(answer->outputs[i]->name, "label") == 0 && raw->len == sizeof *label) {
            memcpy(label, raw->data, sizeof *label);
            return STATUS_OK;
        }
    }
    return error_set(error, STATUS_DATA_LOSS, "the answer has no tensor \"label\" of one INT64");
}

static enum status
classify(struct rpc_channel *channel, float *pixels, int64_t *label, struct error *error)
{
    int64_t shape[] = {1, DIGITS_PIXELS};
    Inference__ModelInferRequest__InferInputTensor input =
        INFERENCE__MODEL_INFER_REQUEST__INFER_INPUT_TENSOR__INIT;
    input.name = input_name;
    input.datatype = input_datatype;
    input.shape = shape;
    input.n_shape = 2;
    Inference__ModelInferRequest__InferInputTensor *inputs[] = {&input};
    ProtobufCBinaryData raw = {DIGITS_PIXELS * sizeof *pixels, (uint8_t *)pixels};
    Inference__ModelInferRequest request = INFERENCE__MODEL_INFER_REQUEST__INIT;
    request.model_name = model_name;
    request.inputs = inputs;
    request.n_inputs = 1;
    request.raw_input_contents = &raw;
    request.n_raw_input_contents = 1;

    void *bytes;
    size_t byte_count;
    enum status status = call(channel, SERVICE "ModelInfer", &request.base,
                              clock_now_ns() + CALL_TIMEOUT_NS, &bytes, &byte_count, error);
    if (status != STATUS_OK)
        return status;
    Inference__ModelInferResponse *answer =
        inference__model_infer_response__unpack(NULL, byte_count, bytes);
    free(bytes);
    if (answer == NULL)
        return error_set(error, STATUS_DATA_LOSS, "the answer is not a ModelInferResponse");
    status = label_read(answer, label, error);
    inference__model_infer_response__free_unpacked(answer, NULL);
    return status;
}

/* ---- waiting for the service ---- */

static enum status
model_ready(struct rpc_channel *channel, int64_t deadline_ns, bool *ready, struct error *error)
{
    Inference__ModelReadyRequest request = INFERENCE__MODEL_READY_REQUEST__INIT;
    request.name = model_name;
    void *bytes;
    size_t byte_count;
    enum status status =
        call(channel, SERVICE "ModelReady", &request.base, deadline_ns, &bytes, &byte_count, error);
    if (status != STATUS_OK)
        return status;
    Inference__ModelReadyResponse *answer =
        inference__model_ready_response__unpack(NULL, byte_count, bytes);
    free(bytes);
    *ready = answer != NULL && answer->ready;
    inference__model_ready_response__free_unpacked(answer, NULL);
    return STATUS_OK;
}

/* The call itself waits for the socket; while workers are starting it is repeated. */
static enum status
ready_wait(const struct options *options, struct error *error)
{
    int64_t deadline_ns = clock_now_ns() + options->wait_s * NS_PER_S;
    struct rpc_channel *channel;
    bool ready = false;
    enum status status = rpc_channel_create(options->target, &channel, error);
    if (status != STATUS_OK)
        return status;
    for (;;) {
        status = model_ready(channel, deadline_ns, &ready, error);
        if ((status == STATUS_OK && ready) || clock_now_ns() >= deadline_ns)
            break;
        nanosleep(&(struct timespec){.tv_nsec = READY_POLL_NS}, NULL);
    }
    rpc_channel_destroy(channel);
    if (status == STATUS_OK && ready)
        return STATUS_OK;
    if (status == STATUS_OK)
        status = error_set(error, STATUS_UNAVAILABLE, "its workers are still starting");
    return error_prefix(error, "%s is not ready after %ld s", options->target, options->wait_s);
}

/* ---- all requests ---- */

static void *
sender_run(void *argument)
{
    struct sender *self = argument;
    const struct digits *digits = self->digits;
    for (size_t round = 0; round < self->options->round_count; round++) {
        for (size_t i = self->index; i < digits->count; i += self->options->thread_count) {
            int64_t label = -1;
            int64_t start_ns = clock_now_ns();
            if (classify(self->channel, digits->pixels + i * DIGITS_PIXELS, &label, &self->error) !=
                STATUS_OK)
                return NULL;
            self->latencies_ns[self->answered++] = clock_now_ns() - start_ns;
            self->right += (float)label == digits->labels[i];
        }
    }
    return NULL;
}

static enum status
sender_init(struct sender *self, const struct options *options, const struct digits *digits,
            size_t index, struct error *error)
{
    size_t own_count = digits->count / options->thread_count + 1;
    self->options = options;
    self->digits = digits;
    self->index = index;
    self->latencies_ns = calloc(own_count * options->round_count, sizeof *self->latencies_ns);
    if (self->latencies_ns == NULL)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory");
    return rpc_channel_create(options->target, &self->channel, error);
}

static int
compare_ns(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a;
    int64_t right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

/* Sums the senders' results; fails with the first error among them. */
static enum status
summary_make(const struct sender *senders, size_t count, struct summary *summary,
             struct error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (senders[i].error.status != STATUS_OK) {
            *error = senders[i].error;
            return error->status;
        }
        memcpy(summary->latencies_ns + summary->answered, senders[i].latencies_ns,
               senders[i].answered * sizeof *summary->latencies_ns);
        summary->answered += senders[i].answered;
        summary->right += senders[i].right;
    }
    qsort(summary->latencies_ns, summary->answered, sizeof *summary->latencies_ns, compare_ns);
    return STATUS_OK;
}

static enum status
senders_run(struct sender *senders, const struct options *options, const struct digits *digits,
            struct summary *summary, struct error *error)
{
    size_t started = 0;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < options->thread_count && status == STATUS_OK; i++)
        status = sender_init(&senders[i], options, digits, i, error);
    int64_t start_ns = clock_now_ns();
    while (status == STATUS_OK && started < options->thread_count) {
        struct sender *sender = &senders[started];
        if (pthread_create(&sender->thread, NULL, sender_run, sender) != 0)
            status = error_set_errno(error, "starting thread %zu", started);
        else
            started++;
    }
    for (size_t i = 0; i < started; i++)
        pthread_join(senders[i].thread, NULL);
    summary->duration_ns = clock_now_ns() - start_ns;
    if (status == STATUS_OK)
        status = summary_make(senders, started, summary, error);
    return status;
}

static enum status
measure(const struct options *options, const struct digits *digits, struct summary *summary,
        struct error *error)
{
    enum status status = ready_wait(options, error);
    if (status != STATUS_OK)
        return status;
    struct sender *senders = calloc(options->thread_count, sizeof *senders);
    summary->latencies_ns =
        calloc(digits->count * options->round_count, sizeof *summary->latencies_ns);
    if (senders == NULL || summary->latencies_ns == NULL)
        status = error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory");
    else
        status = senders_run(senders, options, digits, summary, error);
    for (size_t i = 0; senders != NULL && i < options->thread_count; i++) {
        if (senders[i].channel != NULL)
            rpc_channel_destroy(senders[i].channel);
        free(senders[i].latencies_ns);
    }
    free(senders);
    return status;
}

/* ---- output ---- */

static int64_t
percentile_ns(const struct summary *summary, size_t percent)
{
    size_t index = summary->answered * percent / 100;
    return summary->latencies_ns[index < summary->answered ? index : summary->answered - 1];
}

static void
summary_print(const struct summary *summary, const struct options *options)
{
    double accuracy = (double)summary->right / (double)summary->answered;
    double rate = (double)summary->answered * (double)NS_PER_S / (double)summary->duration_ns;
    int64_t p50_ns = percentile_ns(summary, 50);
    int64_t p99_ns = percentile_ns(summary, 99);
    if (options->json) {
        printf("{\"requests\": %zu, \"right\": %zu, \"accuracy\": %.4f, \"threads\": %zu, "
               "\"p50_ns\": %" PRId64 ", \"p99_ns\": %" PRId64 ", \"requests_per_s\": %.0f}\n",
               summary->answered, summary->right, accuracy, options->thread_count, p50_ns, p99_ns,
               rate);
        return;
    }
    printf("accuracy  %.2f %% (%zu of %zu held-out digits right)\n", accuracy * 100,
           summary->right / options->round_count, summary->answered / options->round_count);
    printf("latency   p50 %.3f ms, p99 %.3f ms, %zu requests at a time\n",
           (double)p50_ns / NS_PER_MS, (double)p99_ns / NS_PER_MS, options->thread_count);
    printf("rate      %.0f requests per second (%zu in %.2f s)\n", rate, summary->answered,
           (double)summary->duration_ns / (double)NS_PER_S);
}

static const char usage[] =
    "usage: digits-client --target ADDRESS --data FILE [options]\n"
    "\n"
    "Sends every held-out digit to the digits service and checks the answers.\n"
    "\n"
    "  --target ADDRESS  where shoald listens: unix:/path or host:port\n"
    "  --data FILE       digits.csv\n"
    "  --threads N       requests at a time, 1 to 256; default 16\n"
    "  --rounds N        how often each digit is sent; default 1\n"
    "  --wait SECONDS    how long to wait for the service to be ready; default 10\n"
    "  --json            one line of JSON instead of the table\n"
    "  --help            this text\n"
    "\n"
    "Exit code: 0 if at least 95 % came back right, 1 if not or a call failed, 2 for a wrong "
    "option.\n";

/* Parses a whole number from `least` to `most`; else returns -1. */
static long
number_read(const char *text, long least, long most)
{
    char *end;
    long number = strtol(text, &end, 10);
    return end != text && *end == '\0' && number >= least && number <= most ? number : -1;
}

static bool
options_read(int argc, char **argv, struct options *options)
{
    static const struct option known[] = {
        {"target", required_argument, NULL, 't'},  {"data", required_argument, NULL, 'd'},
        {"threads", required_argument, NULL, 'n'}, {"rounds", required_argument, NULL, 'r'},
        {"wait", required_argument, NULL, 'w'},    {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0},
    };
    long thread_count = 16;
    long round_count = 1;
    long wait_s = 10;
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (option) {
        case 't': options->target = optarg; break;
        case 'd': options->data = optarg; break;
        case 'n': thread_count = number_read(optarg, 1, THREADS_MAX); break;
        case 'r': round_count = number_read(optarg, 1, 1000000); break;
        case 'w': wait_s = number_read(optarg, 1, 3600); break;
        case 'j': options->json = true; break;
        case 'h': fputs(usage, stdout); exit(0);
        default: return false;
        }
    }
    if (optind < argc || options->target == NULL || options->data == NULL || thread_count < 0 ||
        round_count < 0 || wait_s < 0)
        return false;
    options->thread_count = (size_t)thread_count;
    options->round_count = (size_t)round_count;
    options->wait_s = wait_s;
    return true;
}

int
main(int argc, char **argv)
{
    struct options options = {0};
    struct digits all = {0};
    struct digits unseen = {0};
    struct summary summary = {0};
    struct error error = ERROR_NONE;
    int exit_code = 1;
    if (!options_read(argc, argv, &options)) {
        fputs(usage, stderr);
        return 2;
    }
    if (!digits_read(options.data, &all) || !digits_select(&all, true, &unseen))
        goto out;
    rpc_init();
    if (measure(&options, &unseen, &summary, &error) != STATUS_OK) {
        fprintf(stderr, "digits-client: %s: %s\n", status_name(error.status), error.text);
    } else {
        summary_print(&summary, &options);
        exit_code = (double)summary.right < ACCURACY_MIN * (double)summary.answered;
    }
    rpc_shutdown();
out:
    free(summary.latencies_ns);
    digits_free(&unseen);
    digits_free(&all);
    return exit_code;
}
