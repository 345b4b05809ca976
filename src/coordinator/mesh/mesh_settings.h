/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dynamic settings in the mesh's registry that the runner does not handle. Loop thread.
 */
#pragma once

#include "base/log.h"
#include "coordinator/config/config.h"
#include "mesh/record/record.h"

struct mesh_settings {
    enum log_level log_level; /* while the registry sets none */
    void (*on_disabled)(void *context);
    void *context;
};

/* `setting` was written; NULL: deleted. */
void mesh_setting_apply(const struct mesh_settings *settings, enum record_setting_kind kind,
                        const struct record_setting *setting);

/* Logs all of the environment's variables that have no effect. */
void mesh_setting_notify_variables(const struct config *config);
