/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts of the manual as lines and as items of a list.
 */
#include <stdio.h>
#include <string.h>

#include "coordinator/config/config_tree.h"

/* Returns the bytes up to the next space; long lists of choices end behind one of them. */
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
config_print_item(FILE *out, const char *text)
{
    enum { COLUMNS = 100 };
    int column = fprintf(out, "-");
    while (*text != '\0') {
        int length = (int)strcspn(text, " ");
        if (column > 1 && column + 1 + length > COLUMNS) {
            fputc('\n', out);
            column = fprintf(out, " ");
        }
        column += fprintf(out, " ");
        for (int i = 0; i < length; i++) /* columns are characters of UTF-8 */
            column += fputc(text[i], out) != EOF && (text[i] & 0xC0) != 0x80;
        text += length + (text[length] == ' ');
    }
    fputc('\n', out);
}
