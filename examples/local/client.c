/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The smallest local client: sends numbers through the pipeline `echo` of the user's own node and
 * prints the answer. The pipeline's `local_clients` must be at least 1.
 *
 *     cc client.c $(pkg-config --cflags --libs shoal) -o client && ./client 1 2 3
 */
#include <stdio.h>
#include <stdlib.h>

#include <shoal/client.h>

static int
print_answer(const struct shoal_request *request)
{
    if (shoal_request_status(request) != SHOAL_OK) {
        fprintf(stderr, "status %d: %s\n", shoal_request_status(request),
                shoal_request_text(request));
        return 1;
    }
    const struct shoal_tensor *output = shoal_request_output(request, 0);
    for (size_t i = 0; output != NULL && i < output->bytes / sizeof(float); i++)
        printf("%g\n", (double)((const float *)output->data)[i]);
    return 0;
}

int
main(int argc, char **argv)
{
    struct shoal_client_options options = {.struct_size = SHOAL_CLIENT_OPTIONS, .pipeline = "echo"};
    struct shoal_client *client;
    struct shoal_request *request;
    struct shoal_error error = {""};
    if (shoal_client_open(&options, &client, &error) != SHOAL_OK ||
        shoal_request_begin(client, &request, &error) != SHOAL_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    int64_t shape[] = {argc - 1};
    float *numbers = shoal_request_input(request, "input", SHOAL_FP32, 1, shape);
    for (int i = 1; numbers != NULL && i < argc; i++)
        numbers[i - 1] = strtof(argv[i], NULL);
    if (shoal_request_submit(request, INT64_MAX) == SHOAL_OK)
        shoal_request_wait(request, INT64_MAX);
    int code = print_answer(request);
    shoal_request_release(request);
    shoal_client_close(client);
    return code;
}
