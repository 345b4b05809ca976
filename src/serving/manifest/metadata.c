/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of every kind's metadata. */
#include "serving/manifest/schema.h"

#define ROW(name, type, need, detail, fields)                                                      \
    {                                                                                              \
        name, type, need, detail, fields, 0                                                        \
    }
#define DROPPED(name) ROW(name, FIELD_DROPPED, FIELD_OPTIONAL, NULL, NULL)
#define REFUSED(name, why) ROW(name, FIELD_REFUSED, FIELD_OPTIONAL, why, NULL)
#define MAP(name) ROW(name, FIELD_MAP, FIELD_OPTIONAL, NULL, any_text)
#define END ROW(NULL, FIELD_TEXT, FIELD_OPTIONAL, NULL, NULL)

static const struct schema_field any_text[] = {ROW("value", FIELD_TEXT, FIELD_OPTIONAL, NULL, NULL),
                                               END};

#define NO_OWNERS "objects here have no owners and no finalizers: remove it"

const struct schema_field manifest_metadata[] = {
    ROW("name", FIELD_TEXT, FIELD_REQUIRED, NULL, NULL),
    ROW("namespace", FIELD_TEXT, FIELD_OPTIONAL, NULL, NULL),
    MAP("labels"),
    MAP("annotations"),
    DROPPED("creationTimestamp"),
    DROPPED("generation"),
    DROPPED("managedFields"),
    DROPPED("resourceVersion"),
    DROPPED("selfLink"),
    DROPPED("uid"),
    REFUSED("finalizers", NO_OWNERS),
    REFUSED("generateName", "an object needs a name: set metadata.name"),
    REFUSED("ownerReferences", NO_OWNERS),
    END,
};
