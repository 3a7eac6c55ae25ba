// SPDX-License-Identifier: MIT
// Forms of a schema to nodes of a program, and which of the nodes have texts at all.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "grammar/json_schema.h"
#include "grammar/schema_reader.h"

namespace deepinfer {

class SchemaLowering {
 public:
  SchemaLowering(GrammarProgram& program, SchemaReader& reader, PropertyOrder order, bool digits_only)
      : program_(program), reader_(reader), order_(order), digits_only_(digits_only) {}

  Result<NodeId> lower(TermId term);

  // Values that are written outside JSON when they are strings.
  struct SplitValue {
    RegexId string = RegexPool::kNone;  // the strings among the values
    NodeId others = 0;                  // the rest, as JSON text
    bool has_others = false;
  };
  // All terms of a grammar at once: what they share is lowered once.
  Result<std::vector<SplitValue>> lower_split(const std::vector<TermId>& terms);

 private:
  // A key class: the keys outside all names, with what holds for them.
  struct KeyClass {
    RegexId keys;
    TermId term;
    uint32_t obligations;
  };

  NodeId node_of(TermId term);
  std::string path_of(TermId term);
  Status refuse(const char* keyword, const char* why) const;
  Status lower_one(TermId term);
  // Nodes of the form's values that are no strings.
  Result<std::vector<NodeId>> other_ways(const Form& form);
  Status lower_open();
  Status add_objects(const ObjectRule& rule, std::vector<NodeId>& ways);
  Status spread_some(ObjectRule rule, size_t at, std::vector<ObjectRule::Keyed> pending, std::vector<NodeId>& ways);
  Status add_object(const ObjectRule& rule, const std::vector<ObjectRule::Keyed>& some, std::vector<NodeId>& ways);
  Result<std::vector<KeyClass>> key_classes(const ObjectRule& rule, const std::vector<ObjectRule::Keyed>& some);
  Status add_array(const ArrayRule& rule, std::vector<NodeId>& ways);
  Status add_unique_array(const ArrayRule& rule, std::vector<NodeId>& ways);
  std::vector<std::string> names_of(const ObjectRule& rule) const;

  void find_productive(NodeId first);
  bool is_productive(NodeId node) const;
  bool is_productive(const ObjectShape& shape) const;
  bool is_productive(const ArrayShape& shape) const;
  void drop_unproductive(NodeId first);

  GrammarProgram& program_;
  SchemaReader& reader_;
  PropertyOrder order_;
  bool digits_only_;
  uint64_t number_work_ = 0;  // spent on searching ahead
  std::unordered_map<TermId, NodeId> nodes_;
  std::vector<TermId> open_;
  std::vector<bool> productive_;
  size_t num_lowered_ = 0;
  std::string where_ = "#";  // path of the schema being lowered
};

}  // namespace deepinfer
