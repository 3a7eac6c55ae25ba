// SPDX-License-Identifier: MIT
// Tool declarations of the Responses protocol: functions, namespaces that become flat names, the custom tool
// apply_patch, client tool search, web search. Source: chat.md 3.3.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "protocol/codec.h"
#include "protocol/tool_rule.h"

namespace deepinfer {

class ResponsesTools {
 public:
  ResponsesTools(PromptVersion version, const DecodeOptions& options, ResponseContext& context)
      : version_(version), options_(options), context_(context) {}

  // Declarations at `path` ("tools", "input[3].tools"); those found by a search are deferred.
  Refusal declare(const Json& tools, const std::string& path, bool found_by_search, std::vector<DeclaredTool>& out);

  // Flat name for a call of the history.
  std::string name_of_call(const std::string& name, const std::string* name_space);

  // The declarations as a response object repeats them.
  static Json echoed(const Json& tools);
  // The same as the text of a search result: namespaces flattened. `found_unknown` when one has a type we do not know.
  static Json found_tools(const Json& tools, bool& found_unknown);

 private:
  Refusal declare_function(const Json& tool, const std::string& path, std::vector<DeclaredTool>& out);
  Refusal declare_namespace(const Json& tool, const std::string& path, bool found_by_search,
                            std::vector<DeclaredTool>& out);
  Refusal declare_custom(const Json& tool, std::vector<DeclaredTool>& out);
  void declare_search(const Json& tool, std::vector<DeclaredTool>& out);
  std::string flat_name(const std::string& name_space, const std::string& name);

  PromptVersion version_;
  const DecodeOptions& options_;
  ResponseContext& context_;
  std::set<std::string> taken_;
  std::map<std::pair<std::string, std::string>, std::string> flat_names_;  // namespace, name
};

}  // namespace deepinfer
