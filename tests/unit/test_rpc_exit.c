/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process may end while threads of gRPC's library still run: some of them are neither joined nor
 * counted. OpenSSL keeps a random generator for each thread that has drawn from it, and frees it
 * when the thread ends; also when that is later than all exit handlers. LeakSanitizer judges.
 */
#include "../test.h"
#include "rpc/rpc.h"

#include <openssl/rand.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"

static pthread_t thread;
static sem_t has_drawn;
static sem_t may_end;

static void *
draw(void *context)
{
    unsigned char byte;
    CHECK(RAND_bytes(&byte, sizeof(byte)) == 1);
    CHECK(sem_post(&has_drawn) == 0);
    while (sem_wait(&may_end) != 0)
        continue;
    return context;
}

static void
end_thread(void)
{
    CHECK(sem_post(&may_end) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static _Noreturn void
run_child(void)
{
    CHECK(sem_init(&has_drawn, 0, 0) == 0 && sem_init(&may_end, 0, 0) == 0);
    CHECK(atexit(end_thread) == 0); /* the first to be registered runs last */
    rpc_init();
    CHECK(pthread_create(&thread, NULL, draw, NULL) == 0);
    while (sem_wait(&has_drawn) != 0)
        continue;
    rpc_shutdown();
    exit(0);
}

TEST_CASE(test_thread_ends_last)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        run_child();
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

TEST_MAIN()
