/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests and their status as the mesh's store has them: JSON around JSON. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

/* The value of "manifests/KIND/NAME". */
struct manifest_record {
    int64_t created_ms;
    bool deleted;
    const char *json;
    size_t json_bytes;
};

/* The value of "manifests/KIND/NAME/status". */
struct status_record {
    uint64_t version; /* of the manifest that it is about */
    bool ready;
    int64_t since_ms; /* when `ready` became so */
    const char *events;
    size_t events_bytes;
    const char *status;
    size_t status_bytes;
};

void manifest_record_write(const struct manifest_record *record, struct bytes *to);
bool manifest_record_read(const char *value, size_t bytes, struct manifest_record *record);
void status_record_write(const struct status_record *record, struct bytes *to);
bool status_record_read(const char *value, size_t bytes, struct status_record *record);
