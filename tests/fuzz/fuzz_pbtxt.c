/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the files beside a model: protobuf's text format, and JSON. Each is refused with
 * words, or taken, and then names a format, a policy, a version and a file within their limits.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "coordinator/models/pbtxt.h"
#include "coordinator/models/sidecar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum status
visit(void *context, const struct pbtxt_item *item, struct error *error)
{
    size_t *items = context;
    (void)error;
    ++*items;
    CHECK(item->path[0] != '\0' && strlen(item->path) < PBTXT_PATH_BYTES);
    CHECK(strlen(item->text) < PBTXT_TEXT_BYTES);
    CHECK(item->kind == PBTXT_VALUE || item->text[0] == '\0');
    return STATUS_OK;
}

static void
check(const struct sidecar *sidecar, enum status status, const struct error *error)
{
    CHECK(status == STATUS_OK ||
          (status == STATUS_INVALID_ARGUMENT && strstr(error->text, ": ") != NULL));
    CHECK(sidecar->policy.kind >= RELEASES_LATEST && sidecar->policy.kind <= RELEASES_SPECIFIC);
    CHECK(sidecar->policy.count <= RELEASE_POLICY_MAX);
    CHECK(strlen(sidecar->version) < sizeof(sidecar->version));
    CHECK(strlen(sidecar->file) < sizeof(sidecar->file) && sidecar->file[0] != '/');
    for (int kind = 0; kind < SIDECAR_KINDS; kind++)
        CHECK(strlen(sidecar->ignored[kind]) < SIDECAR_IGNORED_BYTES);
    CHECK((sidecar->format == NULL) == (sidecar->format_member == NULL));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sidecar sidecar = {.format = NULL};
    struct error error = ERROR_NONE;
    size_t items = 0;
    char *text = malloc(size + 1); /* a copy of exactly that size: reading beyond it is seen */
    CHECK(text != NULL);
    memcpy(text, data, size);
    text = realloc(text, size > 0 ? size : 1);
    CHECK(text != NULL);
    enum status status = pbtxt_read(text, size, visit, &items, &error);
    CHECK(items <= size && (status == STATUS_OK || error.text[0] != '\0'));
    error_clear(&error);
    status = sidecar_read_triton(&sidecar, "m", text, size, &error);
    check(&sidecar, status, &error);
    error_clear(&error);
    sidecar = (struct sidecar){.format = NULL};
    status = sidecar_read_mlserver(&sidecar, "m", text, size, &error);
    check(&sidecar, status, &error);
    free(text);
    return 0;
}
