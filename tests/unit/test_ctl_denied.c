/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A socket of a node that the caller has no right to connect to: shoalctl and libshoal say so, and
 * which socket it is, instead of that no node is there. Asked by a process without rights, because
 * root may connect to everything.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <shoal/client.h>

#include "../test.h"
#include "base/clock.h"
#include "client/link.h" /* and with it the library */
#include "ctl/ask.h"
#include "ctl/client.h"
#include "rpc/rpc.h"

enum { NOBODY = 65534 };

static int
listen_for_nobody(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(chmod(path, 0), 0);
    return fd;
}

static bool
says_denied(const char *text, const char *path)
{
    bool says = strstr(text, path) != NULL && strstr(text, "permission denied") != NULL;
    if (!says)
        fprintf(stderr, "\"%s\"\n", text);
    return says;
}

static bool
shoalctl_says(const char *counters, const char *path)
{
    struct ctl_ask ask;
    struct control_request request = {0};
    struct error error = ERROR_NONE;
    return ask_send(&ask, counters, &request, &error) == STATUS_PERMISSION_DENIED &&
           says_denied(error.text, path);
}

static bool
libshoal_says(const char *path)
{
    struct shoal_client *client;
    struct shoal_error error = {""};
    struct shoal_client_options options = {
        .struct_size = SHOAL_CLIENT_OPTIONS, .pipeline = "any", .socket = path};
    return shoal_client_open(&options, &client, &error) == SHOAL_PERMISSION_DENIED &&
           says_denied(error.text, path);
}

static bool
shoalctl_says_of_calls(const char *path)
{
    char target[96];
    struct client client;
    struct error error = ERROR_NONE;
    snprintf(target, sizeof(target), "unix:%s", path);
    rpc_init();
    if (client_open(&client, target, NULL, &error) != STATUS_OK)
        return false;
    enum status status = client_reach(&client, clock_now_ns() + NS_PER_S / 5, &error);
    client_close(&client);
    rpc_shutdown();
    return status == STATUS_PERMISSION_DENIED && says_denied(error.text, path);
}

TEST_CASE(test_denied)
{
    char directory[] = "/tmp/shoal-test-XXXXXX";
    char counters[64];
    char path[80];
    assert_non_null(mkdtemp(directory));
    assert_int_equal(chmod(directory, 0755), 0);
    snprintf(counters, sizeof(counters), "%s/counters", directory);
    snprintf(path, sizeof(path), "%s.control", counters);
    int fd = listen_for_nobody(path);
    pid_t child = fork();
    if (child == 0) {
        if (geteuid() == 0 && setresuid(NOBODY, NOBODY, NOBODY) != 0)
            _exit(2);
        _exit(shoalctl_says(counters, path) && libshoal_says(path) && shoalctl_says_of_calls(path)
                  ? 0
                  : 1);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    close(fd);
    unlink(path);
    assert_int_equal(rmdir(directory), 0);
}

TEST_MAIN()
