/* SPDX-License-Identifier: Apache-2.0 */
/* A library that exports no modelet. */
__attribute__((visibility("default"))) int not_a_modelet(void);

int
not_a_modelet(void)
{
    return 0;
}
