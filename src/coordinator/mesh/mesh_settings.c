/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_settings.h"

#include <stddef.h>

/* Logs that a setting of KServe ModelMesh has no effect here, and what replaces it. */
static void
mesh_setting_notify_ignored(const char *name, const char *instead)
{
    log_warn("mesh_setting_ignored name=%s instead=\"%s\"", name, instead);
}

static void
pass_over(const char *name, const struct record_setting *setting, const char *instead)
{
    if (setting != NULL && setting->on)
        mesh_setting_notify_ignored(name, instead);
}

void
mesh_setting_notify_variables(const struct config *config)
{
    const char *name;
    const char *instead;
    for (size_t position = 0; config_passed_over(config, &position, &name, &instead);)
        mesh_setting_notify_ignored(name, instead);
    if (config->mesh.metrics_tls)
        log_warn("mesh_metrics_differ asked=\"MM_METRICS: scheme=https\" instead=http");
    if (config->mesh.metrics_per_model)
        log_warn("mesh_metrics_differ asked=\"MM_METRICS: per_model_metrics\" instead=none");
}

void
mesh_setting_apply(const struct mesh_settings *settings, enum record_setting_kind kind,
                   const struct record_setting *setting)
{
    switch (kind) {
    case RECORD_LOG_LEVEL:
        log_set_level(setting != NULL ? setting->log_level : settings->log_level);
        log_info("mesh_log_level set=%s", setting != NULL ? "yes" : "no");
        break;
    case RECORD_DISABLED:
        if (setting != NULL && setting->on)
            settings->on_disabled(settings->context);
        break;
    case RECORD_LOG_CALLS:
        pass_over("log_each_invocation", setting, "`traces` in the configuration");
        break;
    case RECORD_TELL_DESTINATION:
        pass_over("send_destination_id", setting, "`shoalctl mesh copies ID`");
        break;
    case RECORD_RATE_FOR_MORE: /* this and the next: the runner's */
    case RECORD_SETTING_NONE: break;
    }
}
