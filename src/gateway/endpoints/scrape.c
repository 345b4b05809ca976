/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "gateway/endpoints/internal.h"

enum { MODELS_MS = 10000 };

static struct http_call *
get(struct endpoint_member *member, struct http_target *target, const char *path,
    const struct http_call_handler *handler)
{
    int64_t limit_ns = member->pool->settings->scrape_timeout_ms * NS_PER_MS;
    const struct http_call_request request = {
        .method = "GET", .path = path, .timeouts = {.connect_ns = limit_ns, .total_ns = limit_ns}};
    return http_call_start(target, &request, handler, member);
}

/* ---- /v1/models ---- */

static void ask_models(struct endpoint_member *member);

static void
report_page(struct endpoint_member *member)
{
    metrics_page_take_models(&member->page, &member->model_list);
    member->pool->on_scraped(member, &member->page.figures);
}

static void
release_scrape(struct endpoint_member *member)
{
    if (!member->scrape_waits)
        return;
    member->scrape_waits = false;
    report_page(member);
}

static void
on_models_head(void *context, struct http_call *call)
{
    (void)call;
    struct endpoint_member *member = context;
    member->models_coming.used = 0;
}

static void
on_models_piece(void *context, struct http_call *call, const void *data, size_t bytes)
{
    struct endpoint_member *member = context;
    if (member->models_coming.used + bytes <= MODELS_BYTES_MAX) {
        bytes_put(&member->models_coming, data, bytes);
        return;
    }
    member->pool->models_ignored++;
    member->ask_models = NULL;
    http_call_cancel(call);
    release_scrape(member);
}

static void
on_models_end(void *context, struct http_call *call, enum http_call_end end)
{
    struct endpoint_member *member = context;
    member->ask_models = NULL;
    if (end == HTTP_CALL_STALE) {
        ask_models(member);
        return;
    }
    bool is_forgotten = member->models_ms == 0; /* the server may be another now */
    if (end == HTTP_CALL_DONE && http_call_code(call) == 200 && !is_forgotten &&
        !member->models_coming.failed) {
        struct bytes old = member->models;
        member->models = member->models_coming;
        member->models_coming = old;
        member->listed_ms = member->asked_ms;
        model_list_read(member->models.data, member->models.used, &member->model_list);
    }
    release_scrape(member);
}

static void
ask_models(struct endpoint_member *member)
{
    static const struct http_call_handler handler = {on_models_head, on_models_piece,
                                                     on_models_end};
    member->models_ms = member->asked_ms = pool_now_ms();
    member->ask_models = get(member, member->target, "/v1/models", &handler);
}

/* ---- /metrics ---- */

static void
on_page_head(void *context, struct http_call *call)
{
    (void)call;
    struct endpoint_member *member = context;
    metrics_page_begin(&member->page);
}

static void
on_page_piece(void *context, struct http_call *call, const void *data, size_t bytes)
{
    struct endpoint_member *member = context;
    if (http_call_code(call) == 200)
        metrics_page_feed(&member->page, data, bytes);
}

/* A server without that page lives, too. */
static void
on_page_end(void *context, struct http_call *call, enum http_call_end end)
{
    struct endpoint_member *member = context;
    member->scrape = NULL;
    if (end == HTTP_CALL_STALE) {
        member_scrape(member);
        return;
    }
    if (end == HTTP_CALL_REFUSED && http_call_mistake(call) != NULL)
        log_warn_limited("endpoint_untrusted endpoint=\"%s\" address=%s name=\"%s\" error=\"%s\"",
                         member->entry.name, member->entry.address, member->entry.tls_name,
                         http_call_mistake(call));
    if (end != HTTP_CALL_DONE || http_call_code(call) >= 500) {
        member->pool->on_scraped(member, NULL);
        return;
    }
    metrics_page_end(&member->page);
    member->pool->lines_ignored += member->page.lines_ignored;
    bool is_first = member->models_ms == 0;
    if (member->ask_models == NULL && member->is_listed &&
        (is_first || pool_now_ms() - member->models_ms >= MODELS_MS)) {
        member->scrape_waits = is_first;
        ask_models(member);
    }
    if (!member->scrape_waits)
        report_page(member);
}

void
member_scrape(struct endpoint_member *member)
{
    static const struct http_call_handler handler = {on_page_head, on_page_piece, on_page_end};
    member->scrape = get(member, member->metrics_target, "/metrics", &handler);
}

void
member_forget(struct endpoint_member *member)
{
    member->models_ms = 0;
    member->model_list = (struct model_list){.base = 0};
    bytes_fini(&member->models);
    if (member->scrape_waits) /* the core waits for the scrape, which waits for this call */
        return;
    if (member->ask_models != NULL)
        http_call_cancel(member->ask_models);
    member->ask_models = NULL;
    bytes_fini(&member->models_coming);
}
