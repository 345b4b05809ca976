/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/scrape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "coordinator/telemetry/meters.h"
#include "coordinator/telemetry/metrics.h"

enum { HEADER_BYTES_MAX = 16 << 10, BODY_BYTES_MAX = 4 << 10, PATH_BYTES = 64 };

struct scrape {
    const struct meters *meters;
    char path[PATH_BYTES]; /* of the counters file, even if its name has moved since */
};

struct scrape *
scrape_create(const struct counters *counters, const struct meters *meters)
{
    struct scrape *scrape = calloc(1, sizeof(*scrape));
    CHECK(scrape != NULL);
    scrape->meters = meters;
    snprintf(scrape->path, sizeof(scrape->path), "/proc/self/fd/%d", counters->fd);
    return scrape;
}

void
scrape_destroy(struct scrape *scrape)
{
    free(scrape);
}

static void
answer_text(struct http_request *request, int code, const char *text)
{
    struct http_header headers[] = {{"Content-Type", "text/plain; charset=utf-8"},
                                    {"Allow", "GET, HEAD"}};
    struct http_piece piece = {.data = text, .bytes = strlen(text)};
    http_answer(request, code, headers, code == 405 ? 2 : 1, &piece, 1);
}

static void
answer_metrics(struct scrape *scrape, struct http_request *request)
{
    struct snapshot snapshot;
    struct error error = ERROR_NONE;
    if (snapshot_read(&snapshot, scrape->path, &error) != STATUS_OK) {
        answer_text(request, 500, error.text);
        return;
    }
    struct process_figures figures;
    process_figures_read(&figures);
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    CHECK(out != NULL);
    metrics_print(&snapshot, &figures, SHOAL_VERSION, out);
    if (scrape->meters != NULL)
        meters_print(scrape->meters, out);
    snapshot_free(&snapshot);
    CHECK(fclose(out) == 0);
    struct http_header header = {"Content-Type", "text/plain; version=0.0.4; charset=utf-8"};
    struct http_piece piece = {
        .data = text, .bytes = bytes, .release = free, .release_context = text};
    http_answer(request, 200, &header, 1, &piece, 1);
}

static void
on_request(void *context, struct http_request *request)
{
    const char *path = http_request_path(request);
    enum http_method method = http_request_method(request);
    bool metrics = strcmp(path, "/metrics") == 0;
    if (!metrics && strcmp(path, "/") != 0)
        answer_text(request, 404, "not found: the metrics are at /metrics\n");
    else if (method != HTTP_GET && method != HTTP_HEAD)
        answer_text(request, 405, "only GET and HEAD are answered here\n");
    else if (metrics)
        answer_metrics(context, request);
    else
        answer_text(request, 200, "shoald " SHOAL_VERSION ": the metrics are at /metrics\n");
}

struct http_service
scrape_service(struct scrape *scrape)
{
    return (struct http_service){.on_request = on_request,
                                 .context = scrape,
                                 .header_bytes_max = HEADER_BYTES_MAX,
                                 .body_bytes_max = BODY_BYTES_MAX};
}
