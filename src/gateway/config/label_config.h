/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of EndpointPickerConfig about endpoints' labels: filters that keep endpoints with some
 * labels (label-selector-filter, formerly by-label-selector, and by-label), of which an endpoint
 * must pass all; and header-label-affinity-scorer, which prefers those that a request's header
   names. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gateway/config/yaml_file.h"

enum { LABEL_RULES_MAX = 16, LABEL_VALUES_MAX = 16, LABEL_KEY_BYTES = 128 };

enum label_operator { LABEL_IN, LABEL_NOT_IN, LABEL_EXISTS, LABEL_ABSENT };

struct label_rule {
    char key[LABEL_KEY_BYTES];
    enum label_operator kind;
    bool allows_none; /* IN: an endpoint without that label passes */
    uint32_t value_count;
    uint64_t values[LABEL_VALUES_MAX]; /* hashes */
};

struct label_config {
    uint32_t rule_count;
    struct label_rule rules[LABEL_RULES_MAX];
    char header[LABEL_KEY_BYTES]; /* empty: no scorer */
    char header_key[LABEL_KEY_BYTES];
};

/* Returns whether a plugin's type is one of the filters. */
bool label_config_is_filter(const char *type);
/* Reads the plugins that the first profile refers to. INVALID_ARGUMENT with path and line. */
enum status label_config_read(const struct yaml_file *file, struct label_config *config,
                              struct error *error) WARN_UNUSED;
/* Returns whether labels, a map or 0, pass all filters. */
bool label_config_passes(const struct label_config *config, const struct tree_node *labels);
/* The hash of the value that the scorer compares; 0: there is none. */
uint64_t label_config_value(const struct label_config *config, const struct tree_node *labels);
