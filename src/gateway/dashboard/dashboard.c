/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/dashboard/dashboard.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/clock.h"
#include "gateway/dashboard/page_files.h"
#include "http/server.h"
#include "loop/timer.h"

enum {
    VIEWERS_MAX = 8,
    CONNECTIONS_MAX = 64,
    SKIPPED_MAX = 60,
    BUFFER_BYTES = 64 << 10, /* of the kernel: what it keeps, a slow viewer gets late */
    HEADER_BYTES_MAX = 16 << 10,
    HOST_BYTES_MAX = 64,
};

struct pool_viewer_stream {
    struct http_request *request;
    uint64_t reported; /* the newest placement that it was sent */
    uint32_t skipped;  /* samples in a row */
};

struct pool_dashboard {
    struct endpoint_pool *pool;
    struct http_server *server;
    struct loop_timer *timer; /* set while a page is open */
    struct pool_viewer_stream viewers[VIEWERS_MAX];
    uint32_t viewer_count;
};

/* The policy allows nothing from elsewhere, no inline script or style, and no frame around it. */
static const char policy[] = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
                             "object-src 'none'; form-action 'none'";

enum { HEADER_COUNT = 6 };

static void
make_headers(const char *type, struct http_header headers[HEADER_COUNT])
{
    headers[0] = (struct http_header){"Content-Type", type};
    headers[1] = (struct http_header){"Content-Security-Policy", policy};
    headers[2] = (struct http_header){"X-Content-Type-Options", "nosniff"};
    headers[3] = (struct http_header){"Referrer-Policy", "no-referrer"};
    headers[4] = (struct http_header){"Cross-Origin-Resource-Policy", "same-origin"};
    headers[5] = (struct http_header){"Cache-Control", "no-store"};
}

static void
refuse(struct http_request *request, int code, const char *text)
{
    struct http_header headers[HEADER_COUNT];
    make_headers("text/plain; charset=utf-8", headers);
    struct http_piece piece = {.data = text, .bytes = strlen(text)};
    http_answer(request, code, headers, HEADER_COUNT, &piece, 1);
}

/* ---- viewers ---- */

static void
drop(struct pool_dashboard *dashboard, uint32_t index)
{
    dashboard->viewers[index] = dashboard->viewers[--dashboard->viewer_count];
}

static void
write_sample(struct pool_dashboard *dashboard, struct pool_viewer_stream *viewer, struct bytes *out)
{
    bytes_put_text(out, "event: sample\ndata: ");
    struct json json = json_begin(out, JSON_STYLE_ANY);
    json_open(&json, '{');
    json_field_string(&json, "version", SHOAL_VERSION);
    viewer->reported = endpoint_pool_write_state(dashboard->pool, &json, viewer->reported);
    json_close(&json, '}');
    bytes_put_text(out, "\n\n");
    CHECK(!out->failed);
}

/* A viewer that has not taken its last sample gets no other. False: it is to be cut off. */
static bool
show(struct pool_dashboard *dashboard, struct pool_viewer_stream *viewer)
{
    struct bytes out = {0};
    if (http_answer_waiting(viewer->request) > 0) {
        endpoint_pool_note_viewer(dashboard->pool, POOL_VIEWER_SKIPPED);
        return ++viewer->skipped < SKIPPED_MAX;
    }
    viewer->skipped = 0;
    write_sample(dashboard, viewer, &out);
    struct http_piece piece = {.data = out.data, .bytes = out.used};
    (void)http_answer_write(viewer->request, &piece);
    bytes_fini(&out);
    return true;
}

static void
on_second(void *context)
{
    struct pool_dashboard *dashboard = context;
    for (uint32_t i = dashboard->viewer_count; i-- > 0;) {
        struct http_request *request = dashboard->viewers[i].request;
        if (show(dashboard, &dashboard->viewers[i]))
            continue;
        endpoint_pool_note_viewer(dashboard->pool, POOL_VIEWER_CUT);
        drop(dashboard, i);
        http_answer_abort(request);
    }
    if (dashboard->viewer_count > 0)
        loop_timer_set(dashboard->timer, NS_PER_S);
}

static void
on_writable(struct http_request *request)
{
    (void)request; /* the next sample will see it */
}

static void
add_viewer(struct pool_dashboard *dashboard, struct http_request *request)
{
    struct http_header headers[HEADER_COUNT];
    if (dashboard->viewer_count == VIEWERS_MAX) {
        endpoint_pool_note_viewer(dashboard->pool, POOL_VIEWER_REFUSED);
        refuse(request, 503, "as many pages are open as may be: close one\n");
        return;
    }
    struct pool_viewer_stream *viewer = &dashboard->viewers[dashboard->viewer_count++];
    *viewer = (struct pool_viewer_stream){.request = request};
    make_headers("text/event-stream", headers);
    http_answer_set_buffer(request, BUFFER_BYTES);
    http_answer_begin(request, 200, headers, HEADER_COUNT, on_writable);
    (void)show(dashboard, viewer);
    if (dashboard->viewer_count == 1)
        loop_timer_set(dashboard->timer, NS_PER_S);
}

/* ---- requests ---- */

static const struct pool_page {
    const char *path;
    const char *type;
    const unsigned char *data;
    const size_t *bytes;
} pages[] = {
    {"/", "text/html; charset=utf-8", page_index_html, &page_index_html_size},
    {"/style.css", "text/css; charset=utf-8", page_style_css, &page_style_css_size},
    {"/icon.svg", "image/svg+xml", page_icon_svg, &page_icon_svg_size},
    {"/elements.js", "text/javascript; charset=utf-8", page_elements_js, &page_elements_js_size},
    {"/format.js", "text/javascript; charset=utf-8", page_format_js, &page_format_js_size},
    {"/gateway.js", "text/javascript; charset=utf-8", page_gateway_js, &page_gateway_js_size},
};

/* The host of HOST:PORT, [HOST]:PORT or HOST; "": it is too long for any that is allowed. */
static void
host_of(const char *authority, char name[HOST_BYTES_MAX])
{
    bool is_bracketed = authority[0] == '[';
    size_t bytes = strcspn(authority + is_bracketed, is_bracketed ? "]" : ":");
    bytes = bytes < HOST_BYTES_MAX ? bytes : 0;
    memcpy(name, authority + is_bracketed, bytes);
    name[bytes] = '\0';
}

/* Another site's name that begins to mean this machine (DNS rebinding) is in Host: that must be an
 * address or localhost. */
static bool
is_host_ours(const char *authority)
{
    char name[HOST_BYTES_MAX];
    unsigned char address[sizeof(struct in6_addr)];
    if (authority == NULL)
        return false;
    host_of(authority, name);
    return strcasecmp(name, "localhost") == 0 || inet_pton(AF_INET, name, address) == 1 ||
           inet_pton(AF_INET6, name, address) == 1;
}

/* Data is refused to requests that a browser marks as another site's. */
static bool
is_of_other_site(const struct http_request *request)
{
    const char *site = http_request_header(request, "Sec-Fetch-Site");
    return site != NULL && strcmp(site, "same-origin") != 0 && strcmp(site, "none") != 0;
}

static void
on_request(void *context, struct http_request *request)
{
    struct pool_dashboard *dashboard = context;
    const char *path = http_request_path(request);
    bool gets = http_request_method(request) == HTTP_GET;
    const struct pool_page *page = NULL;
    for (size_t i = 0; i < ARRAY_COUNT(pages); i++)
        if (strcmp(pages[i].path, path) == 0)
            page = &pages[i];
    if (!is_host_ours(http_request_header(request, "Host"))) {
        refuse(request, 403, "Host is neither an address nor localhost\n");
    } else if (!gets && http_request_method(request) != HTTP_HEAD) {
        refuse(request, 405, "only GET and HEAD are answered here\n");
    } else if (page != NULL) {
        struct http_header headers[HEADER_COUNT];
        make_headers(page->type, headers);
        struct http_piece piece = {.data = page->data, .bytes = *page->bytes};
        http_answer(request, 200, headers, HEADER_COUNT, &piece, 1);
    } else if (strcmp(path, "/stream") != 0 || !gets) {
        refuse(request, 404, "there is no such page\n");
    } else if (is_of_other_site(request)) {
        refuse(request, 403, "pages of other sites may not read this\n");
    } else {
        add_viewer(dashboard, request);
    }
}

static void
on_gone(void *context, struct http_request *request)
{
    struct pool_dashboard *dashboard = context;
    for (uint32_t i = 0; i < dashboard->viewer_count; i++)
        if (dashboard->viewers[i].request == request) {
            drop(dashboard, i);
            break;
        }
    http_answer_end(request);
}

/* ---- life ---- */

/* 127.0.0.0/8, ::1 or localhost. */
static bool
is_loopback(const char *authority)
{
    enum { LOOPBACK = 127 };
    char name[HOST_BYTES_MAX];
    unsigned char address[sizeof(struct in6_addr)];
    host_of(authority, name);
    return strcmp(name, "localhost") == 0 || strcmp(name, "::1") == 0 ||
           (inet_pton(AF_INET, name, address) == 1 && address[0] == LOOPBACK);
}

enum status
pool_dashboard_check(const struct gateway_settings *settings, struct error *error)
{
    if (settings->dashboard[0] == '\0' || is_loopback(settings->dashboard))
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "dashboard: %s is not a loopback address: its page has neither keys nor TLS, "
                     "so write 127.0.0.1:PORT and forward that port",
                     settings->dashboard);
}

enum status
pool_dashboard_create(struct event_base *base, const struct gateway_settings *settings,
                      struct endpoint_pool *pool, struct pool_dashboard **created,
                      struct error *error)
{
    int64_t timeout_ns = settings->client_timeout_ms * NS_PER_MS;
    enum status status = pool_dashboard_check(settings, error);
    if (status != STATUS_OK)
        return status;
    struct pool_dashboard *dashboard = calloc(1, sizeof(*dashboard));
    CHECK(dashboard != NULL);
    dashboard->pool = pool;
    dashboard->server = http_server_create(base);
    dashboard->timer = loop_timer_create(base, on_second, dashboard);
    const struct http_pool_options options = {
        .name = "dashboard",
        .connections_max = CONNECTIONS_MAX,
        .idle_timeout_ns = timeout_ns,
        .header_timeout_ns = timeout_ns,
        .body_timeout_ns = timeout_ns,
        .write_timeout_ns = timeout_ns,
    };
    const struct http_service service = {
        .on_request = on_request,
        .on_gone = on_gone,
        .context = dashboard,
        .header_bytes_max = HEADER_BYTES_MAX,
    };
    status = http_listen(http_pool_create(dashboard->server, &options), settings->dashboard,
                         &service, NULL, error);
    if (status == STATUS_OK)
        *created = dashboard;
    else
        pool_dashboard_destroy(dashboard);
    return status == STATUS_OK ? STATUS_OK : error_prefix(error, "dashboard");
}

void
pool_dashboard_destroy(struct pool_dashboard *dashboard)
{
    if (dashboard == NULL)
        return;
    loop_timer_destroy(dashboard->timer);
    http_server_destroy(dashboard->server);
    free(dashboard);
}
