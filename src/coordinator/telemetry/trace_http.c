/* SPDX-License-Identifier: Apache-2.0 */
#include <curl/curl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "coordinator/telemetry/trace_json.h"
#include "coordinator/telemetry/trace_sink.h"

#define SEND_NS (10 * NS_PER_S)
#define CONNECT_MS 5000L

enum { ANSWER_BYTES_MAX = 4096 };

struct http_sink {
    struct trace_sink sink; /* first: the tracer's view of it */
    char *url;
    CURLM *multi;
    CURL *easy;
    struct curl_slist *headers;
    _Atomic int64_t until_ns;
    char answer[ANSWER_BYTES_MAX]; /* the part of the answer that fits */
    size_t answer_bytes;
    char failure[CURL_ERROR_SIZE];
};

static struct http_sink *
http_of(struct trace_sink *sink)
{
    return (struct http_sink *)(void *)sink;
}

static size_t
on_answer(char *data, size_t one, size_t bytes, void *context)
{
    struct http_sink *http = context;
    size_t room = sizeof(http->answer) - http->answer_bytes;
    size_t kept = bytes * one < room ? bytes * one : room;
    memcpy(http->answer + http->answer_bytes, data, kept);
    http->answer_bytes += kept;
    return bytes * one; /* the rest is read and dropped: the connection stays usable */
}

/* Returns when the transfer or its time is over. */
static CURLcode
transfer(struct http_sink *http)
{
    int64_t end_ns = clock_now_ns() + SEND_NS;
    int running = 1;
    for (;;) {
        if (curl_multi_perform(http->multi, &running) != CURLM_OK)
            return CURLE_FAILED_INIT;
        if (running == 0)
            break;
        int64_t until_ns = atomic_load(&http->until_ns);
        int64_t left_ns = (until_ns < end_ns ? until_ns : end_ns) - clock_now_ns();
        if (left_ns <= 0)
            return CURLE_OPERATION_TIMEDOUT;
        int64_t wait_ns = left_ns < TRACE_SINK_LOOK_NS ? left_ns : TRACE_SINK_LOOK_NS;
        int wait_ms = (int)(wait_ns / NS_PER_MS) + 1;
        if (curl_multi_poll(http->multi, NULL, 0, wait_ms, NULL) != CURLM_OK)
            return CURLE_FAILED_INIT;
        if (http->sink.meanwhile != NULL)
            http->sink.meanwhile(http->sink.context);
    }
    int left;
    const CURLMsg *message = curl_multi_info_read(http->multi, &left);
    return message != NULL && message->msg == CURLMSG_DONE ? message->data.result
                                                           : CURLE_FAILED_INIT;
}

static enum trace_sink_result
judge(struct http_sink *http, CURLcode code, struct trace_sink_answer *answer)
{
    long number = 0;
    curl_off_t retry_s = 0;
    if (code != CURLE_OK) {
        error_set(&answer->error, STATUS_UNAVAILABLE, "posting traces to %s: %s", http->url,
                  http->failure[0] != '\0' ? http->failure : curl_easy_strerror(code));
        return SINK_LATER;
    }
    curl_easy_getinfo(http->easy, CURLINFO_RESPONSE_CODE, &number);
    if (number >= 200 && number < 300) {
        answer->rejected = trace_answer_rejected(http->answer, http->answer_bytes);
        return SINK_TAKEN;
    }
    error_set(&answer->error, STATUS_UNAVAILABLE, "posting traces to %s: it answers %ld: %.*s",
              http->url, number, (int)http->answer_bytes, http->answer);
    if (number != 429 && number != 502 && number != 503 && number != 504)
        return SINK_REFUSED;
    curl_easy_getinfo(http->easy, CURLINFO_RETRY_AFTER, &retry_s);
    answer->said_ns = retry_s > 0 && retry_s < INT32_MAX ? retry_s * NS_PER_S : 0;
    return SINK_LATER;
}

static enum trace_sink_result
http_send(struct trace_sink *sink, const char *text, size_t bytes, struct trace_sink_answer *answer)
{
    struct http_sink *http = http_of(sink);
    http->answer_bytes = 0;
    http->failure[0] = '\0';
    CHECK(curl_easy_setopt(http->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)bytes) == CURLE_OK);
    CHECK(curl_easy_setopt(http->easy, CURLOPT_POSTFIELDS, text) == CURLE_OK);
    CHECK(curl_multi_add_handle(http->multi, http->easy) == CURLM_OK);
    CURLcode code = transfer(http);
    enum trace_sink_result result = judge(http, code, answer);
    CHECK(curl_multi_remove_handle(http->multi, http->easy) == CURLM_OK);
    return result;
}

static void
http_hurry(struct trace_sink *sink, int64_t until_ns)
{
    struct http_sink *http = http_of(sink);
    atomic_store(&http->until_ns, until_ns);
    (void)curl_multi_wakeup(http->multi);
}

static void
http_close(struct trace_sink *sink)
{
    struct http_sink *http = http_of(sink);
    curl_easy_cleanup(http->easy);
    curl_multi_cleanup(http->multi);
    curl_slist_free_all(http->headers);
    curl_global_cleanup();
    free(http->url);
    free(http);
}

static enum status
url_check(const char *url, struct error *error)
{
    CURLU *parts = curl_url();
    CHECK(parts != NULL);
    CURLUcode code = curl_url_set(parts, CURLUPART_URL, url, 0);
    curl_url_cleanup(parts);
    if (code == CURLUE_OK)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT, "traces cannot go to %s: %s", url,
                     curl_url_strerror(code));
}

static void
set_options(struct http_sink *http)
{
    CURL *easy = http->easy;
    bool set = curl_easy_setopt(easy, CURLOPT_URL, http->url) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_POST, 1L) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_HTTPHEADER, http->headers) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_answer) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_WRITEDATA, http) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, http->failure) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
               /* the end does not wait for a name lookup */
               curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L) == CURLE_OK;
    CHECK(set);
}

enum status
trace_http_open(const char *url, struct trace_sink **sink, struct error *error)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return error_set(error, STATUS_INTERNAL, "libcurl does not start");
    enum status status = url_check(url, error);
    if (status != STATUS_OK) {
        curl_global_cleanup();
        return status;
    }
    struct http_sink *http = calloc(1, sizeof(*http));
    CHECK(http != NULL);
    http->sink = (struct trace_sink){.send = http_send, .hurry = http_hurry, .close = http_close};
    atomic_store(&http->until_ns, TIME_NEVER_NS);
    http->url = strdup(url);
    http->multi = curl_multi_init();
    http->easy = curl_easy_init();
    http->headers = curl_slist_append(NULL, "Content-Type: application/json");
    CHECK(http->url != NULL && http->multi != NULL && http->easy != NULL && http->headers != NULL);
    CHECK(curl_slist_append(http->headers, "User-Agent: shoald") != NULL &&
          curl_slist_append(http->headers, "Expect:") != NULL);
    set_options(http);
    *sink = &http->sink;
    return STATUS_OK;
}
