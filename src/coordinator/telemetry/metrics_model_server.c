/* SPDX-License-Identifier: Apache-2.0 */
/* The load of pipelines under the names of docs/model-server-protocol.md, for gateways. */
#include <inttypes.h>

#include "base/check.h"
#include "coordinator/telemetry/metrics.h"

enum load_figure { LOAD_WAITING, LOAD_RUNNING, LOAD_ROOM, LOAD_COUNT };

static const struct load_family {
    const char *name, *help;
} families[LOAD_COUNT] = {
    [LOAD_WAITING] = {"model_server_requests_waiting", "Requests that no worker has taken yet"},
    [LOAD_RUNNING] = {"model_server_requests_running", "Requests that workers have"},
    [LOAD_ROOM] = {"model_server_requests_max", "Requests that a pipeline can have at a time"},
};

/* Gauges are published one after another, so that rings may seem to hold more than all slots. */
static uint64_t
figure_of(const struct snapshot *snapshot, const struct snapshot_scope *pipeline,
          enum load_figure figure)
{
    uint64_t used = snapshot_value(pipeline, PIPELINE_SLOTS_USED);
    uint64_t queued = 0;
    for (const struct snapshot_scope *stage = NULL;
         (stage = snapshot_next(snapshot, SCOPE_STAGE, snapshot_index(snapshot, pipeline),
                                stage)) != NULL;) {
        uint64_t depth = snapshot_value(stage, STAGE_DEPTH);
        queued = depth < used - queued ? queued + depth : used;
    }
    switch (figure) {
    case LOAD_WAITING: return queued + snapshot_value(pipeline, PIPELINE_WAITING);
    case LOAD_RUNNING: return used - queued;
    case LOAD_ROOM:
    case LOAD_COUNT: break;
    }
    return snapshot_value(pipeline, PIPELINE_SLOTS_MAX);
}

void
metrics_print_model_server(const struct snapshot *snapshot, FILE *out)
{
    for (enum load_figure figure = 0; figure < LOAD_COUNT; figure++) {
        metrics_put_head(out, families[figure].name, "gauge", families[figure].help);
        for (const struct snapshot_scope *pipeline = NULL;
             (pipeline = snapshot_next(snapshot, SCOPE_PIPELINE, 0, pipeline)) != NULL;) {
            fprintf(out, "%s{model=\"", families[figure].name);
            metrics_put_escaped(out, pipeline->name);
            fprintf(out, "\"} %" PRIu64 "\n", figure_of(snapshot, pipeline, figure));
        }
    }
}
