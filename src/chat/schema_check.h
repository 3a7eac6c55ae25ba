// SPDX-License-Identifier: MIT
// Whether a JSON value is a JSON Schema: keywords have the form their draft's meta-schema asks for, patterns are
// regular expressions, references that a reader would follow lead somewhere inside the schema. Nothing is ever fetched.
// Drafts 4, 6, 7, 2019-09 and 2020-12 (the default) by "$schema". Source: the drafts' meta-schemas.
#pragma once

#include "base/json.h"
#include "base/status.h"

namespace deepinfer {

// invalid_argument: what is wrong, with a JSON pointer to the place.
Status check_json_schema(const Json& schema);

}  // namespace deepinfer
