/* SPDX-License-Identifier: Apache-2.0 */
/*
 * EndpointPickerConfig, as the Gateway API Inference Extension and llm-d's router have it: plugins,
 * schedulingProfiles, featureGates, flowControl, saturationDetector, parser, dataLayer.
 * flow_config.c reads the third to the fifth, picker_config.c the others, plugins.c is for both.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "gateway/config/yaml_file.h"
#include "gateway/core/gateway_core.h"

/* The defaults. */
void picker_config_init(struct gateway_scheduler *scheduler,
                        struct gateway_flow_control *flow_control);
/* Returns whether a file's member is read here. */
bool picker_config_has(const char *name);
/* INVALID_ARGUMENT with path, line and mistake. */
enum status picker_config_read(const struct yaml_file *file, struct gateway_scheduler *scheduler,
                               struct gateway_flow_control *flow_control,
                               struct error *error) WARN_UNUSED;
/* `parser: {pluginRef}`: whether bodies are passed through unread. */
enum status picker_config_read_parser(const struct yaml_file *file, bool *takes_any_body,
                                      struct error *error) WARN_UNUSED;
/* `dataLayer: {discovery: {pluginRef}}`: the path of the list of endpoints; NULL: none. */
enum status picker_config_find_endpoints(const struct yaml_file *file,
                                         const struct tree_node **path,
                                         struct error *error) WARN_UNUSED;
void picker_config_print_manual(FILE *out);

/* ---- flow_config.c ---- */

void flow_config_init(struct gateway_flow_control *flow_control);
enum status flow_config_read(const struct yaml_file *file,
                             struct gateway_flow_control *flow_control,
                             struct error *error) WARN_UNUSED;

/* ---- plugins.c ---- */

struct plugin_ref {
    const char *type; /* its entry's; or the name itself, which the reference declares unasked */
    const struct tree_node *entry; /* in `plugins`; NULL: there is none */
};

struct plugin_ref plugin_find(const struct yaml_file *file, const char *name);
/* The position of a name; -1: it is none of them. */
int plugin_index(const char *type, const char *const *names, int count);
/* Reads a parameter of a plugin; leaves `number` as it is if it is not given. */
enum status plugin_number(const struct yaml_file *file, const struct tree_node *entry,
                          const char *name, double *number, struct error *error) WARN_UNUSED;
/* A value of Kubernetes: "100", "1k", "1.5Gi". */
bool quantity_read(const char *text, uint64_t *number);
