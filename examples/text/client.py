#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Calls the method Upper of text.proto for each word given, and prints the answers.

The message classes that protoc would generate are built at the top, so nothing is generated."""

import argparse
import sys

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FIELD = descriptor_pb2.FieldDescriptorProto
FILE = descriptor_pb2.FileDescriptorProto(
    name="text.proto", package="example", syntax="proto3", message_type=[
        {"name": "UpperRequest",
         "field": [{"name": "text", "number": 1, "type": FIELD.TYPE_STRING}]},
        {"name": "UpperResponse",
         "field": [{"name": "text", "number": 1, "type": FIELD.TYPE_STRING},
                   {"name": "changed", "number": 2, "type": FIELD.TYPE_UINT32}]}])


def message_class(name):
    pool = descriptor_pool.DescriptorPool()
    pool.Add(FILE)
    descriptor = pool.FindMessageTypeByName(f"example.{name}")
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(pool).GetPrototype(descriptor)  # before protobuf 4.22


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--target", default="unix:/tmp/shoal-text.sock")
    options.add_argument("--timeout", type=float, default=10, help="seconds")
    options.add_argument("words", nargs="*", default=["shoal", "Fish"])
    arguments = options.parse_args()
    request, response = message_class("UpperRequest"), message_class("UpperResponse")
    with grpc.insecure_channel(arguments.target) as channel:
        upper = channel.unary_unary("/example.Text/Upper",
                                    request_serializer=request.SerializeToString,
                                    response_deserializer=response.FromString)
        try:
            for word in arguments.words:
                answer = upper(request(text=word), timeout=arguments.timeout)
                print(answer.text, answer.changed)
        except grpc.RpcError as error:
            sys.exit(f"{error.code().name}: {error.details()}")


if __name__ == "__main__":
    main()
