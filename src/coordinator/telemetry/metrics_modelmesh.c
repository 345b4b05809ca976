/* SPDX-License-Identifier: Apache-2.0 */
/* The names of KServe ModelMesh, from the same counters. */
#include <inttypes.h>

#include "base/check.h"
#include "base/clock.h"
#include "coordinator/telemetry/metrics.h"

#define MS(text, ms)                                                                               \
    {                                                                                              \
        text, (uint64_t)((ms) * (double)NS_PER_MS)                                                 \
    }

const struct modelmesh_bound modelmesh_times[MODELMESH_TIMES] = {
    MS("0.5", 0.5),       MS("1.0", 1),           MS("2.0", 2),           MS("5.0", 5),
    MS("10.0", 10),       MS("20.0", 20),         MS("50.0", 50),         MS("75.0", 75),
    MS("100.0", 100),     MS("200.0", 200),       MS("500.0", 500),       MS("1000.0", 1000),
    MS("2000.0", 2000),   MS("5000.0", 5000),     MS("10000.0", 10000),   MS("20000.0", 20000),
    MS("60000.0", 60000), MS("120000.0", 120000), MS("300000.0", 300000),
};
static const struct modelmesh_bound ages[] = {
    {"30000.0", 30000},      {"300000.0", 300000},    {"900000.0", 900000}, {"3600000.0", 3600000},
    {"1.44E7", 14400000},    {"4.32E7", 43200000},    {"8.64E7", 86400000}, {"6.048E8", 604800000},
    {"2.592E9", 2592000000}, {"7.776E9", 7776000000},
};
static const struct modelmesh_bound sizes[] = {
    {"262144.0", 262144},          {"1048576.0", 1048576},        {"4194304.0", 4194304},
    {"1.6777216E7", 16777216},     {"6.7108864E7", 67108864},     {"2.68435456E8", 268435456},
    {"1.073741824E9", 1073741824}, {"4.294967296E9", 4294967296},
};

static const struct {
    const char *name;
    const char *help;
    enum counter counter;
    const struct modelmesh_bound *bounds;
    size_t bound_count;
    double unit; /* our units per unit of ModelMesh */
} histograms[] = {
    {"modelmesh_cache_miss_milliseconds", "How long calls waited for a copy at this node",
     NODE_MESH_WAIT, modelmesh_times, MODELMESH_TIMES, (double)NS_PER_MS},
    {"modelmesh_req_queue_delay_milliseconds",
     "How long calls waited for a copy that had as many as it takes", NODE_MESH_SEAT_TIME,
     modelmesh_times, MODELMESH_TIMES, (double)NS_PER_MS},
    {"modelmesh_loadmodel_milliseconds", "How long loads took", NODE_MESH_LOAD_TIME,
     modelmesh_times, MODELMESH_TIMES, (double)NS_PER_MS},
    {"modelmesh_unloadmodel_milliseconds", "How long unloads took", NODE_MESH_UNLOAD_TIME,
     modelmesh_times, MODELMESH_TIMES, (double)NS_PER_MS},
    {"modelmesh_loading_queue_delay_milliseconds", "How long models waited to be loaded",
     NODE_MESH_QUEUE_TIME, modelmesh_times, MODELMESH_TIMES, (double)NS_PER_MS},
    {"modelmesh_model_sizing_milliseconds", "How long it took to predict a model's size",
     NODE_MESH_SIZE_TIME, modelmesh_times, MODELMESH_TIMES, (double)NS_PER_MS},
    {"modelmesh_age_at_eviction_milliseconds",
     "Time since their last use of models that were evicted", NODE_MESH_EVICTED_AGE, ages,
     ARRAY_COUNT(ages), 1},
    {"modelmesh_loaded_model_size_bytes", "Memory of models, when they were loaded",
     NODE_MESH_LOADED_SIZE, sizes, ARRAY_COUNT(sizes), 1},
};

/* ---- histograms ---- */

/* Values within a bucket count as evenly spread. The last one has no end: all of it is beyond. */
static double
share_below(uint32_t bucket, double bound)
{
    double from = (double)histogram_bucket_floor(bucket);
    if (bucket + 1 == HISTOGRAM_BUCKETS || bound < from)
        return 0;
    double to = (double)histogram_bucket_floor(bucket + 1);
    return bound + 1 >= to ? 1 : (bound + 1 - from) / (to - from);
}

/* Never more than UINT64_MAX, nor less than what `count` was. */
static uint64_t
add(uint64_t count, double more)
{
    double sum = (double)count + more;
    return sum >= (double)UINT64_MAX ? UINT64_MAX : sum > (double)count ? (uint64_t)sum : count;
}

static void
put_histogram(const struct snapshot_scope *node, size_t which, FILE *out)
{
    const char *name = histograms[which].name;
    const uint64_t *words = snapshot_histogram(node, histograms[which].counter);
    metrics_put_head(out, name, "histogram", histograms[which].help);
    uint64_t count = 0; /* of whole buckets */
    uint64_t reported = 0;
    uint32_t next = 0;
    for (size_t i = 0; i < histograms[which].bound_count; i++) {
        const struct modelmesh_bound *bound = &histograms[which].bounds[i];
        for (; next < HISTOGRAM_BUCKETS && share_below(next, (double)bound->value) >= 1; next++)
            count = add(count, (double)words[2 + next]);
        double part = next < HISTOGRAM_BUCKETS ? share_below(next, (double)bound->value) : 0;
        uint64_t below = add(count, part > 0 ? part * (double)words[2 + next] : 0);
        reported = below > reported ? below : reported;
        fprintf(out, "%s_bucket{le=\"%s\"} %" PRIu64 "\n", name, bound->text, reported);
    }
    for (; next < HISTOGRAM_BUCKETS; next++)
        count = add(count, (double)words[2 + next]);
    count = count > reported ? count : reported;
    fprintf(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, count);
    fprintf(out, "%s_sum %.15g\n", name, (double)words[1] / histograms[which].unit);
    fprintf(out, "%s_count %" PRIu64 "\n", name, count);
}

/* ---- numbers ---- */

static void
put_count(FILE *out, const char *name, const char *help, uint64_t value)
{
    metrics_put_head(out, name, "counter", help);
    fprintf(out, "%s %" PRIu64 "\n", name, value);
}

static void
put_gauge(FILE *out, const char *name, const char *help, double value)
{
    metrics_put_head(out, name, "gauge", help);
    fprintf(out, "%s %.15g\n", name, value);
}

static void
put_instance(const struct snapshot *snapshot, const struct snapshot_scope *node, FILE *out)
{
    double capacity = (double)snapshot_value(node, NODE_MESH_CAPACITY);
    double used = (double)snapshot_value(node, NODE_MESH_USED);
    double oldest_s = (double)snapshot_value(node, NODE_MESH_OLDEST) / 1000;
    double age_s = (double)snapshot->taken_unix_ns / (double)NS_PER_S - oldest_s;
    put_gauge(out, "modelmesh_instance_lru_seconds", "Last use of the least recently used model",
              oldest_s);
    put_gauge(out, "modelmesh_instance_lru_age_seconds",
              "Time since the last use of the least recently used model",
              oldest_s > 0 && age_s > 0 ? age_s : 0);
    put_gauge(out, "modelmesh_instance_capacity_bytes", "Memory for models", capacity);
    put_gauge(out, "modelmesh_instance_used_bytes", "Memory that models have", used);
    put_gauge(out, "modelmesh_instance_used_bps",
              "Memory that models have, in ten thousandths of the capacity",
              used < capacity ? (double)(uint64_t)(used * 10000 / capacity) : 10000);
    put_gauge(out, "modelmesh_instance_models_total", "Models that are loaded at this node",
              (double)snapshot_value(node, NODE_MESH_COPIES));
}

/* Figures of the mesh as a whole: its leader gives them, so that sums over nodes are right. */
static void
put_whole(const struct snapshot_scope *node, FILE *out)
{
    put_gauge(out, "modelmesh_models_loaded_total", "Models that are loaded at some node",
              (double)snapshot_value(node, NODE_MESH_MODELS_HELD));
    put_gauge(out, "modelmesh_models_with_failure_total", "Models that some node could not load",
              (double)snapshot_value(node, NODE_MESH_MODELS_FAILED));
    put_gauge(out, "modelmesh_models_managed_total", "Models that are registered",
              (double)snapshot_value(node, NODE_MESH_MODELS));
}

void
metrics_print_modelmesh(const struct snapshot *snapshot, FILE *out)
{
    const struct snapshot_scope *node = &snapshot->scopes[0];
    uint64_t unload_failures = snapshot_value(node, NODE_MESH_UNLOADS_FAILED);
    for (size_t i = 0; i < ARRAY_COUNT(histograms); i++)
        put_histogram(node, i, out);
    put_count(out, "modelmesh_loadmodel_failure", "Loads that failed",
              snapshot_value(node, NODE_MESH_LOADS_FAILED));
    put_count(out, "modelmesh_unloadmodel_failure", "Unloads that failed", unload_failures);
    put_count(out, "modelmesh_unloadmodel_attempt_failure", "Attempts to unload that failed",
              unload_failures);
    put_instance(snapshot, node, out);
    if (snapshot_value(node, NODE_MESH_LEADS) != 0)
        put_whole(node, out);
}
