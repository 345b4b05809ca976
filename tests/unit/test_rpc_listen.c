/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses: what may be listened on, what is refused and with which words, and that neither a
 * stale socket nor a living server is ever taken for the other. Servers are real; "somebody else"
 * is a plain socket or a second server.
 *
 * ctest: timeout=120
 */
#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "test_rpc_rig.h"

static struct rpc_server *
create(struct rig *context, const char *const *listen, size_t count, struct error *error)
{
    struct rpc_server_options options = rig_options(listen, count);
    options.context = context;
    struct rpc_server *server = NULL;
    *error = ERROR_NONE;
    enum status status = rpc_server_create(&options, &server, error);
    assert_int_equal(status, error->status);
    assert_int_equal(status == STATUS_OK, server != NULL);
    return server;
}

static struct rpc_server *
create_one(const char *listen, struct error *error)
{
    return create(NULL, &listen, 1, error);
}

static void
end(struct rpc_server *server)
{
    rpc_server_stop(server);
    while (rpc_server_step(server, 0, TIME_NEVER_NS) >= 0)
        continue;
    rpc_server_destroy(server);
}

static void
assert_refused(const char *listen, enum status status, const char *part)
{
    struct error error;
    if (create_one(listen, &error) != NULL)
        fail_msg("%s: not refused", listen);
    if (error.status != status || strstr(error.text, part) == NULL)
        fail_msg("%s: %s \"%s\"", listen, status_name(error.status), error.text);
}

static struct sockaddr_un
unix_address(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    return address;
}

/* Somebody else's socket; closed, it leaves a stale file. */
static int
foreign_socket(const char *path)
{
    struct sockaddr_un address = unix_address(path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 1), 0);
    return fd;
}

static bool
answers(const char *path)
{
    struct sockaddr_un address = unix_address(path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int result = connect(fd, (struct sockaddr *)&address, sizeof(address));
    close(fd);
    return result == 0;
}

struct place {
    char directory[64];
    char path[128];
    char listen[160];
};

static struct place
place_make(void)
{
    struct place place;
    rig_make_directory(place.directory);
    snprintf(place.path, sizeof(place.path), "%s/s", place.directory);
    snprintf(place.listen, sizeof(place.listen), "unix:%s", place.path);
    return place;
}

static unsigned
place_count(const struct place *place)
{
    unsigned count = 0;
    DIR *directory = opendir(place->directory);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            count++;
    closedir(directory);
    return count;
}

/* Fails if anything was left in the directory. */
static void
place_remove(const struct place *place)
{
    assert_int_equal(rmdir(place->directory), 0);
}

/* From the first moment on: none is made with more rights and restricted later. */
TEST_CASE(test_socket_mode)
{
    static const uint32_t modes[] = {0600, 0660, 0666, 0777, 0};
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        struct place place = place_make();
        const char *listen[] = {place.listen};
        struct rpc_server_options options = rig_options(listen, 1);
        options.socket_mode = &modes[i];
        struct rpc_server *server;
        struct error error = ERROR_NONE;
        mode_t before = umask(027);
        if (rpc_server_create(&options, &server, &error) != STATUS_OK)
            fail_msg("%s", error.text);
        assert_int_equal(umask(before), 027);
        struct stat file;
        assert_int_equal(stat(place.path, &file), 0);
        assert_int_equal(file.st_mode & ALLPERMS, modes[i]);
        end(server);
        place_remove(&place);
    }
}

TEST_CASE(test_stale_socket_is_replaced)
{
    struct place place = place_make();
    close(foreign_socket(place.path));
    assert_false(answers(place.path));
    struct error error;
    struct rpc_server *server = create_one(place.listen, &error);
    if (server == NULL)
        fail_msg("%s", error.text);
    assert_int_equal(rpc_server_port(server, 0), 0);
    assert_true(answers(place.path));
    assert_int_equal(place_count(&place), 1); /* under no other name */
    end(server);
    place_remove(&place);
}

TEST_CASE(test_living_socket_is_refused)
{
    struct place place = place_make();
    int foreign = foreign_socket(place.path);
    assert_refused(place.listen, STATUS_FAILED_PRECONDITION, "in use");
    assert_refused(place.listen, STATUS_FAILED_PRECONDITION, place.path);
    /* Its backlog is full by now: still alive. */
    assert_refused(place.listen, STATUS_FAILED_PRECONDITION, "in use");
    close(foreign);
    unlink(place.path);
    struct error error;
    struct rpc_server *first = create_one(place.listen, &error);
    assert_non_null(first);
    assert_refused(place.listen, STATUS_FAILED_PRECONDITION, "in use");
    assert_true(answers(place.path));
    end(first);
    place_remove(&place);
}

TEST_CASE(test_other_files_are_not_touched)
{
    struct place place = place_make();
    FILE *file = fopen(place.path, "w");
    assert_non_null(file);
    assert_true(fputs("precious", file) >= 0);
    fclose(file);
    assert_refused(place.listen, STATUS_ALREADY_EXISTS, "is not a socket");
    struct stat seen;
    assert_int_equal(stat(place.path, &seen), 0);
    assert_int_equal(seen.st_size, 8);
    unlink(place.path);
    /* A link is not followed, even to a stale socket. */
    char elsewhere[128];
    snprintf(elsewhere, sizeof(elsewhere), "%s/t", place.directory);
    close(foreign_socket(elsewhere));
    assert_int_equal(symlink(elsewhere, place.path), 0);
    assert_refused(place.listen, STATUS_ALREADY_EXISTS, "is not a socket");
    assert_int_equal(unlink(place.path), 0);
    assert_int_equal(unlink(elsewhere), 0);
    place_remove(&place);
}

TEST_CASE(test_successor_keeps_its_socket)
{
    struct place place = place_make();
    struct error error;
    struct rpc_server *first = create_one(place.listen, &error);
    assert_non_null(first);
    assert_int_equal(unlink(place.path), 0);
    struct rpc_server *second = create_one(place.listen, &error);
    assert_non_null(second);
    end(first);
    assert_true(answers(place.path));
    end(second);
    place_remove(&place);
}

TEST_CASE(test_bad_paths)
{
    struct place place = place_make();
    char listen[300];
    snprintf(listen, sizeof(listen), "%s/missing/s", place.listen);
    assert_refused(listen, STATUS_NOT_FOUND, "missing");
    assert_refused(listen, STATUS_NOT_FOUND, "No such file or directory");

    /* 107 bytes are good, 108 are not. */
    int fill = 107 - (int)strlen(place.directory) - 1;
    struct error error;
    snprintf(listen, sizeof(listen), "unix:%s/%0*d", place.directory, fill, 0);
    struct rpc_server *server = create_one(listen, &error);
    if (server == NULL)
        fail_msg("%s", error.text);
    end(server);
    snprintf(listen, sizeof(listen), "unix:%s/%0*d", place.directory, fill + 1, 0);
    assert_refused(listen, STATUS_INVALID_ARGUMENT, "the path has 108 bytes");
    assert_refused(listen, STATUS_INVALID_ARGUMENT, "107 at most");

    snprintf(listen, sizeof(listen), "unix:%s/", place.directory);
    assert_refused(listen, STATUS_INVALID_ARGUMENT, "no file name");
    place_remove(&place);
}

TEST_CASE(test_bad_addresses)
{
    static const char *const bad[] = {
        "",      "8033",       "port:", "port:65536",    "port:-1",         "port:80x",
        ":8033", "localhost:", "[]:1",  "127.0.0.1:1e3", "127.0.0.1:999999"};
    for (size_t i = 0; i < ARRAY_COUNT(bad); i++)
        assert_refused(bad[i], STATUS_INVALID_ARGUMENT, "not an address");
    assert_refused("192.0.2.1:0", STATUS_INTERNAL, "Cannot assign requested address");
}

TEST_CASE(test_taken_port_is_refused)
{
    struct error error;
    static const char *const forms[] = {"127.0.0.1:0", "port:0"};
    for (size_t i = 0; i < ARRAY_COUNT(forms); i++) {
        struct rpc_server *first = create_one(forms[i], &error);
        assert_non_null(first);
        char again[64];
        snprintf(again, sizeof(again), "127.0.0.1:%d", rpc_server_port(first, 0));
        assert_refused(again, STATUS_FAILED_PRECONDITION, "Address already in use");
        assert_refused(again, STATUS_FAILED_PRECONDITION, again);
        snprintf(again, sizeof(again), "port:%d", rpc_server_port(first, 0));
        assert_refused(again, STATUS_FAILED_PRECONDITION, "Address already in use");
        end(first);
    }
}

TEST_CASE(test_all_or_none)
{
    struct place place = place_make();
    struct error error;
    struct rpc_server *first = create_one("127.0.0.1:0", &error);
    assert_non_null(first);
    char taken[64];
    snprintf(taken, sizeof(taken), "127.0.0.1:%d", rpc_server_port(first, 0));
    const char *listen[] = {place.listen, "127.0.0.1:0", taken};
    assert_null(create(NULL, listen, ARRAY_COUNT(listen), &error));
    assert_int_equal(error.status, STATUS_FAILED_PRECONDITION);
    assert_int_equal(access(place.path, F_OK), -1);
    end(first);
    place_remove(&place);
}

static bool
have_ipv6(void)
{
    struct sockaddr_in6 loopback = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool have = fd >= 0 && bind(fd, (struct sockaddr *)&loopback, sizeof(loopback)) == 0;
    if (fd >= 0)
        close(fd);
    return have;
}

static void
adjust_any(struct rpc_server_options *options)
{
    static const char *const listen[] = {"port:0", "port:0", "127.0.0.1:0"};
    options->listen = listen;
    options->listen_count = have_ipv6() ? 2 : 3;
}

TEST_CASE(test_all_interfaces)
{
    struct rig *rig = rig_start(1, adjust_any);
    struct error error;
    char target[64];
    snprintf(target, sizeof(target), "127.0.0.1:%d", rpc_server_port(rig->server, 0));
    assert_int_equal(rig_call(target, "/t.T/Echo", "four", 4, &error), STATUS_OK);
    if (have_ipv6()) {
        snprintf(target, sizeof(target), "[::1]:%d", rpc_server_port(rig->server, 0));
        assert_int_equal(rig_call(target, "/t.T/Echo", "six", 3, &error), STATUS_OK);
    }
    rig_stop(rig);
}

TEST_MAIN(.group_setup = rig_group_setup, .group_teardown = rig_group_teardown)
