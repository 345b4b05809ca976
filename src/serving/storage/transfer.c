/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/storage/transfer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <curl/curl.h>

#include "base/check.h"
#include "base/clock.h"

/* A server that sends nothing for STALL_S is given up; slow ones are not. */
#define CONNECT_MS 5000L
#define STALL_S 15L
#define STALL_BYTES_PER_S 1L
#define BUFFER_BYTES (256 * 1024L)

struct transfers {
    CURLM *multi;
};

struct transfer {
    CURL *easy;
    struct curl_slist *headers;
    struct transfer_sink sink;
    struct transfer_end end;
    bool was_headed; /* the sink knows the head */
    char failure[CURL_ERROR_SIZE];
};

struct transfers *
transfers_create(void)
{
    struct transfers *transfers = calloc(1, sizeof(*transfers));
    CHECK(transfers != NULL && curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
    transfers->multi = curl_multi_init();
    CHECK(transfers->multi != NULL);
    return transfers;
}

void
transfers_destroy(struct transfers *transfers)
{
    curl_multi_cleanup(transfers->multi);
    curl_global_cleanup();
    free(transfers);
}

void
transfers_wake(struct transfers *transfers)
{
    (void)curl_multi_wakeup(transfers->multi);
}

/* ---- the answer ---- */

static bool
header_is(const char *line, size_t bytes, const char *name, const char **value, size_t *length)
{
    size_t skip = strlen(name);
    if (bytes < skip || strncasecmp(line, name, skip) != 0)
        return false;
    while (skip < bytes && (line[skip] == ' ' || line[skip] == '\t'))
        skip++;
    while (bytes > skip && (unsigned char)line[bytes - 1] <= ' ')
        bytes--;
    *value = line + skip;
    *length = bytes - skip;
    return true;
}

/* A new answer begins: after 100 Continue, or a proxy's. */
static void
head_begin(struct transfer_head *head)
{
    *head = (struct transfer_head){.length = -1, .range_from = -1, .range_of = -1};
}

/* "bytes 0-99/1000" */
static void
take_range(struct transfer_head *head, const char *value, size_t length)
{
    const char *slash = memchr(value, '/', length);
    if (strncasecmp(value, "bytes ", 6) != 0 || slash == NULL)
        return;
    head->range_from = strtoll(value + 6, NULL, 10);
    head->range_of = slash[1] >= '0' && slash[1] <= '9' ? strtoll(slash + 1, NULL, 10) : -1;
}

static size_t
on_header(char *line, size_t one, size_t count, void *context)
{
    struct transfer_head *head = &((struct transfer *)context)->end.head;
    size_t bytes = one * count;
    const char *value;
    size_t length;
    if (bytes > 5 && strncmp(line, "HTTP/", 5) == 0) {
        head_begin(head);
        head->is_framed = line[5] > '1';
    } else if (header_is(line, bytes, "etag:", &value, &length))
        snprintf(head->etag, sizeof(head->etag), "%.*s",
                 length < sizeof(head->etag) ? (int)length : 0, value);
    else if (header_is(line, bytes, "content-type:", &value, &length))
        snprintf(head->type, sizeof(head->type), "%.*s", (int)length, value);
    else if (header_is(line, bytes, "last-modified:", &value, &length))
        snprintf(head->modified, sizeof(head->modified), "%.*s", (int)length, value);
    else if (header_is(line, bytes, "content-range:", &value, &length))
        take_range(head, value, length);
    else if (header_is(line, bytes, "transfer-encoding:", &value, &length))
        head->is_framed = length >= 7 && strncasecmp(value + length - 7, "chunked", 7) == 0;
    return bytes;
}

static void
head_complete(struct transfer *transfer)
{
    struct transfer_head *head = &transfer->end.head;
    curl_off_t length = -1;
    curl_off_t retry_s = 0;
    curl_easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &head->status);
    curl_easy_getinfo(transfer->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    curl_easy_getinfo(transfer->easy, CURLINFO_RETRY_AFTER, &retry_s);
    head->length = length;
    head->retry_after_s = retry_s;
}

/* Passes the head to the sink, once. */
static bool
head_pass(struct transfer *transfer)
{
    struct transfer_end *end = &transfer->end;
    head_complete(transfer);
    if (transfer->was_headed || (end->head.status != 200 && end->head.status != 206))
        return true;
    transfer->was_headed = true;
    if (transfer->sink.on_head(transfer->sink.context, &end->head, &end->error) == STATUS_OK)
        return true;
    end->by_sink = true;
    return false;
}

static size_t
on_body(char *data, size_t one, size_t count, void *context)
{
    struct transfer *transfer = context;
    struct transfer_end *end = &transfer->end;
    size_t bytes = one * count;
    if (!head_pass(transfer))
        return CURL_WRITEFUNC_ERROR;
    if (!transfer->was_headed) {
        size_t room = sizeof(end->text) - end->text_bytes;
        size_t kept = bytes < room ? bytes : room;
        memcpy(end->text + end->text_bytes, data, kept);
        end->text_bytes += kept;
        return bytes;
    }
    if (transfer->sink.on_body(transfer->sink.context, data, bytes, &end->error) != STATUS_OK) {
        end->by_sink = true;
        return CURL_WRITEFUNC_ERROR;
    }
    end->body_bytes += bytes;
    return bytes;
}

static bool
may_recover(CURLcode code)
{
    switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_AGAIN: return true;
    default: return false;
    }
}

static void
take_end(struct transfer *transfer, CURLcode code)
{
    struct transfer_end *end = &transfer->end;
    char *location = NULL;
    if (code == CURLE_OK && !head_pass(transfer))
        code = CURLE_WRITE_ERROR;
    curl_easy_getinfo(transfer->easy, CURLINFO_REDIRECT_URL, &location);
    if (location != NULL && strlen(location) < sizeof(end->location))
        snprintf(end->location, sizeof(end->location), "%s", location);
    if (code == CURLE_OK || end->by_sink)
        return;
    end->may_recover = may_recover(code);
    error_set(&end->error, end->may_recover ? STATUS_UNAVAILABLE : STATUS_FAILED_PRECONDITION, "%s",
              transfer->failure[0] != '\0' ? transfer->failure : curl_easy_strerror(code));
}

/* ---- the request ---- */

static bool
set_pem(CURL *easy, CURLoption option, const char *pem)
{
    if (pem == NULL)
        return true;
    struct curl_blob blob = {(void *)(uintptr_t)pem, strlen(pem), CURL_BLOB_COPY};
    return curl_easy_setopt(easy, option, &blob) == CURLE_OK;
}

static void
set_options(struct transfer *transfer, const struct transfer_request *request)
{
    CURL *easy = transfer->easy;
    bool set = curl_easy_setopt(easy, CURLOPT_URL, request->url) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_HTTPHEADER, transfer->headers) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_USERAGENT, "shoald") == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_HEADERDATA, transfer) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_WRITEDATA, transfer) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, BUFFER_BYTES) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_PRIVATE, transfer) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer->failure) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, STALL_S) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, STALL_BYTES_PER_S) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
               curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L) == CURLE_OK;
    if (request->body != NULL)
        set = set && curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request->body) == CURLE_OK;
    if (request->method != NULL)
        set = set && curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method) == CURLE_OK;
    if (request->is_direct)
        set = set && curl_easy_setopt(easy, CURLOPT_NOPROXY, "*") == CURLE_OK;
    CHECK(set);
    if (!set_pem(easy, CURLOPT_CAINFO_BLOB, request->authority) ||
        !set_pem(easy, CURLOPT_SSLCERT_BLOB, request->client_certificate) ||
        !set_pem(easy, CURLOPT_SSLKEY_BLOB, request->client_key))
        CHECK(curl_easy_setopt(easy, CURLOPT_URL, "") == CURLE_OK); /* never without them */
}

struct transfer *
transfer_begin(struct transfers *transfers, const struct transfer_request *request,
               const struct transfer_sink *sink)
{
    struct transfer *transfer = calloc(1, sizeof(*transfer));
    CHECK(transfer != NULL);
    transfer->sink = *sink;
    head_begin(&transfer->end.head);
    for (unsigned i = 0; i < request->header_count; i++) {
        transfer->headers = curl_slist_append(transfer->headers, request->headers[i]);
        CHECK(transfer->headers != NULL);
    }
    transfer->easy = curl_easy_init();
    CHECK(transfer->easy != NULL);
    set_options(transfer, request);
    CHECK(curl_multi_add_handle(transfers->multi, transfer->easy) == CURLM_OK);
    return transfer;
}

struct transfer *
transfers_wait(struct transfers *transfers, int64_t until_ns)
{
    int left;
    int running;
    for (;;) {
        CHECK(curl_multi_perform(transfers->multi, &running) == CURLM_OK);
        const CURLMsg *message = curl_multi_info_read(transfers->multi, &left);
        if (message != NULL && message->msg == CURLMSG_DONE) {
            struct transfer *transfer = NULL;
            CURLcode code = message->data.result;
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&transfer);
            take_end(transfer, code);
            CHECK(curl_multi_remove_handle(transfers->multi, transfer->easy) == CURLM_OK);
            return transfer;
        }
        int64_t wait_ms = (until_ns - clock_now_ns()) / NS_PER_MS;
        if (wait_ms <= 0)
            return NULL;
        int ready = 0;
        enum { LOOK_MS = 1000 };
        CHECK(curl_multi_poll(transfers->multi, NULL, 0,
                              (int)(wait_ms < LOOK_MS ? wait_ms : LOOK_MS), &ready) == CURLM_OK);
        if (ready == 0)
            return NULL; /* woken, or the caller looks at the time */
    }
}

const struct transfer_end *
transfer_look(const struct transfer *transfer)
{
    return &transfer->end;
}

void *
transfer_context(const struct transfer *transfer)
{
    return transfer->sink.context;
}

void
transfer_free(struct transfers *transfers, struct transfer *transfer)
{
    if (transfer == NULL)
        return;
    (void)curl_multi_remove_handle(transfers->multi, transfer->easy); /* no error if it has ended */
    curl_easy_cleanup(transfer->easy);
    curl_slist_free_all(transfer->headers);
    free(transfer);
}
