/* SPDX-License-Identifier: Apache-2.0 */
/* Loads and unloads adapters on servers as the core says, through vLLM's API. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "base/log.h"
#include "gateway/endpoints/internal.h"

/* A list that was asked for before the last change may lack it. */
bool
member_lists(const struct endpoint_member *member)
{
    return member->models.used > 0 && member->adapting == NULL &&
           member->listed_ms > member->adapted_ms;
}

void
member_forget_loaded(struct endpoint_member *member)
{
    for (size_t i = 0; i < GATEWAY_ADAPTERS_MAX; i++) {
        free(member->loaded[i].name);
        member->loaded[i].name = NULL;
    }
}

static char *
take_loaded(struct endpoint_member *member, uint64_t adapter)
{
    for (size_t i = 0; i < GATEWAY_ADAPTERS_MAX; i++)
        if (member->loaded[i].name != NULL && member->loaded[i].hash == adapter) {
            char *name = member->loaded[i].name;
            member->loaded[i].name = NULL;
            return name;
        }
    return NULL;
}

/* Takes the name. */
static void
remember(struct endpoint_member *member, char *name)
{
    free(take_loaded(member, member->adapter));
    for (size_t i = 0; i < GATEWAY_ADAPTERS_MAX; i++)
        if (member->loaded[i].name == NULL) {
            member->loaded[i] = (struct loaded_adapter){member->adapter, name};
            return;
        }
    free(name);
}

static void
adapted(struct endpoint_member *member, int code)
{
    struct endpoint_pool *pool = member->pool;
    bool is_done = code == 200;
    const char *what = member->is_load ? "load" : "unload";
    char *name = member->adapter_name;
    member->adapting = NULL;
    member->adapter_name = NULL;
    bytes_fini(&member->adapt_body);
    member->adapted_ms = pool_now_ms();
    member->models_ms = 0; /* asks again with the next scrape */
    if (is_done) {
        *(member->is_load ? &pool->adapters_loaded : &pool->adapters_unloaded) += 1;
        log_info("adapter_changed endpoint=\"%s\" adapter=\"%s\" change=%s", member->entry.name,
                 name, what);
    } else {
        pool->adapters_failed++;
        log_warn("adapter_refused endpoint=\"%s\" adapter=\"%s\" change=%s status=%d",
                 member->entry.name, name, what, code);
    }
    bool is_usable = member->state == GATEWAY_UP || member->state == GATEWAY_SUSPECT;
    if (is_done && member->is_load && is_usable)
        remember(member, name);
    else
        free(name);
    pool->on_adapted(member, is_done ? GATEWAY_ADAPTER_DONE : GATEWAY_ADAPTER_FAILED);
}

static void
on_head(void *context, struct http_call *call)
{
    (void)context;
    (void)call;
}

static void
on_piece(void *context, struct http_call *call, const void *data, size_t bytes)
{
    (void)context;
    (void)call;
    (void)data;
    (void)bytes;
}

static void call_start(struct endpoint_member *member);

static void
on_end(void *context, struct http_call *call, enum http_call_end end)
{
    struct endpoint_member *member = context;
    if (end == HTTP_CALL_STALE)
        call_start(member);
    else
        adapted(member, end == HTTP_CALL_DONE ? http_call_code(call) : 0);
}

static void
call_start(struct endpoint_member *member)
{
    static const struct http_call_handler handler = {on_head, on_piece, on_end};
    static const struct http_header json = {"Content-Type", "application/json"};
    const struct gateway_settings *settings = member->pool->settings;
    const struct http_call_request request = {
        .method = "POST",
        .path = member->is_load ? "/v1/load_lora_adapter" : "/v1/unload_lora_adapter",
        .headers = &json,
        .header_count = 1,
        .body = member->adapt_body.data,
        .body_bytes = member->adapt_body.used,
        .timeouts = {.connect_ns = settings->connect_timeout_ms * NS_PER_MS,
                     .total_ns = settings->first_byte_timeout_ms * NS_PER_MS}};
    member->adapting = http_call_start(member->target, &request, &handler, member);
}

static void
change(struct endpoint_member *member, const char *path)
{
    struct json json = json_begin(&member->adapt_body, JSON_STYLE_ANY);
    json_open(&json, '{');
    json_field_string(&json, "lora_name", member->adapter_name);
    if (path != NULL)
        json_field_string(&json, "lora_path", path);
    json_close(&json, '}');
    CHECK(!member->adapt_body.failed);
    member->is_load = path != NULL;
    call_start(member);
}

void
member_load(struct endpoint_member *member, uint64_t adapter)
{
    const char *name;
    const char *path;
    CHECK(resources_adapter(member->pool->resources, adapter, &name, &path));
    member->adapter = adapter;
    member->adapter_name = strdup(name);
    CHECK(member->adapter_name != NULL);
    change(member, path);
}

void
member_unload(struct endpoint_member *member, uint64_t adapter)
{
    member->adapter = adapter;
    member->adapter_name = take_loaded(member, adapter);
    if (member->adapter_name == NULL) /* more were loaded than are remembered: it is refused */
        member->adapter_name = strdup("");
    CHECK(member->adapter_name != NULL);
    change(member, NULL);
}
