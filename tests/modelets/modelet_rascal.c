/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Troubles its supervisor. Does what the text of each request says; a test decides by files
 * when.
 *
 * Input "say": BYTES [1], "VERB NAME". Output "said": BYTES [1].
 *   echo X       says it again
 *   env NAME     says the value of this variable of the environment, or "none"
 *   file PATH    says whether this file can be opened: "open", or the error's number
 *   crash X      dies by SIGABRT
 *   stop NAME    the process is stopped (SIGSTOP) by a thread when the file NAME.now is there
 *   wedge NAME   likewise its first thread hangs in a signal handler forever, wherever it is then
 *   flood X      a thread writes lines to stderr forever
 *   mutter X     says X on stderr, with "mutters " before it
 *   print X      likewise on stdout
 *   perish X     likewise without the end of a line, and dies by SIGABRT
 *   breed COUNT  leaves so many processes behind, each in a session of its own, whose pids it says
 *
 * Params: folder, where the files are. In `open`, while the file NAME is there: zero=NAME
 * overwrites its region with zeros; gate=NAME waits.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <shoal/modelet.h>

#define HOSTILE __attribute__((no_sanitize("address", "undefined", "thread")))

enum { PATH_BYTES = 512, TEXT_BYTES = 256, SAID_BYTES = 4096 };

static char folder[PATH_BYTES];
static pthread_t first_thread;

static int
is_there(const char *name, const char *suffix)
{
    char path[PATH_BYTES + TEXT_BYTES + 16];
    snprintf(path, sizeof(path), "%s/%s%s", folder, name, suffix);
    return access(path, F_OK) == 0;
}

static void
wait_a_little(void)
{
    struct timespec millisecond = {.tv_nsec = 1000000};
    nanosleep(&millisecond, NULL);
}

/* ---- in threads ---- */

static void
hang(int number)
{
    (void)number;
    for (;;)
        wait_a_little();
}

static void *
stop_all(void *name)
{
    while (!is_there(name, ".now"))
        wait_a_little();
    kill(getpid(), SIGSTOP);
    free(name);
    return NULL;
}

static void *
wedge_first(void *name)
{
    while (!is_there(name, ".now"))
        wait_a_little();
    signal(SIGUSR1, hang);
    pthread_kill(first_thread, SIGUSR1);
    free(name);
    return NULL;
}

static void *
flood(void *name)
{
    for (;;)
        fprintf(stderr, "%s: all hands on deck, the water is rising and nobody reads this\n",
                (const char *)name);
    return NULL;
}

static void
in_thread(void *(*work)(void *name), const char *name)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, strdup(name)) == 0)
        pthread_detach(thread);
}

/* ---- processes ---- */

/* Orphans at once: their parent ends when it has reported them. */
static void
breed(int count, char *text)
{
    int said[2];
    size_t used = 0;
    text[0] = '\0';
    if (pipe(said) != 0)
        return;
    for (int i = 0; i < count; i++) {
        pid_t parent = fork();
        if (parent != 0)
            continue;
        pid_t pid = fork();
        if (pid == 0) {
            setsid();
            for (int fd = 0; fd < 64; fd++)
                close(fd);
            for (;;)
                pause();
        }
        dprintf(said[1], "%d ", (int)pid);
        _exit(0);
    }
    close(said[1]);
    for (ssize_t got; (got = read(said[0], text + used, SAID_BYTES - 1 - used)) > 0;)
        text[used += (size_t)got] = '\0';
    close(said[0]);
}

/* ---- the region ---- */

HOSTILE static void
zero_region(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        unsigned long from;
        unsigned long to;
        if (strstr(line, "memfd:shoal-region") == NULL ||
            sscanf(line, "%lx-%lx rw-s", &from, &to) != 2)
            continue;
        /* Not memset: a sanitizer looks at that. */
        for (_Atomic char *byte = (_Atomic char *)from; byte < (_Atomic char *)to; byte++)
            atomic_store_explicit(byte, 0, memory_order_relaxed);
    }
    if (maps != NULL)
        fclose(maps);
}

/* ---- the modelet ---- */

static int
rascal_open(const struct shoal_open *open, void **instance, struct shoal_error *error)
{
    (void)error;
    *instance = NULL;
    first_thread = pthread_self();
    for (uint32_t i = 0; i < open->param_count; i++) {
        const struct shoal_param *param = &open->params[i];
        if (strcmp(param->name, "folder") == 0)
            open->host->resolve_path(param->value, folder, sizeof(folder));
        else if (strcmp(param->name, "zero") == 0 && is_there(param->value, ""))
            zero_region();
        while (strcmp(param->name, "gate") == 0 && is_there(param->value, ""))
            wait_a_little();
    }
    return SHOAL_OK;
}

static int
rascal_describe(void *instance, struct shoal_io *io, struct shoal_error *error)
{
    static const struct shoal_tensor_spec input = {
        .name = "say", .datatype = SHOAL_BYTES, .rank = 1, .shape = {1}};
    static const struct shoal_tensor_spec output = {
        .name = "said", .datatype = SHOAL_BYTES, .rank = 1, .shape = {1}};
    (void)instance;
    (void)error;
    io->inputs = &input;
    io->input_count = 1;
    io->outputs = &output;
    io->output_count = 1;
    return SHOAL_OK;
}

static void
perform(const char *verb, const char *name, char *text)
{
    snprintf(text, SAID_BYTES, "%s %s", verb, name);
    if (strcmp(verb, "env") == 0) {
        const char *value = getenv(name);
        snprintf(text, SAID_BYTES, "%s", value == NULL ? "none" : value);
    } else if (strcmp(verb, "file") == 0) {
        int fd = open(name, O_RDONLY | O_CLOEXEC);
        snprintf(text, SAID_BYTES, fd < 0 ? "%d" : "open", errno);
        if (fd >= 0)
            close(fd);
    } else if (strcmp(verb, "crash") == 0) {
        signal(SIGABRT, SIG_DFL);
        raise(SIGABRT);
    } else if (strcmp(verb, "stop") == 0) {
        in_thread(stop_all, name);
    } else if (strcmp(verb, "wedge") == 0) {
        in_thread(wedge_first, name);
    } else if (strcmp(verb, "flood") == 0) {
        in_thread(flood, name);
    } else if (strcmp(verb, "mutter") == 0) {
        fprintf(stderr, "mutters %s\n", name);
    } else if (strcmp(verb, "print") == 0) {
        printf("prints %s\n", name);
        fflush(stdout);
    } else if (strcmp(verb, "perish") == 0) {
        fprintf(stderr, "perishes of %s", name);
        signal(SIGABRT, SIG_DFL);
        raise(SIGABRT);
    } else if (strcmp(verb, "breed") == 0) {
        breed(atoi(name), text);
    }
}

static int32_t
answer(struct shoal_batch *batch, struct shoal_item *item)
{
    static const int64_t one = 1;
    const struct shoal_tensor *input = &item->inputs[0];
    char say[TEXT_BYTES];
    char text[SAID_BYTES];
    snprintf(say, sizeof(say), "%.*s", (int)(input->bytes - 4), (const char *)input->data + 4);
    char *name = strchr(say, ' ');
    if (name == NULL)
        return batch->host->fail(item, SHOAL_INVALID_ARGUMENT, "\"%s\" is no VERB NAME", say);
    *name++ = '\0';
    perform(say, name, text);
    uint32_t bytes = (uint32_t)strlen(text);
    char *said =
        batch->host->output_bytes(item, "said", SHOAL_BYTES, 1, &one, bytes + sizeof(bytes));
    if (said == NULL)
        return item->status;
    memcpy(said, &bytes, sizeof(bytes));
    memcpy(said + sizeof(bytes), text, bytes);
    return SHOAL_OK;
}

static int
rascal_run(void *instance, void *model, struct shoal_batch *batch)
{
    (void)instance;
    (void)model;
    for (uint32_t i = 0; i < batch->count; i++)
        batch->items[i]->status = answer(batch, batch->items[i]);
    return SHOAL_OK;
}

const struct shoal_modelet shoal_modelet = {
    SHOAL_MODELET_HEADER, .abilities = SHOAL_RUNS_BATCHES, .name = "rascal", .version = "1",
    .open = rascal_open,  .describe = rascal_describe,     .run = rascal_run};
