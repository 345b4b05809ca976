/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration of a gateway: keys of our own, each a line of settings.def, beside those of the
 * reference's EndpointPickerConfig (picker_config.h), in one YAML file.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "gateway/core/gateway_core.h"

enum { SETTING_TEXT_BYTES = 1024 };

struct gateway_settings {
#define SETTING_TEXT(name, initial, help) char name[SETTING_TEXT_BYTES];
#define SETTING_NUMBER(name, min, max, initial, help) int64_t name;
#include "gateway/config/settings.def"
    struct gateway_scheduler scheduler;
    struct gateway_flow_control flow_control;
};

/* The defaults. */
void settings_init(struct gateway_settings *settings);
/* INVALID_ARGUMENT with path, line and mistake. */
enum status settings_read(struct gateway_settings *settings, const char *path,
                          struct error *error) WARN_UNUSED;
/* Every key with its range, default and meaning. */
void settings_print_manual(FILE *out);
