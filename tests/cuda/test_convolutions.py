"""An emulated GPU convolves in bf16 as a GPU does: by cuDNN, and in as much memory as in fp16."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from cuda_machine import ENVIRONMENT, MACHINES, CudaMachine

SCRIPT = """
import json, os, torch
from torch.nn.functional import conv2d
found = {}
for kind in ("float16", "bfloat16"):
    images, kernels = torch.randn(4, 3, 40, 40), torch.randn(16, 3, 3, 3)
    ours = [x.cuda().requires_grad_() for x in (images, kernels)]
    torch.cuda.reset_peak_memory_stats()
    with torch.autocast("cuda", dtype=getattr(torch, kind)):
        made = conv2d(*ours, padding=1)
    made.backward(torch.ones_like(made))
    peak = torch.cuda.max_memory_allocated()
    apart = (made.detach().float().cpu() - conv2d(images, kernels, padding=1)).abs().max()
    gradients = [float((x.grad != 0).float().mean()) for x in ours]
    found[kind] = [peak, float(apart), min(gradients)]
    del made, ours
print(json.dumps(found), flush=True)
os._exit(0)  # autograd's thread may still let go of the last step, and is not to want the interpreter when that ends
"""


def test_a_convolution_in_bf16_takes_as_much_as_one_in_fp16(tmp_path: Path) -> None:
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        pytest.skip("requires torch's CUDA build: `make test-cuda` sets it up")
    machine = CudaMachine(tmp_path, MACHINES["a100"])
    machine.show()
    command = [str(python), "-c", SCRIPT]
    done = subprocess.run(command, env=machine.environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    half, brain = json.loads(done.stdout)["float16"], json.loads(done.stdout)["bfloat16"]
    assert brain[0] == half[0]
    assert half[1] < 0.1 and brain[1] < 0.3  # as far as their numbers reach
    assert min(half[2], brain[2]) > 0.9  # gradients were computed
