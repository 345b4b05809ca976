/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/config/config_keys.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "coordinator/config/config.h"
#include "ipc/counters.h"
#include "ipc/sandbox.h"
#include "shm/client_regions.h"

enum { PATH_BYTES_MAX = 4095, HOUR_MS = 3600 * 1000, MIB = 1 << 20, CALLS_MAX = 65536 };
enum { SHARED_MEMORY_REGIONS_MAX = 1024 };

/* The struct that a map's keys are read into. */
#define STRUCT_TOP config
#define STRUCT_TLS config
#define STRUCT_ADDRESS config_transport
#define STRUCT_MESH config
#define STRUCT_MESH_TLS config
#define STRUCT_ADAPTER config
#define STRUCT_MANAGEMENT config
#define STRUCT_ALLOW config_allow
#define STRUCT_PIPELINE config_pipeline
#define STRUCT_MODELS config_pipeline
#define STRUCT_STAGE config_stage
#define STRUCT_MODEL config_stage

/* The kinds of config_keys.def. */
#define NEEDED(...) .need = REQUIRED, __VA_ARGS__
#define MAP(type_) .type = CONFIG_##type_
#define SIZED(type_, min_, max_, default_)                                                         \
    .type = CONFIG_##type_, .min = (min_), .max = (max_), .fallback = (default_)
#define UP_TO(type, max, default) SIZED(type, 1, max, default)
#define TEXT(max) UP_TO(TEXT, max, NULL)
#define CHOICE(words, default) SIZED(CHOICE, 0, 0, default), .choices = (words)
#define CHOICES(min, max, words)                                                                   \
    SIZED(CHOICES, min, max, NULL), .field = FIELD_U32, .factor = 1, .choices = (words)
#define NUMBER(type, min, max, unit_, default, field_, factor_)                                    \
    SIZED(type, min, max, default), .unit = (unit_), .field = FIELD_##field_, .factor = (factor_)
#define COUNT(min, max, unit, default) NUMBER(INTEGER, min, max, unit, default, U32, 1)
#define TIME_MS(min, max, default) NUMBER(INTEGER, min, max, "ms", default, I64, NS_PER_MS)
#define SIZE_KIB(min, max, default) NUMBER(INTEGER, min, max, "KiB", default, U64, 1024)
#define SIZE_MIB(min, max, default) NUMBER(INTEGER, min, max, "MiB", default, U64, MIB)

const struct config_key config_keys[KEY_COUNT] = {
#define KEY(id, in, name_, kind, member, help_)                                                    \
    [KEY_##id] = {.where = WHERE_##in,                                                             \
                  .name = (name_),                                                                 \
                  kind,                                                                            \
                  .help = (help_),                                                                 \
                  .offset = offsetof(struct STRUCT_##in, member)},
#define KEY_MAP(id, in, name_, kind, help_)                                                        \
    [KEY_##id] = {.where = WHERE_##in, .name = (name_), kind, .help = (help_)},
#include "coordinator/config/config_keys.def"
#undef KEY
#undef KEY_MAP
};

static const char *const where_names[WHERE_COUNT] = {
    [WHERE_ADDRESS] = "an address",         [WHERE_TOP] = "the top level",
    [WHERE_TLS] = "`tls` at the top",       [WHERE_MESH] = "the mesh",
    [WHERE_MESH_TLS] = "the mesh's `tls`",  [WHERE_PIPELINE] = "a pipeline",
    [WHERE_MANAGEMENT] = "`management`",    [WHERE_ALLOW] = "an entry of `allow`",
    [WHERE_MODELS] = "a pipeline's models", [WHERE_STAGE] = "a stage",
    [WHERE_MODEL] = "a stage's model",      [WHERE_ADAPTER] = "the mesh's `adapter`",
};

static const char *const type_names[] = {
    [CONFIG_NAME] = "a name",
    [CONFIG_TEXT] = "text",
    [CONFIG_JSON] = "a file, or JSON as text",
    [CONFIG_CHOICE] = "a word",
    [CONFIG_CHOICES] = "a list of words",
    [CONFIG_INTEGER] = "an integer",
    [CONFIG_DECIMAL] = "a number",
    [CONFIG_ADDRESSES] = "a list of addresses",
    [CONFIG_ADDRESS] = "an address",
    [CONFIG_HTTP_ADDRESSES] = "an address or a list of them",
    [CONFIG_CPUS] = "a list of CPU numbers",
    [CONFIG_FIELD_NUMBERS] = "a list of field numbers",
    [CONFIG_PARAMS] = "a map of names to single values",
    [CONFIG_VARIABLES] = "a map of names to single values",
    [CONFIG_MODEL] = "a map",
    [CONFIG_NAMES] = "a list of names",
    [CONFIG_MODELS] = "a map",
    [CONFIG_LABELS] = "a list of labels",
    [CONFIG_MESH] = "a map",
    [CONFIG_TLS] = "a map",
    [CONFIG_ADAPTER] = "a map",
    [CONFIG_MANAGEMENT] = "an address, a list of them, or a map",
    [CONFIG_ALLOW] = "a list of entries",
    [CONFIG_PATTERNS] = "a list of ids",
    [CONFIG_STAGES] = "a list of stages",
    [CONFIG_PIPELINES] = "a list of pipelines",
};

const char *
config_where_name(enum config_where where)
{
    return where_names[where];
}

const char *
config_type_name(enum config_type type)
{
    return type_names[type];
}

const struct config_key *
config_key_find(enum config_where where, const char *name)
{
    for (size_t i = 0; i < KEY_COUNT; i++)
        if (config_keys[i].where == where && strcmp(config_keys[i].name, name) == 0)
            return &config_keys[i];
    return NULL;
}

/* No typo of a key is longer than this. */
enum { TYPO_BYTES_MAX = 32 };

/* The number of letters to insert, remove or change to make one word of the other. */
static size_t
edit_distance(const char *a, const char *b)
{
    size_t previous[TYPO_BYTES_MAX + 1];
    size_t current[TYPO_BYTES_MAX + 1];
    size_t columns = strlen(b);
    CHECK(columns <= TYPO_BYTES_MAX);
    for (size_t j = 0; j <= columns; j++)
        previous[j] = j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        current[0] = i;
        for (size_t j = 1; j <= columns; j++) {
            size_t change = previous[j - 1] + (a[i - 1] != b[j - 1]);
            size_t other = 1 + (previous[j] < current[j - 1] ? previous[j] : current[j - 1]);
            current[j] = change < other ? change : other;
        }
        memcpy(previous, current, sizeof(previous));
    }
    return previous[columns];
}

const struct config_key *
config_key_nearest(enum config_where where, const char *name)
{
    size_t length = strlen(name);
    if (length > TYPO_BYTES_MAX)
        return NULL;
    const struct config_key *nearest = NULL;
    size_t least = 1 + (length < 3 ? 1 : length / 3 + 1); /* more than that is another word */
    for (size_t i = 0; i < KEY_COUNT; i++) {
        size_t distance = edit_distance(name, config_keys[i].name);
        bool here = config_keys[i].where == where;
        if (distance < least && (here || distance == 0)) {
            nearest = &config_keys[i];
            least = distance;
        }
    }
    return nearest;
}

void
config_range_text(const struct config_key *key, char *text, size_t room)
{
    const char *gap = key->unit != NULL ? " " : "";
    const char *unit = key->unit != NULL ? key->unit : "";
    switch (key->type) {
    case CONFIG_INTEGER:
    case CONFIG_DECIMAL:
        snprintf(text, room, "%.0f to %.0f%s%s", key->min, key->max, gap, unit);
        break;
    case CONFIG_NAME:
        snprintf(text, room, "%.0f to %.0f letters, digits, `.`, `_`, `-`", key->min, key->max);
        break;
    case CONFIG_CHOICE:
    case CONFIG_CHOICES: snprintf(text, room, "%s", key->choices); break;
    case CONFIG_ADDRESSES:
    case CONFIG_HTTP_ADDRESSES:
    case CONFIG_FIELD_NUMBERS:
    case CONFIG_CPUS:
    case CONFIG_PARAMS:
    case CONFIG_VARIABLES:
    case CONFIG_NAMES:
    case CONFIG_LABELS:
    case CONFIG_ALLOW:
    case CONFIG_PATTERNS:
    case CONFIG_STAGES:
    case CONFIG_PIPELINES: snprintf(text, room, "%.0f to %.0f elements", key->min, key->max); break;
    case CONFIG_ADDRESS:
    case CONFIG_TEXT:
    case CONFIG_JSON:
    case CONFIG_MODEL:
    case CONFIG_MESH:
    case CONFIG_MANAGEMENT:
    case CONFIG_TLS:
    case CONFIG_ADAPTER:
    case CONFIG_MODELS: text[0] = '\0'; break;
    }
}
