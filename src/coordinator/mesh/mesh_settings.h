/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dynamic settings of the mesh's registry that are not the driver's own. Loop thread.
 */
#pragma once

#include "base/log.h"
#include "mesh/record/record.h"

struct mesh_settings {
    enum log_level log_level; /* while the registry says none */
    void (*on_disabled)(void *context);
    void *context;
};

/* `setting` was written; NULL: deleted. */
void mesh_setting_apply(const struct mesh_settings *settings, enum record_setting_kind kind,
                        const struct record_setting *setting);

/* Logs that a setting of KServe ModelMesh has no meaning here, and what there is instead. */
void mesh_setting_tell_ignored(const char *name, const char *instead);
