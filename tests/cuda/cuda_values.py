"""True results on the stand-in: after an operation's kernels were launched, which do nothing, the CPU does the same
operation on the same bytes.

A `.pth` file of the environment imports this module; it waits for torch, and enters a dispatch mode that sees every
operation below autograd and autocast. The operation runs first as it would on a GPU: its allocations, its choice of
kernels, its errors are torch's own. Then host tensors over the same memory stand in for its arguments. What a capture
records is kept, and done at each replay. KGOPS_CUDA_VALUES=0 leaves all this out.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.abc
import importlib.machinery
import itertools
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Kind:
    """What the mode must know of an operation."""

    computes: bool
    random: bool
    counted: bool  # a GPU counts before the host knows the result's size
    indexes: bool


def start(torch: Any) -> None:
    """In the process that has just imported torch."""
    from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

    aten = torch.ops.aten
    narrow_types = (torch.float16, torch.bfloat16)
    recorded: list[list[Work]] = []  # by the captures under way
    fresh_seeds = itertools.count(1)

    # ---- the host's view ----

    views: dict[Any, Any] = {}
    distance = _distance()

    def host(tensor: Any) -> Any:
        """A tensor over the same bytes. They never move, so that a view that was made once can be kept."""
        if not tensor.is_cuda:
            return tensor
        address = tensor.data_ptr()
        key = (address, tensor.shape, tensor.stride(), tensor.dtype, tensor.is_conj())
        found = views.get(key)
        if found is None:
            if len(views) > 20_000:
                views.clear()
            found = views[key] = view(*key)
        return found

    def view(address: int, shape: Any, stride: Any, dtype: Any, conjugate: bool) -> Any:
        with torch.inference_mode(False):
            if not address or 0 in shape:
                return torch.empty_strided(shape, stride, dtype=dtype)
            last = sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
            memory = (ctypes.c_char * ((last + 1) * dtype.itemsize)).from_address(address + distance)
            made = torch.frombuffer(memory, dtype=dtype).as_strided(shape, stride)
            return torch._conj(made) if conjugate else made

    def on_host(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return host(value)
        if isinstance(value, torch.device) and value.type == "cuda":
            return torch.device("cpu")
        if isinstance(value, torch.Generator) and value.device.type == "cuda":
            return None  # `seeded` answers for it
        return value

    def on_gpu(tensor: Any, device: Any) -> Any:
        made = torch.empty_like(tensor, device=device)
        host(made).copy_(tensor)
        return made

    # ---- what one operation is ----

    @dataclass
    class Work:
        """An operation to be done on the host, and where its results go."""

        func: Any
        args: Any
        kwargs: Any
        results: list[tuple[int, Any]]  # place among what it returns, host tensor
        seed: int | None

        def do(self) -> None:
            if self.func._schema.name in multiplies:
                found = self._found_wider()
            else:
                try:
                    found = self._found(self.args, self.kwargs)
                except (NotImplementedError, RuntimeError) as error:
                    if "not implemented for" not in str(error):
                        raise
                    found = self._found_wider()  # the CPU has no such kernel for half precision
            returned = list(leaves(found))
            for place, target in self.results:
                if (
                    target.numel() and returned[place].numel()
                ):  # the CPU leaves out what no backward of its own needs
                    target.copy_(returned[place])

        def _found_wider(self) -> Any:
            """In single precision; what comes out is rounded."""
            given = (self.args, self.kwargs)
            wide = each(
                given, lambda x: x.float() if isinstance(x, torch.Tensor) and x.dtype in narrow_types else x
            )
            found = self._found(*wide)
            for narrow, changed in zip(leaves(given), leaves(wide), strict=True):
                if self.func._schema.is_mutable and changed is not narrow:
                    narrow.copy_(changed)
            return found

        def _found(self, args: Any, kwargs: Any) -> Any:
            with seeded(self.seed):
                instead = gpu_only(self.func, args, kwargs)
                return self.func(*args, **kwargs) if instead is None else instead

    def gpu_only(func: Any, args: Any, kwargs: Any) -> Any:
        """Operations that only a GPU has, in the words of the CPU."""
        name = func._schema.name
        if name == "aten::cudnn_batch_norm":
            return (*aten.native_batch_norm(*args), torch.empty(0, dtype=torch.uint8))
        if name == "aten::cudnn_batch_norm_backward":
            x, grad, weight, mean, variance, saved_mean, saved_deviation, eps, _ = args
            saved = (saved_mean, saved_deviation, True, eps, [True, True, True])
            return aten.native_batch_norm_backward(grad, x, weight, mean, variance, *saved)
        if name in ("aten::_softmax", "aten::_log_softmax") and args[2]:  # from half precision to float
            return func(args[0].float(), args[1], False)
        if name in ("aten::_softmax_backward_data", "aten::_log_softmax_backward_data"):
            return func(*args[:3], args[0].dtype)
        if name == "aten::_fused_dropout":
            return aten.native_dropout(args[0], 1 - args[1], True)
        if func._overloadname.startswith("dtype"):  # a product whose result is wider than its factors
            *factors, wide = args
            given = {key: value for key, value in kwargs.items() if key != "out"}
            made = getattr(aten, name.removeprefix("aten::"))(*(x.to(wide) for x in factors), **given)
            return kwargs["out"].copy_(made) if "out" in kwargs else made
        return None

    @contextmanager
    def seeded(seed: int | None) -> Iterator[None]:
        if seed is None:
            yield
            return
        before = torch.random.get_rng_state()
        torch.random.default_generator.manual_seed(seed or next(fresh_seeds))
        yield
        torch.random.set_rng_state(before)

    def seed_of(given: list[Any], device: Any) -> int:
        """The same for the same state of the GPU's generator; 0 inside a capture: another one at each replay."""
        if torch.cuda.is_current_stream_capturing():
            return 0
        named = next((x for x in given if isinstance(x, torch.Generator) and x.device.type == "cuda"), None)
        generator = named or torch.cuda.default_generators[device.index or 0]
        return hash((generator.initial_seed(), generator.get_offset())) % 2**62 or 1

    # ---- the mode ----

    moves_no_values = {"aten::set_", "aten::resize_", "aten::record_stream", "aten::is_pinned", "aten::_pin_memory",
                       "aten::_local_scalar_dense", "aten::empty_like", "aten::new_empty", "aten::new_empty_strided",
                       "aten::empty", "aten::empty_strided", "aten::_unsafe_view"}  # fmt: skip
    # What reads values before it launches anything, besides what torch marks so.
    reads_first = {"aten::multinomial", "aten::isin"}
    # cuSOLVER has no kernels here: a factorization is done on the host alone, and its workspace is not counted.
    factorizes = {"aten::linalg_cholesky_ex", "aten::cholesky_inverse", "aten::cholesky_solve", "aten::_linalg_eigh",
                  "aten::linalg_inv_ex", "aten::_linalg_solve_ex", "aten::linalg_qr", "aten::_linalg_svd",
                  "aten::_linalg_check_errors"}  # fmt: skip

    # A GPU sums their halves in single precision; a CPU takes a hundred times as long for some of them.
    multiplies = {"aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::convolution",
                  "aten::convolution_backward", "aten::cudnn_convolution"}  # fmt: skip

    @functools.cache  # a schema is slow to ask
    def kind_of(func: Any) -> Kind:
        name, tags = func._schema.name, func.tags
        is_view = any(one.alias_info and not one.alias_info.is_write for one in func._schema.returns)
        indexes = name in ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")
        depends = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output} & set(tags)
        return Kind(
            computes=name.startswith("aten::")
            and not (is_view or name in moves_no_values or torch.Tag.inplace_view in tags),
            random=torch.Tag.nondeterministic_seeded in tags,
            counted=not indexes and (bool(depends) or name in reads_first | factorizes),
            indexes=indexes,  # counted where a mask is among them
        )

    class Values(TorchDispatchMode):  # type: ignore[no-untyped-call]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # nothing is compiled here: torch need not import its compiler for this

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            kind = kind_of(func)
            if not kind.computes:
                return func(*args, **kwargs)
            given = list(leaves((args, kwargs)))
            device = _gpu_of(given)
            if device is None:
                return func(*args, **kwargs)
            seed = seed_of(given, device) if kind.random else None
            if kind.counted:
                return self._counted(func, args, kwargs, device, seed)
            if kind.indexes:
                args = (args[0], _without_masks(args[1]), *args[2:])
            if func._schema.name == "aten::convolution" and args[0].dtype is torch.bfloat16:
                give_bf16_to_cudnn(device)
            out = func(*args, **kwargs)
            known = {id(x) for x in given}
            results = [
                (place, host(x))
                for place, x in enumerate(leaves(out))
                if isinstance(x, torch.Tensor) and id(x) not in known
            ]
            work = Work(func, each(args, on_host), each(kwargs, on_host), results, seed)
            if recorded and torch.cuda.is_current_stream_capturing():
                recorded[-1].append(work)
            else:
                work.do()
            return out

        @staticmethod
        def _counted(func: Any, args: Any, kwargs: Any, device: Any, seed: int | None) -> Any:
            """An operation whose result a GPU must count before the host knows its size."""
            torch.cuda.current_stream(device).synchronize()
            with seeded(seed):
                found = func(*each(args, on_host), **each(kwargs, on_host))
            return each(found, lambda x: on_gpu(x, device) if isinstance(x, torch.Tensor) else x)

    def _gpu_of(given: list[Any]) -> Any:
        for x in given:
            if isinstance(x, torch.Tensor) and x.is_cuda:
                return x.device
        for x in given:
            if isinstance(x, torch.device) and x.type == "cuda":
                return torch.device("cuda", torch.cuda.current_device() if x.index is None else x.index)
        return None

    def _without_masks(indices: Any) -> list[Any]:
        """A mask as an index is counted inside torch, where no mode looks."""
        out: list[Any] = []
        for one in indices:
            if isinstance(one, torch.Tensor) and one.is_cuda and one.dtype in (torch.bool, torch.uint8):
                torch.cuda.current_stream(one.device).synchronize()
                out += [on_gpu(x, one.device) for x in host(one).nonzero(as_tuple=True)]
            else:
                out.append(one)
        return out

    # ---- graphs, printing, threads ----

    graph = torch.cuda.CUDAGraph
    begin, end, replay = graph.capture_begin, graph.capture_end, graph.replay

    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        recorded.append([])

    def capture_end(self: Any) -> None:
        self.recorded_work = recorded.pop()
        end(self)

    def replay_with_values(self: Any) -> None:
        replay(self)
        with _disable_current_modes(), torch.no_grad():
            for work in self.recorded_work:
                work.do()

    graph.capture_begin, graph.capture_end, graph.replay = capture_begin, capture_end, replay_with_values

    draw = torch._tensor_str._tensor_str  # lays every mode aside
    torch._tensor_str._tensor_str = lambda tensor, indent: draw(host(tensor), indent)

    # Kernels of attention that compute in their own order, with masks of their own: the plain products instead.
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)

    make: Callable[[], Any] = Values
    _entered.append(make())
    _entered[0].__enter__()
    run: Callable[[threading.Thread], None] = threading.Thread.run

    def run_with_values(self: threading.Thread) -> None:
        with make():
            run(self)

    threading.Thread.run = run_with_values  # type: ignore[method-assign]


@functools.cache
def give_bf16_to_cudnn(device: Any) -> None:
    """Convolutions in bf16, as on a GPU. The stand-in has only cuDNN's older calls, and the environment says so; torch
    would then give bf16 to cuBLAS. What calls cuDNN and what chooses it read that apart, each when first asked."""
    import torch

    if "KGOPS_NVML_STANDIN" not in os.environ:
        return  # a real GPU
    one = torch.empty(1, 1, 1, 1, dtype=torch.float16, device=device)
    torch.nn.functional.conv2d(one, one)  # now the first has read it
    os.unsetenv("TORCH_CUDNN_V8_API_DISABLED")  # which the stand-in has set, past os.environ


def each(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same lists and tuples with everything in them changed; torch's own way of it takes several times as long."""
    if isinstance(value, list | tuple):
        return type(value)([each(one, change) for one in value])
    return (
        {key: each(one, change) for key, one in value.items()} if isinstance(value, dict) else change(value)
    )


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for one in value:
            yield from leaves(one)
    elif isinstance(value, dict):
        yield from leaves(list(value.values()))
    else:
        yield value


_entered: list[Any] = []  # torch keeps no reference to a mode while others are laid aside


def _distance() -> int:
    """From a device address to its bytes, in the stand-in that this process has loaded."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "libcudart" in line:
            ask = ctypes.CDLL(line.split()[-1]).standin_distance
            ask.restype = ctypes.c_size_t
            return int(ask())
    raise RuntimeError("the stand-in for libcudart is not loaded")


class _AfterTorch(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Any, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def and_start(module: ModuleType) -> None:
            execute(module)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an old driver is torch's own warning, when it is asked
                is_there = module.cuda.is_available()
            if is_there:
                start(module)

        spec.loader.exec_module = and_start  # type: ignore[method-assign]
        return spec


if os.environ.get("KGOPS_NVML_STANDIN") and os.environ.get("KGOPS_CUDA_VALUES", "1") != "0":
    sys.meta_path.insert(0, _AfterTorch())
