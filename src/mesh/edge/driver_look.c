/* SPDX-License-Identifier: Apache-2.0 */
/* The driver, looked at by people: each look is one hold of the lock. */
#include "mesh/edge/driver_inside.h"

uint64_t
driver_see_models(struct driver *driver, uint64_t from, uint32_t count, const char *prefix,
                  void (*see)(void *context, const struct mesh_sight *sight), void *context)
{
    driver_lock(driver);
    uint64_t next = mesh_see_models(driver->mesh, (uint32_t)from, count, prefix, see, context);
    driver_unlock(driver);
    return next;
}

uint64_t
driver_see_vmodels(struct driver *driver, uint64_t from, uint32_t count, const char *prefix,
                   void (*see)(void *context, const char *id,
                               const struct mesh_vmodel_status *status),
                   void *context)
{
    driver_lock(driver);
    uint64_t next = mesh_see_vmodels(driver->mesh, (uint32_t)from, count, prefix, see, context);
    driver_unlock(driver);
    return next;
}

uint64_t
driver_see_copies(struct driver *driver, uint64_t from, uint32_t count,
                  void (*see)(void *context, const struct mesh_sight *sight), void *context)
{
    driver_lock(driver);
    uint64_t next = mesh_see_copies(driver->mesh, (uint32_t)from, count, see, context);
    driver_unlock(driver);
    return next;
}

bool
driver_see_model(struct driver *driver, const char *id,
                 void (*see)(void *context, const struct mesh_sight *sight), void *context)
{
    driver_lock(driver);
    bool found = mesh_see_model(driver->mesh, id, see, context);
    driver_unlock(driver);
    return found;
}

const struct book_entry *
driver_where(const struct driver *driver, const char *instance)
{
    return book_find(&driver->book, instance);
}
