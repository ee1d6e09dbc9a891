"""Arrays as NumPy arrays and PyTorch tensors. Neither is imported before one is asked for."""

from __future__ import annotations

from typing import Any

from ferry._ferry import Array, Tensor, torch_name
from ferry.errors import Error, Invalid, Unsupported

_NUMPY = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "U16": "<u2",
    "I16": "<i2",
    "U32": "<u4",
    "I32": "<i4",
    "U64": "<u8",
    "I64": "<i8",
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
    "C64": "<c8",
    "C128": "<c16",
}

_ML_DTYPES = {
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
}


def numpy_dtype(dtype: str) -> Any:
    """NumPy's dtype for safetensors' spelling; Unsupported where there is none."""
    import numpy

    if dtype in _NUMPY:
        return numpy.dtype(_NUMPY[dtype])
    try:
        import ml_dtypes

        return numpy.dtype(getattr(ml_dtypes, _ML_DTYPES[dtype]))
    except (ImportError, KeyError, AttributeError):
        hint = "read it with dtype='F32' or framework='pt', or install ml_dtypes"
        if dtype not in _ML_DTYPES:
            hint = "read it with framework='pt' or None"
        raise Unsupported(f"NumPy has no dtype {dtype}; {hint}", None, hint) from None


def to_numpy(array: Array) -> Any:
    """A NumPy array of the same memory."""
    import numpy

    dtype = numpy_dtype(array.dtype)
    if array.nbytes == 0:
        return numpy.empty(array.shape, dtype)
    buffer: Any = array._as_bytes()  # which NumPy takes, whatever its stubs say
    return numpy.frombuffer(buffer, dtype).reshape(array.shape)


def to_array(array: Array, dtype: Any, copy: bool | None) -> Any:
    """What __array__ gives: in `dtype`, by ferry's conversion where NumPy lacks the array's own."""
    import numpy

    source = array
    if dtype is not None and array.dtype not in _NUMPY:
        try:
            source = array.astype(numpy.dtype(dtype))
        except Error:  # to what is not a floating-point number, by way of one
            source = array.astype("F32")
    if copy is False and source is not array:
        raise ValueError(f"elements of {array.dtype} become {dtype} in a copy only")
    made = to_numpy(source)
    if dtype is not None and made.dtype != dtype:
        if copy is False:
            raise ValueError(f"elements of {array.dtype} become {dtype} in a copy only")
        return made.astype(dtype)
    return made.copy() if copy and source is array else made


def torch_dtype(dtype: Any) -> Any:
    """PyTorch's dtype for any spelling; Unsupported where this PyTorch has none."""
    import torch

    if isinstance(dtype, torch.dtype):
        return dtype
    name = torch_name(dtype)
    if not hasattr(torch, name):
        hint = "a newer PyTorch has it"
        raise Unsupported(f"PyTorch {torch.__version__} has no {name}; {hint}", None, hint)
    return getattr(torch, name)


def to_torch(array: Array) -> Any:
    """A PyTorch tensor of the same memory."""
    import torch

    dtype = torch_dtype(array.dtype)
    if array.nbytes == 0:  # on the CPU, whatever torch.set_default_device() says
        return torch.empty(array.shape, dtype=dtype, device="cpu")
    return torch.frombuffer(array._as_bytes(), dtype=dtype).view(array.shape)


def torch_device(device: Any) -> Any:
    """PyTorch's device; an int is one of CUDA's."""
    import torch

    return torch.device("cuda", device) if isinstance(device, int) else torch.device(device)


def lazy_to_array(tensor: Tensor, dtype: Any, copy: bool | None) -> Any:
    """What __array__ of a tensor that is read gives."""
    import numpy

    if copy is False:
        raise ValueError("a tensor of a checkpoint is read into memory: no array without a copy")
    if dtype is None or tensor.dtype in _NUMPY:
        return to_array(tensor.read(), dtype, None)
    try:
        return to_numpy(tensor.read(numpy.dtype(dtype)))
    except Error:  # to what is not a floating-point number, by way of one
        return to_array(tensor.read(), dtype, None)


def check_framework(framework: str | None, device: Any) -> None:
    """Refuses what is not a framework, and devices other than the CPU but with PyTorch's;
    safetensors' names for them count."""
    if framework not in (None, "np", "numpy", "pt", "torch"):
        raise Invalid(f"framework={framework!r} is none that is known; use 'np', 'pt' or None")
    if is_cpu(device):
        return
    if framework not in ("pt", "torch"):
        raise Invalid(f"device={str(device)!r} takes framework='pt'; all else is on the CPU")
    torch_device(device)


def is_cpu(device: Any) -> bool:
    return device is None or str(device).partition(":")[0] == "cpu"


def in_framework(array: Array, framework: str | None, device: Any) -> Any:
    """The array as `framework`, which was checked, has it."""
    if framework is None:
        return array
    if framework in ("np", "numpy"):
        return to_numpy(array)
    made = to_torch(array)
    return made if is_cpu(device) else made.to(torch_device(device))
