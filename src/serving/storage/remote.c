/* SPDX-License-Identifier: Apache-2.0 */
/* s3:// and http(s)://: the requests, and what their answers mean. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/percent.h"
#include "serving/storage/listing.h"
#include "serving/storage/role.h"
#include "serving/storage/sigv4.h"
#include "serving/storage/tasks.h"

enum { REDIRECTS_MAX = 5, RESERVE_STEP = 64 << 20, EMPTY_PAGES_MAX = 100 };

/* ---- what both have ---- */

/* An attempt may have left a whole file, and servers refuse a range behind its end: over HTTP,
 * which gives no size in advance, the last byte is asked for again. */
static void
drop_last_byte(const struct storage_task *task)
{
    char path[PATH_MAX];
    struct stat info;
    snprintf(path, sizeof(path), "%.3000s/%.1023s", task->job->partial.files, task->file->name);
    if (lstat(path, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0)
        (void)!truncate(path, info.st_size - 1); /* else it is fetched anew */
}

static enum task_verdict
open_file(struct storage_task *task, struct error *error)
{
    struct stored_file *file = task->file;
    if (task->job->place.kind == PLACE_HTTP)
        drop_last_byte(task);
    if (sink_open(task->job, &task->sink, file->name, error) != STATUS_OK)
        return TASK_FAILED;
    if (task->job->place.kind == PLACE_S3 && task->sink.at > file->bytes &&
        sink_restart(&task->sink, error) != STATUS_OK)
        return TASK_FAILED;
    if (task->job->place.kind != PLACE_S3 || task->sink.at < file->bytes || file->bytes == 0)
        return TASK_AT_ONCE;
    sink_close(&task->sink, file->digest); /* an earlier attempt has fetched all of it */
    return job_judge_file(task->job, file, error) == STATUS_OK ? TASK_DONE : TASK_FAILED;
}

static enum status
keep_body(struct storage_task *task, const void *data, size_t bytes, struct error *error)
{
    enum status status = sink_write(&task->sink, data, bytes, error);
    return status == STATUS_OK ? job_pace(task->job, bytes, error) : status;
}

static enum status
take_body(void *context, const void *data, size_t bytes, struct error *error)
{
    struct storage_task *task = context;
    struct cache_partial *partial = &task->job->partial;
    if (task->file->bytes == 0 && task->sink.at + bytes > partial->reserved_bytes &&
        cache_partial_reserve(task->job->options->cache, partial,
                              task->sink.at + bytes + RESERVE_STEP, error) != STATUS_OK)
        return error->status;
    return keep_body(task, data, bytes, error);
}

/* All of the file is there. A digest that is wrong once may be the connection's fault. */
static enum task_verdict
complete(struct storage_task *task, struct error *error)
{
    struct stored_file *file = task->file;
    uint64_t bytes = task->sink.at;
    sink_close(&task->sink, file->digest);
    if (job_judge_file(task->job, file, error) == STATUS_OK) {
        file->bytes = bytes;
        return TASK_DONE;
    }
    struct error ignored = ERROR_NONE;
    job_progress(task->job, -(int64_t)bytes);
    if (task->was_corrupt || sink_open(task->job, &task->sink, file->name, &ignored) != STATUS_OK ||
        sink_restart(&task->sink, &ignored) != STATUS_OK)
        return TASK_FAILED;
    task->was_corrupt = true;
    return TASK_AGAIN;
}

/* Takes the start of a 206 that goes on where the file ends, or of a 200, which begins anew. */
static enum status
take_start(struct storage_task *task, const struct transfer_head *head, struct error *error)
{
    if (head->status == 206 && (uint64_t)head->range_from == task->sink.at)
        return STATUS_OK;
    if (head->status == 206)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "%.100s: the server sends another range than it was asked for",
                         task->file->name);
    return task->sink.at > 0 ? sink_restart(&task->sink, error) : STATUS_OK;
}

/* ---- S3 ---- */

static void
add_signed(struct storage_task *task, const char *path, const char *query)
{
    const struct storage_place *place = &task->job->place;
    const char *host = strstr(place->url, "://") + 3;
    size_t host_bytes = strcspn(host, "/");
    char *name = strndup(host, host_bytes);
    char date[SIGV4_DATE_BYTES];
    char authorization[SIGV4_TEXT_BYTES];
    time_t now = time(NULL);
    struct tm parts;
    CHECK(name != NULL && gmtime_r(&now, &parts) != NULL &&
          strftime(date, sizeof(date), "%Y%m%dT%H%M%SZ", &parts) > 0);
    task_add_line(task, "Host: %s", name);
    if (place->key_id != NULL) {
        const struct sigv4_request request = {.method = "GET",
                                              .host = name,
                                              .path = path,
                                              .query = query,
                                              .date = date,
                                              .region = place->region,
                                              .key_id = place->key_id,
                                              .secret = place->secret,
                                              .token = place->token};
        sigv4_sign(&request, authorization);
        task_add_line(task, "x-amz-content-sha256: " SIGV4_EMPTY_SHA256);
        task_add_line(task, "x-amz-date: %s", date);
        if (place->token != NULL)
            task_add_line(task, "x-amz-security-token: %s", place->token);
        task_add_line(task, "Authorization: %s", authorization);
    }
    free(name);
}

/* The endpoint's own path, if it has one, is part of what is signed. */
static void
set_s3_url(struct storage_task *task, const char *key, const char *query)
{
    const struct storage_place *place = &task->job->place;
    size_t origin = place_origin_bytes(place->url);
    struct bytes path = {0};
    bytes_put_text(&path, place->url + origin);
    bytes_put_char(&path, '/');
    sigv4_encode(&path, place->bucket, SIGV4_ENCODE_SLASH);
    if (key != NULL) {
        bytes_put_char(&path, '/');
        sigv4_encode(&path, key, SIGV4_KEEP_SLASH);
    }
    bytes_put_char(&path, '\0');
    CHECK(!path.failed);
    add_signed(task, path.data, query);
    CHECK(asprintf(&task->url, "%.*s%s%s%s", (int)origin, place->url, path.data,
                   query[0] != '\0' ? "?" : "", query) >= 0);
    bytes_fini(&path);
}

struct page_request {
    struct listing listing;
    char *prefix;
    uint32_t keys_max; /* 0: as many as the server likes */
};

static void
prepare_page(struct storage_task *task)
{
    struct bytes query = {0};
    const struct page_request *request = task->asked;
    if (request->listing.token[0] != '\0') {
        bytes_put_text(&query, "continuation-token=");
        sigv4_encode(&query, request->listing.token, SIGV4_ENCODE_SLASH);
        bytes_put_char(&query, '&');
    }
    bytes_put_text(&query, "encoding-type=url&list-type=2");
    if (request->keys_max > 0)
        bytes_put_text(&query, "&max-keys=1");
    bytes_put_text(&query, "&prefix=");
    sigv4_encode(&query, request->prefix, SIGV4_ENCODE_SLASH);
    bytes_put_char(&query, '\0');
    CHECK(!query.failed);
    set_s3_url(task, NULL, query.data);
    bytes_fini(&query);
}

static enum task_verdict
judge_s3_status(struct storage_task *task, const struct transfer_end *end, struct error *error)
{
    enum task_verdict verdict = task_judge_status(task, end, error);
    if (end->head.status >= 300 && end->head.status < 400)
        error_set(error, STATUS_FAILED_PRECONDITION,
                  "the server answers %ld, that the bucket is at another endpoint: correct "
                  "`region` or `endpoint_url`",
                  end->head.status);
    if (verdict == TASK_FAILED && task->file != NULL)
        (void)error_prefix(error, "%.100s", task->file->name);
    return verdict;
}

static enum task_verdict
judge_page(struct storage_task *task, const struct transfer_end *end, struct error *error)
{
    if (end->head.status != 200)
        return judge_s3_status(task, end, error);
    struct page_request *request = task->asked;
    return listing_read(&request->listing, task->page.data, task->page.used, error) == STATUS_OK
               ? TASK_DONE
               : TASK_FAILED;
}

static const struct task_type page_type = {
    task_open_page, prepare_page, {task_begin_page, task_take_page, NULL}, judge_page, role_renew};

static enum status
list_prefix(struct storage_job *job, struct page_request *request, struct error *error)
{
    enum status status;
    uint32_t empty = 0; /* S3 has such pages, but no end of them */
    do {
        struct storage_task task = {.job = job, .asked = request};
        uint32_t before = request->listing.count;
        status = tasks_run(job, &page_type, &task, 1, error);
        empty += request->listing.count == before;
        if (status == STATUS_OK && empty > EMPTY_PAGES_MAX)
            status = error_set(error, STATUS_DATA_LOSS,
                               "over %d pages of the listing are empty, and it has not ended",
                               EMPTY_PAGES_MAX);
    } while (status == STATUS_OK && request->listing.is_truncated && request->keys_max == 0);
    return status;
}

static enum status
add_objects(struct storage_job *job, const struct listing *listing, size_t skip,
            struct error *error)
{
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < listing->count && status == STATUS_OK; i++) {
        const struct listing_object *object = &listing->objects[i];
        size_t bytes = strlen(object->key);
        if (bytes <= skip || (object->key[bytes - 1] == '/' && object->bytes == 0))
            continue; /* a folder's mark */
        status = job_add_file(job, object->key + skip, object->etag, object->bytes, error);
    }
    return status;
}

/* The objects beneath the path, else the one of that name, which is then the first of all that
 * begin so. */
enum status
s3_list(struct storage_job *job, struct error *error)
{
    const char *path = job->place.path;
    struct page_request request = {.listing = {.count_max = STORAGE_FILES_MAX}};
    CHECK(asprintf(&request.prefix, "%s%s", path, path[0] != '\0' ? "/" : "") >= 0);
    enum status status = list_prefix(job, &request, error);
    if (status == STATUS_OK)
        status = add_objects(job, &request.listing, strlen(request.prefix), error);
    if (status == STATUS_OK && job->file_count == 0 && path[0] != '\0') {
        listing_fini(&request.listing);
        request.listing.count_max = STORAGE_FILES_MAX;
        request.prefix[strlen(path)] = '\0';
        request.keys_max = 1;
        status = list_prefix(job, &request, error);
        const struct listing_object *first = request.listing.objects;
        const char *slash = strrchr(path, '/');
        if (status == STATUS_OK && request.listing.count > 0 && strcmp(first->key, path) == 0)
            status = job_add_file(job, slash != NULL ? slash + 1 : path, first->etag, first->bytes,
                                  error);
        job->is_single = job->file_count == 1;
    }
    listing_fini(&request.listing);
    free(request.prefix);
    return status;
}

static void
prepare_object(struct storage_task *task)
{
    const struct storage_place *place = &task->job->place;
    char *key = NULL;
    const char *name = task->job->is_single ? "" : task->file->name;
    const char *slash = name[0] != '\0' && place->path[0] != '\0' ? "/" : "";
    CHECK(asprintf(&key, "%s%s%s", place->path, slash, name) >= 0);
    set_s3_url(task, key, "");
    free(key);
    if (task->file->etag != NULL)
        task_add_line(task, "If-Match: %s", task->file->etag);
    if (task->sink.at > 0)
        task_add_line(task, "Range: bytes=%llu-", (unsigned long long)task->sink.at);
}

static enum status
begin_object(void *context, const struct transfer_head *head, struct error *error)
{
    struct storage_task *task = context;
    const struct stored_file *file = task->file;
    if (take_start(task, head, error) != STATUS_OK)
        return error->status;
    if (file->etag != NULL && head->etag[0] != '\0' && strcmp(head->etag, file->etag) != 0)
        return error_set(error, STATUS_ABORTED, "%.100s has changed since it was listed",
                         file->name);
    if (head->length >= 0 && task->sink.at + (uint64_t)head->length != file->bytes)
        return error_set(error, STATUS_UNAVAILABLE, "%.100s has %llu bytes, and %llu were listed",
                         file->name, (unsigned long long)task->sink.at + (uint64_t)head->length,
                         (unsigned long long)file->bytes);
    return STATUS_OK;
}

static enum status
take_object(void *context, const void *data, size_t bytes, struct error *error)
{
    struct storage_task *task = context;
    if (task->sink.at + bytes > task->file->bytes)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "%.100s has more than the %llu bytes that were listed", task->file->name,
                         (unsigned long long)task->file->bytes);
    return keep_body(task, data, bytes, error);
}

static enum task_verdict
judge_object(struct storage_task *task, const struct transfer_end *end, struct error *error)
{
    if (end->head.status == 412) {
        error_set(error, STATUS_ABORTED, "%.100s has changed since it was listed",
                  task->file->name);
        return TASK_FAILED; /* all is listed again */
    }
    if (end->head.status != 200 && end->head.status != 206)
        return judge_s3_status(task, end, error);
    if (task->sink.at == task->file->bytes)
        return complete(task, error);
    error_set(error, STATUS_UNAVAILABLE, "%.100s ends after %llu of %llu bytes", task->file->name,
              (unsigned long long)task->sink.at, (unsigned long long)task->file->bytes);
    return TASK_AGAIN;
}

static const struct task_type object_type = {
    open_file, prepare_object, {begin_object, take_object, NULL}, judge_object, role_renew};

static enum status
store_all(struct storage_job *job, const struct task_type *type, struct error *error)
{
    struct storage_task *tasks = calloc(job->file_count, sizeof(*tasks));
    CHECK(tasks != NULL);
    for (uint32_t i = 0; i < job->file_count; i++)
        tasks[i] = (struct storage_task){.job = job, .file = &job->files[i], .sink = {.fd = -1}};
    enum status status = tasks_run(job, type, tasks, job->file_count, error);
    free(tasks);
    return status;
}

enum status
s3_store(struct storage_job *job, struct error *error)
{
    return store_all(job, &object_type, error);
}

/* ---- HTTP ---- */

/* The file's name: the last part of the URL's path. */
enum status
http_list(struct storage_job *job, struct error *error)
{
    const char *url = job->place.url;
    const char *path = url + place_origin_bytes(url);
    char name[CACHE_ENTRY_BYTES];
    size_t bytes = strcspn(path, "?#");
    size_t from = bytes;
    while (from > 0 && path[from - 1] != '/')
        from--;
    snprintf(name, sizeof(name), "%.*s", (int)(bytes - from), path + from);
    percent_decode(name);
    bool is_usable = name[0] != '\0' && name[0] != '.' && strchr(name, '/') == NULL;
    job->is_single = true;
    return job_add_file(job, is_usable ? name : "model", NULL, 0, error);
}

/* A validator with which a range may be asked for; "": none. */
static const char *
strong_validator(const struct transfer_head *head)
{
    return head->etag[0] == '"' ? head->etag : head->etag[0] == '\0' ? head->modified : "";
}

static void
add_own_headers(struct storage_task *task)
{
    const struct storage_place *place = &task->job->place;
    for (unsigned i = 0; i < place->header_count && !task->is_over_origin; i++)
        task_add_line(task, "%s", place->headers[i]);
}

static void
prepare_http(struct storage_task *task)
{
    struct storage_job *job = task->job;
    const char *last = job->last.validator;
    char partial[CACHE_VALIDATOR_BYTES];
    task->url = strdup(task->redirects > 0 ? (char *)task->page.data : job->place.url);
    CHECK(task->url != NULL);
    add_own_headers(task);
    cache_partial_validator(&job->partial, partial);
    if (task->sink.at > 0 && partial[0] != '\0') {
        task_add_line(task, "Range: bytes=%llu-", (unsigned long long)task->sink.at);
        task_add_line(task, "If-Range: %s", partial);
    }
    struct storage_lease *lease =
        last[0] == '\0' ? NULL : cache_lease(job->options->cache, job->last.content);
    if (lease != NULL) {
        bool is_etag = last[0] == '"' || strncmp(last, "W/", 2) == 0; /* "Wed, …" is a date */
        task_add_line(task, "%s: %s", is_etag ? "If-None-Match" : "If-Modified-Since", last);
        cache_release(job->options->cache, lease);
    }
}

/* A new body: what was stored of another one is dropped. */
static enum status
begin_anew(struct storage_task *task, const struct transfer_head *head, struct error *error)
{
    sink_close(&task->sink, NULL);
    if (cache_partial_restart(&task->job->partial, strong_validator(head), error) != STATUS_OK)
        return error->status;
    return sink_open(task->job, &task->sink, task->file->name, error);
}

/* Returns whether a range is of what is stored: some servers ignore If-Range. */
static bool
continues(const struct storage_task *task, const struct transfer_head *head)
{
    char partial[CACHE_VALIDATOR_BYTES];
    cache_partial_validator(&task->job->partial, partial);
    if (task->sink.at == 0 || partial[0] == '\0')
        return true;
    return partial[0] == '"' ? strcmp(head->etag, partial) == 0
                             : head->modified[0] == '\0' || strcmp(head->modified, partial) == 0;
}

/* A body that ends with the connection may have been cut: only a digest can tell. */
static enum status
check_end(const struct storage_task *task, const struct transfer_head *head, struct error *error)
{
    bool is_known = head->status == 206 ? head->range_of >= 0 : head->length >= 0;
    if (is_known || (head->status == 200 && head->is_framed) ||
        place_digest(&task->job->place, task->file->name, PLACE_ONE_FILE) != NULL)
        return STATUS_OK;
    return error_set(error, STATUS_FAILED_PRECONDITION,
                     "the server does not say how long the file is, so one that is cut would not "
                     "be noticed: state its `sha256` in the model's key");
}

static bool
is_html(const struct transfer_head *head)
{
    return strncasecmp(head->type, "text/html", strlen("text/html")) == 0;
}

static enum status
begin_http(void *context, const struct transfer_head *head, struct error *error)
{
    struct storage_task *task = context;
    struct storage_job *job = task->job;
    if (is_html(head))
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "the server sends a page of HTML, not a model: look whether it asks for a "
                         "login");
    if (check_end(task, head, error) != STATUS_OK)
        return error->status;
    if (head->status == 206 && !continues(task, head)) {
        if (begin_anew(task, &(struct transfer_head){.etag = ""}, error) != STATUS_OK)
            return error->status;
        return error_set(error, STATUS_UNAVAILABLE, "the file changes while it is fetched");
    }
    if (head->status == 200 && begin_anew(task, head, error) != STATUS_OK)
        return error->status;
    task->range_of = head->status == 206 ? head->range_of : -1;
    if (take_start(task, head, error) != STATUS_OK)
        return error->status;
    snprintf(job->now.validator, sizeof(job->now.validator), "%s",
             head->etag[0] != '\0' ? head->etag : head->modified);
    uint64_t bytes = head->length >= 0 ? task->sink.at + (uint64_t)head->length : 0;
    job->progress.total = bytes;
    return cache_partial_reserve(job->options->cache, &job->partial, bytes, error);
}

static bool
is_redirection(const struct transfer_end *end)
{
    long status = end->head.status;
    return (status >= 301 && status <= 303) || status == 307 || status == 308;
}

/* Headers are for the entry's server: another one gets none of them. */
static enum task_verdict
redirect(struct storage_task *task, const struct transfer_end *end, struct error *error)
{
    const char *from = task->url;
    const char *to = end->location;
    size_t origin = place_origin_bytes(to);
    bool is_https = strncasecmp(from, "https://", 8) == 0;
    if (origin == 0 || ++task->redirects > REDIRECTS_MAX) {
        error_set(error, STATUS_FAILED_PRECONDITION, "the server redirects %s",
                  origin == 0 ? "to no URL" : "too often");
        return TASK_FAILED;
    }
    if (strncasecmp(to, "https://", 8) != 0 && (is_https || strncasecmp(to, "http://", 7) != 0)) {
        error_set(error, STATUS_FAILED_PRECONDITION, "the server redirects to %s, without TLS",
                  "another scheme");
        return TASK_FAILED;
    }
    if (origin != place_origin_bytes(from) || strncasecmp(from, to, origin) != 0)
        task->is_over_origin = true;
    task->page.used = 0;
    bytes_put_text(&task->page, to);
    bytes_put_char(&task->page, '\0');
    CHECK(!task->page.failed);
    return TASK_AT_ONCE;
}

static enum task_verdict
judge_http(struct storage_task *task, const struct transfer_end *end, struct error *error)
{
    switch (end->head.status) {
    case 206: /* a server may send less than it was asked for */
        if (task->range_of >= 0 && task->sink.at < (uint64_t)task->range_of) {
            error_set(error, STATUS_UNAVAILABLE, "the file ends after %llu of %lld bytes",
                      (unsigned long long)task->sink.at, (long long)task->range_of);
            return TASK_AGAIN;
        }
        return complete(task, error);
    case 200: return complete(task, error);
    case 304: task->job->unchanged = true; return TASK_DONE;
    case 416: /* what is stored is no part of what the server has now */
        if (begin_anew(task, &(struct transfer_head){.etag = ""}, error) != STATUS_OK)
            return TASK_FAILED;
        error_set(error, STATUS_UNAVAILABLE, "the server refuses a range");
        return TASK_AGAIN;
    default:
        return is_redirection(end) ? redirect(task, end, error)
                                   : task_judge_status(task, end, error);
    }
}

static const struct task_type http_type = {
    open_file, prepare_http, {begin_http, take_body, NULL}, judge_http, NULL};

/* ---- HTTP: the digest beside the file ---- */

enum { BESIDE_BYTES_MAX = 64 << 10 };

struct beside {
    char digest[DIGEST_BYTES]; /* as it begins */
    size_t bytes;
    bool is_there;
    bool is_page; /* of HTML, in place of 404 */
};

/* The path has the ending, not the query. */
static void
prepare_beside(struct storage_task *task)
{
    const char *url = task->job->place.url;
    size_t bytes = strcspn(url, "?#");
    if (task->redirects > 0)
        CHECK((task->url = strdup((char *)task->page.data)) != NULL);
    else
        CHECK(asprintf(&task->url, "%.*s" DIGEST_ENDING "%s", (int)bytes, url, url + bytes) >= 0);
    add_own_headers(task);
}

static enum status
begin_beside(void *context, const struct transfer_head *head, struct error *error)
{
    struct storage_task *task = context;
    struct beside *beside = task->asked;
    *beside = (struct beside){.is_there = true, .is_page = is_html(head)};
    return beside->is_page ? error_set(error, STATUS_NOT_FOUND, "a page of HTML") : STATUS_OK;
}

static enum status
take_beside(void *context, const void *data, size_t bytes, struct error *error)
{
    struct storage_task *task = context;
    struct beside *beside = task->asked;
    for (size_t i = 0; i < bytes && beside->bytes + i < DIGEST_BYTES - 1; i++)
        beside->digest[beside->bytes + i] = ((const char *)data)[i];
    beside->bytes += bytes;
    return beside->bytes <= BESIDE_BYTES_MAX
               ? STATUS_OK
               : error_set(error, STATUS_DATA_LOSS, "it has more than %d KiB",
                           BESIDE_BYTES_MAX >> 10);
}

/* If a server refuses, or redirects too often, the file is not there; one that is in trouble is
 * asked again. */
static enum task_verdict
judge_beside(struct storage_task *task, const struct transfer_end *end, struct error *error)
{
    if (end->head.status == 200)
        return TASK_DONE;
    enum task_verdict verdict =
        is_redirection(end) ? redirect(task, end, error) : task_judge_status(task, end, error);
    return verdict == TASK_FAILED ? TASK_DONE : verdict;
}

static const struct task_type beside_type = {
    task_open_page, prepare_beside, {begin_beside, take_beside, NULL}, judge_beside, NULL};

/* Asked for after the file, unless the key states its digest. */
static enum status
check_beside(struct storage_job *job, struct error *error)
{
    const struct stored_file *file = &job->files[0];
    struct beside beside = {.digest = ""};
    struct storage_task task = {.job = job, .asked = &beside};
    if (place_digest(&job->place, file->name, PLACE_ONE_FILE) != NULL)
        return STATUS_OK;
    enum status status = tasks_run(job, &beside_type, &task, 1, error);
    if (beside.is_page) {
        error_clear(error);
        return STATUS_OK;
    }
    if (status != STATUS_OK)
        return error_prefix(
            error, "%.100s" DIGEST_ENDING ", which is not asked for if the key states `sha256`",
            file->name);
    return beside.is_there ? job_compare_beside(file, beside.digest, error) : STATUS_OK;
}

enum status
http_store(struct storage_job *job, struct error *error)
{
    enum status status = store_all(job, &http_type, error);
    return status == STATUS_OK && !job->unchanged ? check_beside(job, error) : status;
}
