/* SPDX-License-Identifier: Apache-2.0 */
#include "planted.h"

#include <stdlib.h>

unsigned planted_number;

__attribute__((constructor)) static void
read_number(void)
{
    const char *number = getenv("SHOAL_PLANT");
    if (number != NULL)
        planted_number = (unsigned)strtoul(number, NULL, 10);
}
