/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seeds that once found a bug, and the bug. A seed reproduces it only as long as the world draws
 * the same random numbers, so each bug is also covered by a unit test or a planted bug. Running the
 * seeds costs little.
 */
#pragma once

#include <stdint.h>

static const uint64_t seeds_once_failed[] = {
    5,     /* served from a copy that was lost while it was withdrawn */
    88,    /* an instance that was gone began its ten minutes again */
    103,   /* the target of a vmodel was refused by a full mesh forever */
    154,   /* I16: a load that was only claimed evicted at any cost */
    210,   /* a node answered before it had seen its own key */
    258,   /* an answer by a model that never was active */
    279,   /* a second load was claimed beside a living copy */
    367,   /* reason not recorded */
    882,   /* a model of a new etcd was taken for one of the former */
    1193,  /* I10: a late answer raised a deleted record */
    1689,  /* a call waited for a copy to go that stayed */
    2059,  /* I15: others went for a load in advance that nobody had asked for */
    2725,  /* the one node's runtime had forgotten the model */
    2826,  /* R14: copies went before a call got there, eight times */
    3640,  /* nothing could be evicted at once, and nothing was later */
    3694,  /* reason not recorded */
    8723,  /* I3: a place got the stamp of an earlier one */
    8917,  /* I3: copies that turned a call away counted as tried */
    9557,  /* I1: memory that an unload had not given back was promised */
    9632,  /* I18: the last copy left after another one had gone */
    10447, /* I13: a vmodel's target was refused by models in use */
    11554, /* R14: five copies were gone when a call got there */
    13536, /* W1: a session ended while lost records were written anew */
    20406, /* I18: a drain released a copy after etcd was emptied */
    22715, /* a drain looked for the type of a record that had gone */
};
