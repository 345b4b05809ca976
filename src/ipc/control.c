/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/control.h"

#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#define CONTROL_SUFFIX ".control"
#define MANAGE_SUFFIX ".manage"

static enum status
path_beside(const char *counters_path, const char *suffix, const char *what, char *path,
            size_t room, struct error *error)
{
    const size_t most = sizeof(((struct sockaddr_un *)NULL)->sun_path) - strlen(suffix) - 1;
    size_t bytes = strlen(counters_path);
    if (bytes > most || bytes + strlen(suffix) + 1 > room)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the counters' path has %zu bytes: the node's %s socket beside it "
                         "allows at most %zu",
                         bytes, what, most);
    snprintf(path, room, "%s%s", counters_path, suffix);
    return STATUS_OK;
}

enum status
control_path(const char *counters_path, char *path, size_t room, struct error *error)
{
    return path_beside(counters_path, CONTROL_SUFFIX, "control", path, room, error);
}

enum status
control_manage_path(const char *counters_path, char *path, size_t room, struct error *error)
{
    return path_beside(counters_path, MANAGE_SUFFIX, "management", path, room, error);
}

/* Reads `count` terminated texts from `at` on. False: they are not all there. */
static bool
read_texts(const char *at, const char *end, const char *texts[], int count)
{
    for (int i = 0; i < count; i++) {
        size_t bytes = strnlen(at, (size_t)(end - at));
        if (bytes == (size_t)(end - at))
            return false;
        texts[i] = at;
        at += bytes + 1;
    }
    return true;
}

static bool
has_size(uint32_t bytes, size_t least, size_t left)
{
    return bytes >= least && bytes <= left && bytes % sizeof(uint64_t) == 0;
}

bool
control_model_read(const struct control_model *model, size_t left,
                   const char *texts[CONTROL_TEXT_COUNT])
{
    return left >= sizeof(*model) && has_size(model->bytes, sizeof(*model), left) &&
           read_texts(model->texts, (const char *)model + model->bytes, texts, CONTROL_TEXT_COUNT);
}

bool
control_row_read(const struct control_row *row, size_t left, const char *texts[CONTROL_TEXTS])
{
    return left >= sizeof(*row) && has_size(row->bytes, sizeof(*row), left) &&
           read_texts(row->texts, (const char *)row + row->bytes, texts, CONTROL_TEXTS);
}
