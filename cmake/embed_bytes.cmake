# SPDX-License-Identifier: MIT
# Compiles files into `target` as they are, 64-byte aligned. The i-th file lies between the symbols
# deepinfer_<stem>_<i>_begin and _end, of element type `type`; `out_declarations` gets their extern "C" declarations.
function(deepinfer_embed_bytes target stem type files out_declarations)
  set(assembly ".section .rodata\n")
  set(declarations "")
  set(number 0)
  foreach(file IN LISTS files)
    set(symbol deepinfer_${stem}_${number})
    math(EXPR number "${number} + 1")
    string(APPEND assembly ".balign 64\n.global ${symbol}_begin\n.hidden ${symbol}_begin\n${symbol}_begin:\n.incbin \"${file}\"\n"
           ".global ${symbol}_end\n.hidden ${symbol}_end\n${symbol}_end:\n.byte 0\n")
    string(APPEND declarations "extern const ${type} ${symbol}_begin[], ${symbol}_end[];\n")
  endforeach()
  string(APPEND assembly ".section .note.GNU-stack,\"\",@progbits\n")
  set(source ${CMAKE_BINARY_DIR}/generated/${stem}.S)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT "${assembly}")
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS "${files}")  # .incbin is invisible to the compiler's own list
  target_sources(${target} PRIVATE ${source})
  set(${out_declarations} "extern \"C\" {\n${declarations}}\n" PARENT_SCOPE)
endfunction()
