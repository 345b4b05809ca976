/* SPDX-License-Identifier: Apache-2.0 */
/* TensorFlow Serving's folder of a model: one version's folder with a saved model. */
#include <string.h>

#include "serving/adapter/inside.h"

static enum status
check_saved(const char *folder, struct error *error)
{
    if (layout_exists(folder, "saved_model.pb") || layout_exists(folder, "saved_model.pbtxt"))
        return STATUS_OK;
    return error_set(error, STATUS_FAILED_PRECONDITION,
                     "%.300s has no saved_model.pb, and no folder 1, 2, … with one", folder);
}

enum status
layout_tfserving(const struct layout *layout, struct error *error)
{
    struct model_names names = {.count = 0};
    char version[NAME_MAX + 1] = "";
    char source[PATH_MAX];
    memcpy(source, layout->source, sizeof(source));
    if (!layout->is_folder)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "%.300s is a file: TensorFlow Serving loads folders of saved models",
                         source);
    if (layout->schema[0] != '\0')
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "a saved model has its own schema: remove schema_path");
    enum status status = layout_list(source, &names, error);
    if (status == STATUS_OK)
        status = layout_version(source, &names, version, error);
    if (status == STATUS_OK && version[0] != '\0')
        status = layout_join(source, layout->source, version, error);
    if (status == STATUS_OK)
        status = check_saved(source, error);
    model_names_fini(&names);
    if (status != STATUS_OK)
        return status;
    return layout_link(layout, source, version[0] != '\0' ? version : "1", error);
}
