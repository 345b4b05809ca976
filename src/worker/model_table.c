/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/model_table.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "ipc/handshake.h"
#include "shm/layout.h"

/* A sleep that is never rung ends by itself. */
static const int64_t LOOK_AGAIN_NS = 100 * (int64_t)NS_PER_MS;

bool
model_table_init(struct model_table *table)
{
    *table = (struct model_table){.entries = NULL};
    table->entries = calloc(MODEL_NUMBER_MAX + 1, sizeof(table->entries[0]));
    return table->entries != NULL;
}

void
model_table_fini(struct model_table *table)
{
    free(table->entries);
    table->entries = NULL;
}

/* Any number: from the coordinator, or from a slot that any process may have written. */
static struct model_entry *
entry_of(const struct model_table *table, uint64_t word)
{
    uint32_t number = (uint32_t)word;
    return number <= MODEL_NUMBER_MAX ? &table->entries[number] : &table->entries[0];
}

/* ---- the main thread ---- */

bool
model_table_has(const struct model_table *table, uint64_t word)
{
    return word != 0 &&
           atomic_load_explicit(&entry_of(table, word)->word, memory_order_relaxed) == word;
}

struct loaded_model *
model_table_enter(struct model_table *table, uint64_t word)
{
    struct model_entry *entry = entry_of(table, word);
    atomic_store_explicit(&table->running, word, memory_order_seq_cst);
    if (word != 0 && atomic_load_explicit(&entry->word, memory_order_seq_cst) == word)
        return entry->loaded;
    model_table_leave(table);
    return NULL;
}

void
model_table_leave(struct model_table *table)
{
    /* release: the thread that removes the model sees all effects of the run */
    atomic_store_explicit(&table->running, 0, memory_order_release);
    doorbell_ring(&table->bell);
}

void
model_table_flushed(struct model_table *table)
{
    atomic_store_explicit(&table->flush, 0, memory_order_release);
    doorbell_ring(&table->bell);
}

/* ---- the loader ---- */

bool
model_table_free(const struct model_table *table, uint64_t word)
{
    return atomic_load_explicit(&entry_of(table, word)->word, memory_order_relaxed) == 0;
}

bool
model_table_add(struct model_table *table, uint64_t word, struct loaded_model *loaded)
{
    struct model_entry *entry = entry_of(table, word);
    CHECK((uint32_t)word >= 1 && (uint32_t)word <= MODEL_NUMBER_MAX);
    if (!model_table_free(table, word))
        return false;
    entry->loaded = loaded;
    atomic_store_explicit(&entry->word, word, memory_order_release);
    return true;
}

static bool
is_run(const struct model_table *table, uint64_t word)
{
    return atomic_load_explicit(&table->running, memory_order_seq_cst) == word;
}

struct loaded_model *
model_table_remove(struct model_table *table, uint64_t word)
{
    struct model_entry *entry = entry_of(table, word);
    if (!model_table_has(table, word))
        return NULL;
    struct loaded_model *loaded = entry->loaded;
    atomic_store_explicit(&entry->word, 0, memory_order_seq_cst);
    while (is_run(table, word)) {
        uint32_t prepared = doorbell_prepare(&table->bell);
        if (is_run(table, word))
            (void)doorbell_sleep(&table->bell, prepared, LOOK_AGAIN_NS);
        else
            doorbell_cancel(&table->bell);
    }
    return loaded;
}

struct loaded_model *
model_table_next(const struct model_table *table, uint32_t *from)
{
    for (; *from <= MODEL_NUMBER_MAX; (*from)++) {
        const struct model_entry *entry = &table->entries[*from];
        if (atomic_load_explicit(&entry->word, memory_order_relaxed) != 0)
            return entry->loaded;
    }
    return NULL;
}

/* It is safe not to wait for a busy main thread: it flushes its cache after its run, and the next
 * measurement sees that. */
static bool
awaits_flush(const struct model_table *table)
{
    return atomic_load_explicit(&table->flush, memory_order_acquire) != 0 &&
           atomic_load_explicit(&table->running, memory_order_relaxed) == 0;
}

void
model_table_flush(struct model_table *table, struct shm_doorbell *bell, int64_t timeout_ns)
{
    atomic_store_explicit(&table->flush, 1, memory_order_seq_cst);
    doorbell_ring(bell);
    int64_t end_ns = clock_now_ns() + timeout_ns;
    int64_t left_ns = timeout_ns;
    while (left_ns > 0 && awaits_flush(table)) {
        uint32_t prepared = doorbell_prepare(&table->bell);
        if (awaits_flush(table))
            (void)doorbell_sleep(&table->bell, prepared, left_ns);
        else
            doorbell_cancel(&table->bell);
        left_ns = end_ns - clock_now_ns();
    }
}
