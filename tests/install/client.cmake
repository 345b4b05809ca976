# SPDX-License-Identifier: Apache-2.0
# The CMakeLists.txt of an outside author's client.

cmake_minimum_required(VERSION 3.25)
project(client LANGUAGES C)
find_package(shoal 0.1 REQUIRED)
add_executable(client client.c)
target_link_libraries(client PRIVATE shoal::shoal)
