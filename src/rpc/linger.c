/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections that the library closes without an error for their clients.
 *
 * Behind the last GOAWAY and the last answer the library shuts a socket down in both directions. A
 * client that writes at that moment, a ping or its acknowledgement, gets EPIPE or a reset, and the
 * C core's client then drops the answer that it has not read yet. HTTP says to half-close and wait
 * for the client (RFC 9112, 9.6), and the library has no option for it. So shutdown() is defined
 * here, and the dynamic linker prefers a program's definition to libc's: for sockets in this list
 * it ends only what we send. The acceptor's duplicate keeps the socket open until the client has
 * closed it too.
 */
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "rpc/internal.h"

enum { BUCKETS = 1024 }; /* by inode: a node may have tens of thousands of connections */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rpc_linger *buckets[BUCKETS]; /* under `lock` */
static atomic_uint count;                   /* written under `lock` */

static uint64_t
inode_of(int fd)
{
    struct stat file;
    return fstat(fd, &file) == 0 ? file.st_ino : 0; /* a socket's is not 0 */
}

void
rpc_linger_begin(struct rpc_linger *linger, int fd)
{
    CHECK(linger->inode == 0);
    linger->inode = inode_of(fd);
    CHECK(linger->inode != 0);
    struct rpc_linger **bucket = &buckets[linger->inode % BUCKETS];
    pthread_mutex_lock(&lock);
    linger->next = *bucket;
    *bucket = linger;
    atomic_fetch_add_explicit(&count, 1, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
}

void
rpc_linger_end(struct rpc_linger *linger)
{
    if (linger->inode == 0)
        return;
    pthread_mutex_lock(&lock);
    struct rpc_linger **at = &buckets[linger->inode % BUCKETS];
    while (*at != linger) {
        CHECK(*at != NULL);
        at = &(*at)->next;
    }
    *at = linger->next;
    linger->inode = 0;
    atomic_fetch_sub_explicit(&count, 1, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
}

static bool
lingers(uint64_t inode)
{
    pthread_mutex_lock(&lock);
    const struct rpc_linger *at = buckets[inode % BUCKETS];
    while (at != NULL && at->inode != inode)
        at = at->next;
    pthread_mutex_unlock(&lock);
    return at != NULL;
}

/* The library's calls arrive here, and ours. */
__attribute__((visibility("default"))) int
shutdown(int fd, int how)
{
    if (how == SHUT_RDWR && atomic_load_explicit(&count, memory_order_relaxed) > 0 &&
        lingers(inode_of(fd)))
        how = SHUT_WR;
    return (int)syscall(SYS_shutdown, fd, how);
}
