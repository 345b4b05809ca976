/* SPDX-License-Identifier: Apache-2.0 */
/* Orders: management calls, from their owners to the core and back. */
#include "base/check.h"
#include "mesh/edge/driver_inside.h"

static void
end(struct driver_order *order, const struct driver_reply *reply)
{
    order->is_under_way = false;
    order->on_end(order, reply);
}

static void
release(struct driver *driver, struct driver_order *order)
{
    seats_give(&driver->orders, order->order.order);
    order->is_under_way = false;
}

void
driver_order(struct driver *driver, struct driver_order *order)
{
    driver_lock(driver);
    uint32_t number = driver->closed ? SEAT_NONE : seats_take(&driver->orders, order);
    if (number == SEAT_NONE)
        end(order, &(struct driver_reply){.outcome = MESH_OUTCOME_UNAVAILABLE});
    else {
        order->is_under_way = true;
        order->order.order = number;
        order->order.deadline_ms = driver_deadline_ms(order->deadline_ns);
        driver_step(driver, (struct mesh_event){.kind = MESH_ORDER, .order = order->order});
        if (driver->orders.held[number] == order) /* else its memory may have gone */
            driver_refuse_order(driver, order);
    }
    driver_unlock(driver);
}

void
driver_order_do_reply(struct driver *driver, const struct mesh_action *action)
{
    uint32_t number = action->reply.order;
    CHECK(number < driver->orders.used && driver->orders.held[number] != NULL);
    struct driver_order *order = driver->orders.held[number];
    const struct driver_reply reply = {.outcome = action->reply.outcome,
                                       .model = action->reply.model,
                                       .vmodel = action->reply.vmodel};
    release(driver, order);
    end(order, &reply);
}

static void
cancel(struct driver *driver, struct driver_order *order)
{
    uint32_t number = order->order.order;
    driver_step(driver,
                (struct mesh_event){.kind = MESH_ORDER_CANCELLED, .order = {.order = number}});
    release(driver, order);
}

void
driver_order_cancelled(struct driver *driver, struct driver_order *order)
{
    driver_lock(driver);
    if (order->is_under_way)
        cancel(driver, order);
    driver_unlock(driver);
}

void
driver_order_refuse(struct driver *driver, struct driver_order *order, const struct error *error)
{
    cancel(driver, order);
    end(order, &(struct driver_reply){.outcome = MESH_OUTCOME_UNAVAILABLE, .refusal = error});
}

void
driver_order_close_all(struct driver *driver)
{
    for (uint32_t i = 0; i < driver->orders.used; i++)
        if (driver->orders.held[i] != NULL)
            driver_order_refuse(driver, driver->orders.held[i], NULL);
}
