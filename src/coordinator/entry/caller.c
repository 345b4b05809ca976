/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/entry/caller.h"

#include <string.h>

#include "base/check.h"

#define METADATA_DEFAULT "shoal-caller"

enum { ADDRESS_BYTES = 128 };

struct callers
callers_of(const struct config *config, struct share_key key)
{
    return (struct callers){
        .key = key,
        .metadata = config->caller_metadata != NULL ? config->caller_metadata : METADATA_DEFAULT,
        .proxies = config->caller_proxies,
        .asks = config_asks_for_certificates(&config->tls),
    };
}

/* ---- certificates ---- */

struct identity {
    const struct callers *callers;
    uint64_t hash; /* of the names so far */
    bool is_proxy;
};

/* Each name is hashed with a key that those before it have made, so that neither their order nor
 * where one ends is lost. */
static void
take_name(void *context, const void *name, size_t bytes)
{
    struct identity *identity = context;
    struct share_key key = identity->callers->key;
    key.words[0] ^= identity->hash;
    key.words[1] = ~key.words[1];
    identity->hash = share_hash(key, name, bytes);
    identity->is_proxy |= config_labels_have(identity->callers->proxies, name, bytes);
}

/* ---- addresses ---- */

static void
take_none(void *context, const void *name, size_t bytes)
{
    (void)context;
    (void)name;
    (void)bytes;
}

/* Reads an address as adapters write it: "ipv4:127.0.0.1", "ipv6:%5B::1%5D", "unix:", and REST
 * "ipv4:unix". */
static bool
is_local(const char *address)
{
    static const char *const local[] = {"unix", "ipv4:127.", "ipv4:unix", "ipv6:%5B::1%5D",
                                        "ipv6:%5B::ffff:127."};
    for (size_t i = 0; i < ARRAY_COUNT(local); i++)
        if (strncmp(address, local[i], strlen(local[i])) == 0)
            return true;
    return false;
}

bool
caller_is_near(const struct inbound *inbound)
{
    char address[ADDRESS_BYTES + 1];
    const struct inbound_type *type = inbound->type;
    size_t bytes = type->address == NULL ? 0 : type->address(inbound->call, address, ADDRESS_BYTES);
    address[bytes] = '\0';
    return is_local(address) ||
           (type->names != NULL && type->names(inbound->call, take_none, NULL));
}

/* ---- any way in ---- */

/* An address is written as gRPC writes it, so that a machine that comes both ways is one caller. */
uint64_t
caller_of(const struct callers *callers, const struct inbound *inbound)
{
    const struct inbound_type *type = inbound->type;
    struct identity identity = {.callers = callers};
    struct wire_span name;
    char address[ADDRESS_BYTES];
    bool shown =
        callers->asks && type->names != NULL && type->names(inbound->call, take_name, &identity);
    if (shown && !identity.is_proxy)
        return identity.hash;
    if (inbound_metadata(inbound, callers->metadata, &name))
        return share_hash(callers->key, name.data, name.bytes);
    if (shown || type->address == NULL)
        return identity.hash;
    return share_hash(callers->key, address,
                      type->address(inbound->call, address, sizeof(address)));
}
