/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that what local clients say is taken for what it is: a packet of the one right size,
 * whole, and nothing else of any length and attachment; and that no descriptor
 * which a sender attaches stays behind. Packets are sent with the plain system calls, as a hostile
 * client would.
 */
#include <dirent.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../test.h"
#include "ipc/local.h"

enum { FDS_MOST = 8 };

static int ends[2];

static int
set_up(void **state)
{
    (void)state;
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
}

static int
tear_down(void **state)
{
    (void)state;
    close(ends[0]);
    return close(ends[1]);
}

static int
open_descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}

/* So many bytes, with so many descriptors. */
static void
send_packet(size_t bytes, uint32_t fd_count)
{
    static char data[4096];
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(FDS_MOST * sizeof(int))];
    } control = {0};
    struct iovec vector = {data, bytes};
    struct msghdr packet = {.msg_iov = &vector, .msg_iovlen = 1};
    assert_true(bytes <= sizeof(data) && fd_count <= FDS_MOST);
    if (fd_count > 0) {
        packet.msg_control = control.room;
        packet.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        struct cmsghdr *part = CMSG_FIRSTHDR(&packet);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        int fds[FDS_MOST] = {0};
        memcpy(CMSG_DATA(part), fds, fd_count * sizeof(int)); /* of standard input */
    }
    assert_int_equal(sendmsg(ends[0], &packet, 0), (ssize_t)bytes);
}

static enum status
receive(int *descriptor)
{
    struct local_hello hello;
    struct error error = ERROR_NONE;
    return local_receive(ends[1], &hello, sizeof(hello), LOCAL_DONT_WAIT, descriptor, &error);
}

TEST_CASE(test_one_size)
{
    int descriptor;
    assert_int_equal(receive(&descriptor), STATUS_DEADLINE_EXCEEDED);
    for (size_t bytes = 1; bytes <= 2 * sizeof(struct local_hello); bytes++) {
        send_packet(bytes, 0);
        bool right = bytes == sizeof(struct local_hello);
        assert_int_equal(receive(&descriptor), right ? STATUS_OK : STATUS_DATA_LOSS);
        assert_int_equal(descriptor, -1);
    }
    send_packet(0, 0); /* reads like the end, and is taken for it */
    assert_int_equal(receive(&descriptor), STATUS_UNAVAILABLE);
    assert_int_equal(shutdown(ends[0], SHUT_WR), 0);
    assert_int_equal(receive(&descriptor), STATUS_UNAVAILABLE);
}

/* With a message of any size: one is handed on with a right message, and no other is kept. */
TEST_CASE(test_descriptors)
{
    int before = open_descriptors();
    static const size_t sizes[] = {1, sizeof(struct local_hello), 2000};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (uint32_t fds = 0; fds <= FDS_MOST; fds++) {
            bool right = sizes[i] == sizeof(struct local_hello);
            int descriptor;
            send_packet(sizes[i], fds);
            assert_int_equal(receive(&descriptor), right ? STATUS_OK : STATUS_DATA_LOSS);
            assert_int_equal(descriptor >= 0, right && fds == 1);
            if (descriptor >= 0)
                close(descriptor);
            assert_int_equal(open_descriptors(), before);
        }
    }
}

/* A client that does not read is not waited for. */
TEST_CASE(test_nobody_reads)
{
    struct local_word word = {.version = LOCAL_VERSION, .type = LOCAL_DEATH};
    struct error error = ERROR_NONE;
    int sent = 0;
    while (local_send(ends[0], &word, sizeof(word), -1, &error) == STATUS_OK)
        sent++;
    assert_int_equal(error.status, STATUS_DEADLINE_EXCEEDED);
    assert_true(sent > 100);
    close(ends[1]);
    ends[1] = -1;
    assert_int_equal(local_send(ends[0], &word, sizeof(word), -1, &error), STATUS_UNAVAILABLE);
    ends[1] = dup(ends[0]);
}

TEST_CASE(test_path)
{
    char path[128];
    char shorter[8];
    char longest[128];
    struct error error = ERROR_NONE;
    assert_int_equal(local_path("/run/counters", path, sizeof(path), &error), STATUS_OK);
    assert_string_equal(path, "/run/counters.local");
    assert_int_equal(local_path("/run/counters", shorter, sizeof(shorter), &error),
                     STATUS_INVALID_ARGUMENT);
    memset(longest, 'x', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    assert_int_equal(local_path(longest, path, sizeof(path), &error), STATUS_INVALID_ARGUMENT);
    longest[101] = '\0'; /* 108 bytes of a socket's name, less ".local" and its zero */
    assert_int_equal(local_path(longest, path, sizeof(path), &error), STATUS_OK);
    longest[101] = 'x';
    longest[102] = '\0';
    assert_int_equal(local_path(longest, path, sizeof(path), &error), STATUS_INVALID_ARGUMENT);
}

TEST_MAIN(.setup = set_up, .teardown = tear_down)
