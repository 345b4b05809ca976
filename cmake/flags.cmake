# SPDX-License-Identifier: Apache-2.0
#
# Compiler and linker flags. `shoal_flags` carries what every one of our own sources is compiled
# with; generated code does not link it and so stays free of our warnings.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# A second clone, preset or branch compiles only what differs; `dev` lets clones share results.
find_program(SHOAL_CCACHE ccache)
if(SHOAL_CCACHE)
    set(CMAKE_C_COMPILER_LAUNCHER ${SHOAL_CCACHE})
endif()
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)

if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()
set(CMAKE_C_FLAGS_DEBUG "-O1 -g -fno-omit-frame-pointer")
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g -fno-omit-frame-pointer")

find_package(Threads REQUIRED)

add_library(shoal_flags INTERFACE)
target_compile_definitions(shoal_flags INTERFACE _GNU_SOURCE)
target_include_directories(shoal_flags INTERFACE
    ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
target_link_libraries(shoal_flags INTERFACE Threads::Threads)
target_compile_options(shoal_flags INTERFACE
    -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition
    -Wvla -Wformat=2 -Wundef -Wwrite-strings -Wpointer-arith -Wimplicit-fallthrough
    # clang does not see that protobuf-c's X__INIT macros come from a system header.
    $<$<C_COMPILER_ID:GNU>:-Wcast-qual>
    $<$<BOOL:${SHOAL_WERROR}>:-Werror>)

if(SHOAL_SANITIZE)
    add_compile_options(-fsanitize=${SHOAL_SANITIZE})
    add_link_options(-fsanitize=${SHOAL_SANITIZE})
    if(SHOAL_SANITIZE MATCHES undefined)
        add_compile_options(-fno-sanitize-recover=undefined)
    endif()
    # Half of the time of building: reports need lines, not variables, but dev is also what one debugs;
    # and gold links some three hundred programs in a third of the time.
    if(SHOAL_SANITIZE MATCHES thread)
        add_compile_options(-g1)
    endif()
    find_program(SHOAL_GOLD ld.gold)
    if(SHOAL_GOLD AND CMAKE_C_COMPILER_ID STREQUAL GNU)
        add_link_options(-fuse-ld=gold)
    endif()
elseif(CMAKE_BUILD_TYPE STREQUAL RelWithDebInfo)
    add_compile_options(-fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
    add_link_options(-Wl,-z,relro,-z,now)
endif()

if(SHOAL_COVERAGE)
    add_compile_options(--coverage)
    add_link_options(--coverage)
endif()

if(SHOAL_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID STREQUAL Clang)
        message(FATAL_ERROR "SHOAL_FUZZ needs clang: use the fuzz preset")
    endif()
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()
