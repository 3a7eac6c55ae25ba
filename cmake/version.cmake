# SPDX-License-Identifier: MIT
# Version header; included by two files only, so a new commit rebuilds little.
execute_process(COMMAND git -C ${CMAKE_SOURCE_DIR} rev-parse --short=10 HEAD OUTPUT_VARIABLE DEEPINFER_COMMIT
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT DEEPINFER_COMMIT)
  set(DEEPINFER_COMMIT unknown)
endif()
set(DEEPINFER_BACKENDS cpu)
if(NOT DEEPINFER_ACCELERATOR STREQUAL "cpu")
  set(DEEPINFER_BACKENDS "cpu ${DEEPINFER_ACCELERATOR}")
endif()
configure_file(${CMAKE_SOURCE_DIR}/cmake/version.h.in ${CMAKE_BINARY_DIR}/generated/include/deepinfer_version.h @ONLY)
