/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts of the manual as lines and as cells of a table.
 */
#include <stdio.h>
#include <string.h>

#include "coordinator/config/config_tree.h"

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
