/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a file of the gateway's resources: refused with line and field, or taken, and then
 * the core takes the routes, an endpoint of each pool, and requests for each model. The same bytes
 * are a file of manifests: what is taken has a canonical form, which reads as itself.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "gateway/core/gateway_core.h"
#include "gateway/resources/resources.h"
#include "serving/manifest/manifest.h"

enum { ENDPOINTS = 4, REQUESTS = 1 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_mistakes(char *const *mistakes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        CHECK(strncmp(mistakes[i], "text:", 5) == 0);
}

static void
step(struct gateway *core, struct gateway_event event)
{
    uint32_t count;
    const struct gateway_action *actions = gateway_step(core, &event, &count);
    for (uint32_t i = 0; i < count; i++)
        if (actions[i].kind == GATEWAY_SEND) {
            step(core, (struct gateway_event){.kind = GATEWAY_ENDED, .end = GATEWAY_END_CANCELLED});
            break;
        }
}

static void
route(const struct resource_set *set)
{
    const struct gateway_config config = {.endpoints_max = ENDPOINTS,
                                          .requests_max = REQUESTS,
                                          .tries_max = 2,
                                          .prefix_blocks_max = 8,
                                          .scrape_ms_min = 50,
                                          .scrape_ms_max = 5000,
                                          .objective_window_ms = 1000};
    struct gateway *core = gateway_create(&config);
    uint64_t pools[ENDPOINTS] = {resources_pools_of(set, "", 1),
                                 resources_pools_of(set, "\na=b\n", 8000), 1, UINT64_MAX};
    const struct gateway_routes routes = {.routes = set->routes,
                                          .route_count = set->route_count,
                                          .targets = set->targets,
                                          .target_count = set->target_count,
                                          .open_pools = set->open_pools,
                                          .rollouts = set->rollouts,
                                          .rollout_count = set->rollout_count,
                                          .pools = pools};
    for (uint32_t i = 0; i < ENDPOINTS; i++) {
        step(core, (struct gateway_event){.kind = GATEWAY_ADDED, .endpoint = i, .identity = i + 1});
        step(core, (struct gateway_event){.kind = GATEWAY_SCRAPED, .endpoint = i});
    }
    step(core, (struct gateway_event){.kind = GATEWAY_ROUTED, .routes = &routes});
    for (uint32_t i = 0; i < set->route_count; i++)
        step(core, (struct gateway_event){.kind = GATEWAY_REQUEST,
                                          .ask = {.model = set->routes[i].model}});
    for (uint32_t i = 0; i < set->rollout_count; i++) {
        const char *name;
        const char *path;
        CHECK(resources_adapter(set, set->rollouts[i].adapter, &name, &path) && path[0] != '\0');
    }
    gateway_check(core);
    gateway_destroy(core);
}

static void
read_resources(const char *text, size_t size)
{
    struct error error = ERROR_NONE;
    struct resource_set *set;
    struct bytes reported = {0};
    const struct resource_text texts[] = {{.name = "text", .text = text, .bytes = size}};
    enum status status = resources_read_texts(texts, 1, &set, &error);
    check_mistakes(set->mistakes, set->mistake_count);
    CHECK(status == STATUS_OK || (status == STATUS_INVALID_ARGUMENT && error.text[0] != '\0'));
    if (status == STATUS_OK) {
        resources_write_json(set, &reported);
        resources_write_text(set, &reported);
        CHECK(!reported.failed);
        for (uint32_t i = 0; i < set->count; i++)
            CHECK(resources_find(set, set->items[i].kind, set->items[i].name) == &set->items[i]);
        route(set);
    }
    bytes_fini(&reported);
    resources_free(set);
}

static void
read_manifests(const char *text, size_t size)
{
    struct error error = ERROR_NONE;
    struct manifest_file file;
    struct manifest_file again;
    enum status status = manifest_read("text", text, size, &file, &error);
    check_mistakes(file.mistakes, file.mistake_count);
    CHECK((status == STATUS_OK) == (file.mistake_count == 0));
    for (uint32_t i = 0; i < file.count && status == STATUS_OK; i++) {
        const char *json = file.items[i].json;
        CHECK(manifest_read("again", json, strlen(json), &again, &error) == STATUS_OK);
        CHECK(again.count == 1 && again.items[0].kind == file.items[i].kind);
        CHECK(strcmp(again.items[0].json, json) == 0);
        manifest_file_free(&again);
    }
    manifest_file_free(&file);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size > 0 ? size : 1); /* of exactly that size: reading beyond it is seen */
    CHECK(text != NULL);
    memcpy(text, data, size);
    read_resources(text, size);
    read_manifests(text, size);
    free(text);
    return 0;
}
