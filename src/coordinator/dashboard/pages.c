/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/dashboard/pages.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "coordinator/dashboard/page_files.h"
#include "coordinator/loop/control.h"

enum { HEADERS_MAX = 8 };

/* The policy allows nothing from elsewhere, no inline script or style, and no frame around it. */
static const char policy[] = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
                             "object-src 'none'; form-action 'self'";

static const char type_html[] = "text/html; charset=utf-8";
static const char type_script[] = "text/javascript; charset=utf-8";
static const char type_style[] = "text/css; charset=utf-8";

enum page_access { PAGE_PRIVATE, PAGE_PUBLIC };

static const struct page_file {
    const char *path;
    const char *type;
    enum page_access access;
    const unsigned char *data;
    const size_t *bytes;
} pages[] = {
#define PAGE(path, type, access, name)                                                             \
    {                                                                                              \
        path, type, access, name, &name##_size                                                     \
    }
    PAGE("/", type_html, PAGE_PRIVATE, page_index_html),
    PAGE("/login", type_html, PAGE_PUBLIC, page_login_html),
    PAGE("/style.css", type_style, PAGE_PUBLIC, page_style_css),
    PAGE("/icon.svg", "image/svg+xml", PAGE_PUBLIC, page_icon_svg),
    PAGE("/app.js", type_script, PAGE_PRIVATE, page_app_js),
    PAGE("/chart.js", type_script, PAGE_PRIVATE, page_chart_js),
    PAGE("/elements.js", type_script, PAGE_PRIVATE, page_elements_js),
    PAGE("/feed.js", type_script, PAGE_PRIVATE, page_feed_js),
    PAGE("/format.js", type_script, PAGE_PRIVATE, page_format_js),
    PAGE("/mesh.js", type_script, PAGE_PRIVATE, page_mesh_js),
    PAGE("/model.js", type_script, PAGE_PRIVATE, page_model_js),
    PAGE("/node.js", type_script, PAGE_PRIVATE, page_node_js),
#undef PAGE
};

static const struct page_file *
page_find(const char *path)
{
    for (size_t i = 0; i < ARRAY_COUNT(pages); i++)
        if (strcmp(pages[i].path, path) == 0)
            return &pages[i];
    return NULL;
}

struct page_headers {
    struct http_header items[HEADERS_MAX];
    size_t count;
};

static void
add(struct page_headers *headers, const char *name, const char *value)
{
    CHECK(headers->count < HEADERS_MAX);
    headers->items[headers->count++] = (struct http_header){name, value};
}

/* With the policy no-referrer, browsers would send the login form with `Origin: null`. */
static struct page_headers
headers_of(const char *type)
{
    struct page_headers headers = {.count = 0};
    add(&headers, "Content-Type", type);
    add(&headers, "Content-Security-Policy", policy);
    add(&headers, "X-Content-Type-Options", "nosniff");
    add(&headers, "Referrer-Policy", "same-origin");
    add(&headers, "Cross-Origin-Resource-Policy", "same-origin");
    add(&headers, "Cache-Control", "no-store");
    return headers;
}

static void
answer_page(struct http_request *request, int code, const struct page_file *page)
{
    struct page_headers headers = headers_of(page->type);
    const struct http_piece piece = {.data = page->data, .bytes = *page->bytes};
    http_answer(request, code, headers.items, headers.count, &piece, 1);
}

bool
pages_answer(struct http_request *request, const char *path)
{
    const struct page_file *page = page_find(path);
    if (page != NULL)
        answer_page(request, 200, page);
    return page != NULL;
}

bool
pages_is_public(const char *path)
{
    const struct page_file *page = page_find(path);
    return page != NULL && page->access == PAGE_PUBLIC;
}

void
pages_answer_login(struct http_request *request, int code)
{
    answer_page(request, code, page_find("/login"));
}

void
pages_answer_redirect(struct http_request *request, const char *to, const char *cookie)
{
    struct page_headers headers = headers_of("text/plain; charset=utf-8");
    add(&headers, "Location", to);
    if (cookie != NULL)
        add(&headers, "Set-Cookie", cookie);
    http_answer(request, 303, headers.items, headers.count, NULL, 0);
}

void
pages_answer_json(struct http_request *request, int code, struct bytes *json)
{
    struct page_headers headers = headers_of("application/json");
    CHECK(!json->failed);
    struct http_piece piece = {.bytes = json->used, .release = free};
    piece.data = piece.release_context = bytes_take(json, &piece.bytes);
    http_answer(request, code, headers.items, headers.count, &piece, 1);
}

void
pages_answer_error(struct http_request *request, int code, const struct error *error)
{
    struct bytes json = {0};
    control_write_error(&json, error);
    pages_answer_json(request, code, &json);
}

void
pages_begin_events(struct http_request *request, void (*on_writable)(struct http_request *request))
{
    struct page_headers headers = headers_of("text/event-stream");
    http_answer_begin(request, 200, headers.items, headers.count, on_writable);
}
