/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "base/usage.h"
#include "coordinator/config/config.h"
#include "coordinator/config/config_keys.h"
#include "coordinator/config/config_tree.h"

static const char *const titles[WHERE_COUNT] = {
    [WHERE_TOP] = "Keys at the top",
    [WHERE_ADDRESS] = "Keys of an address of HTTP or of `management`",
    [WHERE_TLS] = "Keys of `tls`",
    [WHERE_MESH] = "Keys of `mesh`",
    [WHERE_MESH_TLS] = "Keys of `mesh: tls`",
    [WHERE_ADAPTER] = "Keys of `mesh: adapter`",
    [WHERE_MANAGEMENT] = "Keys of `mesh: management`",
    [WHERE_ALLOW] = "Keys of an entry of `allow`",
    [WHERE_PIPELINE] = "Keys of a pipeline",
    [WHERE_MODELS] = "Keys of a pipeline's `models`",
    [WHERE_STAGE] = "Keys of a stage",
    [WHERE_MODEL] = "Keys of a stage's `model`",
};

static void
default_text(const struct config_key *key, char *text, size_t room)
{
    if (key->need == REQUIRED)
        snprintf(text, room, "required");
    else if (key->fallback == NULL)
        snprintf(text, room, "none");
    else if (key->type == CONFIG_ADDRESSES)
        snprintf(text, room, "[\"%s\"]", key->fallback);
    else
        snprintf(text, room, "%s", key->fallback);
}

static void
print_key_text(FILE *out, const struct config_key *key)
{
    char range[128];
    char initial[64];
    config_range_text(key, range, sizeof(range));
    default_text(key, initial, sizeof(initial));
    char line[256];
    snprintf(line, sizeof(line), "%s%s%s; %s%s", config_type_name(key->type),
             range[0] != '\0' ? ", " : "", range, key->need == REQUIRED ? "" : "default ", initial);
    fprintf(out, "    %s\n", key->name);
    config_print_wrapped(out, line);
    config_print_wrapped(out, key->help);
}

/* The range of a single value shows its type; the range of a name stands above the tables. */
static void
values_text(const struct config_key *key, char *text, size_t room)
{
    char range[128];
    config_range_text(key, range, sizeof(range));
    if (key->type == CONFIG_INTEGER || key->type == CONFIG_DECIMAL || key->type == CONFIG_CHOICE)
        snprintf(text, room, "%s", range);
    else if (key->type == CONFIG_NAME || range[0] == '\0')
        snprintf(text, room, "%s", config_type_name(key->type));
    else if (key->type == CONFIG_CHOICES)
        snprintf(text, room, "%s, %s", config_type_name(key->type), range);
    else
        snprintf(text, room, "%s, at most %.0f", config_type_name(key->type), key->max);
}

static void
print_key_markdown(FILE *out, const struct config_key *key)
{
    char values[192];
    char initial[64] = "";
    values_text(key, values, sizeof(values));
    if (key->need == REQUIRED || key->fallback != NULL)
        default_text(key, initial, sizeof(initial));
    const char *between = key->need == REQUIRED ? ", " : key->fallback != NULL ? ", default " : "";
    char *item = must_format("`%s` (%s%s%s): %s", key->name, values, between, initial, key->help);
    config_print_item(out, item);
    free(item);
}

static void
print_key_man(FILE *out, const struct config_key *key)
{
    char range[128];
    char initial[64];
    config_range_text(key, range, sizeof(range));
    default_text(key, initial, sizeof(initial));
    fputs(".TP\n\\fB", out);
    usage_roff(out, key->name);
    fputs("\\fR\n", out);
    usage_roff(out, config_type_name(key->type));
    fputs(range[0] != '\0' ? ", " : "", out);
    usage_roff(out, range);
    fputs(key->need == REQUIRED ? "; " : "; default ", out);
    usage_roff(out, initial);
    fputs("\n.br\n", out);
    usage_roff(out, key->help);
    fputc('\n', out);
}

static void
print_title(FILE *out, enum config_where where, enum config_manual_form form)
{
    const char *between = where > 0 ? "\n" : "";
    if (form == CONFIG_MANUAL_TEXT) {
        fputs(between, out);
        for (const char *c = titles[where]; *c != '\0'; c++)
            if (*c != '`')
                fputc(*c, out);
        fputs(":\n", out);
    } else if (form == CONFIG_MANUAL_MAN) {
        fputs(".SS ", out);
        usage_roff(out, titles[where]);
        fputc('\n', out);
    } else {
        fprintf(out, "%s**%s**\n\n", between, titles[where]);
    }
}

void
config_print_manual(FILE *out, enum config_manual_form form)
{
    static void (*const print_key[])(FILE * out, const struct config_key *key) = {
        [CONFIG_MANUAL_TEXT] = print_key_text,
        [CONFIG_MANUAL_MARKDOWN] = print_key_markdown,
        [CONFIG_MANUAL_MAN] = print_key_man,
    };
    if (form == CONFIG_MANUAL_MAN) {
        usage_roff_title(out, "shoald.yaml", "5", "configuration of the Shoal model server");
        fputs(".SH DESCRIPTION\n"
              "A map in YAML. Relative paths in it are relative to its folder.\n",
              out);
    }
    if (form == CONFIG_MANUAL_MARKDOWN)
        fputs("A name has 1 to 63 letters, digits, `.`, `_` and `-`.\n\n", out);
    if (form == CONFIG_MANUAL_TEXT)
        fputs("A map in YAML. Relative paths in it are relative to its folder.\n\n", out);
    for (enum config_where where = 0; where < WHERE_COUNT; where++) {
        print_title(out, where, form);
        for (size_t i = 0; i < KEY_COUNT; i++)
            if (config_keys[i].where == where)
                print_key[form](out, &config_keys[i]);
    }
    config_print_environment(out, form);
    if (form == CONFIG_MANUAL_MAN)
        fputs(".SH SEE ALSO\n.BR shoald (8)\n", out);
}
