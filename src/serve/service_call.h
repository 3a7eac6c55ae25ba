// SPDX-License-Identifier: MIT
// For the service's own .cc files: a request on its way, and the table of routes.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "serve/service.h"

namespace deepinfer {

struct Service::Call {
  HttpRequest request;
  std::shared_ptr<HttpExchange> exchange;
  std::shared_ptr<RequestTicket> ticket;
  const Route* route = nullptr;
  std::string rest;  // of the path, behind a route that ends in '/'
  bool is_admin_port = false;
  std::shared_ptr<std::atomic<bool>> is_gone = std::make_shared<std::atomic<bool>>(false);  // the client
};

struct Service::Route {
  const char* method;
  const char* path;  // one that ends in '/' takes what follows as `rest`
  Handler handler;
  const char* codec = nullptr;      // whose protocol it speaks
  bool open = false;                // needs no key
  bool is_admin = false;            // on the admin port too
  const char* operation = nullptr;  // its name in the OpenAPI document; null: not in there
};

// Of the admin port alone; posted.
struct Service::AdminAction {
  const char* path;
  Handler handler;
};

}  // namespace deepinfer
