// SPDX-License-Identifier: MIT
#include "protocol/responses_tools.h"

#include <fmt/format.h>

#include "protocol/apply_patch_tool.h"
#include "protocol/request_body.h"

namespace deepinfer {

namespace {

const std::string& type_of(const Json& tool) { return tool.find("type")->as_string(); }

Json value_or_null(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value ? *value : Json();
}

DeclaredTool declared_function(const Json& tool, std::string name) {
  DeclaredTool declared;
  declared.tool.name = std::move(name);
  if (const Json* description = member(tool, "description")) declared.tool.description = description->as_string();
  if (const Json* strict = member(tool, "strict")) declared.tool.strict = strict->as_bool();
  if (const Json* parameters = member(tool, "parameters")) {
    declared.has_parameters = true;
    declared.tool.parameters = *parameters;
  }
  return declared;
}

Json echoed_function(const Json& tool) {
  return Json::Object{{"type", tool.find("type")->as_string()},
                      {"name", value_or_null(tool, "name")},
                      {"description", value_or_null(tool, "description")},
                      {"parameters", value_or_null(tool, "parameters")},
                      {"strict", value_or_null(tool, "strict")}};
}

bool is_web_search(const std::string& type) { return type == "web_search" || type == "web_search_2025_08_26"; }

// Null for a type we do not know.
Json echoed_tool(const Json& tool) {
  const std::string& type = type_of(tool);
  if (type == "function") return echoed_function(tool);
  if (type == "custom") return Json::Object{{"type", type}, {"name", value_or_null(tool, "name")}};
  if (type == "tool_search")
    return Json::Object{{"type", type},
                        {"execution", value_or_null(tool, "execution")},
                        {"description", value_or_null(tool, "description")},
                        {"parameters", value_or_null(tool, "parameters")}};
  if (is_web_search(type))
    return Json::Object{{"type", type},
                        {"search_context_size", value_or_null(tool, "search_context_size")},
                        {"user_location", value_or_null(tool, "user_location")}};
  if (type != "namespace") return nullptr;
  Json::Array inner;
  for (const Json& each : tool.find("tools")->as_array()) inner.push_back(echoed_tool(each));
  return Json::Object{{"type", type},
                      {"name", value_or_null(tool, "name")},
                      {"description", value_or_null(tool, "description")},
                      {"tools", std::move(inner)}};
}

}  // namespace

Json ResponsesTools::echoed(const Json& tools) {
  Json::Array out;
  for (const Json& tool : tools.as_array())
    if (Json each = echoed_tool(tool); !each.is_null()) out.push_back(std::move(each));
  return out;
}

Json ResponsesTools::found_tools(const Json& tools, bool& found_unknown) {
  Json::Array out;
  for (const Json& tool : tools.as_array()) {
    if (type_of(tool) == "namespace") {
      const Json* description = member(tool, "description");
      const Json name_space(
          Json::Object{{"name", *tool.find("name")}, {"description", description ? *description : Json("")}});
      for (const Json& inner : tool.find("tools")->as_array()) {
        Json each = echoed_tool(inner);
        each.set("namespace", name_space);
        out.push_back(std::move(each));
      }
      continue;
    }
    Json each = echoed_tool(tool);
    found_unknown = found_unknown || each.is_null();
    out.push_back(std::move(each));
  }
  return out;
}

Refusal ResponsesTools::declare(const Json& tools, const std::string& path, bool found_by_search,
                                std::vector<DeclaredTool>& out) {
  const size_t first = out.size();
  for (const Json& tool : tools.as_array())  // plain names come before joined ones, wherever they stand
    if (type_of(tool) == "function") taken_.insert(tool.find("name")->as_string());
  for (size_t i = 0; i < tools.as_array().size(); ++i) {
    const Json& tool = tools.as_array()[i];
    const std::string &type = type_of(tool), at = fmt::format("{}[{}]", path, i);
    if (type == "function") REFUSE_IF(declare_function(tool, at, out));
    if (type == "namespace") REFUSE_IF(declare_namespace(tool, at, found_by_search, out));
    if (type == "custom") REFUSE_IF(declare_custom(tool, out));
    if (type == "tool_search") declare_search(tool, out);
    if (is_web_search(type) && options_.responses_web_search == WebSearch::kReject)
      return refuse("Server tools are not supported", at);
  }
  for (size_t i = first; i < out.size(); ++i) out[i].tool.defer_loading = found_by_search;
  return {};
}

Refusal ResponsesTools::declare_function(const Json& tool, const std::string& path, std::vector<DeclaredTool>& out) {
  const std::string& name = tool.find("name")->as_string();
  REFUSE_IF(check_tool_name(name, path));
  out.push_back(declared_function(tool, name));
  return {};
}

Refusal ResponsesTools::declare_namespace(const Json& tool, const std::string& path, bool found_by_search,
                                          std::vector<DeclaredTool>& out) {
  const std::string& name_space = tool.find("name")->as_string();
  REFUSE_IF(check_tool_name(name_space, path));
  const Json* description = member(tool, "description");
  const std::string about = version_ == PromptVersion::kV41 && description && !description->as_string().empty()
                                ? description->as_string() + "\n"
                                : "";
  std::set<std::string> names;
  const Json::Array& inner = tool.find("tools")->as_array();
  for (size_t i = 0; i < inner.size(); ++i) {
    const std::string& name = inner[i].find("name")->as_string();
    const std::string at = fmt::format("{}.tools[{}]", path, i);
    if (type_of(inner[i]) == "custom")
      return refuse(
          fmt::format("Currently custom tools are not allowed inside a namespace. Found custom tool '{}' in {}.", name,
                      at),
          at);
    REFUSE_IF(check_tool_name(name, at));
    if (!names.insert(name).second) return refuse("Tool names within a namespace must be unique.", at);
    DeclaredTool declared = declared_function(inner[i], flat_name(name_space, name));
    if (!about.empty()) declared.tool.description = about + declared.tool.description.value_or("");
    // The original reports calls of tools that a search found by their flat names.
    if (!found_by_search || !options_.recipe_compatible)
      context_.namespaced_tools[declared.tool.name] = {name_space, name};
    out.push_back(std::move(declared));
  }
  return {};
}

Refusal ResponsesTools::declare_custom(const Json& tool, std::vector<DeclaredTool>& out) {
  const std::string& name = tool.find("name")->as_string();
  if (name != kApplyPatch)
    return refuse(fmt::format("Unsupported custom tool: '{}'. Only 'apply_patch' is supported.", name), "tools");
  context_.custom_tools.insert(name);
  out.push_back({apply_patch_tool(version_), true});
  return {};
}

void ResponsesTools::declare_search(const Json& tool, std::vector<DeclaredTool>& out) {
  const Json* execution = member(tool, "execution");
  if (!execution || execution->as_string() != "client") return;
  context_.client_tool_search =
      true;  // also where the template cannot declare it: a call of that name is reported as one
  if (version_ != PromptVersion::kV41) return;
  out.push_back(declared_function(tool, "tool_search"));
}

std::string ResponsesTools::flat_name(const std::string& name_space, const std::string& name) {
  const bool joins_plainly = name_space.ends_with('_') || name.starts_with('_');
  const std::string joined = name_space + (version_ == PromptVersion::kV41 ? "::" : joins_plainly ? "" : "__") + name;
  std::string flat = joined;
  for (int i = 1; !taken_.insert(flat).second; ++i) flat = fmt::format("{}_{}", joined, i);
  flat_names_.emplace(std::pair(name_space, name), flat);
  return flat;
}

std::string ResponsesTools::name_of_call(const std::string& name, const std::string* name_space) {
  if (!name_space) return name;
  const auto known = flat_names_.find({*name_space, name});
  return known != flat_names_.end() ? known->second : flat_name(*name_space, name);
}

}  // namespace deepinfer
