/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "coordinator/protocol/oip_request.h"
#include "coordinator/protocol/triton.h"

/* Appends a message as field `number` of another one. */
static void
put_row(struct bytes *out, uint32_t number, const ProtobufCMessage *message)
{
    size_t bytes = protobuf_c_message_get_packed_size(message);
    unsigned char *packed = malloc(bytes + 1);
    CHECK(packed != NULL);
    wire_append_run(out, number, packed, protobuf_c_message_pack(message, packed));
    free(packed);
}

void
triton_put_index(struct bytes *out, const struct triton_index_row *row)
{
    Inference__RepositoryIndexResponse__ModelIndex model =
        INFERENCE__REPOSITORY_INDEX_RESPONSE__MODEL_INDEX__INIT;
    model.name = oip_loose(row->name);
    model.version = oip_loose(row->version);
    model.state = oip_loose(row->state);
    model.reason = oip_loose(row->reason);
    put_row(out, 1, &model.base);
}

void
triton_put_statistics(struct bytes *out, const struct triton_statistics *statistics)
{
    Inference__StatisticDuration success = INFERENCE__STATISTIC_DURATION__INIT;
    Inference__StatisticDuration fail = INFERENCE__STATISTIC_DURATION__INIT;
    Inference__StatisticDuration none = INFERENCE__STATISTIC_DURATION__INIT;
    Inference__InferStatistics infer = INFERENCE__INFER_STATISTICS__INIT;
    Inference__MemoryUsage usage = INFERENCE__MEMORY_USAGE__INIT;
    Inference__MemoryUsage *usages = &usage;
    Inference__ModelStatistics model = INFERENCE__MODEL_STATISTICS__INIT;
    success.count = statistics->success.count;
    success.ns = statistics->success.ns;
    fail.count = statistics->fail.count;
    fail.ns = statistics->fail.ns;
    infer.success = &success;
    infer.fail = &fail;
    infer.queue = infer.compute_input = infer.compute_infer = infer.compute_output = &none;
    infer.cache_hit = infer.cache_miss = &none;
    usage.type = oip_loose("CPU");
    usage.byte_size = statistics->memory_bytes;
    model.name = oip_loose(statistics->name);
    model.version = oip_loose(statistics->version);
    model.last_inference = statistics->last_inference_ms;
    model.inference_count = statistics->success.count; /* requests: rows are not counted */
    model.execution_count = statistics->success.count;
    model.inference_stats = &infer;
    model.n_memory_usage = statistics->memory_bytes > 0 ? 1 : 0;
    model.memory_usage = &usages;
    put_row(out, 1, &model.base);
}

/* ---- the configuration ---- */

static Inference__DataType
data_type(uint32_t datatype)
{
    static const Inference__DataType types[SHOAL_DATATYPE_END] = {
        [SHOAL_BOOL] = INFERENCE__DATA_TYPE__TYPE_BOOL,
        [SHOAL_UINT8] = INFERENCE__DATA_TYPE__TYPE_UINT8,
        [SHOAL_UINT16] = INFERENCE__DATA_TYPE__TYPE_UINT16,
        [SHOAL_UINT32] = INFERENCE__DATA_TYPE__TYPE_UINT32,
        [SHOAL_UINT64] = INFERENCE__DATA_TYPE__TYPE_UINT64,
        [SHOAL_INT8] = INFERENCE__DATA_TYPE__TYPE_INT8,
        [SHOAL_INT16] = INFERENCE__DATA_TYPE__TYPE_INT16,
        [SHOAL_INT32] = INFERENCE__DATA_TYPE__TYPE_INT32,
        [SHOAL_INT64] = INFERENCE__DATA_TYPE__TYPE_INT64,
        [SHOAL_FP16] = INFERENCE__DATA_TYPE__TYPE_FP16,
        [SHOAL_FP32] = INFERENCE__DATA_TYPE__TYPE_FP32,
        [SHOAL_FP64] = INFERENCE__DATA_TYPE__TYPE_FP64,
        [SHOAL_BYTES] = INFERENCE__DATA_TYPE__TYPE_STRING,
        [SHOAL_BF16] = INFERENCE__DATA_TYPE__TYPE_BF16,
    };
    return datatype < SHOAL_DATATYPE_END ? types[datatype] : INFERENCE__DATA_TYPE__TYPE_INVALID;
}

/* Returns whether the first dimension of all tensors counts rows. */
static bool
counts_rows(const struct handshake_tensor *specs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (specs[i].rank == SHOAL_RANK_ANY || specs[i].rank == 0 || specs[i].shape[0] != -1)
            return false;
    return count > 0;
}

struct dims {
    const int64_t *dims;
    size_t count;
};

static struct dims
dims_of(const struct handshake_tensor *spec, bool without_rows)
{
    static const int64_t any[] = {-1};
    if (spec->rank == SHOAL_RANK_ANY)
        return (struct dims){any, 1};
    return without_rows ? (struct dims){spec->shape + 1, spec->rank - 1}
                        : (struct dims){spec->shape, spec->rank};
}

/* A message of many rows: the fields of `config` are written one after the other. */
static void
put_tensors(struct bytes *config, const struct oip_model_info *model, bool has_rows)
{
    for (uint32_t i = 0; i < model->input_count; i++) {
        Inference__ModelInput input = INFERENCE__MODEL_INPUT__INIT;
        struct dims dims = dims_of(&model->inputs[i], has_rows);
        input.name = oip_loose(model->inputs[i].name);
        input.data_type = data_type(model->inputs[i].datatype);
        input.n_dims = dims.count;
        input.dims = oip_loose(dims.dims);
        put_row(config, 5, &input.base);
    }
    for (uint32_t i = 0; i < model->output_count; i++) {
        Inference__ModelOutput output = INFERENCE__MODEL_OUTPUT__INIT;
        struct dims dims = dims_of(&model->outputs[i], has_rows);
        output.name = oip_loose(model->outputs[i].name);
        output.data_type = data_type(model->outputs[i].datatype);
        output.n_dims = dims.count;
        output.dims = oip_loose(dims.dims);
        put_row(config, 6, &output.base);
    }
}

void
triton_put_config(struct bytes *out, const struct oip_model_info *model,
                  const struct triton_batching *batching)
{
    struct bytes config = {0};
    bool has_rows = counts_rows(model->inputs, model->input_count) &&
                    counts_rows(model->outputs, model->output_count);
    const char *platform = model->platform == NULL ? "" : model->platform;
    wire_append_run(&config, 1, model->name, strlen(model->name));
    wire_append_run(&config, 2, platform, strlen(platform));
    if (has_rows)
        wire_append_number(&config, 4,
                           model->rows_max > 0        ? model->rows_max
                           : batching->batch_size > 0 ? batching->batch_size
                                                      : 1);
    put_tensors(&config, model, has_rows);
    if (batching->batch_size > 0) {
        Inference__ModelDynamicBatching dynamic = INFERENCE__MODEL_DYNAMIC_BATCHING__INIT;
        dynamic.max_queue_delay_microseconds = (uint64_t)(batching->batch_wait_ns / NS_PER_US);
        put_row(&config, 11, &dynamic.base);
    }
    wire_append_run(out, 1, config.data, config.used);
    bytes_fini(&config);
}
