/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a model file for XGBoost: the check that comes before the library stays inside of
 * them, ends, and says why if it refuses. An accepted file is refused with its last byte cut off.
 * ctest: libs=booster_file
 */
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "booster_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char room[160] = "";
    if (booster_file_check(data, size, room, sizeof(room)).form == BOOSTER_NONE) {
        CHECK(room[0] != '\0' && strlen(room) < sizeof(room) - 1);
        return 0;
    }
    while (size > 0 && strchr(" \t\r\n", data[size - 1]) != NULL)
        size--; /* may follow JSON */
    CHECK(booster_file_check(data, size - 1, room, sizeof(room)).form == BOOSTER_NONE);
    return 0;
}
