/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Crashes as each request says, in functions whose names a backtrace must show.
 *
 * Input "do": BYTES [1], the word below. Output: the input. Models: what `load` finds in the key is
 * done during the load. `socket`, `fork`, `chroot` and `open` (of /etc/passwd) fail the request or
 * the load as they fail.
 *   nothing
 *   null       writes to address 0
 *   call       calls address 0
 *   overflow   recurs forever
 *   abort      an assertion fails
 *   trap       an instruction that does not exist
 *   free       frees what malloc did not give
 *   thread     `null`, in a thread of its own
 *   smash      fills its stack with nonsense and returns
 */
#undef NDEBUG
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <shoal/modelet.h>

enum { WORD_BYTES = 32 };

#define APART __attribute__((noinline))

/* A value that the compiler does not know. */
static uintptr_t
hidden(uintptr_t value)
{
    __asm__ volatile("" : "+r"(value) : : "memory");
    return value;
}

APART static void
crash_null(void)
{
    *(int *)hidden(0) = 1; /* NOLINT */
}

APART static void
crash_call(void)
{
    int (*nowhere)(void) = (int (*)(void))hidden(0); /* NOLINT */
    hidden((uintptr_t)nowhere() + 1);
}

APART static uintptr_t
crash_overflow(uintptr_t depth)
{
    char room[4096];
    hidden((uintptr_t)room);
    return hidden(depth) == UINTPTR_MAX ? 0 : crash_overflow(depth + 1) + (uintptr_t)room[0];
}

APART static void
crash_abort(void)
{
    assert(hidden(0) == 1);
}

APART static void
crash_trap(void)
{
    __builtin_trap();
}

APART static void
crash_free(void)
{
    free((void *)hidden(0x123450)); /* NOLINT */
}

static void *
crash_in_thread(void *context)
{
    crash_null();
    return context;
}

APART static void
crash_thread(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, crash_in_thread, NULL) == 0)
        (void)pthread_join(thread, NULL);
}

/* Writes over the frames of its callers. */
APART static void
crash_smash(void)
{
    uintptr_t *frame = __builtin_frame_address(0);
    frame = (uintptr_t *)hidden((uintptr_t)frame); /* NOLINT */
    for (int i = 0; i < 64; i++)
        frame[i] = hidden(0xdeadbeef0000);
}

static void
crash(const char *word)
{
    static const struct {
        const char *word;
        void (*crash)(void);
    } ways[] = {{"null", crash_null},  {"call", crash_call}, {"abort", crash_abort},
                {"trap", crash_trap},  {"free", crash_free}, {"thread", crash_thread},
                {"smash", crash_smash}};
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        if (strcmp(word, ways[i].word) == 0)
            ways[i].crash();
    if (strcmp(word, "overflow") == 0)
        hidden(crash_overflow(hidden(0)));
}

/* Makes a call that the sandbox refuses by default. Returns a negative number if it fails. */
static int
attempt(const char *word)
{
    if (strcmp(word, "socket") == 0)
        return socket(AF_INET, SOCK_STREAM, 0);
    if (strcmp(word, "fork") == 0)
        return fork();
    if (strcmp(word, "chroot") == 0)
        return chroot("/");
    if (strcmp(word, "open") == 0)
        return open("/etc/passwd", O_RDONLY);
    return 0;
}

static int
load(void *instance, const struct shoal_model *spec, void **model, struct shoal_error *error)
{
    (void)instance;
    char word[WORD_BYTES] = "";
    const char *quote = strrchr(spec->key, ':'); /* {"do": "word"} */
    if (quote != NULL && (quote = strchr(quote, '"')) != NULL)
        memcpy(word, quote + 1, strcspn(quote + 1, "\"") % WORD_BYTES);
    crash(word);
    *model = NULL;
    if (attempt(word) >= 0)
        return SHOAL_OK;
    snprintf(error->text, sizeof(error->text), "no %s: %s", word, strerror(errno));
    return SHOAL_FAILED_PRECONDITION;
}

static int
run(void *instance, void *model, struct shoal_batch *batch)
{
    (void)instance;
    (void)model;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct shoal_item *item = batch->items[i];
        char word[WORD_BYTES] = "";
        uint32_t length;
        memcpy(&length, item->inputs[0].data, sizeof(length));
        memcpy(word, (const char *)item->inputs[0].data + sizeof(length), length % WORD_BYTES);
        crash(word);
        if (attempt(word) >= 0)
            item->status = batch->host->forward(item, 0, "done");
        else
            batch->host->fail(item, SHOAL_UNKNOWN, "no %s: %s", word, strerror(errno));
    }
    return SHOAL_OK;
}

const struct shoal_modelet shoal_modelet = {
    SHOAL_MODELET_HEADER, .abilities = SHOAL_RUNS_BATCHES | SHOAL_RUN_DURING_LOAD,
    .name = "crasher",    .load = load,
    .run = run,
};
