/* SPDX-License-Identifier: Apache-2.0 */
/* A test of modelet.c without a service, as an outside author would write it. */
#include <stdio.h>
#include <string.h>

#include <shoal/harness.h>

static int
fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    return 1;
}

int
main(int argc, char **argv)
{
    struct shoal_harness *harness;
    struct shoal_error error = {{0}};
    struct shoal_harness_options options = {.path = argc > 1 ? argv[1] : "", .folder = "."};
    if (shoal_harness_open(&options, &harness, &error) != SHOAL_OK)
        return fail(error.text);
    const int64_t shape[] = {3};
    const float values[] = {3, 1, 4};
    struct shoal_harness_item *item = shoal_harness_item(harness);
    shoal_harness_input(item, "input", SHOAL_FP32, 1, shape, values);
    shoal_harness_run(harness, &item, 1);
    const struct shoal_tensor *output = shoal_harness_output(item, "output");
    if (item->item.status != SHOAL_OK || output == NULL)
        return fail(item->error.text);
    if (output->bytes != sizeof(values) || memcmp(output->data, values, sizeof(values)) != 0)
        return fail("the output is not the input");
    shoal_harness_close(harness);
    return 0;
}
