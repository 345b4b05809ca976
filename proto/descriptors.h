/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The descriptors of every proto file in this folder, imports included, as one serialized
 * google.protobuf.FileDescriptorSet. The build generates the array; gRPC server reflection answers
 * from it, so that generic clients work without proto files.
 */
#pragma once

#include <stddef.h>

extern const unsigned char shoal_descriptors[];
extern const size_t shoal_descriptors_size;
