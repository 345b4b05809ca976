# SPDX-License-Identifier: Apache-2.0
#
# The few kinds of target that Shoal is made of.

# shoal_library(name LIBS lib...): a static library of the current folder's sources and of those in
# its own folders, main.c excepted.
function(shoal_library name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LIBS")
    file(GLOB sources CONFIGURE_DEPENDS *.c */*.c)
    list(FILTER sources EXCLUDE REGEX "/main\\.c$")
    if(NOT sources)
        add_library(${name} INTERFACE)
        target_link_libraries(${name} INTERFACE shoal_flags ${arg_LIBS})
        return()
    endif()
    add_library(${name} STATIC ${sources})
    target_link_libraries(${name} PUBLIC shoal_flags ${arg_LIBS})
endfunction()

# shoal_embed(target header file...): compiles files into a target, each as an array page_NAME_SUFFIX
# that the header declares.
function(shoal_embed target header)
    foreach(file IN LISTS ARGN)
        cmake_path(GET file FILENAME name)
        string(MAKE_C_IDENTIFIER page_${name} symbol)
        set(out ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.c)
        add_custom_command(OUTPUT ${out}
            COMMAND ${CMAKE_COMMAND} -DIN=${file} -DOUT=${out} -DNAME=${symbol} -DHEADER=${header}
                    -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
            DEPENDS ${file} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
            COMMENT "Embedding ${name}")
        target_sources(${target} PRIVATE ${out})
    endforeach()
endfunction()

# shoal_program(name LIBS lib...): an executable of the current folder's main.c.
function(shoal_program name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LIBS")
    file(GLOB sources CONFIGURE_DEPENDS main.c)
    if(sources)
        add_executable(${name} ${sources})
        target_link_libraries(${name} PRIVATE shoal_flags ${arg_LIBS})
    endif()
endfunction()

# shoal_modelet(name source... [LIBS lib...]): lib<name>.so, a plug-in that knows include/ and
# nothing else of Shoal. Sources that are not there are skipped, so is a modelet without any.
function(shoal_modelet name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LIBS")
    file(GLOB sources CONFIGURE_DEPENDS ${arg_UNPARSED_ARGUMENTS})
    if(NOT sources)
        return()
    endif()
    add_library(${name} MODULE ${sources})
    target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/include)
    target_compile_definitions(${name} PRIVATE _GNU_SOURCE)
    target_compile_options(${name} PRIVATE
        $<TARGET_PROPERTY:shoal_flags,INTERFACE_COMPILE_OPTIONS> -fvisibility=hidden)
    target_link_libraries(${name} PRIVATE ${arg_LIBS})
    set_target_properties(${name} PROPERTIES
        PREFIX lib LIBRARY_OUTPUT_DIRECTORY ${SHOAL_MODELET_DIR})
    if(CMAKE_CURRENT_SOURCE_DIR MATCHES "/examples/")
        set_property(GLOBAL APPEND PROPERTY SHOAL_MODELETS ${name})
    endif()
endfunction()

# shoal_example_program(name main.c source... [LIBS lib...]): a client or tool of an example, in bin/.
function(shoal_example_program name main)
    cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "LIBS")
    file(GLOB found CONFIGURE_DEPENDS ${main})
    if(found)
        add_executable(${name} ${main} ${arg_UNPARSED_ARGUMENTS})
        target_link_libraries(${name} PRIVATE shoal_flags ${arg_LIBS})
    endif()
endfunction()
