# SPDX-License-Identifier: Apache-2.0
"""The Python half of libpython_modelet.so, compiled into it: what is done once per worker or model,
and errors. interpreter.c calls these functions; what is done per request is in C.

The module `shoal` is in place when this runs: the errors and the tensor types of the client's
package of that name."""

import inspect
import io
import logging
import os
import site
import sys
import traceback
import types

import shoal

# By shoal_datatype; 0 is any.
DATATYPES = ("ANY", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32",
             "INT64", "FP16", "FP32", "FP64", "BYTES", "BF16")
DTYPES = ("O", "?", "u1", "<u2", "<u4", "<u8", "i1", "<i2", "<i4", "<i8", "<f2", "<f4", "<f8", "O",
          "<u2")
CODES = {"CANCELLED": 1, "UNKNOWN": 2, "INVALID_ARGUMENT": 3, "DEADLINE_EXCEEDED": 4,
         "NOT_FOUND": 5, "ALREADY_EXISTS": 6, "PERMISSION_DENIED": 7, "RESOURCE_EXHAUSTED": 8,
         "FAILED_PRECONDITION": 9, "ABORTED": 10, "OUT_OF_RANGE": 11, "UNIMPLEMENTED": 12,
         "INTERNAL": 13, "UNAVAILABLE": 14, "DATA_LOSS": 15, "UNAUTHENTICATED": 16}
TEXT_BYTES_MAX = 255  # of shoal_error
PART_CHARACTERS_MAX = 1 << 16  # of a traceback
LEVELS = ((logging.ERROR, 0), (logging.WARNING, 1), (logging.INFO, 2))  # of shoal_log_level


def _printable(text):
    """For C: valid UTF-8 without NUL."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


class _Log(logging.Handler):
    def __init__(self, write):
        super().__init__()
        self.write = write

    def emit(self, record):
        level = next((ours for theirs, ours in LEVELS if record.levelno >= theirs), 3)
        try:
            self.write(level, _printable(self.format(record)))
        except Exception:  # as Python's own handlers: a line in the log never fails a request
            self.handleError(record)


def _virtual_environment(path):
    """The folder of its packages, and whether the system's count too."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = os.path.join(path, "lib", version, "site-packages")
    if not os.path.isdir(packages):
        raise ImportError(f"VIRTUAL_ENV={path}: no {packages}: make it with the Python of this "
                          f"modelet, {version}")
    with open(os.path.join(path, "pyvenv.cfg"), encoding="utf-8") as file:
        settings = dict(line.replace(" ", "").strip().lower().split("=", 1) for line in file if "=" in line)
    return packages, settings.get("include-system-site-packages") == "true"


def start(log, environment):
    """Returns numpy.ndarray, numpy.asarray, and the dtype of each datatype."""
    for name in "stdout", "stderr":
        # a worker may die any time: no line stays here
        stream = io.TextIOWrapper(io.FileIO(1 if name == "stdout" else 2, "w", closefd=False),
                                  "utf-8", "backslashreplace", line_buffering=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    logging.basicConfig(handlers=[_Log(log)], level=logging.INFO, format="%(name)s: %(message)s")
    folders = site.getsitepackages()
    if environment is not None:
        packages, system = _virtual_environment(environment)
        folders = [packages, *(folders if system else [])]
    for folder in folders:
        site.addsitedir(folder)
    try:
        import numpy
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise ImportError("there is no NumPy: apt install python3-numpy, or install it in the stage's "
                          "VIRTUAL_ENV") from None
    return numpy.ndarray, numpy.asarray, tuple(map(numpy.dtype, DTYPES))


def _functions(module):
    """`run`, and what is the module's own or lies beside it: not `from joblib import load`."""
    places = module.__name__, getattr(module.run, "__module__", None)
    found = {name: getattr(module, name, None) for name in ("run", "load", "describe")}
    return {name: function for name, function in found.items()
            if function is not None and getattr(function, "__module__", None) in places}


def execute(path, params):
    """The object with `run`, and `load` and `describe` if it has them."""
    name = os.path.basename(path).removesuffix(".py")
    sys.argv = [path]
    sys.path.insert(0, os.path.dirname(path))
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec")
    module = types.ModuleType(name)
    module.__file__ = path
    sys.modules.setdefault(name, module)  # for pickles and dataclasses; not instead of a library
    exec(code, module.__dict__)
    if hasattr(module, "Model"):
        return module.Model(**dict(params))
    if params:
        raise TypeError(f"{name}.py has no class Model, which alone takes `params`")
    if not hasattr(module, "run"):
        raise TypeError(f"{name}.py has neither a class Model nor a function run")
    return types.SimpleNamespace(**_functions(module))


def _type_of(what, value, batched):
    if not isinstance(value, shoal.TensorType):
        raise TypeError(f"{what} is {value!r}: expected a type such as shoal.FP32[-1, 4]")
    if batched and value.shape is not None and value.shape[:1] != (-1,):
        raise TypeError(f"{what} is {value!r}: with @shoal.batched the first dimension is -1")
    return DATATYPES.index(value.datatype), value.shape


def _tensors(what, values, batched):
    if not isinstance(values, dict):
        raise TypeError(f"{what}s are {values!r}: expected a dict of names and types")
    return tuple((name, *_type_of(f'{what} "{name}"', value, batched))
                 for name, value in values.items())


def signature(target):
    """(inputs, outputs or None, batched) of `run`; a tensor is (name, datatype, shape or None)."""
    if not callable(getattr(target, "run", None)):
        raise TypeError(f"{type(target).__name__} has no method run")
    run = inspect.signature(target.run, eval_str=True)
    batched = getattr(target.run, "shoal_batched", False)
    if batched and inspect.isgeneratorfunction(target.run):
        raise TypeError("run yields pieces of an answer, which is that of one request: it cannot be "
                        "@shoal.batched")
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    inputs = [one for one in run.parameters.values()
              if one.default is inspect.Parameter.empty and one.kind in kinds]
    if hasattr(target, "load"):
        if not inputs:
            raise TypeError("run takes nothing: with a `load` its first parameter is the model")
        del inputs[0]
    if batched and not inputs:
        raise TypeError("run takes no tensor: with @shoal.batched it needs one")
    declared = {one.name: shoal.ANY if one.annotation is inspect.Parameter.empty else one.annotation
                for one in inputs}
    outputs = None if run.return_annotation is inspect.Signature.empty else _tensors(
        "output", run.return_annotation, batched)
    return _tensors("input", declared, batched), outputs, batched


def describe(target, model, inputs):
    """As `signature`, of a model, if the code describes its models; `inputs`: names in order."""
    if not hasattr(target, "describe"):
        return None
    declared, outputs = target.describe(model)
    batched = getattr(target.run, "shoal_batched", False)
    if set(declared) != set(inputs):
        raise TypeError(f"describe: inputs {sorted(declared)}, but run takes {sorted(inputs)}")
    return (_tensors("input", {name: declared[name] for name in inputs}, batched),
            _tensors("output", outputs, batched), batched)


def texts(elements, shape):
    """A BYTES tensor. Read-only, as other inputs are."""
    import numpy
    array = numpy.empty(len(elements), dtype=object)
    array[:] = elements
    array = array.reshape(shape)
    array.flags.writeable = False
    return array


def report(where, error):
    """Logs the traceback; returns status code and text for the caller, cut between characters."""
    for part in traceback.format_exception(error):  # not to sys.stderr, which is the code's
        print(part[:PART_CHARACTERS_MAX], end="", file=sys.__stderr__)
    if isinstance(error, shoal.ShoalError):
        code, text = CODES.get(error.code, 2), error.text
    else:
        code, text = 2, ": ".join((type(error).__name__, *filter(None, [str(error)[:TEXT_BYTES_MAX]])))
    data = _printable(f"{where.decode('utf-8', 'replace')}{text[:TEXT_BYTES_MAX]}").encode()
    return code, data[:TEXT_BYTES_MAX].decode("utf-8", "ignore")
