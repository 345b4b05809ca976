/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/dashboard/gate.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char token_bytes[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                  "-._~+/=";

enum status
gate_init(struct gate *gate, const char *token_file, const char *hosts, struct error *error)
{
    char line[GATE_TOKEN_BYTES_MAX + 2] = "";
    *gate = (struct gate){.token = ""};
    rest_guard_init(&gate->guard, hosts);
    if (token_file == NULL)
        return STATUS_OK;
    FILE *file = fopen(token_file, "re");
    if (file == NULL)
        return error_set_errno(error, "dashboard_token: %s", token_file);
    (void)!fgets(line, sizeof(line), file);
    fclose(file);
    line[strcspn(line, "\r\n")] = '\0';
    size_t bytes = strlen(line);
    if (bytes < GATE_TOKEN_BYTES_MIN || bytes > GATE_TOKEN_BYTES_MAX ||
        strspn(line, token_bytes) != bytes)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "dashboard_token: the first line of %s is not a token of %d to %d "
                         "letters, digits or -._~+/=: write one with `openssl rand -hex 24`",
                         token_file, GATE_TOKEN_BYTES_MIN, GATE_TOKEN_BYTES_MAX);
    memcpy(gate->token, line, bytes + 1);
    return STATUS_OK;
}

bool
gate_is_token(const struct gate *gate, const char *given)
{
    char padded[sizeof(gate->token)] = "";
    size_t bytes = strnlen(given, sizeof(padded));
    unsigned differs = bytes == sizeof(padded);
    memcpy(padded, given, differs != 0 ? 0 : bytes);
    for (size_t i = 0; i < sizeof(padded); i++)
        differs |= (unsigned char)(padded[i] ^ gate->token[i]);
    return differs == 0;
}

/* A token in the header Authorization. */
static bool
has_bearer(const struct gate *gate, const char *authorization)
{
    static const char scheme[] = "Bearer ";
    return authorization != NULL && strncasecmp(authorization, scheme, sizeof(scheme) - 1) == 0 &&
           gate_is_token(gate, authorization + sizeof(scheme) - 1);
}

static bool
has_cookie(const struct gate *gate, const char *cookie)
{
    static const char name[] = GATE_COOKIE "=";
    char value[GATE_TOKEN_BYTES_MAX + 1];
    for (const char *at = cookie; at != NULL; at = strchr(at, ';')) {
        at += strspn(at, "; ");
        size_t bytes = strcspn(at, ";");
        if (strncmp(at, name, sizeof(name) - 1) != 0 || bytes - sizeof(name) + 1 >= sizeof(value))
            continue;
        memcpy(value, at + sizeof(name) - 1, bytes - sizeof(name) + 1);
        value[bytes - sizeof(name) + 1] = '\0';
        if (gate_is_token(gate, value))
            return true;
    }
    return false;
}

enum status
gate_check(const struct gate *gate, const struct gate_headers *headers, enum gate_what what,
           struct error *error)
{
    enum status status =
        rest_guard_check(&gate->guard, headers->place, headers->host, headers->origin, error);
    if (status != STATUS_OK)
        return status;
    if (what == GATE_DATA && headers->fetch_site != NULL &&
        strcmp(headers->fetch_site, "same-origin") != 0 && strcmp(headers->fetch_site, "none") != 0)
        return error_set(error, STATUS_PERMISSION_DENIED,
                         "Sec-Fetch-Site \"%.40s\": pages of other sites may not read this",
                         headers->fetch_site);
    if (gate->token[0] == '\0' || has_bearer(gate, headers->authorization) ||
        has_cookie(gate, headers->cookie))
        return STATUS_OK;
    return error_set(error, STATUS_UNAUTHENTICATED,
                     "expected the token of dashboard_token: log in at /login, or send "
                     "`Authorization: Bearer TOKEN`");
}
