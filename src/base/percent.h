/* SPDX-License-Identifier: Apache-2.0 */
/* Percent-encoded text of URLs (RFC 3986 2.1). */
#pragma once

/* Replaces each %XX in place. Invalid escapes stay unchanged, and so does %00: a decoded text has
 * no zero byte but its last. */
void percent_decode(char *text);
