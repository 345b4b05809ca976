# SPDX-License-Identifier: Apache-2.0
#
# Tests by kind. `shoal_tests(KIND TIMEOUT s)` turns each file of the current folder into one ctest
# entry KIND.<name> with the label KIND:
#   test_<name>.c          an executable on cmocka
#   test_<name>.py, .sh    a script, run with the environment below
# Other *.c files of the folder are support code, linked into every test_*.c there.
#
# A test links the modules whose headers it includes ("shm/ring.h" links shoal_shm, <grpc/grpc.h>
# gRPC), so a module that does not compile breaks its own tests alone. What a test needs beyond that it says itself, in
# one line of its opening comment:
#   ctest: timeout=300 serial tsan release libs=xgboost
# timeout in seconds; serial: alone on the machine, because it judges speed or fills it; beside: not alone, though
# others of its kind are, because it mostly waits; tsan: based on threads, run in the tsan preset too;
# release: in the release preset too, because it is about speed or races that the sanitizers' slowness
# may hide; libs: more to link.
#
# Environment of every test: SHOAL_SOURCE_DIR, SHOAL_BUILD_DIR, SHOAL_PYTHON (to start scripts). A test that draws random numbers
# takes its seed from SHOAL_SEED if that is set, and prints SHOAL_SEED=<seed>.
#
# `./dev test` runs tests of several presets in one ctest. So names carry the preset (KIND.name@tsan,
# dev's are plain). What it runs of a preset has the label `suite`, and the target of that name builds it.

# The labels that `./dev test` runs of each preset.
set(SHOAL_SUITE_dev ".")
set(SHOAL_SUITE_tsan "^tsan$")
set(SHOAL_SUITE_release "^(release|modelets|sim)$")
add_custom_target(suite)

set(SHOAL_MODULES base shm client proto rpc worker coordinator ctl)
set(SHOAL_TARGET_worker shoal_worker_lib)
foreach(module base shm client proto rpc coordinator ctl)
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

# shoal_modules_of(out file...): targets of the modules that the files include, or that headers
# beside them do which they include.
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
            elseif(include MATCHES "\"([a-z]+)/" AND CMAKE_MATCH_1 IN_LIST SHOAL_MODULES)
                list(APPEND targets ${SHOAL_TARGET_${CMAKE_MATCH_1}})
            elseif(include MATCHES "<(grpc|xgboost)/")
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

# Reads the `ctest:` line of a file into <prefix>_TIMEOUT, _SERIAL, _BESIDE, _TSAN, _RELEASE and
# _LIBS.
macro(shoal_test_line prefix file default_timeout)
    file(STRINGS ${file} line REGEX "ctest: " LIMIT_COUNT 1)
    set(${prefix}_TIMEOUT ${default_timeout})
    set(${prefix}_LIBS "")
    set(${prefix}_SERIAL OFF)
    set(${prefix}_BESIDE OFF)
    set(${prefix}_TSAN OFF)
    set(${prefix}_RELEASE OFF)
    if(line MATCHES "timeout=([0-9]+)")
        set(${prefix}_TIMEOUT ${CMAKE_MATCH_1})
    endif()
    if(line MATCHES "libs=([a-z_,]+)")
        string(REPLACE "," ";" ${prefix}_LIBS ${CMAKE_MATCH_1})
    endif()
    if(line MATCHES " serial")
        set(${prefix}_SERIAL ON)
    endif()
    if(line MATCHES " beside")
        set(${prefix}_BESIDE ON)
    endif()
    if(line MATCHES " tsan")
        set(${prefix}_TSAN ON)
    endif()
    if(line MATCHES " release")
        set(${prefix}_RELEASE ON)
    endif()
endmacro()

function(shoal_test_name out kind name)
    set(test ${kind}.${name})
    if(SHOAL_VARIANT AND NOT SHOAL_VARIANT STREQUAL dev)
        string(APPEND test @${SHOAL_VARIANT})
    endif()
    set(${out} ${test} PARENT_SCOPE)
endfunction()

# shoal_test(name LABEL kind TIMEOUT s [TSAN] [RELEASE] [SERIAL] SOURCES file... [LIBS lib...])
# shoal_test(name LABEL kind TIMEOUT s [TSAN] [RELEASE] [SERIAL] COMMAND word...)
function(shoal_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "TSAN;RELEASE;SERIAL" "LABEL;TIMEOUT" "SOURCES;LIBS;COMMAND")
    shoal_test_name(test ${arg_LABEL} ${name})
    if(arg_SOURCES)
        shoal_modules_of(modules ${arg_SOURCES})
        set(target test_${arg_LABEL}_${name})
        add_executable(${target} ${arg_SOURCES})
        target_link_libraries(${target} PRIVATE
            shoal_flags ${arg_LIBS} ${modules} cmocka ${CMAKE_DL_LIBS} m)
        # With sanitizers, optimising takes six times as long to compile: worth it for what loops.
        if(SHOAL_SANITIZE AND NOT arg_LABEL MATCHES "^(sim|stress|fuzz)$")
            target_compile_options(${target} PRIVATE -O0)
        endif()
        set_target_properties(${target} PROPERTIES
            RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/${arg_LABEL} OUTPUT_NAME ${name})
        set(arg_COMMAND $<TARGET_FILE:${target}>)
    endif()
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 60)
    endif()
    add_test(NAME ${test} COMMAND ${SHOAL_TEST_LAUNCHER} ${arg_COMMAND}
        WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
    set(labels ${arg_LABEL})
    if(arg_TSAN)
        list(APPEND labels tsan)
    endif()
    if(arg_RELEASE)
        list(APPEND labels release)
    endif()
    if(SHOAL_SUITE_${SHOAL_VARIANT})
        set(own ${labels})
        list(FILTER own INCLUDE REGEX ${SHOAL_SUITE_${SHOAL_VARIANT}})
        if(own)
            list(APPEND labels suite)
            if(TARGET test_${arg_LABEL}_${name})
                add_dependencies(suite test_${arg_LABEL}_${name})
            endif()
        endif()
    endif()
    set_tests_properties(${test} PROPERTIES
        LABELS "${labels}" TIMEOUT ${arg_TIMEOUT} RUN_SERIAL ${arg_SERIAL}
        ENVIRONMENT "${SHOAL_TEST_ENVIRONMENT}")
endfunction()

# shoal_tests(KIND TIMEOUT s [SERIAL] [ORDERED]): see the top of this file. ORDERED: one after the
# other in the order of their names, so that the first failure is the most basic one.
function(shoal_tests kind)
    cmake_parse_arguments(PARSE_ARGV 1 kind "SERIAL;ORDERED" "TIMEOUT" "")
    file(GLOB support CONFIGURE_DEPENDS *.c)
    list(FILTER support EXCLUDE REGEX "/(test|fuzz|bench|modelet)_[^/]*\\.c$")
    file(GLOB files CONFIGURE_DEPENDS test_*.c test_*.py test_*.sh)
    list(SORT files)
    set(previous "")
    foreach(file IN LISTS files)
        cmake_path(GET file STEM name)
        string(REGEX REPLACE "^test_" "" name ${name})
        shoal_test_line(line ${file} ${kind_TIMEOUT})
        set(options LABEL ${kind} TIMEOUT ${line_TIMEOUT})
        if(line_TSAN)
            list(APPEND options TSAN)
        endif()
        if(line_RELEASE)
            list(APPEND options RELEASE)
        endif()
        if(line_SERIAL OR (kind_SERIAL AND NOT line_BESIDE))
            list(APPEND options SERIAL)
        endif()
        if(file MATCHES "\\.c$")
            shoal_test(${name} ${options} SOURCES ${file} ${support} LIBS ${line_LIBS})
        elseif(file MATCHES "\\.py$")
            shoal_test(${name} ${options} COMMAND ${PYTHON3} ${file})
        else()
            shoal_test(${name} ${options} COMMAND bash ${file})
        endif()
        shoal_test_name(test ${kind} ${name})
        if(kind_ORDERED AND NOT line_BESIDE)
            if(previous)
                set_tests_properties(${test} PROPERTIES DEPENDS ${previous})
            endif()
            set(previous ${test})
        endif()
    endforeach()
endfunction()
