/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies and pages of metrics: what is found in them, wherever pages are cut, and what is refused.
 * Texts are copied to memory of their exact size, so that a sanitizer sees a read behind them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "gateway/scan/json_scan.h"
#include "gateway/scan/load_report.h"
#include "gateway/scan/metrics_page.h"
#include "gateway/scan/prompt.h"
#include "gateway/scan/usage.h"

static void
test_members(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *model; /* NULL: not found; with its quotes */
        const char *mistake;
    } cases[] = {
        {"{}", NULL, NULL},
        {" { \"model\" : \"m\" } \n", "\"m\"", NULL},
        {"{\"a\":{\"model\":1},\"model\":2}", "2", NULL},
        {"{\"a\":\"\\\"model\\\":\",\"model\":[1,{\"]\":\"}\"}]}", "[1,{\"]\":\"}\"}]", NULL},
        {"{\"a\":\"\\\\\",\"model\":\"\\\\\"}", "\"\\\\\"", NULL},
        {"{\"models\":1,\"mode\":2}", NULL, NULL},
        {"{\"model\":1,\"model\":1}", NULL, "twice"},
        {"{\"model\":1,\"mo\\u0064el\":2}", NULL, "escape"},
        {"{\"a\\n\":1}", NULL, "escape"},
        {"", NULL, "not a JSON object"},
        {"[]", NULL, "not a JSON object"},
        {"{} x", NULL, "not a JSON object"},
        {"{1:2}", NULL, "not a JSON object"},
        {"{", NULL, "too early"},
        {"{\"model\"", NULL, "too early"},
        {"{\"model\":", NULL, "too early"},
        {"{\"model\":\"x", NULL, "too early"},
        {"{\"model\":\"x\\\"}", NULL, "too early"},
        {"{\"model\":[1}", NULL, "too early"},
        {"{\"model\":1", NULL, "too early"},
        {"{\"model\":1,", NULL, "too early"},
        {"{\"model\":1 \"b\":2}", NULL, "too early"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        size_t bytes = strlen(cases[i].text);
        char *text = malloc(bytes > 0 ? bytes : 1);
        memcpy(text, cases[i].text, bytes);
        struct json_member member = {.name = "model"};
        const char *mistake = json_scan_members(text, bytes, &member, 1);
        if (cases[i].mistake != NULL) {
            assert_non_null(mistake);
            assert_non_null(strstr(mistake, cases[i].mistake));
        } else {
            assert_null(mistake);
            assert_int_equal(member.value.at != NULL, cases[i].model != NULL);
        }
        if (cases[i].model != NULL) {
            assert_int_equal(member.value.bytes, strlen(cases[i].model));
            assert_memory_equal(member.value.at, cases[i].model, member.value.bytes);
        }
        free(text);
    }
}

static void
test_decoding(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        const char *meant; /* NULL: malformed */
    } cases[] = {
        {"\"\"", ""},
        {"\"org\\/name\"", "org/name"},
        {"\"\\\"\\\\\\b\\f\\n\\r\\t\"", "\"\\\b\f\n\r\t"},
        {"\"\\u0061\\u00e4\\u20AC\\ud83d\\ude00z\"", "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80z"},
        {"\"\\\"", NULL},
        {"1", NULL},
        {"\"\\u0061\xff\"", NULL},
        {"\"\\x\"", NULL},
        {"\"\\u\"", NULL},
        {"\"\\u12g4\"", NULL},
        {"\"\\ud83d\"", NULL},
        {"\"\\ud83dabcdef\"", NULL},
        {"\"\\ud83d\\u0041\"", NULL},
        {"\"\\ude00\"", NULL},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        size_t bytes = strlen(cases[i].value);
        char *text = malloc(bytes > 0 ? bytes : 1);
        memcpy(text, cases[i].value, bytes);
        struct bytes meant = {0};
        assert_int_equal(json_span_decode((struct json_span){text, bytes}, &meant),
                         cases[i].meant != NULL);
        if (cases[i].meant != NULL) {
            assert_int_equal(meant.used, strlen(cases[i].meant));
            if (meant.used > 0)
                assert_memory_equal(meant.data, cases[i].meant, meant.used);
        }
        bytes_fini(&meant);
        free(text);
    }
}

static void
test_elements(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t count;
    } cases[] = {{"[]", 0}, {"[1]", 1},   {"[ {\"a\":[1,2]} , \"b,c\" ,3]", 3},
                 {"{}", 0}, {"[1 2]", 1}, {"\"[1,2]\"", 0}};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct json_span array = {cases[i].text, strlen(cases[i].text)};
        struct json_span element;
        uint32_t count = 0;
        for (size_t at = 0; json_scan_next(array, &at, &element); count++)
            assert_true(element.bytes > 0);
        assert_int_equal(count, cases[i].count);
    }
}

static const char page_text[] = "# HELP vllm:num_requests_waiting x\n"
                                "vllm:num_requests_waiting{engine=\"0\",model_name=\"base\"} 3.0\n"
                                "vllm:num_requests_waiting{engine=\"1\",model_name=\"base\"} 4.0\n"
                                "vllm:num_requests_running{model_name=\"b\\\"}c\"} 5\n"
                                "vllm:num_requests_running_total 99\n"
                                "vllm:kv_cache_usage_perc{engine=\"0\"} 0.25\n"
                                "vllm:kv_cache_usage_perc{engine=\"1\"} 0.5\n"
                                "vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters="
                                "\"old\",waiting_lora_adapters=\"\"} 1.7e9\n"
                                "vllm:lora_requests_info{max_lora=\"3\",running_lora_adapters=\"a,"
                                "b\",waiting_lora_adapters=\"c\"} "
                                "1.8e9\n"
                                "other{x=\"y\"} NaN\n"
                                "vllm:num_requests_waiting NaN\n"
                                "vllm:kv_cache_usage_perc nonsense\n";

static void
check_page(const struct metrics_page *page)
{
    assert_true(page->figures.is_known);
    assert_int_equal(page->figures.waiting, 7);
    assert_int_equal(page->figures.running, 5);
    assert_true(page->figures.kv_used == 0.5);
    assert_int_equal(page->figures.base_model, gateway_name_hash("base", 4));
    assert_int_equal(page->figures.adapters_max, 3);
    assert_int_equal(page->figures.adapter_count, 3);
    assert_int_equal(page->adapters[1].name, gateway_name_hash("b", 1));
    assert_int_equal(page->adapters[1].state, GATEWAY_ADAPTER_LOADED);
    assert_int_equal(page->adapters[2].name, gateway_name_hash("c", 1));
    assert_int_equal(page->adapters[2].state, GATEWAY_ADAPTER_WAITING);
}

static void
test_page_cut_anywhere(void **state)
{
    (void)state;
    static struct metrics_page page;
    for (size_t cut = 0; cut < sizeof(page_text); cut++) {
        metrics_page_begin(&page);
        metrics_page_feed(&page, page_text, cut);
        metrics_page_feed(&page, page_text + cut, sizeof(page_text) - 1 - cut);
        metrics_page_end(&page);
        check_page(&page);
    }
}

static void
test_lines(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        uint32_t waiting;
    } cases[] = {
        {"vllm:num_requests_waiting{a=\"b\"} 5 # {trace_id=\"x\"} 77", 5},
        {"vllm:num_requests_waiting{a=\"}\\\"}\"} 6 1712345678", 6},
        {"vllm:num_requests_waiting{} 7", 7},
        {"vllm:num_requests_waiting {a=\"b\"} 8", 8},
        {"vllm:num_requests_waiting\t9", 9},
        {"vllm:num_requests_waiting{a=\"b 10", 0},
        {"vllm:num_requests_waiting{", 0},
        {"vllm:num_requests_waiting", 0},
        {"vllm:num_requests_waiting +Inf", 0},
        {"vllm:num_requests_waiting -1", 0},
    };
    static struct metrics_page page;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        metrics_page_begin(&page);
        metrics_page_feed(&page, cases[i].line, strlen(cases[i].line));
        metrics_page_end(&page);
        assert_int_equal(page.figures.waiting, cases[i].waiting);
    }
}

/* A loaded adapter beats one in use; adapters in main memory are not loaded. */
static void
test_loaded_adapters(void **state)
{
    (void)state;
    static const char more[] = "vllm:lora_adapter_loaded{adapter_name=\"z\",level=\"gpu\"} 1\n"
                               "vllm:lora_adapter_loaded{adapter_name=\"y\",level=\"cpu\"} 1\n"
                               "vllm:lora_adapter_loaded{adapter_name=\"x\",level=\"gpu\"} 0\n"
                               "vllm:max_gpu_lora_adapters 9";
    static struct metrics_page page;
    metrics_page_begin(&page);
    metrics_page_feed(&page, page_text, sizeof(page_text) - 1);
    metrics_page_feed(&page, more, sizeof(more) - 1);
    metrics_page_end(&page);
    assert_int_equal(page.figures.adapter_count, 2); /* z, and c that waits */
    assert_int_equal(page.adapters[0].name, gateway_name_hash("z", 1));
    assert_int_equal(page.figures.adapters_max, 9);
}

static void
test_limits(void **state)
{
    (void)state;
    static struct metrics_page page;
    char line[256];
    metrics_page_begin(&page);
    for (int i = 0; i < METRICS_LINE_BYTES_MAX; i++)
        metrics_page_feed(&page, "vllm:num_requests_waiting", 25);
    metrics_page_feed(&page, "\n", 1);
    for (int i = 0; i < 2 * GATEWAY_ADAPTERS_MAX; i++) {
        int used =
            snprintf(line, sizeof(line), "vllm:lora_adapter_loaded{adapter_name=\"%d\"} 1\n", i);
        metrics_page_feed(&page, line, (size_t)used);
    }
    metrics_page_end(&page);
    assert_int_equal(page.lines_ignored, 1);
    assert_int_equal(page.figures.adapter_count, GATEWAY_ADAPTERS_MAX);
    metrics_page_begin(&page);
    memset(line, '\n', sizeof(line));
    for (int i = 0; i < METRICS_PAGE_BYTES_MAX / (int)sizeof(line); i++)
        metrics_page_feed(&page, line, sizeof(line));
    metrics_page_feed(&page, "vllm:num_requests_waiting 1\n", 28);
    metrics_page_end(&page);
    assert_false(page.figures.is_known);
}

static void
expect_usage(const char *text, bool is_known, uint64_t prompt, uint64_t answer)
{
    for (size_t piece = 1; piece <= 64; piece += 7) { /* wherever it is torn */
        struct usage_tail tail = {.used = 0};
        struct usage usage = {0};
        char before[3000];
        memset(before, 'x', sizeof(before));
        usage_feed(&tail, before, sizeof(before));
        for (size_t at = 0; at < strlen(text); at += piece)
            usage_feed(&tail, text + at, strlen(text + at) < piece ? strlen(text + at) : piece);
        assert_int_equal(usage_read(&tail, &usage), is_known);
        assert_true(!is_known || (usage.prompt_tokens == prompt && usage.answer_tokens == answer));
    }
}

static void
test_usage(void **state)
{
    (void)state;
    expect_usage("{\"usage\": {\"prompt_tokens\": 7, \"completion_tokens\": 12}}", true, 7, 12);
    expect_usage("\"usage\":{\"prompt_tokens\":7,\"total_tokens\":7}}", true, 7, 0);
    expect_usage("data: {\"usage\":null}\n\ndata: {\"usage\":{\"prompt_tokens\":3,"
                 "\"completion_tokens\":4,\"prompt_tokens_details\":{\"cached_tokens\":1}}}\n\n"
                 "data: [DONE]\n\n",
                 true, 3, 4);
    expect_usage("{\"usage\":{\"prompt_tokens\":1}} {\"usage\":{\"prompt_tokens\":2}}", true, 2, 0);
    expect_usage("{\"usage\":{\"prompt_tokens\":4", false, 0, 0);
    expect_usage("{\"usage\":{\"prompt_tokens\":-4}}", false, 0, 0);
    expect_usage("{\"usage\":{\"prompt_tokens\":99999999999999999999}}", false, 0, 0);
    expect_usage("{\"usage\":{}}", false, 0, 0);
    expect_usage("{\"usage\":[1]}}}", false, 0, 0);
    expect_usage("\"usage\"", false, 0, 0);
    expect_usage("", false, 0, 0);
}

/* Each engine's names, as its pages have them. */
static void
test_engines(void **state)
{
    static const char *const pages[] = {
        "sglang:num_queue_reqs{model_name=\"base\"} 3.0\n"
        "sglang:num_running_reqs{model_name=\"base\"} 2\nsglang:token_usage{} 0.25\n",
        "trtllm_num_requests_waiting 3\ntrtllm_num_requests_running 2\n"
        "trtllm_kv_cache_utilization 0.25\n",
        "llamacpp:requests_processing 2\nllamacpp:requests_deferred 3\n"
        "llamacpp:kv_cache_usage_ratio 0.25\n",
        "nv_trt_llm_request_metrics{model=\"m\",request_type=\"waiting\",version=\"1\"} 3\n"
        "nv_trt_llm_request_metrics{model=\"m\",request_type=\"scheduled\",version=\"1\"} 2\n"
        "nv_trt_llm_request_metrics{model=\"m\",request_type=\"max\",version=\"1\"} 512\n"
        "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\",model=\"m\"} 0.25\n"
        "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\",model=\"m\"} 6239\n",
    };
    static struct metrics_page page;
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(pages); i++) {
        metrics_page_begin(&page);
        metrics_page_feed(&page, pages[i], strlen(pages[i]));
        metrics_page_end(&page);
        assert_true(page.figures.is_known);
        assert_int_equal(page.figures.waiting, 3);
        assert_int_equal(page.figures.running, 2);
        assert_true(page.figures.kv_used == 0.25);
    }
}

/* Of these, `a` has a parent, and `b` is listed as some servers list adapters. */
static void
test_adapters_among_models(void **state)
{
    static const char text[] = "{\"data\":[{\"id\":\"base\",\"parent\":null},{\"id\":\"a\","
                               "\"parent\":\"base\"},{\"id\":3},{\"id\":\"b\",\"root\":\"/b\"}]}";
    static struct metrics_page page;
    static struct model_list list;
    (void)state;
    model_list_read("[]", 2, &list);
    assert_true(list.base == 0 && list.count == 0);
    model_list_read(text, sizeof(text) - 1, &list);
    metrics_page_begin(&page);
    metrics_page_end(&page);
    metrics_page_take_models(&page, &list);
    assert_int_equal(page.figures.base_model, gateway_name_hash("base", 4));
    assert_int_equal(page.figures.adapter_count, 2);
    assert_int_equal(page.adapters[1].name, gateway_name_hash("b", 1));
    assert_int_equal(page.adapters[1].state, GATEWAY_ADAPTER_LOADED);
    metrics_page_begin(&page);
    metrics_page_feed(&page, page_text, sizeof(page_text) - 1);
    metrics_page_end(&page);
    metrics_page_take_models(&page, &list);
    check_page(&page); /* which says it itself */
    static const char models[] = "model_server_requests_waiting{model=\"base\"} 1\n"
                                 "model_server_requests_waiting{model=\"other\"} 2\n";
    metrics_page_begin(&page);
    metrics_page_feed(&page, models, sizeof(models) - 1);
    metrics_page_end(&page);
    metrics_page_take_models(&page, &(struct model_list){.base = 0}); /* it has no catalogue */
    assert_int_equal(page.figures.adapter_count, 1);
    assert_int_equal(page.adapters[0].name, gateway_name_hash("other", 5));
}

/* The page of metrics may name the base model otherwise than the list, which then counts as it
 * is. A long list keeps as many as there may be adapters, and its base model. */
static void
test_the_base_model_is_no_adapter(void **state)
{
    static struct model_list list;
    uint64_t adapters[GATEWAY_ADAPTERS_MAX];
    struct bytes text = {0};
    (void)state;
    bytes_put_text(&text, "{\"data\":[{\"id\":\"base\"},{\"id\":\"alias\"}");
    for (int i = 0; i < GATEWAY_ADAPTERS_MAX; i++)
        bytes_put_text(&text, ",{\"id\":\"a\",\"parent\":\"base\"}");
    bytes_put_text(&text, "]}");
    model_list_read(text.data, text.used, &list);
    bytes_fini(&text);
    assert_int_equal(list.base, gateway_name_hash("base", 4));
    assert_int_equal(model_list_adapters(&list, list.base, adapters), GATEWAY_ADAPTERS_MAX);
    assert_int_equal(adapters[0], gateway_name_hash("alias", 5));
    assert_int_equal(model_list_adapters(&list, adapters[0], adapters), GATEWAY_ADAPTERS_MAX);
    assert_int_equal(adapters[0], list.base);
}

/* However a name is written, it is one. */
static void
test_names_are_compared_by_their_meaning(void **state)
{
    static const char text[] = "{\"data\":[{\"id\":\"org\\/base\"},{\"id\":\"\\u\"},"
                               "{\"id\":\"caf\\u00e9\",\"parent\":\"org/base\"}]}";
    static const char *const bodies[] = {"{\"model\":\"caf\xc3\xa9\",\"prompt\":\"\"}",
                                         "{\"model\":\"caf\\u00e9\",\"prompt\":\"\"}"};
    static struct model_list list;
    struct load_report report = {.figures = {.has_waiting = false}};
    const uint64_t cafe = gateway_name_hash("caf\xc3\xa9", 5);
    (void)state;
    model_list_read(text, sizeof(text) - 1, &list);
    assert_int_equal(list.count, 2);
    assert_int_equal(list.base, gateway_name_hash("org/base", 8));
    assert_int_equal(list.models[1], cafe);
    load_report_read("active_lora_adapters", "{\"caf\\u00e9\": 2, \"\\u\": 1}", &report);
    assert_int_equal(report.figures.adapter_count, 1);
    assert_int_equal(report.adapters[0].name, cafe);
    for (size_t i = 0; i < ARRAY_COUNT(bodies); i++) {
        struct prompt prompt;
        assert_null(prompt_read(bodies[i], strlen(bodies[i]), &prompt));
        assert_int_equal(prompt.model, cafe);
    }
}

static void
expect_mistake(const char *body, size_t bytes, const char *mistake)
{
    struct prompt prompt;
    const char *found = prompt_read(body, bytes, &prompt);
    assert_non_null(found);
    assert_non_null(strstr(found, mistake));
}

/* As over gRPC. Each is what some parser would make another name of. */
static void
test_names_are_texts(void **state)
{
    static const char *const bodies[] = {"{\"model\":\"a\\u0000b\"}", "{\"model\":\"a\xff\"}",
                                         "{\"model\":\"a\xc0\x80\"}",
                                         "{\"model\":\"\xed\xa0\x80\"}"};
    static const char zero[] = "{\"model\":\"a\0b\"}";
    static const char half[] = "{\"model\":\"\\ud800\"}";
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(bodies); i++)
        expect_mistake(bodies[i], strlen(bodies[i]), "UTF-8");
    expect_mistake(zero, sizeof(zero) - 1, "UTF-8");
    expect_mistake(half, sizeof(half) - 1, "string");
}

static void
expect_report(const char *header, const char *value, int64_t waiting, double kv_used)
{
    struct load_report report = {.figures = {.has_waiting = false}};
    load_report_read(header, value, &report);
    assert_int_equal(report.figures.has_waiting, waiting >= 0);
    assert_int_equal(report.figures.has_kv_used, kv_used >= 0);
    if (waiting >= 0)
        assert_int_equal(report.figures.waiting, waiting);
    if (kv_used >= 0)
        assert_true(report.figures.kv_used == kv_used);
}

/* Of a and b:c, of which 2 and 0 requests are there. */
static void
expect_adapters(const char *header, const char *value)
{
    struct load_report report = {.figures = {.has_waiting = false}};
    load_report_read(header, value, &report);
    assert_true(report.figures.has_adapters);
    assert_int_equal(report.figures.adapter_count, 2);
    assert_int_equal(report.adapters[0].name, gateway_name_hash("a", 1));
    assert_int_equal(report.adapters[0].pending, 2);
    assert_int_equal(report.adapters[1].name, gateway_name_hash("b:c", 3));
    assert_int_equal(report.adapters[1].pending, 0);
    assert_int_equal(report.adapters[1].state, GATEWAY_ADAPTER_LOADED);
}

static void
test_reported_adapters(void **state)
{
    (void)state;
    struct load_report report = {.figures = {.has_waiting = false}};
    expect_adapters("endpoint-load-metrics",
                    "TEXT named_metrics.requests_running=1, named_metrics.adapter_requests.a=2, "
                    "named_metrics.adapter_requests.b:c=0");
    expect_adapters("endpoint-load-metrics", "JSON {\"named_metrics\": {\"adapter_requests.a\": 2,"
                                             "\"adapter_requests.b:c\":0.0, \"x\": {}}}");
    expect_adapters("active_lora_adapters", "{\"a\": 2, \"b:c\": 0}");
    load_report_read("active_lora_adapters", "{", &report);
    load_report_read("endpoint-load-metrics", "TEXT named_metrics.adapters_loaded=0", &report);
    assert_true(report.figures.has_adapters && report.figures.adapter_count == 0);
}

/* The names of docs/model-server-protocol.md: a server without a KV cache is as full as its room
 * for requests, which only counts without one. */
static void
test_protocol_page(void **state)
{
    static const char text[] =
        "model_server_requests_waiting{model=\"base\"} 1\n"
        "model_server_requests_waiting{model=\"other\"} 2\n"
        "model_server_requests_running{model=\"base\"} 3\n"
        "model_server_requests_max{model=\"base\"} 12\n"
        "model_server_adapters_max 2\n"
        "model_server_adapter_requests{adapter=\"a\",state=\"loaded\"} 4\n"
        "model_server_adapter_requests{adapter=\"b\",state=\"waiting\"} 1\n"
        "model_server_adapter_requests{adapter=\"c\",state=\"available\"} 0\n";
    static const char cache[] = "model_server_kv_cache_used_ratio 0.25\n";
    static const char concept[] = "vllm:active_lora_adapters{active_lora_adapters=\"a\"} 4\n"
                                  "vllm:info_active_adapters_info{active_adapters=\"a,b\"} 1\n";
    static struct metrics_page page;
    static struct model_list list = {.count = 1, .models = {1}};
    (void)state;
    metrics_page_begin(&page);
    metrics_page_feed(&page, text, sizeof(text) - 1);
    metrics_page_end(&page);
    metrics_page_take_models(&page, &list); /* the page knows better */
    assert_int_equal(page.figures.waiting, 3);
    assert_int_equal(page.figures.running, 3);
    assert_true(page.figures.kv_used == 0.5);
    assert_int_equal(page.figures.base_model, gateway_name_hash("base", 4));
    assert_int_equal(page.figures.adapters_max, 2);
    assert_int_equal(page.figures.adapter_count, 3); /* other, a, b */
    assert_int_equal(page.adapters[0].name, gateway_name_hash("other", 5));
    assert_int_equal(page.adapters[1].pending, 4);
    assert_int_equal(page.adapters[2].state, GATEWAY_ADAPTER_WAITING);
    metrics_page_begin(&page);
    metrics_page_feed(&page, text, sizeof(text) - 1);
    metrics_page_feed(&page, cache, sizeof(cache) - 1);
    metrics_page_end(&page);
    assert_true(page.figures.kv_used == 0.25);
    metrics_page_begin(&page);
    metrics_page_feed(&page, concept, sizeof(concept) - 1);
    metrics_page_end(&page);
    assert_int_equal(page.adapters[0].pending, 4);
    assert_int_equal(page.adapters[2].name, gateway_name_hash("b", 1));
}

static void
test_load_reports(void **state)
{
    static const char header[] = "Endpoint-Load-Metrics";
    /* named_metrics {"kv_cache_usage_perc": 0.25, "num_requests_waiting": 3}, cpu_utilization 0.5
     */
    static const char binary[] =
        "CQAAAAAAAOA/Qh4KE2t2X2NhY2hlX3VzYWdlX3BlcmMRAAAAAAAA0D9CHwoUbnVtX3Jl"
        "cXVlc3RzX3dhaXRpbmcRAAAAAAAACEA=";
    char prefixed[sizeof(binary) + 4] = "BIN ";
    (void)state;
    memcpy(prefixed + 4, binary, sizeof(binary));
    expect_report(header, "TEXT cpu_utilization=0.3, named_metrics.kv_cache_usage_perc=0.25", -1,
                  0.25);
    expect_report(header, "text named_metrics.num_requests_waiting:3,kv_cache_utilization=0.5", 3,
                  0.5);
    expect_report(header,
                  "JSON {\"cpu_utilization\":1,\"named_metrics\": {\"kv_cache_usage_perc\": 0.25,"
                  "\"num_requests_waiting\":3.0}}",
                  3, 0.25);
    expect_report(header, prefixed, 3, 0.25);
    expect_report("endpoint-load-metrics-bin", binary, 3, 0.25);
    expect_report("pending_queue_size", "7", 7, -1);
    expect_report("pending_queue_size", "7 of 9", -1, -1);
    expect_report(header, "TEXT num_requests_waiting=NaN, kv_cache_usage_perc=-1", -1, -1);
    expect_report(header, "TEXT num_requests_waiting=, kv_cache_usage_perc=7", -1, 1);
    expect_report(header, "JSON {\"named_metrics\":{\"num_requests_waiting\":\"3\"}}", -1, -1);
    expect_report(header, "JSON [", -1, -1);
    expect_report(header, "BIN CQ", -1, -1);
    expect_report(header, "CSV num_requests_waiting=3", -1, -1);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_usage),
        cmocka_unit_test(test_members),
        cmocka_unit_test(test_decoding),
        cmocka_unit_test(test_elements),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_page_cut_anywhere),
        cmocka_unit_test(test_loaded_adapters),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_engines),
        cmocka_unit_test(test_adapters_among_models),
        cmocka_unit_test(test_the_base_model_is_no_adapter),
        cmocka_unit_test(test_names_are_compared_by_their_meaning),
        cmocka_unit_test(test_names_are_texts),
        cmocka_unit_test(test_load_reports),
        cmocka_unit_test(test_reported_adapters),
        cmocka_unit_test(test_protocol_page),
    };
    return cmocka_run_group_tests_name("gateway_scan", tests, NULL, NULL);
}
