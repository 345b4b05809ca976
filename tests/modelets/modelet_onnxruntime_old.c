/* SPDX-License-Identifier: Apache-2.0 */
/* No modelet: an ONNX Runtime 1.14, as far as it says its version. */
#include <stddef.h>
#include <stdint.h>

enum { VERSION = 14 };

struct base {
    const void *(*get_api)(uint32_t version);
    const char *(*get_version)(void);
};

static const void *
get_api(uint32_t version)
{
    static const int functions[1];
    return version <= VERSION ? functions : NULL;
}

static const char *
get_version(void)
{
    return "1.14.1";
}

__attribute__((visibility("default"))) const struct base *OrtGetApiBase(void); /* NOLINT */

const struct base *
OrtGetApiBase(void) /* NOLINT: its name */
{
    static const struct base base = {get_api, get_version};
    return &base;
}
