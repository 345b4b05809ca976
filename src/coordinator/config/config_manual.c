/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "coordinator/config/config.h"
#include "coordinator/config/config_keys.h"
#include "coordinator/config/config_tree.h"

static const char *const titles[WHERE_COUNT] = {
    [WHERE_TOP] = "At the top",
    [WHERE_ADDRESS] = "Of an address of `http`, `metrics`, `probes`, `prestop` or `management`",
    [WHERE_TLS] = "Of `tls`",
    [WHERE_MESH] = "Of `mesh`",
    [WHERE_MESH_TLS] = "Of the `tls` of `mesh`",
    [WHERE_MANAGEMENT] = "Of the `management` of `mesh`",
    [WHERE_ALLOW] = "Of each entry of `allow`",
    [WHERE_PIPELINE] = "Of each pipeline",
    [WHERE_MODELS] = "Of a pipeline's `models`",
    [WHERE_STAGE] = "Of each stage",
    [WHERE_MODEL] = "Of a stage's `model`",
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

/* To the next space; long lists of choices end behind one of them. */
static int
word_length(const char *text)
{
    enum { LENGTH_MAX = 60 };
    int length = (int)strcspn(text, " ");
    int end = LENGTH_MAX;
    while (length > LENGTH_MAX && end > 0 && text[end - 1] != '|')
        end--;
    return length <= LENGTH_MAX || end == 0 ? length : end;
}

/* Backquotes are for Markdown. */
void
config_print_wrapped(FILE *out, const char *text)
{
    enum { INDENT = 8, COLUMNS = 90 };
    int column = 0;
    while (*text != '\0') {
        int length = word_length(text);
        if (column > 0 && column + 1 + length > COLUMNS) {
            fputc('\n', out);
            column = 0;
        }
        column += fprintf(out, "%*s", column == 0 ? INDENT : 1, "");
        for (int i = 0; i < length; i++)
            if (text[i] != '`')
                column += fputc(text[i], out) != EOF;
        text += length + (text[length] == ' ');
    }
    fputc('\n', out);
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

void
config_print_cell(FILE *out, const char *text)
{
    fputc(' ', out);
    for (; *text != '\0'; text++) {
        if (*text == '|')
            fputc('\\', out);
        fputc(*text, out);
    }
    fputs(" |", out);
}

static void
print_key_markdown(FILE *out, const struct config_key *key)
{
    char name[64];
    char range[128];
    char initial[64];
    snprintf(name, sizeof(name), "`%s`", key->name);
    config_range_text(key, range, sizeof(range));
    default_text(key, initial, sizeof(initial));
    const char *cells[] = {name, config_type_name(key->type), range, initial, key->help};
    fputc('|', out);
    for (size_t i = 0; i < sizeof(cells) / sizeof(cells[0]); i++)
        config_print_cell(out, cells[i]);
    fputc('\n', out);
}

void
config_print_manual(FILE *out, enum config_manual_form form)
{
    for (enum config_where where = 0; where < WHERE_COUNT; where++) {
        const char *between = where > 0 ? "\n" : "";
        if (form == CONFIG_MANUAL_TEXT) {
            char line[64];
            snprintf(line, sizeof(line), "%s:", titles[where]);
            fputs(between, out);
            for (const char *c = line; *c != '\0'; c++)
                if (*c != '`')
                    fputc(*c, out);
            fputs("\n", out);
        } else {
            fprintf(
                out,
                "%s**%s**\n\n| Key | Type | Range | Default | Meaning |\n|---|---|---|---|---|\n",
                between, titles[where]);
        }
        for (size_t i = 0; i < KEY_COUNT; i++)
            if (config_keys[i].where == where && form == CONFIG_MANUAL_TEXT)
                print_key_text(out, &config_keys[i]);
            else if (config_keys[i].where == where)
                print_key_markdown(out, &config_keys[i]);
    }
    config_print_environment(out, form);
}
