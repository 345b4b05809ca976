/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/etcd/endpoints.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"

enum { URL_BYTES_MAX = 384 };

#define PAUSE_NS_MIN (50LL * NS_PER_MS)

/* splitmix64: any seed will do. */
static uint64_t
draw(struct etcd_endpoints *endpoints)
{
    uint64_t mixed = endpoints->random += UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ mixed >> 31;
}

static enum status
url_copy(const char *url, char **copy, struct error *error)
{
    size_t scheme = strncmp(url, "http://", 7) == 0 ? 7 : strncmp(url, "https://", 8) == 0 ? 8 : 0;
    size_t bytes = strlen(url);
    if (bytes > scheme && url[bytes - 1] == '/')
        bytes--;
    if (strchr(url, '@') != NULL) /* not quoted: it may contain a password */
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "an etcd endpoint contains a user: write http://host:port or "
                         "https://host:port, and give user and password separately");
    if (scheme == 0 || bytes == scheme || bytes > URL_BYTES_MAX ||
        strcspn(url + scheme, "/?# \t\r\n") < bytes - scheme)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "etcd endpoint \"%s\": write http://host:port or https://host:port", url);
    *copy = strndup(url, bytes);
    CHECK(*copy != NULL);
    return STATUS_OK;
}

enum status
etcd_endpoints_init(struct etcd_endpoints *endpoints, const struct etcd_options *options,
                    struct error *error)
{
    *endpoints =
        (struct etcd_endpoints){.pause_ns_max = options->retry_ns_max, .random = options->seed};
    if (options->endpoint_count == 0 || options->endpoint_count > ETCD_ENDPOINTS_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "etcd: %zu endpoints, 1 to %d are allowed",
                         options->endpoint_count, ETCD_ENDPOINTS_MAX);
    for (size_t i = 0; i < options->endpoint_count; i++) {
        if (url_copy(options->endpoints[i], &endpoints->list[i].url, error) != STATUS_OK) {
            etcd_endpoints_fini(endpoints);
            return error->status;
        }
        endpoints->count++;
    }
    for (size_t i = endpoints->count - 1; i > 0; i--) {
        size_t other = (size_t)(draw(endpoints) % (i + 1));
        struct etcd_endpoint swapped = endpoints->list[i];
        endpoints->list[i] = endpoints->list[other];
        endpoints->list[other] = swapped;
    }
    return STATUS_OK;
}

void
etcd_endpoints_fini(struct etcd_endpoints *endpoints)
{
    for (size_t i = 0; i < endpoints->count; i++)
        free(endpoints->list[i].url);
    endpoints->count = 0;
}

int64_t
etcd_endpoints_wait_ns(const struct etcd_endpoints *endpoints, int64_t now_ns)
{
    int64_t again_ns = endpoints->list[endpoints->current].again_ns;
    return again_ns > now_ns ? again_ns - now_ns : 0;
}

int64_t
etcd_endpoints_jitter(struct etcd_endpoints *endpoints, int64_t ns)
{
    return ns / 2 + (int64_t)(draw(endpoints) % ((uint64_t)ns / 2 + 1));
}

static void
choose(struct etcd_endpoints *endpoints, int64_t now_ns)
{
    size_t best = endpoints->current;
    for (size_t step = 1; step <= endpoints->count; step++) {
        size_t i = (endpoints->current + step) % endpoints->count;
        if (endpoints->list[i].again_ns <= now_ns) {
            best = i;
            break;
        }
        if (endpoints->list[i].again_ns < endpoints->list[best].again_ns)
            best = i;
    }
    CHECK(best < endpoints->count);
    endpoints->current = best;
}

void
etcd_endpoints_failed(struct etcd_endpoints *endpoints, size_t index, int64_t now_ns)
{
    CHECK(index < endpoints->count);
    struct etcd_endpoint *endpoint = &endpoints->list[index];
    int64_t pause_ns = PAUSE_NS_MIN;
    for (uint32_t i = 0; i < endpoint->failures && pause_ns < endpoints->pause_ns_max; i++)
        pause_ns *= 2;
    if (pause_ns > endpoints->pause_ns_max)
        pause_ns = endpoints->pause_ns_max;
    if (endpoints->silent_ns == 0)
        endpoints->silent_ns = now_ns;
    if (endpoint->failures < UINT32_MAX)
        endpoint->failures++;
    endpoint->again_ns = now_ns + etcd_endpoints_jitter(endpoints, pause_ns);
    if (index == endpoints->current)
        choose(endpoints, now_ns);
}

void
etcd_endpoints_worked(struct etcd_endpoints *endpoints, size_t index)
{
    CHECK(index < endpoints->count);
    endpoints->list[index].failures = 0;
    endpoints->list[index].again_ns = 0;
    endpoints->silent_ns = 0;
}
