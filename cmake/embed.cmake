# SPDX-License-Identifier: MIT
# Compiles the files of models/mini into the program: one assembly file that includes the bytes, 64-byte aligned, and a
# table of names. Without the folder the table is empty and `--model mini` says so.
function(deepinfer_embed_model target folder)
  file(GLOB files CONFIGURE_DEPENDS ${folder}/*.json ${folder}/*.safetensors)
  set(assembly ".section .rodata\n")
  set(declarations "")
  set(rows "")
  set(number 0)
  foreach(file IN LISTS files)
    get_filename_component(name ${file} NAME)
    set(symbol deepinfer_embedded_${number})
    math(EXPR number "${number} + 1")
    string(APPEND assembly ".balign 64\n.global ${symbol}_begin\n.hidden ${symbol}_begin\n${symbol}_begin:\n.incbin \"${file}\"\n"
           ".global ${symbol}_end\n.hidden ${symbol}_end\n${symbol}_end:\n.byte 0\n")
    string(APPEND declarations "extern const uint8_t ${symbol}_begin[], ${symbol}_end[];\n")
    string(APPEND rows "      {\"${name}\", {${symbol}_begin, ${symbol}_end}},\n")
  endforeach()
  string(APPEND assembly ".section .note.GNU-stack,\"\",@progbits\n")
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/embedded_model.S @ONLY CONTENT "${assembly}")
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/embedded_model_table.cc @ONLY CONTENT
"#include \"serve/embedded_model.h\"
extern \"C\" {
${declarations}}
namespace deepinfer {
std::vector<MemoryFile> embedded_model_files() {
  return {
${rows}  };
}
}  // namespace deepinfer
")
  set_source_files_properties(${CMAKE_BINARY_DIR}/generated/embedded_model.S PROPERTIES OBJECT_DEPENDS "${files}")
  target_sources(${target} PRIVATE ${CMAKE_BINARY_DIR}/generated/embedded_model.S
                 ${CMAKE_BINARY_DIR}/generated/embedded_model_table.cc)
endfunction()
