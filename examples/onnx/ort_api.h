/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of ONNX Runtime's C interface that is used here, as its binary form is: Debian 12 has no
 * header of it, and the library may be newer than any. The interface only grows. A library gives
 * out a table of pointers for any version up to its own, and a function keeps its place in it. The
 * names are the interface's own.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The version with the newest function below. ONNX Runtime 1.N has version N. */
enum { ORT_API_VERSION = 15 };

typedef struct OrtEnv OrtEnv;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtRunOptions OrtRunOptions;
typedef struct OrtSession OrtSession;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtStatus OrtStatus;
typedef struct OrtTensorTypeAndShapeInfo OrtTensorTypeAndShapeInfo;
typedef struct OrtThreadingOptions OrtThreadingOptions;
typedef struct OrtTypeInfo OrtTypeInfo;
typedef struct OrtValue OrtValue;

typedef enum {
    ORT_INVALID_ARGUMENT = 2,
    ORT_NO_SUCHFILE = 3,
    ORT_NO_MODEL = 4,
    ORT_INVALID_PROTOBUF = 7,
    ORT_NOT_IMPLEMENTED = 9,
    ORT_INVALID_GRAPH = 10,
} OrtErrorCode;

typedef enum {
    ORT_LOGGING_LEVEL_WARNING = 2,
    ORT_LOGGING_LEVEL_ERROR = 3,
    ORT_LOGGING_LEVEL_FATAL = 4,
} OrtLoggingLevel;

typedef enum {
    ORT_DISABLE_ALL = 0,
    ORT_ENABLE_BASIC = 1,
    ORT_ENABLE_EXTENDED = 2,
    ORT_ENABLE_ALL = 99,
} GraphOptimizationLevel;

typedef enum { ORT_SEQUENTIAL = 0, ORT_PARALLEL = 1 } ExecutionMode;
typedef enum { OrtDeviceAllocator = 0 } OrtAllocatorType;
typedef enum { OrtMemTypeDefault = 0 } OrtMemType;
typedef enum ONNXType { ONNX_TYPE_UNKNOWN = 0, ONNX_TYPE_TENSOR = 1 } ONNXType;

typedef enum ONNXTensorElementDataType {
    ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED = 0,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT = 1,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8 = 2,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8 = 3,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16 = 4,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16 = 5,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32 = 6,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64 = 7,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING = 8,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL = 9,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16 = 10,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE = 11,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32 = 12,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64 = 13,
    ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16 = 16,
} ONNXTensorElementDataType;

typedef struct OrtAllocator {
    uint32_t version;
    void *(*Alloc)(struct OrtAllocator *, size_t);
    void (*Free)(struct OrtAllocator *, void *);
} OrtAllocator;

typedef void (*OrtLoggingFunction)(void *parameter, OrtLoggingLevel severity, const char *category,
                                   const char *id, const char *place, const char *message);

/* A function at its place in the table of pointers. */
#define FUNCTION(place, result, name, ...)                                                         \
    struct {                                                                                       \
        void *before_##name[place];                                                                \
        result (*name)(__VA_ARGS__);                                                               \
    }

/* Those that can fail return a status, to be released; NULL: success. */
typedef union OrtApi {
    FUNCTION(1, OrtErrorCode, GetErrorCode, const OrtStatus *);
    FUNCTION(2, const char *, GetErrorMessage, const OrtStatus *);
    FUNCTION(6, OrtStatus *, DisableTelemetryEvents, const OrtEnv *);
    FUNCTION(8, OrtStatus *, CreateSessionFromArray, const OrtEnv *, const void *, size_t,
             const OrtSessionOptions *, OrtSession **);
    FUNCTION(9, OrtStatus *, Run, OrtSession *, const OrtRunOptions *, const char *const *,
             const OrtValue *const *, size_t, const char *const *, size_t, OrtValue **);
    FUNCTION(10, OrtStatus *, CreateSessionOptions, OrtSessionOptions **);
    FUNCTION(13, OrtStatus *, SetSessionExecutionMode, OrtSessionOptions *, ExecutionMode);
    FUNCTION(17, OrtStatus *, DisableMemPattern, OrtSessionOptions *);
    FUNCTION(19, OrtStatus *, DisableCpuMemArena, OrtSessionOptions *);
    FUNCTION(22, OrtStatus *, SetSessionLogSeverityLevel, OrtSessionOptions *, int);
    FUNCTION(23, OrtStatus *, SetSessionGraphOptimizationLevel, OrtSessionOptions *,
             GraphOptimizationLevel);
    FUNCTION(30, OrtStatus *, SessionGetInputCount, const OrtSession *, size_t *);
    FUNCTION(31, OrtStatus *, SessionGetOutputCount, const OrtSession *, size_t *);
    FUNCTION(33, OrtStatus *, SessionGetInputTypeInfo, const OrtSession *, size_t, OrtTypeInfo **);
    FUNCTION(34, OrtStatus *, SessionGetOutputTypeInfo, const OrtSession *, size_t, OrtTypeInfo **);
    FUNCTION(36, OrtStatus *, SessionGetInputName, const OrtSession *, size_t, OrtAllocator *,
             char **);
    FUNCTION(37, OrtStatus *, SessionGetOutputName, const OrtSession *, size_t, OrtAllocator *,
             char **);
    FUNCTION(39, OrtStatus *, CreateRunOptions, OrtRunOptions **);
    FUNCTION(41, OrtStatus *, RunOptionsSetRunLogSeverityLevel, OrtRunOptions *, int);
    FUNCTION(48, OrtStatus *, CreateTensorAsOrtValue, OrtAllocator *, const int64_t *, size_t,
             ONNXTensorElementDataType, OrtValue **);
    FUNCTION(49, OrtStatus *, CreateTensorWithDataAsOrtValue, const OrtMemoryInfo *, void *, size_t,
             const int64_t *, size_t, ONNXTensorElementDataType, OrtValue **);
    FUNCTION(51, OrtStatus *, GetTensorMutableData, OrtValue *, void **);
    FUNCTION(53, OrtStatus *, GetStringTensorDataLength, const OrtValue *, size_t *);
    FUNCTION(54, OrtStatus *, GetStringTensorContent, const OrtValue *, void *, size_t, size_t *,
             size_t);
    FUNCTION(55, OrtStatus *, CastTypeInfoToTensorInfo, const OrtTypeInfo *,
             const OrtTensorTypeAndShapeInfo **);
    FUNCTION(56, OrtStatus *, GetOnnxTypeFromTypeInfo, const OrtTypeInfo *, ONNXType *);
    FUNCTION(60, OrtStatus *, GetTensorElementType, const OrtTensorTypeAndShapeInfo *,
             ONNXTensorElementDataType *);
    FUNCTION(61, OrtStatus *, GetDimensionsCount, const OrtTensorTypeAndShapeInfo *, size_t *);
    FUNCTION(62, OrtStatus *, GetDimensions, const OrtTensorTypeAndShapeInfo *, int64_t *, size_t);
    FUNCTION(63, OrtStatus *, GetSymbolicDimensions, const OrtTensorTypeAndShapeInfo *,
             const char **, size_t);
    FUNCTION(65, OrtStatus *, GetTensorTypeAndShape, const OrtValue *,
             OrtTensorTypeAndShapeInfo **);
    FUNCTION(69, OrtStatus *, CreateCpuMemoryInfo, OrtAllocatorType, OrtMemType, OrtMemoryInfo **);
    FUNCTION(78, OrtStatus *, GetAllocatorWithDefaultOptions, OrtAllocator **);
    FUNCTION(93, void, ReleaseStatus, OrtStatus *);
    FUNCTION(94, void, ReleaseMemoryInfo, OrtMemoryInfo *);
    FUNCTION(95, void, ReleaseSession, OrtSession *);
    FUNCTION(96, void, ReleaseValue, OrtValue *);
    FUNCTION(97, void, ReleaseRunOptions, OrtRunOptions *);
    FUNCTION(98, void, ReleaseTypeInfo, OrtTypeInfo *);
    FUNCTION(99, void, ReleaseTensorTypeAndShapeInfo, OrtTensorTypeAndShapeInfo *);
    FUNCTION(100, void, ReleaseSessionOptions, OrtSessionOptions *);
    FUNCTION(120, OrtStatus *, DisablePerSessionThreads, OrtSessionOptions *);
    FUNCTION(121, OrtStatus *, CreateThreadingOptions, OrtThreadingOptions **);
    FUNCTION(122, void, ReleaseThreadingOptions, OrtThreadingOptions *);
    FUNCTION(130, OrtStatus *, AddSessionConfigEntry, OrtSessionOptions *, const char *,
             const char *);
    FUNCTION(147, OrtStatus *, SetGlobalIntraOpNumThreads, OrtThreadingOptions *, int);
    FUNCTION(148, OrtStatus *, SetGlobalInterOpNumThreads, OrtThreadingOptions *, int);
    FUNCTION(149, OrtStatus *, SetGlobalSpinControl, OrtThreadingOptions *, int);
    FUNCTION(150, OrtStatus *, AddInitializer, OrtSessionOptions *, const char *, const OrtValue *);
    FUNCTION(151, OrtStatus *, CreateEnvWithCustomLoggerAndGlobalThreadPools, OrtLoggingFunction,
             void *, OrtLoggingLevel, const char *, const OrtThreadingOptions *, OrtEnv **);
    FUNCTION(252, OrtStatus *, GetResizedStringTensorElementBuffer, OrtValue *, size_t, size_t,
             char **);
} OrtApi;

#undef FUNCTION

typedef struct OrtApiBase {
    const OrtApi *(*GetApi)(uint32_t version); /* NULL: the library is older */
    const char *(*GetVersionString)(void);
} OrtApiBase;
