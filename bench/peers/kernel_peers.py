#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Builds the peers of the kernel benches once and runs them.

  kernel_peers.py matvec N K COUNT [N K COUNT ...]   llama.cpp's MXFP4 and Q8_0 row kernels (source archive of
                                                     llama-cpp-python; three of its C files are compiled)
  kernel_peers.py gemm M N K [M N K ...]             oneDNN's matmul in f32 and bf16 (packages onednn-cpu-gomp and
                                                     onednn-devel-cpu-gomp)

One thread each; prints a JSON object a line. Everything lands in build/peers beside this tree.
"""
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "build" / "peers"
LLAMA = "llama-cpp-python==0.3.36"
ONEDNN = ["onednn-cpu-gomp==2023.2.0", "onednn-devel-cpu-gomp==2023.2.0"]


def run(*command):
    subprocess.run([str(part) for part in command], check=True, stdout=sys.stderr)


def fetch(folder, *arguments):
    folder.mkdir(parents=True, exist_ok=True)
    run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, *arguments)


def build_matvec():
    program = BUILD / "llama_matvec"
    if program.exists() and program.stat().st_mtime > (HERE / "llama_matvec.c").stat().st_mtime:
        return program
    source = BUILD / "llama"
    if not list(source.glob("*.tar.gz")):
        fetch(source, "--no-binary", "llama-cpp-python", LLAMA)
    archive = next(source.glob("*.tar.gz"))
    with tarfile.open(archive) as tar:
        tar.extractall(source, [m for m in tar.getmembers() if "/vendor/llama.cpp/ggml/" in m.name], filter="data")
    ggml = next(source.glob("*/vendor/llama.cpp/ggml"))
    flags = ["-O3", "-march=native", "-w", "-D_GNU_SOURCE", "-ffunction-sections", "-fdata-sections"]
    flags += [f"-I{ggml / sub}" for sub in ("include", "src", "src/ggml-cpu")]
    files = [ggml / "src" / name for name in ("ggml-cpu/arch/x86/quants.c", "ggml-cpu/quants.c", "ggml-quants.c")]
    run("gcc", *flags, HERE / "llama_matvec.c", *files, "-Wl,--gc-sections", "-lm", "-o", program)
    return program


def build_gemm():
    program = BUILD / "onednn_gemm"
    if program.exists() and program.stat().st_mtime > (HERE / "onednn_gemm.cc").stat().st_mtime:
        return program
    source = BUILD / "onednn"
    if not list(source.glob("*.whl")):
        fetch(source, *ONEDNN)
    for wheel in source.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(source)
    headers = next(source.glob("*/data/include"))
    library = next(source.glob("*/data/lib"))
    run("g++", "-std=c++17", "-O2", f"-I{headers}", HERE / "onednn_gemm.cc", f"-L{library}", "-ldnnl",
        f"-Wl,-rpath,{library}", "-o", program)
    return program


def main():
    kinds = {"matvec": build_matvec, "gemm": build_gemm}
    if len(sys.argv) < 3 or sys.argv[1] not in kinds:
        sys.exit(__doc__)
    program = kinds[sys.argv[1]]()
    os.environ["OMP_NUM_THREADS"] = "1"
    os.execv(program, [str(program), *sys.argv[2:]])


if __name__ == "__main__":
    main()
