/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/telemetry/trace_backlog.h"

#include <stdlib.h>

#include "base/check.h"

void
backlog_init(struct backlog *backlog, size_t bytes_max)
{
    *backlog = (struct backlog){.bytes_max = bytes_max};
}

static void
drop_first(struct backlog *backlog)
{
    CHECK(backlog->count > 0);
    struct backlog_export *first = &backlog->exports[backlog->first];
    backlog->bytes -= first->bytes;
    free(first->text);
    backlog->first = (backlog->first + 1) % BACKLOG_EXPORTS_MAX;
    backlog->count--;
}

void
backlog_fini(struct backlog *backlog)
{
    while (backlog->count > 0)
        drop_first(backlog);
}

/* Drops the oldest export that may go; there is one. Returns its spans. */
static uint32_t
push_out(struct backlog *backlog)
{
    struct backlog_export *first = &backlog->exports[backlog->first];
    if (backlog->sending) { /* it changes places with the next one, which is dropped */
        struct backlog_export *second =
            &backlog->exports[(backlog->first + 1) % BACKLOG_EXPORTS_MAX];
        struct backlog_export sent = *first;
        *first = *second;
        *second = sent;
    }
    uint32_t spans = first->spans;
    drop_first(backlog);
    return spans;
}

uint64_t
backlog_put(struct backlog *backlog, struct backlog_export export)
{
    uint32_t stay = backlog->sending ? 1 : 0;
    size_t staying_bytes = backlog->sending ? backlog->exports[backlog->first].bytes : 0;
    if (staying_bytes + export.bytes > backlog->bytes_max) {
        free(export.text);
        return export.spans;
    }
    uint64_t dropped = 0;
    while (backlog->count > stay && (backlog->count == BACKLOG_EXPORTS_MAX ||
                                     backlog->bytes + export.bytes > backlog->bytes_max)) {
        dropped += push_out(backlog);
    }
    backlog->exports[(backlog->first + backlog->count) % BACKLOG_EXPORTS_MAX] = export;
    backlog->count++;
    backlog->bytes += export.bytes;
    return dropped;
}

const struct backlog_export *
backlog_first(const struct backlog *backlog)
{
    return backlog->count > 0 ? &backlog->exports[backlog->first] : NULL;
}

void
backlog_send(struct backlog *backlog)
{
    CHECK(backlog->count > 0);
    backlog->sending = true;
}

void
backlog_pop(struct backlog *backlog)
{
    drop_first(backlog);
    backlog->sending = false;
    backlog->pause_ns = 0;
    backlog->retry_ns = 0;
}

void
backlog_later(struct backlog *backlog, int64_t now_ns, int64_t said_ns)
{
    backlog->sending = false;
    backlog->pause_ns = backlog->pause_ns == 0 ? BACKLOG_PAUSE_FIRST_NS : 2 * backlog->pause_ns;
    if (backlog->pause_ns > BACKLOG_PAUSE_MAX_NS)
        backlog->pause_ns = BACKLOG_PAUSE_MAX_NS;
    if (said_ns > BACKLOG_SAID_MAX_NS)
        said_ns = BACKLOG_SAID_MAX_NS;
    backlog->retry_ns = now_ns + (said_ns > backlog->pause_ns ? said_ns : backlog->pause_ns);
}

int64_t
backlog_wait_ns(const struct backlog *backlog, int64_t now_ns)
{
    if (backlog->count == 0)
        return TIME_NEVER_NS;
    return backlog->retry_ns > now_ns ? backlog->retry_ns - now_ns : 0;
}

uint64_t
backlog_spans(const struct backlog *backlog)
{
    uint64_t spans = 0;
    for (uint32_t i = 0; i < backlog->count; i++)
        spans += backlog->exports[(backlog->first + i) % BACKLOG_EXPORTS_MAX].spans;
    return spans;
}
