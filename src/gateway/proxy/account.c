/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The outcome of requests: a line of the log for every n-th, and the tokens of each model on
 * each endpoint. Models are named as clients named them in requests that were answered, so servers
 * bound their number; beyond TOKEN_ROWS_MAX they are counted together.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "gateway/proxy/internal.h"

enum { TOKEN_ROWS_MAX = 1024, MODEL_NAME_BYTES = 128 };

struct token_row {
    struct hash_entry entry;
    char model[MODEL_NAME_BYTES];
    char endpoint[ENDPOINT_NAME_BYTES];
    struct usage tokens;
};

struct token_table {
    struct hash_table by_names;
    uint32_t count;
    struct token_row rows[TOKEN_ROWS_MAX + 1]; /* the last: all others */
};

struct token_table *
account_create(void)
{
    struct token_table *table = calloc(1, sizeof(*table));
    CHECK(table != NULL);
    memcpy(table->rows[TOKEN_ROWS_MAX].model, "other", sizeof("other"));
    return table;
}

void
account_destroy(struct token_table *table)
{
    hash_table_fini(&table->by_names);
    free(table);
}

/* A name that can be a label as it is; otherwise "other". */
static const char *
label_of(const char *model)
{
    for (const char *at = model; *at != '\0'; at++)
        if ((unsigned char)*at < 0x20 || *at == '"' || *at == '\\')
            return "other";
    return strlen(model) < MODEL_NAME_BYTES ? model : "other";
}

static struct token_row *
row_of(struct token_table *table, const char *model, const char *endpoint)
{
    uint64_t hash = gateway_name_hash(model, strlen(model)) * 31 +
                    gateway_name_hash(endpoint, strlen(endpoint));
    struct hash_entry *entry = hash_table_first(&table->by_names, hash);
    for (; entry != NULL; entry = hash_table_next(entry)) {
        struct token_row *row = (struct token_row *)entry;
        if (strcmp(row->model, model) == 0 && strcmp(row->endpoint, endpoint) == 0)
            return row;
    }
    if (table->count == TOKEN_ROWS_MAX)
        return &table->rows[TOKEN_ROWS_MAX];
    struct token_row *row = &table->rows[table->count++];
    memcpy(row->model, model, strlen(model) + 1);
    memcpy(row->endpoint, endpoint, strlen(endpoint) + 1);
    hash_table_add(&table->by_names, &row->entry, hash);
    return row;
}

void
account_tokens(struct exchange *exchange)
{
    struct llm_proxy *proxy = exchange->proxy;
    struct usage *usage = &exchange->usage;
    if (exchange->code != 200 || exchange->is_oip)
        return;
    if (!usage_read(&exchange->tail, usage)) {
        *usage = (struct usage){0, 0};
        proxy->counters[PROXY_USAGE_UNKNOWN]++;
        return;
    }
    struct token_row *row = row_of(proxy->tokens, label_of(exchange->model_name),
                                   endpoint_pool_name(proxy->endpoints, exchange->endpoint));
    row->tokens.prompt_tokens += usage->prompt_tokens;
    row->tokens.answer_tokens += usage->answer_tokens;
}

/* Makes a text fit for the log, where quotes end values. */
static const char *
logged(char room[MODEL_NAME_BYTES], const char *text)
{
    size_t used = 0;
    for (; text != NULL && text[used] != '\0' && used < MODEL_NAME_BYTES - 1; used++)
        room[used] = (unsigned char)text[used] < 0x20 || text[used] == '"' || text[used] == '\\'
                         ? '?'
                         : text[used];
    room[used] = '\0';
    return room;
}

void
account_log(const struct exchange *exchange, int code, const char *outcome)
{
    struct llm_proxy *proxy = exchange->proxy;
    int64_t now_ns = clock_now_ns();
    int64_t every = proxy->settings->access_log;
    if (every == 0 || proxy->calls++ % (uint64_t)every != 0)
        return;
    char id[MODEL_NAME_BYTES];
    char model[MODEL_NAME_BYTES];
    int64_t first_ns = exchange->first_ns != 0 ? exchange->first_ns - exchange->began_ns : 0;
    (void)log_beside(
        LOG_INFO,
        "call id=\"%s\" peer=%s path=\"%s\" model=\"%s\" endpoint=\"%s\" status=%d outcome=%s "
        "tries=%" PRIu32 " us=%" PRId64 " first_us=%" PRId64 " prompt_tokens=%" PRIu64
        " answer_tokens=%" PRIu64,
        logged(id, exchange->id), http_request_peer(exchange->request),
        http_request_path(exchange->request), logged(model, exchange->model_name),
        exchange->tries > 0 ? endpoint_pool_name(proxy->endpoints, exchange->endpoint) : "", code,
        outcome, exchange->tries, (now_ns - exchange->began_ns) / NS_PER_US, first_ns / NS_PER_US,
        exchange->usage.prompt_tokens, exchange->usage.answer_tokens);
}

static void
put_row(struct bytes *out, const char *figure, const struct token_row *row, uint64_t value)
{
    char line[2 * MODEL_NAME_BYTES + ENDPOINT_NAME_BYTES];
    int used = snprintf(line, sizeof(line),
                        "shoal_gateway_%s_total{model=\"%s\",endpoint=\"%s\"} %" PRIu64 "\n",
                        figure, row->model, row->endpoint, value);
    bytes_put(out, line, (size_t)used);
}

void
account_write_metrics(const struct token_table *table, struct bytes *out)
{
    const struct token_row *other = &table->rows[TOKEN_ROWS_MAX];
    for (uint32_t i = 0; i < table->count; i++)
        put_row(out, "prompt_tokens", &table->rows[i], table->rows[i].tokens.prompt_tokens);
    put_row(out, "prompt_tokens", other, other->tokens.prompt_tokens);
    for (uint32_t i = 0; i < table->count; i++)
        put_row(out, "answer_tokens", &table->rows[i], table->rows[i].tokens.answer_tokens);
    put_row(out, "answer_tokens", other, other->tokens.answer_tokens);
}
