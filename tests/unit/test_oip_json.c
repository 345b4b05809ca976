/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON form of the protocol, both ways: what a request says reaches the arena and comes back as
 * the same numbers, for every datatype, up to the ends of its range; every mistake is reported in
 * the words that the table has; JSON and binary data go together in any mixture; what is hostile
 * costs no more than its size warrants. A request goes the whole way through decoder, arena and
 * encoder.
 */
#include "test_oip_json_rig.h"

static struct json_rig *rig;

static const char *
ask(const char *text)
{
    return json_rig_ask(rig, text, strlen(text), NULL, 0);
}

/* ---- one tensor ---- */

#define ANSWER(members) "{\"model_name\":\"m\",\"model_version\":\"1\",\"outputs\":[" members "]}"

static void
check_data(const char *datatype, const char *shape, const char *data, const char *wanted)
{
    char text[1024];
    snprintf(text, sizeof(text),
             "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"%s\",\"shape\":%s,\"data\":%s}]}",
             datatype, shape, data);
    const char *got = ask(text);
    char answer[1024];
    snprintf(answer, sizeof(answer),
             ANSWER("{\"name\":\"x\",\"datatype\":\"%s\",\"shape\":%s,\"data\":%s}"), datatype,
             shape, wanted);
    bool refused = wanted[0] != '[';
    assert_string_equal(got, refused ? wanted : answer);
    if (refused)
        assert_int_equal(rig->error.status, STATUS_INVALID_ARGUMENT);
}

struct data_case {
    const char *datatype;
    const char *shape;
    const char *data;
    const char *wanted; /* as it comes back, or the error */
};

#define X "tensor \"x\": "

static const struct data_case data_cases[] = {
    /* the ends of each range, and one beyond */
    {"BOOL", "[3]", "[true, false,true]", "[true,false,true]"},
    {"UINT8", "[2]", "[0,255]", "[0,255]"},
    {"UINT8", "[1]", "[256]", X "element 0, 256, is out of UINT8's range"},
    {"UINT8", "[2]", "[1,-1]", X "element 1, -1, is out of UINT8's range"},
    {"UINT16", "[1]", "[65535]", "[65535]"},
    {"UINT16", "[1]", "[65536]", X "element 0, 65536, is out of UINT16's range"},
    {"UINT32", "[1]", "[4294967295]", "[4294967295]"},
    {"UINT32", "[1]", "[4294967296]", X "element 0, 4294967296, is out of UINT32's range"},
    {"UINT64", "[3]", "[9223372036854775807,9223372036854775808,18446744073709551615]",
     "[9223372036854775807,9223372036854775808,18446744073709551615]"},
    {"UINT64", "[1]", "[18446744073709551616]",
     X "element 0, 18446744073709551616, is out of UINT64's range"},
    {"UINT64", "[1]", "[-0]", "[0]"},
    {"INT8", "[2]", "[-128,127]", "[-128,127]"},
    {"INT8", "[1]", "[-129]", X "element 0, -129, is out of INT8's range"},
    {"INT8", "[1]", "[128]", X "element 0, 128, is out of INT8's range"},
    {"INT16", "[2]", "[-32768,32767]", "[-32768,32767]"},
    {"INT16", "[1]", "[32768]", X "element 0, 32768, is out of INT16's range"},
    {"INT32", "[2]", "[-2147483648,2147483647]", "[-2147483648,2147483647]"},
    {"INT32", "[1]", "[2147483648]", X "element 0, 2147483648, is out of INT32's range"},
    {"INT64", "[2]", "[-9223372036854775808,9223372036854775807]",
     "[-9223372036854775808,9223372036854775807]"},
    {"INT64", "[1]", "[9223372036854775808]",
     X "element 0, 9223372036854775808, is out of INT64's range"},
    {"INT64", "[1]", "[-9223372036854775809]",
     X "element 0, -9223372036854775809, is out of INT64's range"},
    {"INT64", "[1]", "[9007199254740993]", "[9007199254740993]"},
    {"FP32", "[4]", "[1,0.1,-2.5e-3,16777217]", "[1.0,0.1,-0.0025,16777216.0]"},
    {"FP32", "[2]", "[3.4028235e38,1e-45]", "[3.4028235e+38,1.4013e-45]"},
    {"FP32", "[1]", "[1e39]", X "element 0, 1e39, is out of FP32's range"},
    /* half a step above 1, and a little: by way of a double it would be 1.0 */
    {"FP32", "[1]", "[1.00000005960464477539062500000001]", "[1.0000001]"},
    {"FP32", "[2]", "[-0.0,0]", "[-0.0,0.0]"},
    {"FP32", "[3]", "[\"NaN\",\"Infinity\",\"-Infinity\"]", "[\"NaN\",\"Infinity\",\"-Infinity\"]"},
    {"FP64", "[3]", "[0.1,1.7976931348623157e308,5e-324]",
     "[0.1,1.7976931348623157e+308,4.94065645841247e-324]"},
    {"FP64", "[2]", "[\"NaN\",1E+2]", "[\"NaN\",100.0]"},
    {"FP64", "[1]", "[1e400]", X "element 0, 1e400, is out of FP64's range"},
    {"FP64", "[1]", "[1e-400]", "[0.0]"},
    {"FP16", "[1]", "[1.0]", X "FP16 has no JSON form: send it as binary data (binary_data_size)"},
    {"BF16", "[0]", "[]", X "BF16 has no JSON form: send it as binary data (binary_data_size)"},
    {"FP33", "[1]", "[1.0]", X "unknown datatype \"FP33\""},

    /* strings: escapes, both forms of one character, the long way round */
    {"BYTES", "[2]", "[\"\",\"a\"]", "[\"\",\"a\"]"},
    {"BYTES", "[1]", "[\"h\\u00e4ns\"]", "[\"h\xc3\xa4ns\"]"},
    {"BYTES", "[1]", "[\"h\xc3\xa4ns\"]", "[\"h\xc3\xa4ns\"]"},
    {"BYTES", "[1]", "[\"\\ud83d\\ude00\"]", "[\"\xf0\x9f\x98\x80\"]"},
    {"BYTES", "[1]", "[\"\\u0041\\u0000\\u001f\\/\\b\"]", "[\"A\\u0000\\u001f/\\u0008\"]"},
    {"BYTES", "[1]", "[\"\\\"\\\\\\n\\r\\t\"]", "[\"\\\"\\\\\\n\\r\\t\"]"},
    {"BYTES", "[2]", "[\"]\",\"[,\"]", "[\"]\",\"[,\"]"},
    {"BYTES", "[1]", "[\"\\ud83d\"]",
     X "element 0 is not a JSON string: invalid Unicode '\\uD83D' near '\"\\ud83d\"'"},
    {"BYTES", "[1]", "[\"\xff\"]",
     X "element 0 is not a JSON string: unable to decode byte 0xff near '\"'"},
    {"BYTES", "[1]", "[7]", X "element 0: a number is no BYTES"},

    /* other kinds */
    {"BOOL", "[4]", "[1,0,1.0,-0]", "[true,false,true,false]"},
    {"BOOL", "[1]", "[2]", X "element 0, 2, is out of BOOL's range"},
    {"BOOL", "[1]", "[-1]", X "element 0, -1, is out of BOOL's range"},
    {"BOOL", "[1]", "[0.5]", X "element 0: 0.5 is no BOOL"},
    {"BOOL", "[1]", "[10]", X "element 0, 10, is out of BOOL's range"},
    {"BOOL", "[1]", "[\"1\"]", X "element 0: a string is no BOOL"},
    {"BOOL", "[1]", "[truth]", X "data is not JSON, seen at its byte 1"},
    {"INT32", "[1]", "[true]", X "element 0: true is no INT32"},
    {"INT32", "[1]", "[\"1\"]", X "element 0: a string is no INT32"},
    {"INT32", "[1]", "[null]", X "element 0: null is no INT32"},
    {"INT32", "[1]", "[{\"a\":[1]}]", X "element 0: an object is no INT32"},
    {"INT32", "[3]", "[1.0,-2.000,0.0]", "[1,-2,0]"},
    {"UINT64", "[1]", "[18446744073709551615.0]", "[18446744073709551615]"},
    {"INT8", "[1]", "[128.0]", X "element 0, 128, is out of INT8's range"},
    {"INT32", "[1]", "[1.00000000000000000001]", X "element 0: 1.00000000000000000001 is no INT32"},
    {"INT32", "[1]", "[1.0e2]", X "element 0: 1.0e2 is no INT32"},
    {"INT32", "[1]", "[1.5]", X "element 0: 1.5 is no INT32"},
    {"INT32", "[1]", "[1e2]", X "element 0: 1e2 is no INT32"},
    {"FP32", "[1]", "[false]", X "element 0: false is no FP32"},
    {"FP32", "[1]", "[\"inf\"]", X "element 0: a string is no FP32"},
    {"FP32", "[1]", "[NaN]", X "element 0: NaN and Infinity are not JSON: write them as strings"},
    {"FP32", "[1]", "[-Infinity]", X "data is not JSON, seen at its byte 1"},

    /* no JSON */
    {"INT32", "[1]", "[01]", X "data is not JSON, seen at its byte 1"},
    {"INT32", "[1]", "[+1]", X "data is not JSON, seen at its byte 1"},
    {"INT32", "[1]", "[-]", X "data is not JSON, seen at its byte 1"},
    {"FP32", "[1]", "[1.]", X "data is not JSON, seen at its byte 1"},
    {"FP32", "[1]", "[.5]", X "data is not JSON, seen at its byte 1"},
    {"FP32", "[1]", "[1e]", X "data is not JSON, seen at its byte 1"},
    {"FP32", "[1]", "[0x10]", X "data is not JSON, seen at its byte 2"},
    {"INT32", "[2]", "[1 2]", X "data is not JSON, seen at its byte 3"},
    {"INT32", "[1]", "[1,]", X "data has more elements than the shape, which has 1"},
    {"INT32", "[2]", "[1,]", X "data is not JSON, seen at its byte 3"},
    {"INT32", "[2]", "[,1]", X "data is not JSON, seen at its byte 1"},
    {"INT32", "[1]", "[1}]", "the body is not valid JSON: '}' expected near ']'"},

    /* nested as the shape says, or flat */
    {"INT8", "[2,3]", "[[1,2,3], [4,5,6]]", "[1,2,3,4,5,6]"},
    {"INT8", "[2,3]", "[1,2,3,4,5,6]", "[1,2,3,4,5,6]"},
    {"INT8", "[2,1,2]", "[[[1,2]],[[3,4]]]", "[1,2,3,4]"},
    {"INT8", "[]", "[7]", "[7]"},
    {"INT8", "[1,1,1,1,1,1,1,1]", "[[[[[[[[7]]]]]]]]", "[7]"},
    {"INT8", "[0]", "[]", "[]"},
    {"INT8", "[3,0]", "[]", "[]"},
    {"INT8", "[3,0]", "[[],[],[]]", "[]"},
    {"INT8", "[2,3]", "[[1,2,3],[4,5]]",
     X "data has an array of 2 in dimension 1, which is 3 by the shape"},
    {"INT8", "[2,3]", "[[1, 2, 3]     ]",
     X "data has an array of 1 in dimension 0, which is 2 by the shape"},
    {"INT8", "[2,3]", "[[1,2],[3,4],[5,6]]",
     X "data has an array of 2 in dimension 1, which is 3 by the shape"},
    {"INT8", "[2,3]", "[1, 2,3,4,5]", X "data has 5 elements, the shape 6"},
    {"INT8", "[2,3]", "[]", X "data has fewer elements than the shape, which has 6"},
    {"INT8", "[1]", "[1,2]", X "data has more elements than the shape, which has 1"},
    {"INT8", "[1]", "[[1]]", X "data is nested deeper than the shape's 1 dimensions"},
    {"INT8", "[]", "[[1]]", X "data is nested deeper than the shape's 0 dimensions"},
    {"INT8", "[2,1,1]", "[[1],[2]]", X "data is nested 2 deep, the shape has 3 dimensions"},
    {"INT8", "[2,2]", "[[1,2],3,4]", X "data has elements at different depths"},
    {"INT8", "[2,2]", "[1,2,[3,4]]", X "data is nested deeper than the shape's 2 dimensions"},
    {"INT8", "[3,0]", "[[],[]]",
     X "data has an array of 2 in dimension 0, which is 3 by the shape"},
    {"INT8", "[2]", "7", X "\"data\" must be an array"},
    {"INT8", "[2]", "{\"a\":[1,2]}", X "\"data\" must be an array"},

    /* shapes */
    {"INT8", "[-1]", "[7]", X "dimension 0 is negative: -1"},
    {"INT8", "[1.0]", "[7]", X "dimension 0 is not an integer"},
    {"INT8", "1", "[7]", X "\"shape\" must be an array"},
    {"INT8", "[1,1,1,1,1,1,1,1,1]", "[7]", X "9 dimensions, at most 8 are taken"},
    {"INT8", "[9223372036854775807,3]", "[7]", X "the product of the dimensions overflows"},
    {"INT8", "[1000000]", "[7]", X "data has fewer elements than the shape, which has 1000000"},
};

TEST_CASE(test_data)
{
    for (size_t i = 0; i < ARRAY_COUNT(data_cases); i++) {
        const struct data_case *one = &data_cases[i];
        check_data(one->datatype, one->shape, one->data, one->wanted);
    }
}

/* Random bits of every type come back as the same bits. */
TEST_CASE(test_round_trip)
{
    random_init();
    for (unsigned round = 0; round < 2000; round++) {
        static const struct {
            const char *name;
            size_t bytes;
        } types[] = {{"FP32", 4},  {"FP64", 8},  {"INT8", 1},   {"INT16", 2},  {"INT32", 4},
                     {"INT64", 8}, {"UINT8", 1}, {"UINT16", 2}, {"UINT32", 4}, {"UINT64", 8}};
        size_t type = random_below(ARRAY_COUNT(types));
        uint64_t bits[8];
        for (size_t i = 0; i < ARRAY_COUNT(bits); i++)
            bits[i] = random_below(UINT64_MAX);
        size_t count = 1 + random_below(sizeof(bits) / types[type].bytes);
        char text[512];
        snprintf(text, sizeof(text),
                 "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"%s\",\"shape\":[%zu],"
                 "\"parameters\":{\"binary_data_size\":%zu}}]}",
                 types[type].name, count, count * types[type].bytes);
        const char *got = json_rig_ask(rig, text, strlen(text), bits, count * types[type].bytes);
        const char *data = strstr(got, "\"data\":");
        assert_non_null(data);
        char second[1024];
        snprintf(second, sizeof(second),
                 "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"%s\",\"shape\":[%zu],%.*s}],"
                 "\"parameters\":{\"binary_data_output\":true}}",
                 types[type].name, count, (int)(strlen(data) - 3), data);
        bool has_nan = strstr(data, "NaN") != NULL; /* whose other bits JSON does not have */
        got = ask(second);
        if (rig->data.used != count * types[type].bytes)
            fail_msg("%s gave %s", second, got);
        if (!has_nan)
            assert_memory_equal(rig->data.bytes, bits, rig->data.used);
    }
}

/* ---- whole requests ---- */

struct request_case {
    const char *text;
    const char *wanted;
};

#define ONE "{\"name\":\"x\",\"datatype\":\"INT8\",\"shape\":[1],\"data\":[7]}"
#define ONE_BACK "{\"name\":\"x\",\"datatype\":\"INT8\",\"shape\":[1],\"data\":[7]}"
#define TWO "{\"name\":\"y\",\"datatype\":\"INT8\",\"shape\":[1],\"data\":[8]}"
#define TWO_BACK "{\"name\":\"y\",\"datatype\":\"INT8\",\"shape\":[1],\"data\":[8]}"
#define NO_JSON "the body is not valid JSON: "

static const struct request_case request_cases[] = {
    {"{\"inputs\":[]}", ANSWER("")},
    {" {\n\t\"inputs\" : [ " ONE " ] }\r\n", ANSWER(ONE_BACK)},
    {"{\"inputs\":[" ONE "," TWO "]}", ANSWER(ONE_BACK "," TWO_BACK)},
    {"{\"inputs\":[" ONE "," TWO "],\"outputs\":[{\"name\":\"y\"}]}", ANSWER(TWO_BACK)},
    {"{\"inputs\":[" ONE "," TWO "],\"outputs\":[{\"name\":\"y\"},{\"name\":\"x\"}]}",
     ANSWER(TWO_BACK "," ONE_BACK)},
    {"{\"id\":\"42 \\u00e4 \\\"\",\"inputs\":[" ONE "]}",
     "{\"model_name\":\"m\",\"model_version\":\"1\",\"id\":\"42 \xc3\xa4 "
     "\\\"\",\"outputs\":[" ONE_BACK "]}"},
    {"{\"inputs\":[{\"d\\u0061ta\":[7],\"shape\":[1],\"name\":\"x\",\"datatype\":\"INT8\"}]}",
     ANSWER(ONE_BACK)},
    {"{\"more\":{\"data\":[1]},\"inputs\":[" ONE "],\"data\":[[[1]]]}", ANSWER(ONE_BACK)},
    {"{\"parameters\":{\"a\":1.5,\"b\":\"c\",\"d\":true,\"e\":-1},\"inputs\":[" ONE "]}",
     ANSWER(ONE_BACK)},

    {"", "the body is empty: it must be a JSON object"},
    {"[]", "the body must be a JSON object"},
    {"{\"inputs\":[" ONE "]} x", NO_JSON "end of file expected near 'x'"},
    {"{\"inputs\":[" ONE "}", NO_JSON "']' expected near '}'"},
    {"{\"inputs\":[{\"data\":[1}", NO_JSON "'}' expected near end of file"},
    {"{\"inputs\":[{\"data\":[1,", "the JSON ends within \"data\""},
    {"{\"inputs\":[{\"data\":[\"]}", "the JSON ends within \"data\""},
    {"{\"inputs", "the JSON ends within a string"},
    {"{\"inputs\":[],\"a\":1 2}", NO_JSON "'}' expected near '2'"},
    {"{\"inputs\":[],\"inputs\":[]}", NO_JSON "duplicate object key near '\"inputs\"'"},
    {"{\"inputs\":[{\"data\":[1],\"data\":[2]}]}", NO_JSON "duplicate object key near '\"data\"'"},
    {"{}", "\"inputs\" is missing, or not an array"},
    {"{\"inputs\":{}}", "\"inputs\" is missing, or not an array"},
    {"{\"inputs\":[7]}", "input 0: must be an object with a \"name\""},
    {"{\"inputs\":[" ONE ",{}]}", "input 1: must be an object with a \"name\""},
    {"{\"inputs\":[" ONE "," ONE "]}", "tensor \"x\": given more than once"},
    {"{\"inputs\":[{\"name\":\"x\"}]}", X "\"datatype\" must be a string"},
    {"{\"inputs\":[{\"name\":\"x\",\"datatype\":\"INT8\"}]}", X "\"shape\" must be an array"},
    {"{\"inputs\":[{\"name\":\"x\",\"datatype\":\"INT8\",\"shape\":[1]}]}",
     X "has neither \"data\" nor \"binary_data_size\""},
    {"{\"inputs\":[{\"name\":\"x\",\"datatype\":\"INT8\",\"shape\":[1],\"parameters\":7}]}",
     X "\"parameters\" must be an object"},
    {"{\"inputs\":[{\"name\":\"\",\"datatype\":\"INT8\",\"shape\":[1],\"data\":[7]}]}",
     "input 0: the name is empty"},
    {"{\"inputs\":[{\"name\":\"a\\u0000b\",\"datatype\":\"INT8\",\"shape\":[1],\"data\":[7]}]}",
     "request is not a valid ModelInferRequest: inputs: name is not UTF-8, or has a zero byte in "
     "it"},
    {"{\"id\":7,\"inputs\":[]}", "\"id\" must be a string"},
    {"{\"parameters\":[],\"inputs\":[]}", "\"parameters\" must be an object"},
    {"{\"parameters\":{\"a\":null},\"inputs\":[]}",
     "parameter \"a\": must be a string, a number or a boolean"},
    {"{\"parameters\":{\"a\":9223372036854775808},\"inputs\":[]}",
     NO_JSON "too big integer near '9223372036854775808'"},
    {"{\"parameters\":{\"binary_data_output\":1},\"inputs\":[]}",
     "parameter \"binary_data_output\": must be true or false"},
    {"{\"parameters\":{\"timeout\":-1},\"inputs\":[]}",
     "parameter \"timeout\": must be a number of microseconds"},
    {"{\"parameters\":{\"timeout\":\"1s\"},\"inputs\":[]}",
     "parameter \"timeout\": must be a number of microseconds"},
    {"{\"inputs\":[],\"outputs\":{}}", "\"outputs\" must be an array"},
    {"{\"inputs\":[],\"outputs\":[{}]}", "requested output 0: must be an object with a \"name\""},
    {"{\"inputs\":[],\"outputs\":[{\"name\":\"y\"}]}",
     "requested output \"y\": the model gave no such output"},
    {"{\"inputs\":[" ONE "],\"outputs\":[{\"name\":\"x\",\"parameters\":{\"binary_data\":1}}]}",
     "requested output \"x\": \"binary_data\" must be true or false"},
    {"{\"a\":[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]],\"inputs\":[]}", ANSWER("")},
    {"{\"a\":[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]],\"inputs\":[]}",
     "more than 16 nested arrays and objects"},
};

TEST_CASE(test_requests)
{
    for (size_t i = 0; i < ARRAY_COUNT(request_cases); i++)
        assert_string_equal(ask(request_cases[i].text), request_cases[i].wanted);
}

/* Every request that is taken, cut short at each of its bytes: an error, never a crash. */
TEST_CASE(test_cut)
{
    for (size_t i = 0; i < ARRAY_COUNT(request_cases); i++) {
        const char *text = request_cases[i].text;
        size_t whole = (size_t)(strrchr(text, '}') + 1 - text);
        for (size_t bytes = 0; request_cases[i].wanted[0] == '{' && bytes < whole; bytes++) {
            (void)json_rig_ask(rig, text, bytes, NULL, 0);
            assert_int_equal(rig->error.status, STATUS_INVALID_ARGUMENT);
        }
    }
}

/* ---- parameters ---- */

static struct oip_json *
read_only(const char *text)
{
    struct oip_json_ask one = {
        .model = "model",
        .version = "3",
        .body = text,
        .body_bytes = strlen(text),
        .json_bytes = strlen(text),
        .message_bytes_max = RIG_MESSAGE_BYTES,
    };
    struct oip_json *json = NULL;
    struct error error = ERROR_NONE;
    if (oip_json_read(&one, &json, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return json;
}

/* A number with a fraction stays one; what says how to answer is not the modelet's. */
TEST_CASE(test_parameters)
{
    struct oip_json *json = read_only("{\"parameters\":{\"a\":1.5,\"b\":\"c\",\"d\":true,\"e\":-7,"
                                      "\"binary_data_output\":false,\"priority\":1,"
                                      "\"timeout\":1500},\"inputs\":[]}");
    struct error error = ERROR_NONE;
    struct oip_request *request = oip_json_take_request(json);
    const Inference__ModelInferRequest *message = request->message;
    assert_string_equal(message->model_name, "model");
    assert_string_equal(message->model_version, "3");
    assert_int_equal(message->n_parameters, 6);
    assert_string_equal(message->parameters[0]->key, "a");
    assert_true(message->parameters[0]->value->double_param == 1.5);
    assert_string_equal(message->parameters[1]->value->string_param, "c");
    assert_true(message->parameters[2]->value->bool_param);
    assert_int_equal(message->parameters[3]->value->int64_param, -7);
    enum priority priority;
    int64_t timeout_ns;
    assert_int_equal(oip_head_judge(oip_request_head(request), &priority, &timeout_ns, &error),
                     STATUS_OK);
    assert_int_equal(priority, PRIORITY_HIGH);
    assert_int_equal(oip_json_timeout_ns(json), 1500 * NS_PER_US);
    oip_request_destroy(request);
    oip_json_destroy(json);
    json = read_only("{\"parameters\":{\"timeout\":0},\"inputs\":[]}");
    assert_true(oip_json_timeout_ns(json) == TIME_NEVER_NS);
    oip_json_destroy(json);
}

/* ---- binary data ---- */

#define BINARY(name, type, shape, size)                                                            \
    "{\"name\":\"" name "\",\"datatype\":\"" type "\",\"shape\":" shape                            \
    ",\"parameters\":{\"binary_data_size\":" size "}}"

static void
check_binary(const char *text, const void *data, size_t bytes, const char *wanted)
{
    assert_string_equal(json_rig_ask(rig, text, strlen(text), data, bytes), wanted);
}

TEST_CASE(test_binary)
{
    /* in, out, in the order of the inputs, beside JSON */
    check_binary("{\"inputs\":[" BINARY("x", "INT16", "[2]", "4") "]}", "\x01\x00\xff\xff", 4,
                 ANSWER("{\"name\":\"x\",\"datatype\":\"INT16\",\"shape\":[2],\"data\":[1,-1]}"));
    check_binary(
        "{\"inputs\":[" BINARY("x", "INT8", "[1]", "1") "," TWO
                                                        "," BINARY("z", "UINT8", "[2]", "2") "]}",
        "\x05\x06\x07", 3,
        ANSWER("{\"name\":\"x\",\"datatype\":\"INT8\",\"shape\":[1],\"data\":[5]}," TWO_BACK ","
               "{\"name\":\"z\",\"datatype\":\"UINT8\",\"shape\":[2],\"data\":[6,7]}"));
    check_binary("{\"parameters\":{\"binary_data_output\":true},\"inputs\":[" ONE "," TWO
                 "],\"outputs\":[{\"name\":\"y\"},{\"name\":\"x\",\"parameters\":"
                 "{\"binary_data\":false}}]}",
                 NULL, 0,
                 ANSWER("{\"name\":\"y\",\"datatype\":\"INT8\",\"shape\":[1],\"parameters\":"
                        "{\"binary_data_size\":1}}," ONE_BACK));
    assert_int_equal(rig->data.used, 1);
    assert_int_equal(rig->data.bytes[0], 8);
    /* what has no JSON form goes this way, both ways */
    check_binary("{\"inputs\":[" BINARY("x", "FP16", "[2]",
                                        "4") "],"
                                             "\"parameters\":{\"binary_data_output\":true}}",
                 "\x00\x3c\x01\x02", 4,
                 ANSWER("{\"name\":\"x\",\"datatype\":\"FP16\",\"shape\":[2],\"parameters\":"
                        "{\"binary_data_size\":4}}"));
    assert_memory_equal(rig->data.bytes, "\x00\x3c\x01\x02", 4);
    check_binary("{\"inputs\":[" BINARY("x", "INT8", "[0]",
                                        "0") "],"
                                             "\"parameters\":{\"binary_data_output\":true}}",
                 NULL, 0,
                 ANSWER("{\"name\":\"x\",\"datatype\":\"INT8\",\"shape\":[0],\"parameters\":"
                        "{\"binary_data_size\":0}}"));
    check_binary("{\"inputs\":[" BINARY("x", "BF16", "[1]", "2") "]}", "ab", 2,
                 "output \"x\": BF16 has no JSON form: ask for binary data (parameter "
                 "binary_data_output, or binary_data of the output)");
    check_binary("{\"inputs\":[" BINARY("x", "BYTES", "[2]", "10") "]}",
                 "\x01\x00\x00\x00\x61\x01\x00\x00\x00\xff", 10,
                 "output \"x\": element 1 is not UTF-8, which JSON requires: ask for binary "
                 "data (parameter binary_data_output, or binary_data of the output)");
}

TEST_CASE(test_binary_mistakes)
{
    check_binary("{\"inputs\":[" BINARY("x", "INT8", "[2]", "2") "]}", "a", 1,
                 X "\"binary_data_size\" is 2, but only 1 bytes are left after the JSON");
    check_binary("{\"inputs\":[" BINARY("x", "INT8", "[2]", "2") "]}", "abc", 3,
                 "1 bytes after the JSON belong to no input");
    check_binary("{\"inputs\":[" ONE "]}", "abc", 3, "3 bytes after the JSON belong to no input");
    check_binary("{\"inputs\":[" BINARY("x", "INT8", "[3]", "2") "]}", "ab", 2,
                 X "raw contents have 2 bytes, INT8 and the shape want 3");
    check_binary("{\"inputs\":[" BINARY("x", "INT8", "[2]", "-2") "]}", "ab", 2,
                 X "\"binary_data_size\" must be a number of bytes");
    check_binary("{\"inputs\":[" BINARY("x", "INT8", "[2]", "\"2\"") "]}", "ab", 2,
                 X "\"binary_data_size\" must be a number of bytes");
    check_binary("{\"inputs\":[" BINARY("x", "INT8", "[2]", "2},\"data\":[1,2],\"a\":{") "]}", "ab",
                 2, X "has both \"data\" and \"binary_data_size\"");
    check_binary("{\"inputs\":[" BINARY("x", "BYTES", "[1]", "4") "]}", "\x01\x00\x00\x00", 4,
                 X "element 0 has 1 bytes, its raw contents only 0 more");
}

/* Bytes that are no text, in JSON: as base64, if that is said. */
TEST_CASE(test_base64)
{
#define BASE64(text)                                                                               \
    "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"BYTES\",\"shape\":[1],\"parameters\":"            \
    "{\"content_type\":\"base64\"},\"data\":[\"" text "\"]}],\"outputs\":[{\"name\":\"x\","        \
    "\"parameters\":{\"content_type\":\"base64\"}}]}"
#define BASE64_BACK(text)                                                                          \
    ANSWER("{\"name\":\"x\",\"datatype\":\"BYTES\",\"shape\":[1],\"parameters\":"                  \
           "{\"content_type\":\"base64\"},\"data\":[\"" text "\"]}")
    assert_string_equal(ask(BASE64("")), BASE64_BACK(""));
    assert_string_equal(ask(BASE64("AP8=")), BASE64_BACK("AP8="));
    assert_string_equal(ask(BASE64("\\/+8AYQ==")), BASE64_BACK("/+8AYQ=="));
    assert_string_equal(ask(BASE64("+++/")), BASE64_BACK("+++/"));
    static const char *const wrong[] = {BASE64("A"),    BASE64("AAA"),  BASE64("A==="),
                                        BASE64("A=AA"), BASE64("AB=="), BASE64("AAB="),
                                        BASE64("AA-_"), BASE64("====")};
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++)
        assert_string_equal(ask(wrong[i]), X "element 0 is not base64");
}

/* ---- limits ---- */

static void
put_many(struct blob *text, const char *piece, size_t count)
{
    for (size_t i = 0; i < count; i++)
        blob_put(text, piece, strlen(piece));
}

static const char *
ask_blob(struct blob *text)
{
    const char *got = json_rig_ask(rig, (const char *)text->bytes, text->used, NULL, 0);
    blob_free(text);
    return got;
}

TEST_CASE(test_limits)
{
    struct blob text = {0};
    put_many(&text, "{\"inputs\":[", 1);
    for (size_t i = 0; i < SHOAL_TENSORS_MAX + 1; i++)
        put_many(&text, i == 0 ? "{\"data\":[]}" : ",{\"data\":[]}", 1);
    put_many(&text, "]}", 1);
    assert_string_equal(ask_blob(&text), "more than 64 inputs");

    put_many(&text, "{\"inputs\":[7", 1);
    put_many(&text, ",7", SHOAL_TENSORS_MAX);
    put_many(&text, "]}", 1);
    assert_string_equal(ask_blob(&text), "more than 64 inputs");

    put_many(&text, "{\"inputs\":[],\"outputs\":[7", 1);
    put_many(&text, ",7", SHOAL_TENSORS_MAX);
    put_many(&text, "]}", 1);
    assert_string_equal(ask_blob(&text), "more than 64 outputs");

    put_many(&text, "{\"inputs\":[],\"parameters\":{\"a\":1", 1);
    for (int i = 0; i < 32; i++) {
        char one[32];
        snprintf(one, sizeof(one), ",\"p%d\":%d", i, i);
        put_many(&text, one, 1);
    }
    put_many(&text, "}}", 1);
    assert_string_equal(ask_blob(&text),
                        "request is not a valid ModelInferRequest: more than 32 parameters");

    put_many(&text, "{\"inputs\":[],\"id\":\"", 1);
    put_many(&text, "0123456789abcdef", SKIM_BYTES_MAX / 16);
    put_many(&text, "\"}", 1);
    assert_string_equal(ask_blob(&text),
                        "names, shapes, id and parameters take more than 131072 bytes");

    put_many(&text, "{\"inputs\":[],\"id\":\"", 1);
    put_many(&text, "0123456789abcdef", 5000);
    put_many(&text, "\"}", 1);
    assert_string_equal(ask_blob(&text), "request is not a valid ModelInferRequest: names, shapes, "
                                         "id and parameters take more than 65536 bytes");

    /* blanks do not count */
    put_many(&text, "{", 1);
    put_many(&text, " \n\t\r          ", 20000);
    put_many(&text, "\"inputs\":[]}", 1);
    assert_string_equal(ask_blob(&text), ANSWER(""));

    put_many(&text,
             "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP64\",\"shape\":[131074],\"data\":"
             "[0",
             1);
    put_many(&text, ",0", 131072);
    put_many(&text, ",true]}]}", 1); /* seen before its elements are */
    assert_string_equal(ask_blob(&text), X "the inputs take more than 1048576 bytes (message_mib): "
                                           "1048592 with this one");
    assert_int_equal(rig->error.status, STATUS_OUT_OF_RANGE);

    put_many(&text, "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP64\",\"shape\":[1],\"data\":[",
             1);
    put_many(&text, "1234567890", 41);
    put_many(&text, "]}]}", 1);
    assert_string_equal(ask_blob(&text), X "element 0: a number of more than 400 characters");
}

/* The library's tree for the worst input that the skim lets through. */
TEST_CASE(test_memory)
{
    static const char *const worst[] = {"[],", "{},", "0,", "\"\",", "{\"\":0},"};
    for (size_t i = 0; i < ARRAY_COUNT(worst); i++) {
        struct blob text = {0};
        put_many(&text, "{\"a\":[", 1);
        put_many(&text, worst[i], (SKIM_BYTES_MAX - 64) / strlen(worst[i]));
        put_many(&text, "0]}", 1);
        assert_string_equal(ask_blob(&text), "\"inputs\" is missing, or not an array");
    }
    /* brackets without end cost no stack: elements that nest deeper than a shape can */
    struct blob text = {0};
    put_many(&text,
             "{\"inputs\":[{\"name\":\"x\",\"datatype\":\"INT8\",\"shape\":[1,1],\"data\":", 1);
    put_many(&text, "[", 400000);
    put_many(&text, "]", 400000);
    put_many(&text, "}]}", 1);
    assert_string_equal(ask_blob(&text), X "data is nested deeper than the shape's 2 dimensions");
}

TEST_CASE(test_error_body)
{
    struct bytes out = {0};
    oip_json_put_error(&out, "a \"b\"\n \xc3\xa4 \xff\xc3");
    bytes_put_char(&out, '\0');
    assert_string_equal(out.data, "{\"error\":\"a \\\"b\\\"\\n \xc3\xa4 ??\"}");
    bytes_fini(&out);
}

static int
set_up(void **state)
{
    (void)state;
    rig = json_rig_create();
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    json_rig_destroy(rig);
    return 0;
}

TEST_MAIN(.group_setup = set_up, .group_teardown = tear_down)
