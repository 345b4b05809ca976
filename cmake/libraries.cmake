# SPDX-License-Identifier: Apache-2.0
#
# Third-party libraries, one imported target each, all from Debian packages. Each is linked by the
# one module that may include it (tests/tidy checks the includes). The names of the packages stand
# in `dev`.

function(shoal_find_library target header)
    set(found "")
    foreach(library IN LISTS ARGN)
        find_library(SHOAL_LIB_${library} ${library} REQUIRED)
        list(APPEND found ${SHOAL_LIB_${library}})
    endforeach()
    find_path(SHOAL_INC_${target} ${header} REQUIRED)
    add_library(${target} INTERFACE IMPORTED)
    target_link_libraries(${target} INTERFACE ${found})
    if(NOT SHOAL_INC_${target} STREQUAL /usr/include)
        target_include_directories(${target} SYSTEM INTERFACE ${SHOAL_INC_${target}})
    endif()
endfunction()

# pkg-config's answer for gRPC names some eighty libraries; the C core needs these two.
shoal_find_library(grpc grpc/grpc.h grpc gpr)
shoal_find_library(event event2/event.h event_core event_pthreads)
shoal_find_library(nghttp2 nghttp2/nghttp2.h nghttp2)
shoal_find_library(yaml yaml.h yaml)
shoal_find_library(jansson jansson.h jansson)
shoal_find_library(protobuf_c protobuf-c/protobuf-c.h protobuf-c)
shoal_find_library(xgboost xgboost/c_api.h xgboost)
shoal_find_library(openblas cblas.h openblas)
shoal_find_library(archive archive.h archive)
shoal_find_library(curl curl/curl.h curl)
shoal_find_library(expat expat.h expat)
shoal_find_library(seccomp seccomp.h seccomp)
shoal_find_library(crypto openssl/evp.h crypto)
shoal_find_library(zlib zlib.h z)
shoal_find_library(xxhash xxhash.h xxhash)
shoal_find_library(openssl event2/bufferevent_ssl.h event_openssl ssl crypto)
shoal_find_library(cmocka cmocka.h cmocka)
if(SHOAL_JEMALLOC AND NOT SHOAL_SANITIZE)
    shoal_find_library(jemalloc jemalloc/jemalloc.h jemalloc)
else()
    add_library(jemalloc INTERFACE IMPORTED)
endif()

find_program(PROTOC protoc REQUIRED)
find_program(PROTOC_GEN_C protoc-gen-c REQUIRED)

# The Python of Debian's packages, even if another is first in the path.
find_program(PYTHON3 python3 PATHS /usr/bin NO_DEFAULT_PATH)
find_program(PYTHON3 python3 REQUIRED)

# The library of Debian's Python, for modelets in Python; without it they are left out.
execute_process(COMMAND ${PYTHON3} -c "import sysconfig as s; print(s.get_path('include'), 'python' + s.get_config_var('LDVERSION'), sep=';')"
    OUTPUT_VARIABLE python OUTPUT_STRIP_TRAILING_WHITESPACE)
list(GET python 0 include)
list(GET python 1 name)
find_library(SHOAL_LIB_python ${name})
if(SHOAL_LIB_python AND EXISTS ${include}/Python.h)
    add_library(python INTERFACE IMPORTED)
    target_link_libraries(python INTERFACE ${SHOAL_LIB_python})
    target_include_directories(python SYSTEM INTERFACE ${include})
endif()
