# SPDX-License-Identifier: MIT
# Kernel files carry their instruction set in their name: <anything>avx2.cc, <anything>avx512.cc, <anything>vnni.cc,
# <anything>bf16.cc, <anything>amx.cc. Nothing else is compiled beyond the baseline, so one binary runs everywhere.
# GCC 12 takes the undefined pass-through operand inside its own AVX-512 intrinsics for a read (GCC bug 105593).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(DEEPINFER_GCC_FALSE_WARNINGS -Wno-uninitialized -Wno-maybe-uninitialized)
endif()
set(DEEPINFER_ISA_avx2 -mavx2 -mfma -mf16c -mbmi -mbmi2)
set(DEEPINFER_ISA_avx512 ${DEEPINFER_ISA_avx2} ${DEEPINFER_GCC_FALSE_WARNINGS} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512cd)
set(DEEPINFER_ISA_vnni ${DEEPINFER_ISA_avx512} -mavx512vnni -mavx512vbmi)
set(DEEPINFER_ISA_bf16 ${DEEPINFER_ISA_vnni} -mavx512bf16)
set(DEEPINFER_ISA_amx ${DEEPINFER_ISA_bf16} -mamx-tile -mamx-int8 -mamx-bf16)

function(deepinfer_set_isa list_name)
  foreach(file IN LISTS ${list_name})  # the name: a parameter called as the list would hide it
    get_filename_component(stem ${file} NAME_WE)
    foreach(isa avx2 avx512 vnni bf16 amx)
      if(file MATCHES "/cpu/" AND stem MATCHES "${isa}$")
        set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "${DEEPINFER_ISA_${isa}}")
      endif()
    endforeach()
  endforeach()
endfunction()
