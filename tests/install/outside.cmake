# SPDX-License-Identifier: Apache-2.0
# The CMakeLists.txt of an outside author's modelet.

cmake_minimum_required(VERSION 3.25)
project(outside LANGUAGES C CXX)
find_package(ShoalModelet 0.1 REQUIRED)
shoal_add_modelet(outside modelet.c)

shoal_add_modelet(outside_cpp modelet.cpp)
add_executable(test_outside test.c)
target_link_libraries(test_outside PRIVATE ShoalModelet::harness)
enable_testing()
foreach(modelet outside outside_cpp)
    add_test(NAME ${modelet} COMMAND test_outside $<TARGET_FILE:${modelet}>)
endforeach()
