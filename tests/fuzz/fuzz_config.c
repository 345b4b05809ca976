/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a configuration: it loads and keeps what the table promises, or it is refused with a
 * line at least. CPUs and modelets of the machine are left aside.
 */
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "coordinator/config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_stage(const struct config_pipeline *pipeline, const struct config_stage *stage)
{
    CHECK(stage->name != NULL && strlen(stage->name) <= CONFIG_NAME_BYTES_MAX);
    CHECK(stage->modelet != NULL && stage->modelet[0] != '\0');
    CHECK(stage->worker_count >= 1 && stage->worker_count <= STAGE_WORKERS_MAX);
    CHECK(stage->batch_size <= pipeline->slot_count);
    CHECK(stage->batch_wait_ns >= 0 && stage->batch_wait_ns <= INT64_C(60000000000));
    CHECK(stage->attempts_max >= 1 && stage->param_count <= CONFIG_PARAMS_MAX);
    for (uint32_t i = 0; i < stage->param_count; i++)
        CHECK(stage->params[i].name[0] != '\0' && stage->params[i].value != NULL);
}

static void
check_config(const struct config *config)
{
    CHECK(config->listen.count >= 1 && config->listen.count <= CONFIG_LISTEN_MAX);
    CHECK(config->pipeline_count >= 1 && config->pipeline_count <= CONFIG_PIPELINES_MAX);
    CHECK(config->front_threads >= 1 && config->message_bytes_max >= 1 << 20);
    for (uint32_t i = 0; i < config->pipeline_count; i++) {
        const struct config_pipeline *pipeline = &config->pipelines[i];
        CHECK(pipeline->name != NULL && strlen(pipeline->name) <= CONFIG_NAME_BYTES_MAX);
        CHECK(pipeline->slot_count >= 1 && pipeline->slot_count <= SLOTS_MAX);
        CHECK(pipeline->stage_count >= 1 && pipeline->stage_count <= STAGES_MAX);
        for (uint32_t j = 0; j < pipeline->stage_count; j++)
            check_stage(pipeline, &pipeline->stages[j]);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config config;
    struct config_errors errors;
    struct error error = ERROR_NONE;
    struct config_options options = {CONFIG_NO_PIN, CONFIG_MODELETS_UNSEEN};
    struct config_text file = {
        .path = "/etc/shoal.yaml", .text = (const char *)data, .bytes = size};
    enum status status = config_parse(&file, &options, &config, &errors, &error);
    if (status == STATUS_OK)
        check_config(&config);
    else
        CHECK(errors.count > 0 && error.status == status);
    config_errors_free(&errors);
    config_free(&config);
    return 0;
}
