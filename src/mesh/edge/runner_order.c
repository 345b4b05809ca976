/* SPDX-License-Identifier: Apache-2.0 */
/* Orders (management calls) between their owners and the core. */
#include "base/check.h"
#include "mesh/edge/runner_inside.h"

static void
end(struct runner_order *order, const struct runner_reply *reply)
{
    order->is_under_way = false;
    order->on_end(order, reply);
}

static void
release(struct mesh_runner *runner, struct runner_order *order)
{
    CHECK(order->is_under_way && id_table_at(&runner->orders, order->order.order) == order);
    id_table_remove(&runner->orders, order->order.order);
    order->is_under_way = false;
}

void
runner_order(struct mesh_runner *runner, struct runner_order *order)
{
    runner_lock(runner);
    uint32_t number = runner->closed ? ID_NONE : id_table_add(&runner->orders, order);
    if (number == ID_NONE)
        end(order, &(struct runner_reply){.outcome = MESH_OUTCOME_UNAVAILABLE});
    else {
        order->is_under_way = true;
        order->order.order = number;
        order->order.deadline_ms = runner_deadline_ms(order->deadline_ns);
        runner_step(runner, (struct mesh_event){.kind = MESH_ORDER, .order = order->order});
        if (id_table_at(&runner->orders, number) == order) /* otherwise its memory may be gone */
            runner_refuse_order(runner, order);
    }
    runner_unlock(runner);
}

void
runner_order_do_reply(struct mesh_runner *runner, const struct mesh_action *action)
{
    struct runner_order *order = id_table_at(&runner->orders, action->reply.order);
    CHECK(order != NULL);
    const struct runner_reply reply = {.outcome = action->reply.outcome,
                                       .model = action->reply.model,
                                       .vmodel = action->reply.vmodel};
    release(runner, order);
    end(order, &reply);
}

static void
cancel(struct mesh_runner *runner, struct runner_order *order)
{
    uint32_t number = order->order.order;
    runner_step(runner,
                (struct mesh_event){.kind = MESH_ORDER_CANCELLED, .order = {.order = number}});
    release(runner, order);
}

void
runner_order_cancelled(struct mesh_runner *runner, struct runner_order *order)
{
    runner_lock(runner);
    if (order->is_under_way)
        cancel(runner, order);
    runner_unlock(runner);
}

void
runner_order_refuse(struct mesh_runner *runner, struct runner_order *order,
                    const struct error *error)
{
    cancel(runner, order);
    end(order, &(struct runner_reply){.outcome = MESH_OUTCOME_UNAVAILABLE, .refusal = error});
}

void
runner_order_close_all(struct mesh_runner *runner)
{
    for (uint32_t i = 0; i < runner->orders.used; i++)
        if (id_table_at(&runner->orders, i) != NULL)
            runner_order_refuse(runner, id_table_at(&runner->orders, i), NULL);
}
