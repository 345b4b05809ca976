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

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rpc_linger *first; /* under `lock` */
static atomic_bool is_any;       /* written under `lock` */

static uint64_t
inode_of(int fd)
{
    struct stat file;
    return fstat(fd, &file) == 0 ? file.st_ino : 0; /* a socket's is not 0 */
}

static struct rpc_linger **
find(const struct rpc_linger *linger)
{
    struct rpc_linger **at = &first;
    while (*at != NULL && *at != linger)
        at = &(*at)->next;
    return at;
}

void
rpc_linger_begin(struct rpc_linger *linger, int fd)
{
    pthread_mutex_lock(&lock);
    CHECK(*find(linger) == NULL);
    *linger = (struct rpc_linger){.inode = inode_of(fd), .next = first};
    CHECK(linger->inode != 0);
    first = linger;
    atomic_store_explicit(&is_any, true, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
}

void
rpc_linger_end(struct rpc_linger *linger)
{
    if (linger->inode == 0)
        return;
    pthread_mutex_lock(&lock);
    struct rpc_linger **at = find(linger);
    CHECK(*at == linger);
    *at = linger->next;
    linger->inode = 0;
    atomic_store_explicit(&is_any, first != NULL, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
}

static bool
lingers(uint64_t inode)
{
    pthread_mutex_lock(&lock);
    const struct rpc_linger *at = first;
    while (at != NULL && at->inode != inode)
        at = at->next;
    pthread_mutex_unlock(&lock);
    return at != NULL;
}

/* The library's calls arrive here, and ours. */
__attribute__((visibility("default"))) int
shutdown(int fd, int how)
{
    if (how == SHUT_RDWR && atomic_load_explicit(&is_any, memory_order_relaxed) &&
        lingers(inode_of(fd)))
        how = SHUT_WR;
    return (int)syscall(SYS_shutdown, fd, how);
}
