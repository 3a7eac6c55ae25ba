# SPDX-License-Identifier: MIT
# Compiles the web console (web/*.html, *.js, *.css) into the program: the bytes and a table of paths and types.
# index.html is served as "/".
function(deepinfer_embed_console target folder)
  file(GLOB files CONFIGURE_DEPENDS ${folder}/*.html ${folder}/*.js ${folder}/*.css)
  set(types_html "text/html@SEMI@ charset=utf-8")
  set(types_js "text/javascript@SEMI@ charset=utf-8")
  set(types_css "text/css@SEMI@ charset=utf-8")
  set(SEMI ";")  # a plain one would cut lists here
  deepinfer_embed_bytes(${target} console char "${files}" declarations)
  set(rows "")
  set(number 0)
  foreach(file IN LISTS files)
    get_filename_component(name ${file} NAME)
    get_filename_component(extension ${file} LAST_EXT)
    string(SUBSTRING ${extension} 1 -1 extension)
    set(symbol deepinfer_console_${number})
    math(EXPR number "${number} + 1")
    set(path "/${name}")
    if(name STREQUAL "index.html")
      set(path "/")
    endif()
    string(APPEND rows "      {\"${path}\", \"${types_${extension}}\", {${symbol}_begin, ${symbol}_end}},\n")
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/console_table.cc @ONLY CONTENT
"#include \"serve/console_files.h\"
${declarations}namespace deepinfer {
std::span<const ConsoleFile> console_files() {
  static const ConsoleFile files[] = {
${rows}      {}};
  return std::span(files).first(std::size(files) - 1);
}
}  // namespace deepinfer
")
  target_sources(${target} PRIVATE ${CMAKE_BINARY_DIR}/generated/console_table.cc)
endfunction()
