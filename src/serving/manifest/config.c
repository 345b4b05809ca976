/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ConfigMap model-serving-config. Its `config.yaml` is a document of its own; mistakes in it
 * are on the line where the text begins, and say the line within.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "serving/manifest/check.h"
#include "serving/manifest/model.h"

#define FILE_NAME "config.yaml"

enum { GRACE_S = 60, GRACE_S_MAX = 1000000000 };

static const struct tree_limits limits = {
    .what = "configuration",
    .empty = "it is empty",
    .bytes_max = MANIFEST_BYTES_MAX,
    .depth_max = 16,
    .nodes_max = 100000,
    .documents_max = 1,
};

/* The address at which callers reach the nodes, for status.url; NULL: not given. */
static char *
make_url(const struct tree_node *config)
{
    const char *name = manifest_text(config, "inferenceServiceName");
    const char *port = manifest_text(config, "inferenceServicePort");
    return name != NULL ? must_format("grpc://%s:%s", name, port != NULL ? port : "8033") : NULL;
}

/* Reads the grace as KServe has it, but nothing rests where the manifest says nothing of it. */
static int64_t
read_grace(const struct tree_node *config)
{
    const struct tree_node *scale = manifest_find(config, "scaleToZero");
    const char *enabled = manifest_text(scale, "enabled");
    const char *grace = manifest_text(scale, "gracePeriodSeconds");
    uint64_t grace_s = grace != NULL ? strtoull(grace, NULL, 10) : GRACE_S;
    if (scale == NULL || (enabled != NULL && strcmp(enabled, "false") == 0))
        return TIME_NEVER_NS;
    return (int64_t)(grace_s < GRACE_S_MAX ? grace_s : GRACE_S_MAX) * NS_PER_S;
}

static void
read_config(const struct tree_node *text, struct tree_report *report, struct manifest *manifest)
{
    struct tree_report within = {.file = "data." FILE_NAME};
    struct tree_node *config = tree_read(text->text, strlen(text->text), &limits, &within);
    struct bytes json = {0};
    uint32_t count;
    if (config != NULL)
        manifest_check(config, &manifest_config_schema, &within, &json);
    const char *pods = manifest_text(config, "podsPerRuntime");
    if (report_total(&within) == 0) {
        manifest->url = make_url(config);
        manifest->grace_ns = read_grace(config);
        manifest->pods_per_runtime = pods != NULL ? strtoull(pods, NULL, 10) : 0;
    }
    char **mistakes = report_finish(&within, &count);
    for (uint32_t i = 0; i < count; i++) {
        report_add(report, text->line, "%s", mistakes[i]);
        free(mistakes[i]);
    }
    free(mistakes);
    bytes_fini(&json);
    tree_free(config);
}

void
manifest_config_find(const struct tree_node *document, struct tree_report *report,
                     struct manifest *manifest)
{
    const struct tree_node *data = manifest_find(document, "data");
    if (manifest->kind != MANIFEST_CONFIG_MAP || data == NULL ||
        strcmp(manifest->name, MANIFEST_CONFIG) != 0)
        return;
    for (const struct tree_node *one = data->first; one != NULL; one = one->next)
        if (strcmp(one->key, FILE_NAME) == 0)
            read_config(one, report, manifest);
        else
            report_add(report, one->key_line, "data.%.60s: is not supported: only " FILE_NAME " is",
                       one->key);
}
