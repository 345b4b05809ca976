/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration of a gateway: keys of our own, each a line of settings.def, beside those of the
 * reference's EndpointPickerConfig (picker_config.h), in one YAML file.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "gateway/config/label_config.h"
#include "gateway/core/gateway_core.h"

enum { SETTING_TEXT_BYTES = 1024 };

struct gateway_settings {
#define SETTING_TEXT(name, initial, help) char name[SETTING_TEXT_BYTES];
#define SETTING_NUMBER(name, min, max, initial, help) int64_t name;
#include "gateway/config/settings.def"
    struct gateway_scheduler scheduler;
    struct gateway_flow_control flow_control;
    struct label_config labels;
    bool takes_any_body; /* passthrough-parser: bodies are not read */
};

/* Requests that ext_proc may have in the core, beside requests_max. */
static inline int64_t
settings_picker_requests(const struct gateway_settings *settings)
{
    return settings->ext_proc[0] != '\0' ? settings->ext_proc_streams_max : 0;
}

/* The defaults. */
void settings_init(struct gateway_settings *settings);
/* INVALID_ARGUMENT with path, line and mistake. */
enum status settings_read(struct gateway_settings *settings, const char *path,
                          struct error *error) WARN_UNUSED;
/* Every key with its range, default and meaning. */
void settings_print_manual(FILE *out);
