// SPDX-License-Identifier: MIT
// The OpenAPI document of the service, made from what the service runs on: its table of routes, and the shapes that
// bodies are checked against. What answers look like is described here; scripts/test_openapi holds a running service to
// it. Source: OpenAPI 3.1.0.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"

namespace deepinfer {

struct ApiOperation {
  const char* method;
  const char* path;   // one that ends in '/' takes an id behind it
  const char* name;   // operationId
  bool open = false;  // needs no key
  const char* codec = nullptr;
};

Json openapi_document(std::span<const ApiOperation> operations, const std::string& version,
                      const std::vector<std::string>& served_names);

}  // namespace deepinfer
