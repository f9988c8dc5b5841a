"""The machine that a measurement runs on."""
import os
import pathlib
import platform
import re


def machine():
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    name = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    family = [re.search(rf"^{key}\s*: (\d+)$", text, re.MULTILINE) for key in ("cpu family", "model")]
    features = [label for label, flag in [("AVX2", "avx2"), ("AVX-512", "avx512f"), ("AVX512_BF16", "avx512_bf16"),
                                          ("AMX", "amx_tile")] if re.search(rf"\b{flag}\b", text)]
    numbers = f" (family {family[0][1]}, model {family[1][1]})" if all(family) else ""
    return f"{name[1] if name else platform.machine()}{numbers}, {os.cpu_count()} cores, {' '.join(features)}"
