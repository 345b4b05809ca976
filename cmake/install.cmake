# SPDX-License-Identifier: Apache-2.0
#
# Files that `cmake --install` puts in place: the programs with their manual pages, the example
# modelets with their configurations, the public headers, libshoal, and what authors of modelets and of local clients
# need to build against them by pkg-config or by CMake. Everything is found relative to the prefix,
# so it may be moved as a whole.

include(CMakePackageConfigHelpers)

foreach(program shoald shoal-worker shoalctl shoal-gateway)
    if(TARGET ${program})
        install(TARGETS ${program} RUNTIME)
    endif()
endforeach()

# For containers that stand where KServe ModelMesh's did; it finds shoalctl from where it lies.
install(PROGRAMS src/ctl/stop.sh DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/shoal)

# Manual pages and completion, by the programs that they describe.
function(shoal_install_output file program)
    install(CODE "
        set(file \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/share/${file})
        cmake_path(GET file PARENT_PATH folder)
        file(MAKE_DIRECTORY \${folder})
        execute_process(COMMAND ${SHOAL_TEST_LAUNCHER} ${CMAKE_BINARY_DIR}/bin/${program} ${ARGN}
            OUTPUT_FILE \${file} COMMAND_ERROR_IS_FATAL ANY)")
endfunction()
shoal_install_output(man/man8/shoald.8 shoald --help=man)
shoal_install_output(man/man8/shoal-worker.8 shoal-worker --help=man)
shoal_install_output(man/man8/shoal-gateway.8 shoal-gateway --help=man)
shoal_install_output(man/man5/shoald.yaml.5 shoald --help-config=man)
shoal_install_output(man/man1/shoalctl.1 shoalctl --help=man)
foreach(program shoald shoalctl)
    shoal_install_output(bash-completion/completions/${program} ${program} --help=bash)
    shoal_install_output(zsh/vendor-completions/_${program} ${program} --help=zsh)
endforeach()

# Shared only: what a client and its node say to each other changes between releases, and what the
# library is made from would be seen in the program.
install(TARGETS shoal EXPORT shoal LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS shoal_harness LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/shoal)
install(EXPORT shoal NAMESPACE shoal:: FILE shoalConfig.cmake DESTINATION ${package})
write_basic_package_version_file(shoalConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_BINARY_DIR}/shoalConfigVersion.cmake DESTINATION ${package})
# as many steps up as the library's folder has parts, and pkgconfig
string(REGEX REPLACE "[^/]+" ".." SHOAL_PC_PREFIX ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
configure_file(cmake/shoal.pc.in shoal.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/shoal.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Modelets live in lib/shoal beside bin/, in the build folder as in the prefix.
get_property(modelets GLOBAL PROPERTY SHOAL_MODELETS)
foreach(modelet IN LISTS modelets)
    install(TARGETS ${modelet} LIBRARY DESTINATION lib/shoal)
endforeach()
if(TARGET python_modelet)
    install(FILES examples/python/scikit_learn.py DESTINATION lib/shoal)
endif()

install(DIRECTORY include/shoal TYPE INCLUDE FILES_MATCHING PATTERN "*.h")
# Each example is a folder that shoald can be started on, its modelets linked beside the file.
install(DIRECTORY ${CMAKE_BINARY_DIR}/examples/ DESTINATION share/shoal/examples
    FILES_MATCHING PATTERN "*.yaml" PATTERN "*.py" PATTERN "*.ubj" PATTERN "*.mlp" PATTERN "*.onnx" PATTERN CMakeFiles EXCLUDE)
install(CODE "
    file(GLOB links ${CMAKE_BINARY_DIR}/examples/*/lib*.so)
    foreach(link IN LISTS links)
        cmake_path(GET link FILENAME name)
        cmake_path(GET link PARENT_PATH folder)
        cmake_path(GET folder FILENAME example)
        file(CREATE_LINK ../../../../lib/shoal/\${name}
            \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/share/shoal/examples/\${example}/\${name} SYMBOLIC)
    endforeach()")
# Clients of pipelines in C and Python, to be built and run against what is installed.
install(FILES examples/local/client.c examples/local/shoal.py examples/local/README.md
    DESTINATION share/shoal/examples/local)
install(PROGRAMS examples/local/client.py DESTINATION share/shoal/examples/local)
install(FILES LICENSE TYPE DOC)
if(EXISTS ${CMAKE_SOURCE_DIR}/NOTICE)
    install(FILES NOTICE TYPE DOC)
endif()

# A header alone is the same on every architecture: share/, not lib/.
configure_file(cmake/shoal-modelet.pc.in shoal-modelet.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/shoal-modelet.pc DESTINATION ${CMAKE_INSTALL_DATADIR}/pkgconfig)

set(package ${CMAKE_INSTALL_DATADIR}/cmake/ShoalModelet)
configure_package_config_file(cmake/ShoalModeletConfig.cmake.in ShoalModeletConfig.cmake
    INSTALL_DESTINATION ${package} PATH_VARS CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file(ShoalModeletConfigVersion.cmake
    COMPATIBILITY SameMajorVersion ARCH_INDEPENDENT)
install(FILES ${CMAKE_BINARY_DIR}/ShoalModeletConfig.cmake
    ${CMAKE_BINARY_DIR}/ShoalModeletConfigVersion.cmake DESTINATION ${package})
