/* SPDX-License-Identifier: Apache-2.0 */
/* Claims to be as long as the table is, and is shorter: only its first words are there. */
#include <stdint.h>

#include <shoal/modelet.h>

/* Not declared as the header does: the symbol alone counts. */
__attribute__((visibility("default"))) extern const uint32_t cut[6] __asm__("shoal_modelet");

const uint32_t cut[6] = {
    SHOAL_ABI_VERSION,          sizeof(struct shoal_modelet), sizeof(struct shoal_host),
    sizeof(struct shoal_batch), sizeof(struct shoal_item),    sizeof(struct shoal_tensor),
};
