/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The service manager that started this process, systemd for one, receives over the datagram socket
 * $NOTIFY_SOCKET what the node does (sd_notify(3)), and, if $WATCHDOG_USEC asks for it, a sign of
 * life from the loop twice in that time: it restarts a node whose loop hangs. Without the variable
 * every function does nothing. Loop thread. Nothing here waits: a message that the socket has no
 * room for is sent again by a timer.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include "base/error.h"
#include "loop/loop.h"

/* SERVICE_STOPPING is final: later states are only shown. */
enum service_state { SERVICE_STARTING, SERVICE_READY, SERVICE_RELOADING, SERVICE_STOPPING };

enum { SERVICE_TEXT_BYTES = 512 };

struct service_manager {
    int fd; /* -1: nobody listens */
    struct sockaddr_un address;
    socklen_t address_bytes;
    int64_t beat_ns; /* between two signs of life; 0: none are wanted */
    struct loop_timer *timer;
    enum service_state state;
    char text[SERVICE_TEXT_BYTES]; /* the last message */
    bool is_unreported;
    bool has_left;
};

/* Reads the environment. A socket that cannot be used is logged. */
void service_manager_init(struct service_manager *manager, struct loop *loop);
void service_manager_fini(struct service_manager *manager);

/* Names another process as the service's main process, and says nothing after that. */
void service_manager_leave(struct service_manager *manager, pid_t successor);

/* Says the state and one line for people. Says nothing twice. */
void service_manager_notify(struct service_manager *manager, enum service_state state,
                            const char *format, ...) PRINTF_LIKE(3, 4);
