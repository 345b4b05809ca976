/* SPDX-License-Identifier: Apache-2.0 */
#include "digits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_BYTES_MAX = 1024 };

/* Allocates room for `count` rows. */
static bool
digits_reserve(struct digits *digits, size_t count)
{
    float *pixels = realloc(digits->pixels, count * DIGITS_PIXELS * sizeof *pixels);
    if (pixels != NULL)
        digits->pixels = pixels;
    float *labels = realloc(digits->labels, count * sizeof *labels);
    if (labels != NULL)
        digits->labels = labels;
    if (pixels == NULL || labels == NULL)
        fprintf(stderr, "digits: out of memory\n");
    return pixels != NULL && labels != NULL;
}

/* Reads one whole number in 0..max and the comma or line end after it. */
static bool
parse_value(char **text, long max, float *value)
{
    char *end;
    long number = strtol(*text, &end, 10);
    if (end == *text || number < 0 || number > max)
        return false;
    *value = (float)number;
    *text = *end == ',' ? end + 1 : end;
    return *end == ',' || *end == '\n' || *end == '\0';
}

static bool
parse_row(char *text, float *pixels, float *label)
{
    for (size_t i = 0; i < DIGITS_PIXELS; i++) {
        if (!parse_value(&text, 16, &pixels[i]))
            return false;
    }
    return parse_value(&text, DIGITS_CLASSES - 1, label) && (*text == '\n' || *text == '\0');
}

static bool
read_rows(FILE *file, const char *path, struct digits *digits)
{
    char text[ROW_BYTES_MAX];
    size_t room = 0;
    while (fgets(text, sizeof text, file) != NULL) {
        if (digits->count == room) {
            room = room == 0 ? 2048 : room * 2;
            if (!digits_reserve(digits, room))
                return false;
        }
        size_t row = digits->count;
        if (!parse_row(text, digits->pixels + row * DIGITS_PIXELS, &digits->labels[row])) {
            fprintf(stderr, "%s:%zu: not 64 pixels of 0..16 and a digit\n", path, row + 1);
            return false;
        }
        digits->count++;
    }
    if (ferror(file) || digits->count == 0)
        fprintf(stderr, "%s: %s\n", path, ferror(file) ? strerror(errno) : "no rows");
    return !ferror(file) && digits->count > 0;
}

bool
digits_read(const char *path, struct digits *digits)
{
    *digits = (struct digits){0};
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return false;
    }
    bool read = read_rows(file, path, digits);
    fclose(file);
    if (!read)
        digits_free(digits);
    return read;
}

bool
digits_select(const struct digits *all, bool held_out, struct digits *selected)
{
    *selected = (struct digits){0};
    if (!digits_reserve(selected, all->count)) {
        digits_free(selected);
        return false;
    }
    for (size_t row = 0; row < all->count; row++) {
        if (digits_held_out(row) != held_out)
            continue;
        memcpy(selected->pixels + selected->count * DIGITS_PIXELS,
               all->pixels + row * DIGITS_PIXELS, DIGITS_PIXELS * sizeof *all->pixels);
        selected->labels[selected->count++] = all->labels[row];
    }
    return true;
}

void
digits_free(struct digits *digits)
{
    free(digits->pixels);
    free(digits->labels);
    *digits = (struct digits){0};
}
