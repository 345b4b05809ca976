/* SPDX-License-Identifier: Apache-2.0 */
#include "codec.h"

#include <string.h>

#include "base/check.h"

enum { RECORD_BYTES_MAX = 8192 };

struct writer {
    size_t used;
    unsigned char bytes[RECORD_BYTES_MAX];
};

static void
put(struct writer *writer, const void *data, size_t size)
{
    CHECK(size <= sizeof(writer->bytes) - writer->used);
    memcpy(writer->bytes + writer->used, data, size);
    writer->used += size;
}

static void
put_number(struct writer *writer, uint64_t number)
{
    put(writer, &number, sizeof(number));
}

static void
put_text(struct writer *writer, const char *text)
{
    put(writer, text == NULL ? "" : text, text == NULL ? 1 : strlen(text) + 1);
}

static uint64_t
get_number(const unsigned char **at)
{
    uint64_t number;
    memcpy(&number, *at, sizeof(number));
    *at += sizeof(number);
    return number;
}

static const char *
get_text(const unsigned char **at)
{
    const char *text = (const char *)*at;
    *at += strlen(text) + 1;
    return text;
}

struct etcd_bytes
codec_write_model(struct arena *arena, const struct mesh_model *model)
{
    struct writer writer;
    writer.used = 0;
    put_number(&writer, (uint64_t)model->used_ms);
    put_number(&writer, (uint64_t)model->unloaded_ms);
    put_number(&writer, model->references);
    put_number(&writer, model->auto_delete);
    put_number(&writer, model->bounds.copies_min);
    put_number(&writer, model->bounds.copies_max);
    put_number(&writer, model->bounds.size_units);
    put_text(&writer, model->type);
    put_text(&writer, model->path);
    put_text(&writer, model->key);
    put_number(&writer, model->place_count);
    for (uint32_t i = 0; i < model->place_count; i++) {
        put_number(&writer, (uint64_t)model->places[i].since_ms);
        put_number(&writer, model->places[i].kind);
        put_text(&writer, model->places[i].instance);
        put_text(&writer, model->places[i].reason);
    }
    return (struct etcd_bytes){arena_copy(arena, writer.bytes, writer.used), writer.used};
}

void
codec_read_model(const struct etcd_kv *kv, const char *id, struct mesh_place *places,
                 struct mesh_model *model)
{
    const unsigned char *at = kv->value.data;
    *model = (struct mesh_model){
        .id = id,
        .create_revision = (uint64_t)kv->create_revision,
        .revision = (uint64_t)kv->mod_revision,
    };
    model->used_ms = (int64_t)get_number(&at);
    model->unloaded_ms = (int64_t)get_number(&at);
    model->references = (uint32_t)get_number(&at);
    model->auto_delete = get_number(&at) != 0;
    model->bounds.copies_min = (uint32_t)get_number(&at);
    model->bounds.copies_max = (uint32_t)get_number(&at);
    model->bounds.size_units = (uint32_t)get_number(&at);
    model->type = get_text(&at);
    model->path = get_text(&at);
    model->key = get_text(&at);
    model->place_count = (uint32_t)get_number(&at);
    model->places = places;
    CHECK(model->place_count <= CODEC_PLACES_MAX);
    for (uint32_t i = 0; i < model->place_count; i++) {
        places[i].since_ms = (int64_t)get_number(&at);
        places[i].kind = (enum mesh_place_kind)get_number(&at);
        places[i].instance = get_text(&at);
        places[i].reason = get_text(&at);
    }
}

static void
put_figures(struct writer *writer, const struct mesh_figures *figures)
{
    put_number(writer, figures->capacity_units);
    put_number(writer, figures->free_units);
    put_number(writer, (uint64_t)figures->oldest_ms);
    put_number(writer, figures->copies);
    put_number(writer, figures->loading);
    put_number(writer, figures->calls_per_minute);
    put_number(writer, figures->full);
}

static struct mesh_figures
get_figures(const unsigned char **at)
{
    struct mesh_figures figures;
    figures.capacity_units = get_number(at);
    figures.free_units = get_number(at);
    figures.oldest_ms = (int64_t)get_number(at);
    figures.copies = (uint32_t)get_number(at);
    figures.loading = (uint32_t)get_number(at);
    figures.calls_per_minute = (uint32_t)get_number(at);
    figures.full = get_number(at) != 0;
    return figures;
}

struct etcd_bytes
codec_write_instance(struct arena *arena, const struct mesh_instance *instance)
{
    struct writer writer;
    writer.used = 0;
    put_number(&writer, (uint64_t)instance->start_ms);
    put_number(&writer, (uint64_t)instance->version);
    put_number(&writer, instance->draining);
    put_figures(&writer, &instance->figures);
    put_text(&writer, instance->labels);
    put_number(&writer, instance->pool_count);
    for (uint32_t i = 0; i < instance->pool_count; i++) {
        put_text(&writer, instance->pool_types[i]);
        put_figures(&writer, &instance->pool_figures[i]);
    }
    return (struct etcd_bytes){arena_copy(arena, writer.bytes, writer.used), writer.used};
}

void
codec_read_instance(const struct etcd_kv *kv, const char *id, struct mesh_instance *instance)
{
    static const char *types[CODEC_POOLS_MAX];
    static struct mesh_figures figures[CODEC_POOLS_MAX];
    const unsigned char *at = kv->value.data;
    *instance = (struct mesh_instance){
        .id = id,
        .session = (uint64_t)kv->create_revision,
        .revision = (uint64_t)kv->mod_revision,
    };
    instance->start_ms = (int64_t)get_number(&at);
    instance->version = (int64_t)get_number(&at);
    instance->draining = get_number(&at) != 0;
    instance->figures = get_figures(&at);
    instance->labels = get_text(&at);
    instance->pool_types = types;
    instance->pool_figures = figures;
    instance->pool_count = (uint32_t)get_number(&at);
    CHECK(instance->pool_count <= CODEC_POOLS_MAX);
    for (uint32_t i = 0; i < instance->pool_count; i++) {
        types[i] = get_text(&at);
        figures[i] = get_figures(&at);
    }
}

struct etcd_bytes
codec_write_vmodel(struct arena *arena, const struct mesh_vmodel *vmodel)
{
    struct writer writer;
    writer.used = 0;
    put_number(&writer, vmodel->failed);
    put_text(&writer, vmodel->owner);
    put_text(&writer, vmodel->active);
    put_text(&writer, vmodel->target);
    return (struct etcd_bytes){arena_copy(arena, writer.bytes, writer.used), writer.used};
}

void
codec_read_vmodel(const struct etcd_kv *kv, const char *id, struct mesh_vmodel *vmodel)
{
    const unsigned char *at = kv->value.data;
    *vmodel = (struct mesh_vmodel){
        .id = id,
        .create_revision = (uint64_t)kv->create_revision,
        .revision = (uint64_t)kv->mod_revision,
    };
    vmodel->failed = get_number(&at) != 0;
    vmodel->owner = get_text(&at);
    vmodel->active = get_text(&at);
    vmodel->target = get_text(&at);
}
