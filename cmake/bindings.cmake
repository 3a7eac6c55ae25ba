# SPDX-License-Identifier: MIT
# The codec's C library (decision 23): libdeepinfer_codec.so of src/bindings/c and the codec's folders, nothing else. It
# exports what the version script names; check_abi holds it to the committed list. Also read by python/CMakeLists.txt.
set(DEEPINFER_BINDINGS_C ${CMAKE_CURRENT_LIST_DIR}/../src/bindings/c)

# Makes `deepinfer_codec` from the sources or objects given; the caller links what they need.
function(deepinfer_add_codec_library)
  add_library(deepinfer_codec SHARED ${ARGN})
  target_include_directories(deepinfer_codec INTERFACE ${DEEPINFER_BINDINGS_C})
  set(script ${DEEPINFER_BINDINGS_C}/codec.map)
  target_link_options(deepinfer_codec PRIVATE -Wl,--version-script=${script} -Wl,--gc-sections -Wl,--as-needed
                      -Wl,-Map=${CMAKE_CURRENT_BINARY_DIR}/deepinfer_codec.link_map)
  if(NOT DEEPINFER_SANITIZE)  # a sanitizer's own symbols may come from the program
    target_link_options(deepinfer_codec PRIVATE -Wl,--no-undefined)
  endif()
  set_target_properties(deepinfer_codec PROPERTIES LINK_DEPENDS ${script} BUILD_RPATH "$ORIGIN" INSTALL_RPATH "$ORIGIN"
                        BUILD_WITH_INSTALL_RPATH ON)
endfunction()

# The engine's C library: libdeepinfer_engine.so of src/bindings/engine over everything up to serve.
function(deepinfer_add_engine_bindings)
  set(folder ${CMAKE_SOURCE_DIR}/src/bindings/engine)
  set(script ${folder}/engine.map)
  # c_boundary.cc is what both libraries do at their edge; it needs base alone.
  add_library(deepinfer_engine_abi STATIC ${folder}/engine_calls.cc ${DEEPINFER_BINDINGS_C}/c_boundary.cc)
  target_include_directories(deepinfer_engine_abi PUBLIC ${folder} ${DEEPINFER_BINDINGS_C})
  target_compile_definitions(deepinfer_engine_abi PRIVATE DEEPINFER_ENGINE_VERSION="${PROJECT_VERSION}")
  target_link_libraries(deepinfer_engine_abi PUBLIC deepinfer_serve PRIVATE fmt::fmt)
  file(GLOB tests CONFIGURE_DEPENDS ${folder}/*_test.cc)
  deepinfer_add_tests(engine_abi "${tests}")

  add_library(deepinfer_engine_library SHARED $<TARGET_OBJECTS:deepinfer_engine_abi>)
  target_include_directories(deepinfer_engine_library INTERFACE ${folder} ${DEEPINFER_BINDINGS_C})
  target_link_libraries(deepinfer_engine_library PRIVATE deepinfer_serve fmt::fmt)
  target_link_options(deepinfer_engine_library PRIVATE -Wl,--version-script=${script} -Wl,--gc-sections -Wl,--as-needed)
  set_target_properties(deepinfer_engine_library PROPERTIES
    OUTPUT_NAME deepinfer_engine VERSION 1.0.0 SOVERSION 1 LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib
    LINK_DEPENDS ${script} BUILD_RPATH "$ORIGIN" INSTALL_RPATH "$ORIGIN" BUILD_WITH_INSTALL_RPATH ON)
  foreach(program generate layout)
    set(target engine_example_${program})
    add_executable(${target} ${folder}/examples/${program}.c)
    set_target_properties(${target} PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF
                          BUILD_RPATH "$ORIGIN/../lib")
    target_compile_options(${target} PRIVATE -Wpedantic)
    target_link_libraries(${target} PRIVATE deepinfer_engine_library)
  endforeach()
  add_test(NAME engine_examples COMMAND ${CMAKE_SOURCE_DIR}/scripts/test_engine_examples ${CMAKE_BINARY_DIR})
  if(NOT DEEPINFER_SANITIZE)
    add_test(NAME engine_abi_check COMMAND ${CMAKE_SOURCE_DIR}/scripts/check_abi ${CMAKE_BINARY_DIR} --library engine)
  endif()
endfunction()

function(deepinfer_add_codec_bindings)
  file(GLOB sources CONFIGURE_DEPENDS ${DEEPINFER_BINDINGS_C}/*.cc)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  set(fuzzers ${sources})
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_(test|fuzz)\\.cc$")
  add_library(deepinfer_codec_abi STATIC ${sources})
  target_compile_definitions(deepinfer_codec_abi PRIVATE DEEPINFER_CODEC_VERSION="${PROJECT_VERSION}")
  target_link_libraries(deepinfer_codec_abi PUBLIC deepinfer_protocol deepinfer_grammar PRIVATE fmt::fmt)
  deepinfer_add_tests(codec_abi "${tests}")
  deepinfer_add_fuzz(codec_abi "${fuzzers}")

  deepinfer_add_codec_library($<TARGET_OBJECTS:deepinfer_codec_abi>)
  target_link_libraries(deepinfer_codec PRIVATE deepinfer_protocol deepinfer_grammar)
  set_target_properties(deepinfer_codec PROPERTIES VERSION 1.0.0 SOVERSION 1
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
  foreach(program encode stream layout)
    set(target codec_example_${program})
    add_executable(${target} ${DEEPINFER_BINDINGS_C}/examples/${program}.c)
    set_target_properties(${target} PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF
                          BUILD_RPATH "$ORIGIN/../lib")
    target_compile_options(${target} PRIVATE -Wpedantic)
    target_link_libraries(${target} PRIVATE deepinfer_codec)
  endforeach()
  add_test(NAME codec_examples COMMAND ${CMAKE_SOURCE_DIR}/scripts/test_codec_examples ${CMAKE_BINARY_DIR})
  if(NOT DEEPINFER_SANITIZE)  # whose libraries would stand among the dependencies
    add_test(NAME codec_abi_check COMMAND ${CMAKE_SOURCE_DIR}/scripts/check_abi ${CMAKE_BINARY_DIR})
    add_test(NAME python COMMAND ${CMAKE_SOURCE_DIR}/scripts/test_python)
    set_tests_properties(python PROPERTIES LABELS slow TIMEOUT 1800 SKIP_RETURN_CODE 77)
  endif()
endfunction()
