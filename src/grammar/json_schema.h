// SPDX-License-Identifier: MIT
// JSON Schema to a grammar node. Draft 2020-12 with the spellings of drafts 4 to 2019-09. The grammar accepts exactly
// the JSON texts (with the spellings of number_language.h for numbers, of string_scan.h for strings, and the
// white-space policy) whose value satisfies the schema, or the schema is refused: unimplemented names keyword and path,
// invalid_argument what is no schema, resource_exhausted the limit. Members of one object that no schema names may
// repeat a key.
#pragma once

#include <string>

#include "base/json.h"
#include "base/status.h"
#include "grammar/machine.h"

namespace deepinfer {

enum class PropertyOrder { kSchema, kAny };

struct JsonSchemaOptions {
  PropertyOrder order = PropertyOrder::kSchema;
  // Accept what cannot be decided exactly: oneOf as anyOf, hostnames without A-labels, content keywords as annotations.
  bool lenient = false;
  // For answers: integers are digits alone, not 3.0 or 3e0, and no number leads nowhere; SchemaReader::spelled().
  bool digits_only = false;
};

// Adds the schema's values to `program` and returns their node. A schema that no value satisfies gives a node without
// texts. `schema` is only read during the call.
Result<NodeId> add_json_schema(GrammarProgram& program, const Json& schema, const JsonSchemaOptions& options);

}  // namespace deepinfer
