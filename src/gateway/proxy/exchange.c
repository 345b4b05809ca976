/* SPDX-License-Identifier: Apache-2.0 */
/* The life of an exchange: its memory is taken at start, its body on arrival. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "gateway/proxy/internal.h"

void
exchange_enter(struct exchange *exchange, enum exchange_state state)
{
    CHECK(state == exchange->state + 1 ||
          (state == EXCHANGE_FREE && exchange->state != EXCHANGE_FREE));
    exchange->state = state;
}

struct exchange *
exchange_begin(struct llm_proxy *proxy, struct http_request *request, struct api_key *key)
{
    uint32_t number = proxy->first_free;
    if (number == EXCHANGE_NONE)
        return NULL;
    struct exchange *exchange = &proxy->exchanges[number];
    proxy->first_free = exchange->next_free;
    proxy->open_count++;
    exchange_enter(exchange, EXCHANGE_READING);
    exchange->request = request;
    exchange->began_ns = clock_now_ns();
    exchange->call = NULL;
    exchange->body = NULL;
    exchange->blocks = NULL;
    exchange->body_bytes = exchange->body_room = exchange->block_count = 0;
    exchange->held = (struct bytes){0};
    exchange->key = key;
    exchange->used = 0;
    exchange->model_name = NULL;
    exchange->is_oip = exchange->is_streamed = false;
    exchange->tail.used = 0;
    exchange->usage = (struct usage){0, 0};
    exchange->tries = 0;
    exchange->first_ns = 0;
    exchange->code = 0;
    exchange->method = NULL;
    exchange->stream = NULL;
    exchange->timer = NULL;
    exchange->whole_bytes = exchange->sent_bytes = exchange->part_bytes = 0;
    exchange->has_ended = exchange->is_paused = false;
    exchange->sent_model = NULL;
    const char *id = http_request_header(request, "x-request-id");
    if (id != NULL && *id != '\0' && strlen(id) < sizeof(exchange->id))
        memcpy(exchange->id, id, strlen(id) + 1);
    else
        snprintf(exchange->id, sizeof(exchange->id), "%016" PRIx64 "%016" PRIx64, proxy->id_seed,
                 ++proxy->id_next);
    http_request_set_user(request, exchange);
    return exchange;
}

void
exchange_forget_body(struct exchange *exchange)
{
    size_t bytes = exchange->body_room + exchange->own_bytes;
    CHECK(exchange->proxy->bodies_bytes >= bytes);
    exchange->proxy->bodies_bytes -= bytes;
    free(exchange->body);
    free(exchange->own_name);
    free(exchange->blocks);
    exchange->own_name = NULL;
    exchange->own_bytes = 0;
    exchange->body = NULL;
    exchange->blocks = NULL;
    exchange->body_bytes = exchange->body_room = exchange->block_count = 0;
}

void
exchange_cancel(struct exchange *exchange)
{
    if (exchange->call != NULL)
        http_call_cancel(exchange->call);
    if (exchange->stream != NULL)
        http2_call_cancel(exchange->stream);
    exchange->call = NULL;
    exchange->stream = NULL;
}

void
exchange_free(struct exchange *exchange)
{
    struct llm_proxy *proxy = exchange->proxy;
    CHECK(exchange->call == NULL && exchange->stream == NULL);
    if (exchange->key != NULL)
        api_key_release(exchange->key, exchange->used);
    exchange->key = NULL;
    exchange_forget_body(exchange);
    bytes_fini(&exchange->held);
    free(exchange->model_name);
    free(exchange->routed_path);
    free(exchange->sent_model);
    loop_timer_destroy(exchange->timer);
    exchange->model_name = exchange->routed_path = exchange->sent_model = NULL;
    exchange->timer = NULL;
    exchange_enter(exchange, EXCHANGE_FREE);
    exchange->next_free = proxy->first_free;
    proxy->first_free = exchange->number;
    CHECK(proxy->open_count > 0);
    proxy->open_count--;
    CHECK(proxy->open_count > 0 || proxy->bodies_bytes == 0);
    if (proxy->on_drained != NULL && proxy->open_count == 0)
        loop_timer_set(proxy->drain, 0); /* its answer is still to be written */
}

/* Beyond bodies_mib_max if need be, by no more than a name. */
static void
put_name(struct exchange *exchange, const char *inside, size_t inside_bytes)
{
    size_t bytes = inside_bytes + 2;
    size_t after = exchange->name_at + exchange->name_bytes;
    size_t needed = exchange->body_bytes - exchange->name_bytes + bytes;
    if (needed > exchange->body_room) {
        exchange->body = realloc(exchange->body, needed);
        CHECK(exchange->body != NULL);
        exchange->proxy->bodies_bytes += needed - exchange->body_room;
        exchange->body_room = needed;
    }
    char *name = exchange->body + exchange->name_at;
    memmove(name + bytes, exchange->body + after, exchange->body_bytes - after);
    name[0] = name[bytes - 1] = '"';
    memcpy(name + 1, inside, inside_bytes);
    exchange->name_bytes = bytes;
    exchange->body_bytes = needed;
}

/* Another try may be for a target that leaves the client's name as it came. */
static void
keep_own_name(struct exchange *exchange)
{
    if (exchange->own_name != NULL)
        return;
    exchange->own_bytes = exchange->name_bytes - 2;
    exchange->own_name = malloc(exchange->own_bytes);
    CHECK(exchange->own_name != NULL);
    memcpy(exchange->own_name, exchange->body + exchange->name_at + 1, exchange->own_bytes);
    exchange->proxy->bodies_bytes += exchange->own_bytes;
}

static void
rewrite_body(struct exchange *exchange, const char *model)
{
    if (model != NULL) {
        keep_own_name(exchange);
        put_name(exchange, model, strlen(model));
    } else if (exchange->own_name != NULL) {
        put_name(exchange, exchange->own_name, exchange->own_bytes);
    }
}

/* "/v2/models/NAME…" */
static void
rewrite_path(struct exchange *exchange, const char *model)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-._~:";
    static const char prefix[] = "/v2/models/";
    const char *rest = strchr(http_request_path(exchange->request) + sizeof(prefix) - 1, '/');
    struct bytes path = {0};
    char code[4];
    bytes_put_text(&path, prefix);
    for (const char *at = model; *at != '\0'; at++) {
        snprintf(code, sizeof(code), strchr(plain, *at) != NULL ? "%c" : "%%%02X",
                 (unsigned char)*at);
        bytes_put_text(&path, code);
    }
    bytes_put(&path, rest, strlen(rest) + 1);
    CHECK(!path.failed);
    exchange->routed_path = bytes_take(&path, &(size_t){0});
}

void
exchange_rewrite(struct exchange *exchange, const char *model)
{
    free(exchange->routed_path);
    exchange->routed_path = NULL;
    if (!exchange->is_oip)
        rewrite_body(exchange, model);
    else if (model != NULL)
        rewrite_path(exchange, model);
}

struct gateway_ask
exchange_ask(const struct exchange *exchange)
{
    return (struct gateway_ask){.port = exchange->method != NULL ? GATEWAY_PORT_GRPC
                                                                 : GATEWAY_PORT_HTTP,
                                .model = exchange->model,
                                .session = exchange->session,
                                .label = exchange->label,
                                .block_count = exchange->block_count,
                                .blocks = exchange->blocks,
                                .priority = exchange->priority,
                                .has_priority = exchange->has_priority,
                                .flow = exchange->flow,
                                .bytes = exchange->body_bytes,
                                .tokens = exchange->tokens,
                                .slo_ms = exchange->slo_ms,
                                .is_streamed = exchange->is_streamed};
}
