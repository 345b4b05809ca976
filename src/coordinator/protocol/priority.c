/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/protocol/priority.h"

enum status
priority_read(const struct wire_span *value, enum priority *priority, struct error *error)
{
    *priority = PRIORITY_NORMAL;
    if (value == NULL)
        return STATUS_OK;
    const char *digit = value->data;
    if (value->bytes != 1 || *digit < '0' + PRIORITY_HIGH || *digit > '0' + PRIORITY_LOW)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "metadata " PRIORITY_METADATA ": must be 1 (high), 2 (normal) or 3 (low)");
    *priority = (enum priority)(*digit - '0');
    return STATUS_OK;
}
