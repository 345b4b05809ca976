# SPDX-License-Identifier: Apache-2.0
#
# Tests by kind. `shoal_tests(KIND TIMEOUT s PRESETS p)` turns each file of the current folder into
# one ctest entry KIND.<name> with the label KIND:
#   test_<name>.c          an executable on cmocka
#   test_<name>.py, .sh    a script, run with the environment below
# Other *.c files of the folder are support code: a library that every test_*.c there links.
#
# A test links the modules whose headers it includes ("shm/ring.h" links shoal_shm, <grpc/grpc.h>
# gRPC), so a module that does not compile breaks its own tests alone. One line of the test's opening
# comment, read up to the first `because`, changes the defaults of its kind:
#
#   ctest: timeout=300 presets=dev,tsan libs=xgboost because its threads share the table
#
#   timeout=s     time limit in seconds; a failed test ends long before it
#   presets=a,b   the presets in which `./dev test` runs it; two need a reason
#   libs=a,b      more to link
#   serial        alone on the machine: it measures speed or saturates the machine; needs a reason
#   soak          only `./dev soak` runs it; needs a reason
#
# Every test exists in every preset, also in those that its line does not name: `./dev test PRESET`
# and `./dev soak` run it there. Tests run beside one another, so each has its own folder, sockets, ports and etcd.
#
# Environment of every test: SHOAL_SOURCE_DIR, SHOAL_BUILD_DIR, SHOAL_PYTHON (to start scripts). A
# test that draws random numbers takes its seed from SHOAL_SEED if that is set, and prints
# SHOAL_SEED=<seed>.
#
# `./dev test` runs tests of several presets in one ctest, so names carry the preset (KIND.name@tsan;
# dev's are plain). Its share of a preset has the label `suite`; the target `suite` builds it. tsan
# marks the tests that are worth running with ThreadSanitizer at all: they are about threads.

add_custom_target(suite)

set(SHOAL_MODULES base wire loop shm ipc client proto rpc http worker coordinator ctl)
set(SHOAL_TARGET_worker shoal_worker_lib)
foreach(module base wire loop shm ipc client proto rpc http coordinator ctl)
    set(SHOAL_TARGET_${module} shoal_${module})
endforeach()

set(suppressions ${CMAKE_SOURCE_DIR}/cmake/sanitizers)
set(SHOAL_TEST_ENVIRONMENT
    SHOAL_SOURCE_DIR=${CMAKE_SOURCE_DIR}
    SHOAL_BUILD_DIR=${CMAKE_BINARY_DIR}
    SHOAL_PYTHON=${PYTHON3}
    PYTHONDONTWRITEBYTECODE=1
    ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:strict_string_checks=1:detect_stack_use_after_return=1
    LSAN_OPTIONS=suppressions=${suppressions}/lsan.supp:print_suppressions=0
    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
    TSAN_OPTIONS=halt_on_error=1:ignore_noninstrumented_modules=1:second_deadlock_stack=1:suppressions=${suppressions}/tsan.supp)

# Sanitizers of Debian 12 cannot place their shadow under the widest address randomisation that
# newer kernels use; setarch -R switches it off for the test and its children.
set(SHOAL_TEST_LAUNCHER "")
if(SHOAL_SANITIZE)
    execute_process(COMMAND setarch -R true RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if(NOT failed)
        set(SHOAL_TEST_LAUNCHER setarch -R)
    endif()
endif()

# shoal_modules_of(out file...): targets of the modules that the files include, directly or through
# headers beside them.
function(shoal_modules_of out)
    set(targets "")
    set(seen "")
    set(files ${ARGN})
    while(files)
        list(POP_FRONT files file)
        if(file IN_LIST seen)
            continue()
        endif()
        list(APPEND seen ${file})
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
        file(STRINGS ${file} includes REGEX "^#include [<\"]")
        foreach(include IN LISTS includes)
            if(include MATCHES "\"(.*\\.pb-c|descriptors)\\.h\"")
                list(APPEND targets shoal_proto)
            elseif(include MATCHES "\"mesh/([a-z]+)/")
                list(APPEND targets shoal_mesh_${CMAKE_MATCH_1})
            elseif(include MATCHES "\"serving/([a-z]+)/")
                list(APPEND targets shoal_serving_${CMAKE_MATCH_1})
            elseif(include MATCHES "\"gateway/([a-z]+)/")
                list(APPEND targets shoal_gateway_${CMAKE_MATCH_1})
            elseif(include MATCHES "\"([a-z]+)/" AND CMAKE_MATCH_1 IN_LIST SHOAL_MODULES)
                list(APPEND targets ${SHOAL_TARGET_${CMAKE_MATCH_1}})
            elseif(include MATCHES "<(grpc|nghttp2|xgboost)/")
                list(APPEND targets ${CMAKE_MATCH_1})
            elseif(include MATCHES "\"([^/]+\\.h)\"")
                cmake_path(REPLACE_FILENAME file ${CMAKE_MATCH_1} OUTPUT_VARIABLE header)
                if(EXISTS ${header})
                    list(APPEND files ${header})
                endif()
            endif()
        endforeach()
    endwhile()
    list(REMOVE_DUPLICATES targets)
    set(${out} ${targets} PARENT_SCOPE)
endfunction()

# With sanitizers, optimising takes six times as long to compile: worth it for what loops. Of a test's
# own code a debugger knows lines, not variables: it compiles a third faster.
function(shoal_test_flags target kind)
    target_compile_options(${target} PRIVATE -g1)
    if(SHOAL_SANITIZE AND NOT kind MATCHES "^(sim|stress|fuzz)$")
        target_compile_options(${target} PRIVATE -O0)
    endif()
endfunction()

# shoal_support(name KIND kind file...): a library of code that several tests share, compiled once.
function(shoal_support name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "KIND" "")
    shoal_modules_of(modules ${arg_UNPARSED_ARGUMENTS})
    add_library(${name} STATIC ${arg_UNPARSED_ARGUMENTS})
    target_link_libraries(${name} PUBLIC shoal_flags ${modules} cmocka m)
    shoal_test_flags(${name} ${arg_KIND})
endfunction()

# Reads the `ctest:` line of a file into <prefix>_TIMEOUT, _PRESETS, _LIBS, _SERIAL and _SOAK.
function(shoal_test_line prefix file timeout presets)
    file(STRINGS ${file} line REGEX "ctest: " LIMIT_COUNT 1)
    set(reason OFF)
    if(line MATCHES " because [a-z0-9]+")
        set(reason ON)
        string(REGEX REPLACE " because .*" "" line "${line}")
    endif()
    set(libs "")
    set(serial OFF)
    set(soak OFF)
    string(REGEX MATCH "ctest: .*" line "${line}")
    string(REGEX MATCHALL "[^ ]+" words "${line}")
    foreach(word IN LISTS words)
        if(word MATCHES "^timeout=([0-9]+)$")
            set(timeout ${CMAKE_MATCH_1})
        elseif(word MATCHES "^presets=([a-z,]+)$")
            string(REPLACE "," ";" presets ${CMAKE_MATCH_1})
        elseif(word MATCHES "^libs=([a-z_,]+)$")
            string(REPLACE "," ";" libs ${CMAKE_MATCH_1})
        elseif(word MATCHES "^serial$")
            set(serial ON)
        elseif(word MATCHES "^soak$")
            set(soak ON)
        elseif(NOT word MATCHES "^(ctest:|\\*/|\"\"\")$")
            message(FATAL_ERROR "${file}: unknown word on its ctest line: ${word}")
        endif()
    endforeach()
    list(LENGTH presets count)
    if((count GREATER 1 OR serial OR soak) AND NOT reason)
        message(FATAL_ERROR "${file}: two presets, serial and soak need `because REASON`")
    endif()
    foreach(name timeout presets libs serial soak)
        string(TOUPPER ${name} upper)
        set(${prefix}_${upper} "${${name}}" PARENT_SCOPE)
    endforeach()
endfunction()

function(shoal_test_name out kind name)
    set(test ${kind}.${name})
    if(SHOAL_VARIANT AND NOT SHOAL_VARIANT STREQUAL dev)
        string(APPEND test @${SHOAL_VARIANT})
    endif()
    set(${out} ${test} PARENT_SCOPE)
endfunction()

# shoal_test(name LABEL kind TIMEOUT s PRESETS p... [SERIAL on] [SOAK on] SOURCES file... [LIBS lib...])
# shoal_test(name LABEL kind TIMEOUT s PRESETS p... [SERIAL on] [SOAK on] COMMAND word...)
function(shoal_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABEL;TIMEOUT;SERIAL;SOAK" "PRESETS;SOURCES;LIBS;COMMAND")
    if(NOT arg_SERIAL)
        set(arg_SERIAL OFF)
    endif()
    shoal_test_name(test ${arg_LABEL} ${name})
    if(arg_SOURCES)
        shoal_modules_of(modules ${arg_SOURCES})
        set(target test_${arg_LABEL}_${name})
        add_executable(${target} ${arg_SOURCES})
        target_link_libraries(${target} PRIVATE
            shoal_flags ${arg_LIBS} ${modules} cmocka ${CMAKE_DL_LIBS} m)
        shoal_test_flags(${target} ${arg_LABEL})
        set_target_properties(${target} PROPERTIES
            RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/${arg_LABEL} OUTPUT_NAME ${name})
        set(arg_COMMAND $<TARGET_FILE:${target}>)
    endif()
    add_test(NAME ${test} COMMAND ${SHOAL_TEST_LAUNCHER} ${arg_COMMAND}
        WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
    set(labels ${arg_LABEL})
    if(tsan IN_LIST arg_PRESETS)
        list(APPEND labels tsan)
    endif()
    if(arg_SOAK)
        list(APPEND labels soak)
    elseif(SHOAL_VARIANT IN_LIST arg_PRESETS)
        list(APPEND labels suite)
        if(arg_SOURCES)
            add_dependencies(suite ${target})
        endif()
    endif()
    # ctest starts the costliest first: without it a long test that starts last is waited for alone
    set_tests_properties(${test} PROPERTIES
        LABELS "${labels}" TIMEOUT ${arg_TIMEOUT} COST ${arg_TIMEOUT}
        RUN_SERIAL ${arg_SERIAL} ENVIRONMENT "${SHOAL_TEST_ENVIRONMENT}")
endfunction()

# shoal_tests(KIND TIMEOUT s PRESETS p... [LIBS lib...]): see the top of this file. LIBS: support
# libraries of other folders.
function(shoal_tests kind)
    cmake_parse_arguments(PARSE_ARGV 1 kind "" "TIMEOUT" "PRESETS;LIBS")
    file(GLOB support CONFIGURE_DEPENDS *.c)
    list(FILTER support EXCLUDE REGEX "/(test|fuzz|bench|modelet)_[^/]*\\.c$")
    file(GLOB files CONFIGURE_DEPENDS test_*.c test_*.py test_*.sh)
    if(support AND files MATCHES "\\.c(;|$)")
        shoal_support(test_${kind}_support KIND ${kind} ${support})
        list(PREPEND kind_LIBS test_${kind}_support)
    endif()
    foreach(file IN LISTS files)
        cmake_path(GET file STEM name)
        string(REGEX REPLACE "^test_" "" name ${name})
        shoal_test_line(line ${file} ${kind_TIMEOUT} "${kind_PRESETS}")
        set(options LABEL ${kind} TIMEOUT ${line_TIMEOUT} PRESETS ${line_PRESETS}
            SERIAL ${line_SERIAL} SOAK ${line_SOAK})
        if(file MATCHES "\\.c$")
            shoal_test(${name} ${options} SOURCES ${file} LIBS ${line_LIBS} ${kind_LIBS})
        elseif(file MATCHES "\\.py$")
            shoal_test(${name} ${options} COMMAND ${PYTHON3} ${file})
        else()
            shoal_test(${name} ${options} COMMAND bash ${file})
        endif()
    endforeach()
endfunction()
