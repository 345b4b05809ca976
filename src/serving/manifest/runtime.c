/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "serving/manifest/check.h"
#include "serving/manifest/model.h"

static bool
is_true(const struct tree_node *map, const char *key)
{
    const char *text = manifest_text(map, key);
    return text != NULL && strcmp(text, "true") == 0;
}

static void
read_formats(const struct tree_node *list, struct serving_runtime *runtime)
{
    struct serving_format *formats = must_allocate(list->count, sizeof(*formats));
    for (const struct tree_node *one = list->first; one != NULL; one = one->next)
        formats[runtime->format_count++] =
            (struct serving_format){.name = manifest_text(one, "name"),
                                    .version = manifest_text(one, "version"),
                                    .auto_select = is_true(one, "autoSelect")};
    runtime->formats = formats;
}

static void
read_protocols(const struct tree_node *list, struct serving_runtime *runtime)
{
    const char **protocols = must_allocate(list->count, sizeof(*protocols));
    for (const struct tree_node *one = list->first; one != NULL; one = one->next)
        protocols[runtime->protocol_count++] = one->text;
    runtime->protocols = protocols;
}

void
manifest_runtime_find(const struct tree_node *document, struct manifest *manifest)
{
    struct serving_runtime *runtime = &manifest->runtime;
    const struct tree_node *spec = manifest_find(document, "spec");
    const struct tree_node *formats = manifest_find(spec, "supportedModelFormats");
    const struct tree_node *protocols = manifest_find(spec, "protocolVersions");
    if (!manifest_is_runtime(manifest->kind))
        return;
    *runtime = (struct serving_runtime){.name = manifest->name,
                                        .multi_model = is_true(spec, "multiModel"),
                                        .disabled = is_true(spec, "disabled")};
    if (formats != NULL)
        read_formats(formats, runtime);
    if (protocols != NULL)
        read_protocols(protocols, runtime);
}
