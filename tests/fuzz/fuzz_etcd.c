/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as an answer of etcd's gateway. The first byte chooses the kind: each kind of call, a
 * failure, a line of a watch. Accepted answers keep the promises of answer.h.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "mesh/etcd/answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads all of it, so that a length that is wrong is found. */
static uint64_t
sum(struct etcd_bytes bytes)
{
    const unsigned char *data = bytes.data;
    uint64_t total = 0;
    for (size_t i = 0; i < bytes.bytes; i++)
        total += data[i];
    return total;
}

static uint64_t
check_answer(enum etcd_answer_kind kind, const struct etcd_reading *reading)
{
    const struct etcd_answer *answer = &reading->answer;
    uint64_t total = 0;
    CHECK(answer->revision >= 0 && answer->ttl_s >= 0);
    CHECK(kind != ETCD_KIND_LEASE || (answer->ttl_s > 0 && answer->lease_id != 0));
    CHECK(kind != ETCD_KIND_TOKEN || strpbrk(reading->token, "\r\n") == NULL);
    CHECK(kind > ETCD_KIND_DELETE || answer->response_count == 1);
    for (size_t i = 0; i < answer->response_count; i++)
        for (size_t k = 0; k < answer->responses[i].kv_count; k++)
            total += sum(answer->responses[i].kvs[k].key) + sum(answer->responses[i].kvs[k].value);
    return total;
}

static void
check_line(const char *text, size_t bytes)
{
    struct etcd_watch_line line;
    struct error error = ERROR_NONE;
    uint64_t total = 0;
    if (etcd_watch_line_read("http://e", text, bytes, &line, &error) != STATUS_OK)
        CHECK(error.text[0] != '\0');
    else if (line.failed)
        CHECK(line.failure.error.text[0] != '\0' && line.failure.fate != ETCD_DONE);
    else
        for (size_t i = 0; i < line.event_count; i++) {
            CHECK(line.events[i].kv.mod_revision > 0);
            total += sum(line.events[i].kv.key) + sum(line.events[i].kv.value);
        }
    CHECK(total != UINT64_MAX);
    etcd_watch_line_fini(&line);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const long statuses[] = {200, 400, 401, 408, 421, 429, 500, 503};
    if (size == 0)
        return 0;
    unsigned kind = data[0];
    size_t bytes = size - 1;
    char *text = malloc(bytes + 1); /* ends in a NUL, as the exchange gives it */
    CHECK(text != NULL);
    memcpy(text, data + 1, bytes);
    text[bytes] = '\0';
    if (kind <= ETCD_KIND_TOKEN) {
        struct etcd_reading reading;
        struct error error = ERROR_NONE;
        enum etcd_answer_kind as = (enum etcd_answer_kind)kind;
        if (etcd_answer_read(as, text, bytes, &reading, &error) == STATUS_OK)
            CHECK(check_answer(as, &reading) != UINT64_MAX);
        else
            CHECK(error.status == STATUS_INTERNAL && error.text[0] != '\0');
        etcd_reading_fini(&reading);
    } else if (kind & 1) {
        check_line(text, bytes);
    } else {
        struct etcd_verdict verdict;
        etcd_answer_judge("http://e", statuses[kind / 2 % 8], text, bytes, &verdict);
        CHECK(verdict.fate != ETCD_DONE && verdict.error.status != STATUS_OK);
    }
    free(text);
    return 0;
}
