/* SPDX-License-Identifier: Apache-2.0 */
#include "seen.h"

int
main(void)
{
    return 0;
}
