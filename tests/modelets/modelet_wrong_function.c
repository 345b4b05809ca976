/* SPDX-License-Identifier: Apache-2.0 */
/* The symbol is there, but it is a function. */
__attribute__((visibility("default"))) int shoal_modelet(void);

int
shoal_modelet(void)
{
    return 0;
}
