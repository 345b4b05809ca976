/* SPDX-License-Identifier: Apache-2.0 */
/* As one that was compiled with the first header of version 1: what its table has behind that is
 * not its own. */
#include <shoal/modelet.h>

static int
not_there(void *instance, void *model, struct shoal_io *io, struct shoal_error *error)
{
    (void)instance;
    (void)model;
    (void)io;
    (void)error;
    return SHOAL_INTERNAL;
}

#define WRONG                                                                                      \
    .struct_size = offsetof(struct shoal_modelet, describe_model),                                 \
    .host_size = offsetof(struct shoal_host, map_file), .describe_model = not_there
#include "wrong.h"
