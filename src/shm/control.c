/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/control.h"

#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#define CONTROL_SUFFIX ".control"

enum status
control_path(const char *counters_path, char *path, size_t room, struct error *error)
{
    const size_t most = sizeof(((struct sockaddr_un *)NULL)->sun_path) - sizeof(CONTROL_SUFFIX);
    size_t bytes = strlen(counters_path);
    if (bytes > most || bytes + sizeof(CONTROL_SUFFIX) > room)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the counters' path has %zu bytes: the node's control socket beside it "
                         "needs it to have at most %zu",
                         bytes, most);
    snprintf(path, room, "%s" CONTROL_SUFFIX, counters_path);
    return STATUS_OK;
}

bool
control_model_read(const struct control_model *model, size_t left,
                   const char *texts[CONTROL_TEXT_COUNT])
{
    if (left < sizeof(*model) || model->bytes < sizeof(*model) || model->bytes > left ||
        model->bytes % sizeof(uint64_t) != 0)
        return false;
    const char *at = model->texts;
    const char *end = (const char *)model + model->bytes;
    for (int i = 0; i < CONTROL_TEXT_COUNT; i++) {
        size_t bytes = strnlen(at, (size_t)(end - at));
        if (bytes == (size_t)(end - at))
            return false;
        texts[i] = at;
        at += bytes + 1;
    }
    return true;
}
