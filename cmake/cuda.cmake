# SPDX-License-Identifier: MIT
# With DEEPINFER_ACCELERATOR=nvidia: kernels/<op>/cuda/*.cu and tensor/device_cuda.cc are compiled, for one architecture,
# by its name; the CUDA runtime is linked in whole, so the program starts on machines without a driver. Without it the
# *_absent.cc twins stand in their place.
set(DEEPINFER_CUDA_ARCHITECTURE "90a" CACHE STRING "Architecture of the CUDA kernels: 90a (Hopper) or 100a (Blackwell)")
if(NOT DEEPINFER_ACCELERATOR STREQUAL "nvidia")
  return()
endif()

if(NOT CMAKE_CUDA_COMPILER)
  find_program(CMAKE_CUDA_COMPILER nvcc HINTS /usr/local/cuda/bin)
  if(NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR "DEEPINFER_ACCELERATOR=nvidia needs nvcc (CUDA 13): install it, or give -DCMAKE_CUDA_COMPILER=...")
  endif()
endif()
set(CMAKE_CUDA_ARCHITECTURES ${DEEPINFER_CUDA_ARCHITECTURE}-real)
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")  # CMake 3.25 does not know that CUDA 13 has it
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_EXTENSIONS OFF)
if(CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()
find_package(CUDAToolkit 13 REQUIRED)
# No contraction, as on the host: every row gives the reference's bits, and kernels say where a product is exact.
# constexpr functions of shared headers are called on the device. 2810: a false report of ignored [[nodiscard]] values.
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:--fmad=false;--expt-relaxed-constexpr;--expt-extended-lambda;-diag-suppress=2810;-DNDEBUG>")
string(REGEX REPLACE "[a-z]" "" DEEPINFER_CUDA_CAPABILITY ${DEEPINFER_CUDA_ARCHITECTURE})
set(DEEPINFER_LINK_tensor CUDA::cudart_static)
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/tensor/device_cuda.cc PROPERTIES
                            COMPILE_DEFINITIONS DEEPINFER_CUDA_CAPABILITY=${DEEPINFER_CUDA_CAPABILITY})
