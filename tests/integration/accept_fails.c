/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a program on a machine that lacks something when a connection is accepted: `accept_fails
 * FILE PROGRAM [ARGUMENT ...]`. While FILE is there, accept4 fails with the number that it
 * contains, for the program and all that it starts; the connections stay where they are, as with a
 * real ENFILE.
 *
 * The kernel asks a process of ours about each accept4 (SECCOMP_RET_USER_NOTIF). That process is
 * nobody's child, holds none of the program's descriptors, and ends when the last that has the
 * filter has ended.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* 0: accept4 goes on. */
static int
errno_wanted(const char *path)
{
    char text[16] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    (void)!read(fd, text, sizeof(text) - 1);
    close(fd);
    return atoi(text);
}

static void
answer(int notify, const char *path)
{
    struct seccomp_notif *asked;
    struct seccomp_notif_resp *reply;
    if (seccomp_notify_alloc(&asked, &reply) != 0)
        _exit(1);
    if (seccomp_notify_receive(notify, asked) == 0) {
        reply->id = asked->id;
        reply->error = -errno_wanted(path);
        reply->flags = reply->error == 0 ? SECCOMP_USER_NOTIF_FLAG_CONTINUE : 0;
        (void)seccomp_notify_respond(notify, reply); /* fails if the one that asked has died */
    }
    seccomp_notify_free(asked, reply);
}

static void
answer_all(int notify, const char *path)
{
    struct pollfd asked = {.fd = notify, .events = POLLIN};
    while (poll(&asked, 1, -1) < 0 || (asked.revents & (POLLHUP | POLLERR)) == 0)
        if ((asked.revents & POLLIN) != 0)
            answer(notify, path);
}

/* A message of one byte with a descriptor. */
union accept_control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

static int
receive_descriptor(int socket)
{
    char byte;
    union accept_control control;
    struct iovec data = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    int fd = -1;
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&message) != NULL)
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    return fd;
}

static int
send_descriptor(int socket, int fd)
{
    char byte = 0;
    union accept_control control = {.header = {.cmsg_len = CMSG_LEN(sizeof(fd)),
                                               .cmsg_level = SOL_SOCKET,
                                               .cmsg_type = SCM_RIGHTS}};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
    struct iovec data = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    return sendmsg(socket, &message, 0) == 1 ? 0 : -errno;
}

/* The process that is asked: a grandchild, so that the program has no child that it did not make.
 */
static void
start_answering(int socket, const char *path)
{
    pid_t child = fork();
    if (child > 0)
        (void)waitpid(child, NULL, 0);
    if (child != 0)
        return;
    if (fork() != 0)
        _exit(0);
    int notify = receive_descriptor(socket);
    if (notify < 0 || dup2(notify, 0) < 0)
        _exit(1);
    closefrom(1);
    answer_all(0, path);
    _exit(0);
}

static int
filter_accept(int socket)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (filter == NULL)
        return -ENOMEM;
    int failed = seccomp_rule_add(filter, SCMP_ACT_NOTIFY, SCMP_SYS(accept4), 0);
    if (failed == 0)
        failed = seccomp_load(filter);
    if (failed == 0) {
        failed = send_descriptor(socket, seccomp_notify_fd(filter));
        close(seccomp_notify_fd(filter));
    }
    seccomp_release(filter);
    return failed;
}

int
main(int argc, char **argv)
{
    if (argc < 3) {
        fputs("usage: accept_fails FILE PROGRAM [ARGUMENT ...]\n", stderr);
        return 2;
    }
    int sockets[2];
    int failed = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0 ? 0 : -errno;
    if (failed == 0) {
        start_answering(sockets[1], argv[1]);
        failed = filter_accept(sockets[0]);
    }
    if (failed != 0) {
        fprintf(stderr, "accept_fails: %s\n", strerror(-failed));
        return 2;
    }
    execvp(argv[2], &argv[2]);
    fprintf(stderr, "accept_fails: %s: %s\n", argv[2], strerror(errno));
    return 2;
}
