# SPDX-License-Identifier: Apache-2.0
# The CMakeLists.txt of an outside author's modelet.

cmake_minimum_required(VERSION 3.25)
project(outside LANGUAGES C)
find_package(ShoalModelet 0.1 REQUIRED)
shoal_add_modelet(outside modelet.c)
