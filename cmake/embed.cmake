# SPDX-License-Identifier: MIT
# Compiles the files of models/mini into the program, with a table of names. Without a folder the table is empty and
# `--model mini` says so.
function(deepinfer_embed_model target folder)
  set(files "")
  if(folder)
    file(GLOB files CONFIGURE_DEPENDS ${folder}/*.json ${folder}/*.safetensors)
  endif()
  deepinfer_embed_bytes(${target} embedded_model uint8_t "${files}" declarations)
  set(rows "")
  set(number 0)
  foreach(file IN LISTS files)
    get_filename_component(name ${file} NAME)
    set(symbol deepinfer_embedded_model_${number})
    math(EXPR number "${number} + 1")
    string(APPEND rows "      {\"${name}\", {${symbol}_begin, ${symbol}_end}},\n")
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/embedded_model_table.cc @ONLY CONTENT
"#include \"serve/embedded_model.h\"
${declarations}namespace deepinfer {
std::vector<MemoryFile> embedded_model_files() {
  return {
${rows}  };
}
}  // namespace deepinfer
")
  target_sources(${target} PRIVATE ${CMAKE_BINARY_DIR}/generated/embedded_model_table.cc)
endfunction()
