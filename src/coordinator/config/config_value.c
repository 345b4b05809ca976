/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads single values, for the files that read and check the configuration.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "coordinator/config/config_tree.h"

bool
config_is_json(const char *value)
{
    const char *first = value + strspn(value, " \t\r\n");
    return *first == '{' || *first == '[';
}

bool
config_is_yes(const char *word)
{
    return word != NULL && strcmp(word, "yes") == 0;
}

bool
config_read_mode(const char *text, uint32_t *mode)
{
    char *end;
    unsigned long bits = strtoul(text, &end, 8);
    if (text[0] < '0' || text[0] > '7' || *end != '\0' || bits > ACCESSPERMS)
        return false;
    *mode = (uint32_t)bits;
    return true;
}

bool
config_is_local(const char *address)
{
    static const char *const local[] = {"127.", "[::1]:", "localhost:", "unix:"};
    for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++)
        if (strncmp(address, local[i], strlen(local[i])) == 0)
            return true;
    return false;
}

bool
config_asks_for_certificates(const struct config_tls *tls)
{
    return tls->certificate != NULL && tls->ca != NULL &&
           (tls->client_auth == NULL || strcmp(tls->client_auth, "none") != 0);
}

char *
config_resolve(const struct config *config, char *path)
{
    if (path[0] == '/')
        return path;
    const char *slash = strcmp(config->directory, "/") == 0 ? "" : "/";
    char *resolved = must_format("%s%s%s", config->directory, slash, path);
    free(path);
    return resolved;
}
