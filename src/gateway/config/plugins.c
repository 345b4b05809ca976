/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "gateway/config/picker_config.h"

struct plugin_ref
plugin_find(const struct yaml_file *file, const char *name)
{
    const struct tree_node *plugins = yaml_find(yaml_root(file), "plugins");
    const struct tree_node *entry;
    for (entry = yaml_first(plugins); entry != NULL; entry = entry->next) {
        const char *its_name = yaml_text(yaml_find(entry, "name"));
        const char *type = yaml_text(yaml_find(entry, "type"));
        if (type != NULL && strcmp(its_name != NULL ? its_name : type, name) == 0)
            return (struct plugin_ref){type, entry};
    }
    return (struct plugin_ref){name, 0};
}

int
plugin_index(const char *type, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(type, names[i]) == 0)
            return i;
    return -1;
}

enum status
plugin_number(const struct yaml_file *file, const struct tree_node *entry, const char *name,
              double *number, struct error *error)
{
    const struct tree_node *value = yaml_find(yaml_find(entry, "parameters"), name);
    const char *text = yaml_text(value);
    char *end = NULL;
    if (value == 0)
        return STATUS_OK;
    double read = text != NULL ? strtod(text, &end) : -1;
    if (!(read >= 0 && read <= 1e15) || end == text || *end != '\0')
        return yaml_mistake(file, value, error, "%s: expected a number of at least 0", name);
    *number = read;
    return STATUS_OK;
}

struct unit {
    const char *name;
    double factor;
};

/* The unit that is all of `text` up to a digit, or NULL. */
static const struct unit *
unit_find(const struct unit *units, size_t count, const char *text, size_t bytes)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(units[i].name) == bytes && memcmp(units[i].name, text, bytes) == 0)
            return &units[i];
    return NULL;
}

bool
quantity_read(const char *text, uint64_t *number)
{
    static const struct unit units[] = {
        {"", 1},         {"k", 1e3},         {"M", 1e6},  {"G", 1e9},           {"Ki", 1024},
        {"Mi", 1048576}, {"Gi", 1073741824}, {"T", 1e12}, {"Ti", 1099511627776}};
    char *end;
    double read = strtod(text, &end);
    const struct unit *unit = unit_find(units, ARRAY_COUNT(units), end, strlen(end));
    if (end == text || *text < '0' || *text > '9' || unit == NULL || read * unit->factor > 1e15)
        return false;
    *number = (uint64_t)(read * unit->factor);
    return true;
}
