/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records as bytes of the simulated etcd and back. Only the simulator reads them, so they are
 * neither JSON nor stable; numbers as they are, texts with their NUL, so that what is read points
 * into the bytes.
 */
#pragma once

#include "arena.h"
#include "mesh/core/mesh_core.h"
#include "mesh/etcd/etcd.h"

enum { CODEC_PLACES_MAX = 64, CODEC_POOLS_MAX = 2 };

/* Id and revisions are not in it: they are the key's. */
struct etcd_bytes codec_write_model(struct arena *arena, const struct mesh_model *model);
struct etcd_bytes codec_write_instance(struct arena *arena, const struct mesh_instance *instance);

struct etcd_bytes codec_write_vmodel(struct arena *arena, const struct mesh_vmodel *vmodel);

/* `places` has room for CODEC_PLACES_MAX. */
void codec_read_model(const struct etcd_kv *kv, const char *id, struct mesh_place *places,
                      struct mesh_model *model);
void codec_read_vmodel(const struct etcd_kv *kv, const char *id, struct mesh_vmodel *vmodel);
/* Its pools live until the next call. */
void codec_read_instance(const struct etcd_kv *kv, const char *id, struct mesh_instance *instance);
