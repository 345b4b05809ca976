/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as an ONNX file: the check that comes before the library stays inside of them, ends,
 * and says why if it refuses. All places found in an accepted file lie within it.
 * ctest: libs=onnx_graph_file
 */
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "graph_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_inside(struct graph_bytes piece, const uint8_t *data, size_t size)
{
    if (piece.bytes != NULL)
        CHECK(piece.bytes >= data && piece.bytes + piece.size <= data + size);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char room[160] = "";
    struct graph_file file;
    if (!graph_file_read(data, size, &file, room, sizeof(room))) {
        CHECK(room[0] != '\0' && strlen(room) < sizeof(room) - 1);
        CHECK(file.apart == NULL && file.apart_count == 0);
        return 0;
    }
    CHECK(file.inside_bytes <= size);
    for (size_t i = 0; i < file.apart_count; i++) {
        CHECK(file.apart[i].rank <= GRAPH_RANK_MAX);
        check_inside(file.apart[i].name, data, size);
        check_inside(file.apart[i].location, data, size);
    }
    graph_file_free(&file);
    return 0;
}
