/* SPDX-License-Identifier: Apache-2.0 */
/* The transaction that the owner of a batch (copies/write.h) has out. */
#pragma once

#include <stdint.h>

#include "mesh/core/mesh_core.h"

struct bid {
    uint64_t txn; /* the transaction that is out; 0: none */
    uint64_t compares[MESH_WRITES_MAX];
    int64_t again_ms; /* T5: the same compares not before this */
    uint32_t count;
};

/* The receiver of a transaction's answer, in the upper bits of its lower half. */
enum bidder { BIDDER_MODEL, BIDDER_ORDER, BIDDER_VMODEL, BIDDER_CALL };
enum { BIDDER_SHIFT = 30 };
#define BIDDER_NUMBER_MAX (UINT32_C(1) << BIDDER_SHIFT)
