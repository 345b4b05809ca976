/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A puppet: does what the text of each request says, and takes its cues from files, so that a test
 * decides when something happens and knows when it has.
 *
 * Input "say": BYTES [1], "VERB NAME". Outputs: "said", the same text; "pid", INT64 [1].
 *   echo X         nothing
 *   hold NAME      makes NAME.held and waits until NAME.go is there
 *   hold-once NAME the same, if NAME.held is not there yet
 *   stop-once NAME makes NAME.held and stops itself (SIGSTOP), if NAME.held is not there yet
 *   linger NAME    the same, and also ends, with NAME.gave_up, when nobody waits for it any more
 *   slow MS        takes so many milliseconds
 *   crash X        dies by SIGABRT
 *   crash-once X   the same, if X.crashed is not there yet
 *   fail CODE      fails the item with this code
 *   fail-batch C   `run` returns this code for the whole batch
 *   unset X        leaves the item unset
 * Every item is appended as a line to the file `runs` before it is done.
 *
 * Params: folder, where all these files are; open = fail, crash, hang; when-broken: dies in `open`,
 * and in every `run`, while the file `broken` is there; orphan: dies in `open` and leaves a child
 * behind, with all that it has open, which lives while the file `orphan.lives` is there, with its
 * pid in it.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <shoal/modelet.h>

#ifndef PUPPET_ABILITIES
#define PUPPET_ABILITIES SHOAL_RUNS_BATCHES
#endif

enum { PATH_BYTES = 512, TEXT_BYTES = 256 };

struct puppet {
    char folder[PATH_BYTES];
    char open[32];
};

static int
cue_fd(const struct puppet *self, const char *name, const char *suffix, int flags)
{
    char path[PATH_BYTES + TEXT_BYTES + 16];
    snprintf(path, sizeof(path), "%s/%s%s", self->folder, name, suffix);
    return open(path, flags | O_CLOEXEC, 0644);
}

static int
cue_given(const struct puppet *self, const char *name, const char *suffix)
{
    int fd = cue_fd(self, name, suffix, O_RDONLY);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* 1: the file was not there and is now. */
static int
cue_give(const struct puppet *self, const char *name, const char *suffix)
{
    int fd = cue_fd(self, name, suffix, O_WRONLY | O_CREAT | O_EXCL);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static void
note_run(const struct puppet *self, const char *text)
{
    int fd = cue_fd(self, "runs", "", O_WRONLY | O_CREAT | O_APPEND);
    if (fd < 0)
        return;
    dprintf(fd, "%s\n", text);
    close(fd);
}

static void
die(void)
{
    signal(SIGABRT, SIG_DFL);
    raise(SIGABRT);
}

static void
wait_a_little(void)
{
    struct timespec millisecond = {.tv_nsec = 1000000};
    nanosleep(&millisecond, NULL);
}

/* Not what it prints to: that is waited for when shoald ends. */
static void
leave_orphan(const struct puppet *self)
{
    int fd = cue_fd(self, "orphan", ".lives", O_WRONLY | O_CREAT | O_TRUNC);
    pid_t pid = fork();
    if (pid == 0) {
        close(STDOUT_FILENO);
        close(STDERR_FILENO);
        while (cue_given(self, "orphan", ".lives"))
            wait_a_little();
        _exit(0);
    }
    dprintf(fd, "%d", (int)pid);
    die();
}

static int
puppet_open(const struct shoal_open *open, void **instance, struct shoal_error *error)
{
    struct puppet *self = calloc(1, sizeof(*self));
    if (self == NULL)
        return SHOAL_RESOURCE_EXHAUSTED;
    for (uint32_t i = 0; i < open->param_count; i++) {
        const struct shoal_param *param = &open->params[i];
        if (strcmp(param->name, "folder") == 0)
            open->host->resolve_path(param->value, self->folder, sizeof(self->folder));
        else if (strcmp(param->name, "open") == 0)
            snprintf(self->open, sizeof(self->open), "%s", param->value);
    }
    if (strcmp(self->open, "crash") == 0 ||
        (strcmp(self->open, "when-broken") == 0 && cue_given(self, "broken", "")))
        die();
    if (strcmp(self->open, "orphan") == 0)
        leave_orphan(self);
    while (strcmp(self->open, "hang") == 0)
        wait_a_little();
    if (strcmp(self->open, "fail") == 0) {
        snprintf(error->text, sizeof(error->text), "the strings are tangled");
        free(self);
        return SHOAL_FAILED_PRECONDITION;
    }
    *instance = self;
    return SHOAL_OK;
}

static void
puppet_close(void *instance)
{
    free(instance);
}

static int
puppet_describe(void *instance, struct shoal_io *io, struct shoal_error *error)
{
    static const struct shoal_tensor_spec input = {
        .name = "say", .datatype = SHOAL_BYTES, .rank = 1, .shape = {1}};
    static const struct shoal_tensor_spec outputs[] = {
        {.name = "said", .datatype = SHOAL_BYTES, .rank = 1, .shape = {1}},
        {.name = "pid", .datatype = SHOAL_INT64, .rank = 1, .shape = {1}}};
    (void)instance;
    (void)error;
    io->inputs = &input;
    io->input_count = 1;
    io->outputs = outputs;
    io->output_count = 2;
    io->platform = "puppet";
    return SHOAL_OK;
}

/* Sleeps once, however long: a busy machine makes every sleep longer. */
static void
wait_ms(int64_t ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        continue;
}

/* Waits for the cue; 0: the item was given up instead. */
static int
hold(const struct puppet *self, struct shoal_batch *batch, struct shoal_item *item,
     const char *name, int linger)
{
    while (!cue_given(self, name, ".go")) {
        if (linger && batch->host->cancelled(item)) {
            cue_give(self, name, ".gave_up");
            return 0;
        }
        wait_a_little();
    }
    return 1;
}

static int32_t
answer(struct shoal_batch *batch, struct shoal_item *item)
{
    static const int64_t one = 1;
    int32_t status = batch->host->forward(item, 0, "said");
    if (status != SHOAL_OK)
        return status;
    int64_t *pid = batch->host->output(item, "pid", SHOAL_INT64, 1, &one);
    if (pid == NULL)
        return item->status;
    *pid = getpid();
    return SHOAL_OK;
}

/* The item's status; commands for the whole batch go into `whole`. */
static int32_t
perform(struct puppet *self, struct shoal_batch *batch, struct shoal_item *item, int *whole)
{
    const struct shoal_tensor *input = &item->inputs[0];
    char text[TEXT_BYTES];
    snprintf(text, sizeof(text), "%.*s", (int)(input->bytes - 4), (const char *)input->data + 4);
    note_run(self, text);
    char *name = strchr(text, ' ');
    if (name == NULL)
        return batch->host->fail(item, SHOAL_INVALID_ARGUMENT, "\"%s\" is no VERB NAME", text);
    *name++ = '\0';
    int known = strcmp(text, "echo") == 0;
    int once = strcmp(text, "hold-once") == 0;
    if (once || strcmp(text, "hold") == 0 || strcmp(text, "linger") == 0) {
        int first = cue_give(self, name, ".held");
        if ((first || !once) && !hold(self, batch, item, name, text[0] == 'l'))
            return batch->host->fail(item, SHOAL_CANCELLED, "given up");
    } else if (strcmp(text, "stop-once") == 0) {
        if (cue_give(self, name, ".held"))
            raise(SIGSTOP);
    } else if (strcmp(text, "slow") == 0) {
        wait_ms(atoi(name));
    } else if (strcmp(text, "crash") == 0 ||
               (strcmp(text, "crash-once") == 0 && cue_give(self, name, ".crashed"))) {
        die();
    } else if (strcmp(text, "fail") == 0) {
        return batch->host->fail(item, atoi(name), "the puppet was told to fail with %s", name);
    } else if (strcmp(text, "fail-batch") == 0) {
        snprintf(batch->error->text, sizeof(batch->error->text), "the whole act failed");
        *whole = atoi(name);
    } else if (strcmp(text, "unset") == 0) {
        return SHOAL_UNSET;
    } else if (!known && strcmp(text, "crash-once") != 0) {
        return batch->host->fail(item, SHOAL_UNIMPLEMENTED, "no verb \"%s\"", text);
    }
    return answer(batch, item);
}

static int
puppet_run(void *instance, void *model, struct shoal_batch *batch)
{
    struct puppet *self = instance;
    (void)model;
    if (strcmp(self->open, "when-broken") == 0 && cue_given(self, "broken", ""))
        die();
    int whole = SHOAL_OK;
    for (uint32_t i = 0; i < batch->count; i++)
        batch->items[i]->status = perform(self, batch, batch->items[i], &whole);
    return whole;
}

const struct shoal_modelet shoal_modelet = {
    SHOAL_MODELET_HEADER, .abilities = PUPPET_ABILITIES, .name = "puppet",  .version = "1",
    .open = puppet_open,  .describe = puppet_describe,   .run = puppet_run, .close = puppet_close,
};
