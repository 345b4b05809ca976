/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates for tests in C: what certificates.sh makes, in a folder of the test's own. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

/* `arguments`: those of certificates.sh after the folder. */
static inline void
certificates_make(const char *folder, const char *arguments)
{
    char command[1024];
    const char *source = getenv("SHOAL_SOURCE_DIR");
    if (source == NULL)
        fail_msg("SHOAL_SOURCE_DIR must be the folder of the sources");
    snprintf(command, sizeof(command), "sh %s/tests/certificates.sh %s %s", source, folder,
             arguments);
    if (system(command) != 0) // NOLINT(cert-env33-c): a test's own command
        fail_msg("failed: %s; see %s/openssl.log", command, folder);
}

/* "FOLDER/NAME.SUFFIX"; as many at a time as there are places. */
static inline const char *
certificates_path(const char *folder, const char *name, const char *suffix)
{
    static char paths[16][160];
    static unsigned next;
    char *path = paths[next++ % 16];
    snprintf(path, sizeof(paths[0]), "%s/%s.%s", folder, name, suffix);
    return path;
}

static inline void
certificates_remove(const char *folder)
{
    char command[256];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    assert_int_equal(system(command), 0); // NOLINT(cert-env33-c): a test's own command
}
