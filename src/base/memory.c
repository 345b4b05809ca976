/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory.h"

#include <malloc.h>
#include <stddef.h>
#include <string.h>

#include "base/check.h"

/* jemalloc's, if present. */
__attribute__((weak)) int mallctl(const char *name, void *old, size_t *old_bytes, void *new,
                                  size_t new_bytes);

/* MALLCTL_ARENAS_ALL of jemalloc 5. */
#define EVERY_ARENA "4096"

void
memory_give_back(void)
{
    if (mallctl != NULL)
        (void)mallctl("arena." EVERY_ARENA ".purge", NULL, NULL, NULL, 0);
    else
        (void)malloc_trim(0);
}

char *
memory_copy_text(const char *text)
{
    char *copy = text == NULL ? NULL : strdup(text);
    CHECK(text == NULL || copy != NULL);
    return copy;
}

void
memory_free_secret(char *text)
{
    if (text != NULL)
        explicit_bzero(text, strlen(text));
    free(text);
}
