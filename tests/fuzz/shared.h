/* SPDX-License-Identifier: Apache-2.0 */
/* A region "r" of 64 bytes, and "s" of zeros, in a real object that has no name any more. */
#pragma once

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "coordinator/protocol/shared_memory.h"

static inline struct shared_memory *
shared_regions(void)
{
    enum { OBJECT_BYTES = 4096, REQUEST_BYTES_MAX = 100 };
    char key[64];
    struct error error = ERROR_NONE;
    snprintf(key, sizeof(key), "/shoal-fuzz-%ld", (long)getpid());
    int fd = shm_open(key, O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(fd >= 0 && ftruncate(fd, OBJECT_BYTES) == 0);
    struct shared_memory *memory = shared_memory_create(&(struct shared_memory_options){
        SHARED_MEMORY_ON, .regions_max = 2, .request_bytes_max = REQUEST_BYTES_MAX});
    const struct shared_region_spec regions[] = {{"r", key, 16, 64}, {"s", key, 1024, 1024}};
    for (size_t i = 0; i < ARRAY_COUNT(regions); i++)
        CHECK(shared_memory_register(memory, &regions[i], &error) == STATUS_OK);
    CHECK(shm_unlink(key) == 0);
    close(fd);
    return memory;
}
