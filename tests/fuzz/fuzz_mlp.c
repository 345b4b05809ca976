/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a model file of the mlp modelet: refused with a text, or a network all of whose
 * numbers lie in the file, are finite, and fit one layer to the next. ctest: libs=mlp_network
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "network.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_floats(const float *floats, size_t count)
{
    for (size_t i = 0; i < count; i++)
        CHECK(isfinite(floats[i]));
}

static void
check_network(const struct network *network)
{
    uint32_t inputs = network->input_width;
    CHECK(network->layer_count >= 1 && network->layer_count <= NETWORK_LAYERS_MAX);
    CHECK(strlen(network->input_name) > 0 && strlen(network->output_name) > 0);
    for (uint32_t i = 0; i < network->layer_count; i++) {
        const struct layer *layer = &network->layers[i];
        CHECK(layer->inputs == inputs && layer->outputs >= 1);
        CHECK(layer->activation < NETWORK_ACTIVATION_END);
        check_floats(layer->weights, (size_t)layer->inputs * layer->outputs);
        if (layer->bias != NULL)
            check_floats(layer->bias, layer->outputs);
        inputs = layer->outputs;
        CHECK(i + 1 == network->layer_count || inputs <= network->width_max);
    }
    CHECK(network->output_width == inputs);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    void *file; /* of exactly this size, as aligned as a mapping */
    CHECK(posix_memalign(&file, NETWORK_ALIGNMENT, size > 0 ? size : 1) == 0);
    memcpy(file, data, size);
    char room[200] = "";
    struct network network;
    const char *mistake = network_read(file, size, &network, room, sizeof(room));
    if (mistake == NULL)
        check_network(&network);
    else
        CHECK(mistake[0] != '\0' && strlen(mistake) < sizeof(room) - 1);
    free(file);
    return 0;
}
