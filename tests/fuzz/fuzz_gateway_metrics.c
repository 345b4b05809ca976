/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a server's page of metrics, whole and cut into spans, whose length the first byte
 * gives: the figures must be the same, and such that the core can take them. The bytes are also a
 * server's list of models, and the values of the headers that report its load.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "gateway/scan/load_report.h"
#include "gateway/scan/metrics_page.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
read_page(struct metrics_page *page, const uint8_t *data, size_t size, size_t span)
{
    metrics_page_begin(page);
    for (size_t at = 0; at < size; at += span) {
        size_t bytes = size - at < span ? size - at : span;
        char *piece = malloc(bytes); /* of exactly that size: reading beyond it is seen */
        CHECK(piece != NULL);
        memcpy(piece, data + at, bytes);
        metrics_page_feed(page, piece, bytes);
        free(piece);
    }
    metrics_page_end(page);
}

static void
check_same(const struct metrics_page *one, const struct metrics_page *other)
{
    const struct gateway_figures *a = &one->figures;
    const struct gateway_figures *b = &other->figures;
    CHECK(a->is_known == b->is_known && a->waiting == b->waiting && a->running == b->running);
    CHECK(a->base_model == b->base_model && a->adapters_max == b->adapters_max);
    CHECK(a->kv_used == b->kv_used && a->adapter_count == b->adapter_count);
    CHECK(one->lines_ignored == other->lines_ignored);
    for (uint32_t i = 0; i < a->adapter_count; i++)
        CHECK(one->adapters[i].name == other->adapters[i].name &&
              one->adapters[i].state == other->adapters[i].state);
}

static void
read_report(const uint8_t *data, size_t size)
{
    static struct load_report report;
    report.figures = (struct gateway_report){.has_waiting = false};
    char *text = malloc(size + 1);
    CHECK(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    for (const char *const *name = load_report_headers; *name != NULL; name++)
        load_report_read(*name, text, &report);
    const struct gateway_report *figures = &report.figures;
    CHECK(!figures->has_kv_used || (figures->kv_used >= 0 && figures->kv_used <= 1));
    CHECK(figures->adapter_count <= GATEWAY_ADAPTERS_MAX);
    free(text);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct model_list list;
    static struct metrics_page whole;
    static struct metrics_page cut;
    if (size < 2)
        return 0;
    size_t span = (size_t)data[0] + 1;
    read_page(&whole, data + 1, size - 1, size - 1);
    read_page(&cut, data + 1, size - 1, span);
    check_same(&whole, &cut);
    CHECK(whole.figures.kv_used >= 0 && whole.figures.kv_used <= 1);
    CHECK(whole.figures.adapter_count <= GATEWAY_ADAPTERS_MAX);
    model_list_read((const char *)data + 1, size - 1, &list);
    CHECK(list.count <= MODEL_LIST_MAX);
    read_report(data + 1, size - 1);
    return 0;
}
