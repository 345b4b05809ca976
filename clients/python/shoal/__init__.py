# SPDX-License-Identifier: Apache-2.0
"""A client for Shoal, and for any server of the Open Inference Protocol over gRPC.

    import shoal
    y = shoal.Client("localhost:8033").infer("iris", X)
"""

from ._client import AsyncClient, Client, ModelMetadata, Response, ServerMetadata
from ._client import VERSION as __version__
from ._errors import (Cancelled, DeadlineExceeded, FailedPrecondition, Internal, InvalidArgument,
                      NotFound, PermissionDenied, ResourceExhausted, ShoalError, Unavailable,
                      Unimplemented)
from ._modelet import (ANY, BF16, BOOL, BYTES, FP16, FP32, FP64, INT8, INT16, INT32, INT64, UINT8,
                       UINT16, UINT32, UINT64, TensorType, batched, cancelled)
from ._tensors import Tensor, TensorMetadata

__all__ = [
    "AsyncClient", "Cancelled", "Client", "DeadlineExceeded", "FailedPrecondition", "Internal",
    "InvalidArgument", "ModelMetadata", "NotFound", "PermissionDenied", "ResourceExhausted",
    "Response", "ServerMetadata", "ShoalError", "Tensor", "TensorMetadata", "TensorType",
    "Unavailable", "Unimplemented", "__version__", "batched", "cancelled",
    "ANY", "BF16", "BOOL", "BYTES", "FP16", "FP32", "FP64", "INT8", "INT16", "INT32", "INT64",
    "UINT8", "UINT16", "UINT32", "UINT64",
]

for _name in __all__:
    if isinstance(globals()[_name], type):
        globals()[_name].__module__ = "shoal"  # as callers know it, in tracebacks and pickles
