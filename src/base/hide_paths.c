/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hide_paths.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "base/check.h"

struct hide_text {
    char *text;
    size_t bytes;
    size_t room;
};

static void
append(struct hide_text *hidden, const char *text, size_t bytes)
{
    size_t left = hidden->room - 1 - hidden->bytes;
    size_t taken = bytes < left ? bytes : left;
    memcpy(hidden->text + hidden->bytes, text, taken);
    hidden->bytes += taken;
    hidden->text[hidden->bytes] = '\0';
}

static bool
is_end(char c)
{
    return c == '\0' || isspace((unsigned char)c) || strchr("\"'`,;:|)]}>", c) != NULL;
}

/* Returns true if `at`, the first of one or more slashes, begins an absolute path, not a relative
 * one, a fraction or a URL. */
static bool
begins_path(const char *text, const char *at)
{
    size_t slashes = strspn(at, "/");
    if (is_end(at[slashes]))
        return false;
    if (at == text)
        return true;
    char before = at[-1];
    if (before == ':' && slashes == 2)
        return false;
    return !isalnum((unsigned char)before) && strchr("._-~)%+", before) == NULL &&
           (unsigned char)before < 0x80;
}

/* Returns the length of the root that the path begins with; 0: none. */
static size_t
root_of(const char *path, const char *const *roots, size_t root_count)
{
    size_t longest = 0;
    for (size_t i = 0; i < root_count; i++) {
        size_t bytes = strlen(roots[i]);
        while (bytes > 0 && roots[i][bytes - 1] == '/')
            bytes--;
        bool is_root = bytes > longest && strncmp(path, roots[i], bytes) == 0 &&
                       (path[bytes] == '/' || is_end(path[bytes]));
        if (is_root)
            longest = bytes;
    }
    return longest;
}

/* Returns the text after the path. */
static const char *
append_path(struct hide_text *hidden, const char *path, const char *const *roots, size_t root_count)
{
    size_t root = root_of(path, roots, root_count);
    const char *end = path + root;
    while (!is_end(*end))
        end++;
    const char *name = path + root + strspn(path + root, "/");
    if (root > 0) {
        append(hidden, name < end ? name : ".", name < end ? (size_t)(end - name) : 1);
        return end;
    }
    const char *last = end;
    while (last[-1] == '/') /* of a folder */
        last--;
    name = last;
    while (name[-1] != '/')
        name--;
    append(hidden, ".../", 4);
    append(hidden, name, (size_t)(last - name));
    return end;
}

void
hide_paths(const char *text, const char *const *roots, size_t root_count, char *text_hidden,
           size_t room)
{
    CHECK(room > 0);
    struct hide_text hidden = {.text = text_hidden, .room = room};
    text_hidden[0] = '\0';
    const char *at = text;
    while (*at != '\0') {
        size_t plain = strcspn(at, "/");
        append(&hidden, at, plain);
        at += plain;
        if (*at == '\0')
            break;
        if (begins_path(text, at)) {
            at = append_path(&hidden, at, roots, root_count);
        } else {
            size_t slashes = strspn(at, "/");
            append(&hidden, at, slashes);
            at += slashes;
        }
    }
}
