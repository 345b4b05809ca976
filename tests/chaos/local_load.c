/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steady load of real digits as an honest local client (shoal/client.h), checked answer by answer:
 * what digits_load is for gRPC, with the same lines on standard output. First each held-out digit
 * is asked once, and its answer kept; then N requests are always in flight, and every answer must
 * be that again, bit by bit. SIGTERM: no new ones, the last are waited for, and the sums are
 * printed.
 *
 * A request ends as ok, wrong, cancelled (one in 64 is released in flight), unanswered (its
 * deadline two minutes away was reached) or failed, by status and text. A node that is not there is
 * waited for: a request that could not begin counts as refused, and is none.
 *
 * Exit code: 0 when the sums were printed; 2 when they could not be had.
 */
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shoal/client.h>

#include "../random.h"
#include "../../examples/digits/digits.h"
#include "base/clock.h"
#include "client/link.h"

enum {
    REASONS_MAX = 32,
    REASON_BYTES = 256,
    OUTSTANDING_MAX = 256,
    PAUSE_MS = 10,
    CONNECT_TRIES = 6000,
    RELEASED_ONE_IN = 64,
    WRONG_SHOWN = 5,
};

#define TIMEOUT_NS (120 * NS_PER_S)
#define TURN_NS (100 * (int64_t)NS_PER_MS)

struct answer {
    int64_t label;
    float probabilities[DIGITS_CLASSES];
};

struct reason {
    int status;
    char text[REASON_BYTES];
    uint64_t count;
};

struct sums {
    uint64_t sent, ok, wrong, cancelled, unanswered, failed, refused;
};

static struct shoal_client *client;
static struct digits digits;
static struct answer *learnt;
static uint32_t in_flight;
static struct sums sums;
static struct reason reasons[REASONS_MAX];
static size_t reason_count;
static uint64_t draw_state;
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

static _Noreturn void
fail(const char *what, const char *why)
{
    fprintf(stderr, "local_load: %s: %s\n", what, why);
    exit(2);
}

/* ---- one request ---- */

static bool
answer_read(const struct shoal_request *request, struct answer *answer)
{
    const struct shoal_tensor *label = shoal_request_output_named(request, "label");
    const struct shoal_tensor *probabilities = shoal_request_output_named(request, "probabilities");
    *answer = (struct answer){.label = -1};
    if (shoal_request_output_count(request) != 2 || label == NULL || probabilities == NULL ||
        label->bytes != sizeof(answer->label) ||
        probabilities->bytes != sizeof(answer->probabilities))
        return false;
    memcpy(&answer->label, label->data, sizeof(answer->label));
    memcpy(answer->probabilities, probabilities->data, sizeof(answer->probabilities));
    return true;
}

/* NULL: none can begin now; `*status` says why. */
static struct shoal_request *
ask(size_t digit, int32_t *status)
{
    static const int64_t shape[] = {1, DIGITS_PIXELS};
    struct shoal_request *request;
    *status = shoal_request_begin(client, &request, NULL);
    if (*status != SHOAL_OK)
        return NULL;
    void *pixels = shoal_request_input(request, "image", SHOAL_FP32, 2, shape);
    if (pixels != NULL)
        memcpy(pixels, digits.pixels + digit * DIGITS_PIXELS, DIGITS_PIXELS * sizeof(float));
    shoal_request_set_tag(request, &learnt[digit]);
    *status = shoal_request_submit(request, clock_now_ns() + TIMEOUT_NS);
    if (*status == SHOAL_OK)
        return request;
    shoal_request_release(request);
    return NULL;
}

static void
reason_add(int status, const char *text)
{
    size_t i = 0;
    while (i < reason_count && (reasons[i].status != status || strcmp(reasons[i].text, text) != 0))
        i++;
    if (i == REASONS_MAX)
        i--; /* all others count as the last */
    if (i == reason_count) {
        reasons[reason_count++].status = status;
        snprintf(reasons[i].text, sizeof(reasons[i].text), "%s", text);
    }
    reasons[i].count++;
}

static void
judge(const struct shoal_request *request)
{
    int32_t status = shoal_request_status(request);
    struct answer answer;
    if (status == SHOAL_DEADLINE_EXCEEDED) {
        sums.unanswered++;
    } else if (status != SHOAL_OK) {
        sums.failed++;
        reason_add(status, shoal_request_text(request));
    } else if (answer_read(request, &answer) &&
               memcmp(&answer, shoal_request_tag(request), sizeof(answer)) == 0) {
        sums.ok++;
    } else if (sums.wrong++ < WRONG_SHOWN) {
        fprintf(stderr, "wrong answer: label %" PRId64 ", %u outputs\n", answer.label,
                shoal_request_output_count(request));
    }
}

/* ---- all ---- */

/* One after the other, each as often as it takes: others do their worst already. */
static void
learn(void)
{
    size_t right = 0;
    for (size_t i = 0; i < digits.count && !stop_asked;) {
        int32_t status;
        struct shoal_request *request = ask(i, &status);
        if (request == NULL) {
            poll(NULL, 0, PAUSE_MS);
            continue;
        }
        if (shoal_request_wait(request, INT64_MAX) == SHOAL_OK &&
            answer_read(request, &learnt[i])) {
            right += learnt[i].label == (int64_t)digits.labels[i];
            i++;
        }
        shoal_request_release(request);
    }
    printf("{\"event\": \"reference\", \"digits\": %zu, \"right\": %zu}\n", digits.count, right);
    fflush(stdout);
}

static void
fill(uint32_t outstanding)
{
    while (in_flight < outstanding && !stop_asked) {
        int32_t status;
        struct shoal_request *request = ask(draw() % digits.count, &status);
        if (request == NULL) {
            if (status != SHOAL_RESOURCE_EXHAUSTED) {
                sums.refused++;
                poll(NULL, 0, PAUSE_MS);
            }
            return;
        }
        sums.sent++;
        if (draw() % RELEASED_ONE_IN == 0) {
            shoal_request_release(request);
            sums.cancelled++;
        } else {
            in_flight++;
        }
    }
}

static void
print_sums(const char *event)
{
    printf("{\"event\": \"%s\", \"reference\": %zu, \"sent\": %" PRIu64 ", \"ok\": %" PRIu64
           ", \"wrong\": %" PRIu64 ", \"failed\": %" PRIu64 ", \"unanswered\": %" PRIu64
           ", \"cancelled\": %" PRIu64 ", \"refused\": %" PRIu64 ", \"failures\": [",
           event, digits.count, sums.sent, sums.ok, sums.wrong, sums.failed, sums.unanswered,
           sums.cancelled, sums.refused);
    for (size_t i = 0; i < reason_count; i++) {
        printf("%s{\"status\": %d, \"count\": %" PRIu64 ", \"text\": \"", i > 0 ? ", " : "",
               reasons[i].status, reasons[i].count);
        for (const char *at = reasons[i].text; *at != '\0'; at++)
            putchar(*at == '"' || *at == '\\' ? '\'' : *at);
        printf("\"}");
    }
    printf("]}\n");
    fflush(stdout);
}

static void
load(uint32_t outstanding)
{
    int64_t reported_ns = 0;
    while (!stop_asked || in_flight > 0) {
        fill(outstanding);
        struct shoal_request *request;
        int64_t until_ns = clock_now_ns() + TURN_NS;
        while (in_flight > 0 && (request = shoal_client_wait_any(client, until_ns)) != NULL) {
            judge(request);
            shoal_request_release(request);
            in_flight--;
            until_ns = 0; /* what else has come already */
        }
        if (clock_now_ns() - reported_ns > TURN_NS) {
            reported_ns = clock_now_ns();
            print_sums("progress");
        }
    }
}

static void
connect_to(const char *socket)
{
    struct shoal_client_options options = {SHOAL_CLIENT_OPTIONS, .pipeline = "digits",
                                           .socket = socket};
    struct shoal_error error = {""};
    for (int i = 0; i < CONNECT_TRIES && !stop_asked; i++) {
        if (shoal_client_open(&options, &client, &error) == SHOAL_OK)
            return;
        poll(NULL, 0, PAUSE_MS);
    }
    fail("no node", error.text);
}

int
main(int argc, char **argv)
{
    struct sigaction stop = {.sa_handler = on_stop};
    sigaction(SIGTERM, &stop, NULL);
    if (argc != 5)
        fail("usage", "local_load SOCKET digits.csv OUTSTANDING SEED");
    uint32_t outstanding = (uint32_t)strtoul(argv[3], NULL, 10);
    draw_state = strtoull(argv[4], NULL, 10);
    struct digits all = {0};
    if (!digits_read(argv[2], &all) || !digits_select(&all, true, &digits))
        fail(argv[2], "no digits");
    digits_free(&all);
    learnt = calloc(digits.count, sizeof(*learnt));
    if (learnt == NULL || outstanding < 1 || outstanding > OUTSTANDING_MAX)
        fail("usage", "1 to 256 outstanding");
    connect_to(argv[1]);
    learn();
    load(outstanding);
    print_sums("end");
    shoal_client_close(client);
    free(learnt);
    digits_free(&digits);
    return 0;
}
