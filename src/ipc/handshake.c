/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/handshake.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "ipc/local.h"

static bool
terminated(const char *string, size_t room)
{
    return strnlen(string, room) < room;
}

/* Returns the size of a complete message; 0 for an unknown type. */
static uint32_t
message_bytes(uint32_t type)
{
    switch (type) {
    case HANDSHAKE_START: return sizeof(struct handshake_start);
    case HANDSHAKE_READY: return sizeof(struct handshake_ready);
    case HANDSHAKE_FAILED: return sizeof(struct handshake_failed);
    case HANDSHAKE_CLIENT_REGION: return sizeof(struct handshake_client_region);
    case HANDSHAKE_MODEL: return sizeof(struct handshake_model);
    case HANDSHAKE_MODEL_SAID: return sizeof(struct handshake_model_said);
    default: return 0;
    }
}

/* Returns the least number of bytes sent of a message of that type. */
static uint32_t
message_bytes_least(uint32_t type)
{
    return type == HANDSHAKE_MODEL_SAID ? offsetof(struct handshake_model_said, inputs)
                                        : message_bytes(type);
}

uint32_t
handshake_model_said_bytes(const struct handshake_model_said *said)
{
    const void *end = said->output_count > 0 ? &said->outputs[said->output_count]
                                             : &said->inputs[said->input_count];
    return (uint32_t)((const char *)end - (const char *)said);
}

enum status
handshake_send(int fd, const void *message, uint32_t bytes, struct error *error)
{
    const struct handshake_header *header = message;
    CHECK(header->version == HANDSHAKE_VERSION);
    CHECK(header->bytes == bytes && bytes >= message_bytes_least(header->type) &&
          bytes <= message_bytes(header->type));
    ssize_t sent;
    do
        sent = send(fd, message, bytes, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent >= 0)
        return STATUS_OK; /* packets are sent whole or not at all */
    if (errno == EPIPE || errno == ECONNRESET)
        return error_set(error, STATUS_UNAVAILABLE, "handshake: the other side has closed");
    if (errno == EAGAIN) /* a non-blocking socket */
        return error_set(error, STATUS_DEADLINE_EXCEEDED, "handshake: no room for a message");
    return error_set_errno(error, "handshake: sending %u bytes", bytes);
}

enum status
handshake_send_client_region(int fd, const struct handshake_client_region *message, int region_fd,
                             struct error *error)
{
    if (region_fd >= 0)
        return local_send(fd, message, sizeof(*message), region_fd, error);
    ssize_t sent;
    do /* not sendmsg, which a worker's sandbox forbids */
        sent = send(fd, message, sizeof(*message), MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    if (sent >= 0)
        return STATUS_OK;
    if (errno == EPIPE || errno == ECONNRESET)
        return error_set(error, STATUS_UNAVAILABLE, "handshake: the other side has closed");
    if (errno == EAGAIN)
        return error_set(error, STATUS_DEADLINE_EXCEEDED, "handshake: no room for a message");
    return error_set_errno(error, "handshake: sending a client region message");
}

enum status
handshake_receive_client_region(int fd, struct handshake_client_region *message, int *region_fd,
                                struct error *error)
{
    enum status status =
        local_receive(fd, message, sizeof(*message), LOCAL_DONT_WAIT, region_fd, error);
    if (status != STATUS_OK)
        return status;
    if (message->header.version == HANDSHAKE_VERSION &&
        message->header.type == HANDSHAKE_CLIENT_REGION &&
        message->header.bytes == sizeof(*message) &&
        terminated(message->text, sizeof(message->text)))
        return STATUS_OK;
    if (*region_fd >= 0)
        close(*region_fd);
    *region_fd = -1;
    return error_set(error, STATUS_DATA_LOSS, "handshake: not a client region message: type %u",
                     message->header.type);
}

static enum status
receive_failed(struct error *error)
{
    if (errno == ECONNRESET)
        return error_set(error, STATUS_UNAVAILABLE, "handshake: the other side has closed");
    if (errno == EAGAIN) /* a socket with a receive time-out, or a non-blocking one */
        return error_set(error, STATUS_DEADLINE_EXCEEDED, "handshake: no message in time");
    return error_set_errno(error, "handshake: receiving");
}

/* Zeroes the members that were not sent. */
static enum status
message_complete(void *message, uint32_t room, uint32_t whole, struct handshake_header *header,
                 struct error *error)
{
    if (whole > room)
        return error_set(error, STATUS_DATA_LOSS, "handshake: message type %u, room for %u bytes",
                         header->type, room);
    memset((char *)message + header->bytes, 0, whole - header->bytes);
    header->bytes = whole;
    memcpy(message, header, sizeof(*header));
    return STATUS_OK;
}

enum status
handshake_receive(int fd, void *message, uint32_t room, struct error *error)
{
    CHECK(room >= sizeof(struct handshake_header));
    ssize_t received;
    do
        received = recv(fd, message, room, MSG_TRUNC); /* MSG_TRUNC: returns the packet's whole
                                                        * length */
    while (received < 0 && errno == EINTR);
    if (received < 0)
        return receive_failed(error);
    if (received == 0)
        return error_set(error, STATUS_UNAVAILABLE, "handshake: the other side has closed");
    struct handshake_header header;
    if ((size_t)received < sizeof(header) || (size_t)received > room)
        return error_set(error, STATUS_DATA_LOSS, "handshake: a message of %zd bytes, room for %u",
                         received, room);
    memcpy(&header, message, sizeof(header));
    if (header.version != HANDSHAKE_VERSION)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "handshake: version %u, this program speaks %u: coordinator and worker "
                         "are of different builds",
                         header.version, HANDSHAKE_VERSION);
    uint32_t expected = message_bytes(header.type);
    if (expected == 0)
        return error_set(error, STATUS_DATA_LOSS, "handshake: message type %u does not exist",
                         header.type);
    if (header.bytes != received || header.bytes < message_bytes_least(header.type) ||
        header.bytes > expected)
        return error_set(error, STATUS_DATA_LOSS,
                         "handshake: message type %u has %u bytes, not %zd (it says %u)",
                         header.type, expected, received, header.bytes);
    return message_complete(message, room, expected, &header, error);
}

/* `which` is "input" or "output". */
static enum status
tensors_validate(const struct handshake_tensor *tensors, uint32_t count, const char *which,
                 struct error *error)
{
    if (count > SHOAL_TENSORS_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%u %ss; at most %d", count, which,
                         SHOAL_TENSORS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        const struct handshake_tensor *tensor = &tensors[i];
        if (!terminated(tensor->name, sizeof(tensor->name)) || tensor->name[0] == '\0')
            return error_set(error, STATUS_INVALID_ARGUMENT, "%s %u: a name has 1 to %d bytes",
                             which, i, SHOAL_NAME_BYTES_MAX);
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(tensors[k].name, tensor->name) == 0)
                return error_set(error, STATUS_INVALID_ARGUMENT, "%s \"%s\": declared twice", which,
                                 tensor->name);
        if (tensor->datatype >= SHOAL_DATATYPE_END) /* 0 is SHOAL_DATATYPE_ANY */
            return error_set(error, STATUS_INVALID_ARGUMENT, "%s \"%s\": no such datatype: %u",
                             which, tensor->name, tensor->datatype);
        if (tensor->rank == SHOAL_RANK_ANY)
            continue;
        if (tensor->rank > SHOAL_RANK_MAX)
            return error_set(error, STATUS_INVALID_ARGUMENT, "%s \"%s\": rank %u; at most %d",
                             which, tensor->name, tensor->rank, SHOAL_RANK_MAX);
        for (uint32_t k = 0; k < tensor->rank; k++)
            if (tensor->shape[k] < -1)
                return error_set(error, STATUS_INVALID_ARGUMENT, "%s \"%s\": dimension %u is %lld",
                                 which, tensor->name, k, (long long)tensor->shape[k]);
    }
    return STATUS_OK;
}

enum status
handshake_ready_validate(const struct handshake_ready *ready, struct error *error)
{
    if (ready->header.type != HANDSHAKE_READY || ready->header.bytes != sizeof(*ready))
        return error_set(error, STATUS_INVALID_ARGUMENT, "not a ready message: type %u, %u bytes",
                         ready->header.type, ready->header.bytes);
    if ((ready->abilities & ~(uint32_t)SHOAL_ABILITIES_ALL) != 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "abilities %#x: unknown bits",
                         ready->abilities);
    if (!terminated(ready->name, sizeof(ready->name)) || ready->name[0] == '\0')
        return error_set(error, STATUS_INVALID_ARGUMENT, "the modelet's name has 1 to %d bytes",
                         HANDSHAKE_NAME_BYTES - 1);
    if (!terminated(ready->modelet_version, sizeof(ready->modelet_version)) ||
        !terminated(ready->platform, sizeof(ready->platform)))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the modelet's version and platform have at most %d bytes",
                         HANDSHAKE_NAME_BYTES - 1);
    enum status status = tensors_validate(ready->inputs, ready->input_count, "input", error);
    if (status != STATUS_OK)
        return status;
    return tensors_validate(ready->outputs, ready->output_count, "output", error);
}

/* ---- models ---- */

static enum status
model_named(uint32_t number, uint32_t life, struct error *error)
{
    if (number >= 1 && number <= MODEL_NUMBER_MAX && life >= 1)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT, "no such model: number %u, life %u", number,
                     life);
}

enum status
handshake_model_validate(const struct handshake_model *model, struct error *error)
{
    if (model->header.type != HANDSHAKE_MODEL || model->header.bytes != sizeof(*model) ||
        model->event < MODEL_LOAD || model->event > MODEL_PREDICT)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "not an order for a model: type %u, %u bytes, event %u",
                         model->header.type, model->header.bytes, model->event);
    if (!terminated(model->id, sizeof(model->id)) ||
        !terminated(model->path, sizeof(model->path)) ||
        !terminated(model->key, sizeof(model->key)))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "an order for a model: id, path or key is not terminated");
    return model_named(model->number, model->life, error);
}

enum status
handshake_model_said_validate(const struct handshake_model_said *said, struct error *error)
{
    if (said->header.type != HANDSHAKE_MODEL_SAID || said->header.bytes != sizeof(*said) ||
        said->event < MODEL_LOADED || said->event > MODEL_PREDICTED)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "not a message about a model: type %u, %u bytes, event %u",
                         said->header.type, said->header.bytes, said->event);
    enum status status = model_named(said->number, said->life, error);
    if (status != STATUS_OK)
        return status;
    if (said->bytes > MODEL_BYTES_MAX || said->mapped_bytes > MODEL_BYTES_MAX ||
        said->leaked_bytes > MODEL_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "a model of %llu bytes, %llu mapped, %llu leaked: too large",
                         (unsigned long long)said->bytes, (unsigned long long)said->mapped_bytes,
                         (unsigned long long)said->leaked_bytes);
    if (!terminated(said->platform, sizeof(said->platform)) ||
        !terminated(said->text, sizeof(said->text)))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "a message about a model: platform or text is not terminated");
    if (said->event == MODEL_FAILED && (said->status == STATUS_OK || said->status >= STATUS_COUNT))
        return error_set(error, STATUS_INVALID_ARGUMENT, "a load failed with status %u",
                         said->status);
    status = tensors_validate(said->inputs, said->input_count, "input", error);
    if (status != STATUS_OK)
        return status;
    return tensors_validate(said->outputs, said->output_count, "output", error);
}
