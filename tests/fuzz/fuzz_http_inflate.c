/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a compressed body; the first one chooses the coding and the limit. The result never
 * exceeds the limit, and with a higher one it is the same or no longer too large. ctest: libs=zlib
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "http/inflate.h"

enum { HIGH_BYTES = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    enum http_coding coding = data[0] & 1 ? HTTP_CODING_GZIP : HTTP_CODING_DEFLATE;
    size_t low = (size_t)(data[0] >> 1) << 8;
    struct bytes body = {.data = malloc(size), .used = size - 1};
    struct bytes first = {0};
    struct bytes second = {0};
    struct error error = ERROR_NONE;
    CHECK(body.data != NULL);
    memcpy(body.data, data + 1, size - 1);
    enum status status = http_inflate(coding, &body, low, &first, &error);
    CHECK(status == STATUS_OK || status == STATUS_INVALID_ARGUMENT ||
          status == STATUS_OUT_OF_RANGE);
    CHECK(status == STATUS_OK ? first.used <= low : first.data == NULL && error.text[0] != '\0');
    error = ERROR_NONE;
    enum status higher = http_inflate(coding, &body, HIGH_BYTES, &second, &error);
    if (status == STATUS_OUT_OF_RANGE)
        CHECK(higher != STATUS_OK || second.used > low);
    else
        CHECK(higher == status && second.used == first.used);
    bytes_fini(&first);
    bytes_fini(&second);
    free(body.data);
    return 0;
}
