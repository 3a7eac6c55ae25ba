// SPDX-License-Identifier: MIT
// The one custom tool of the Responses protocol: file edits as a patch text. The model sees it as a function with one
// string parameter `input`, in the words it was trained with. Source: chat.md appendix A.
#pragma once

#include "chat/chat_request.h"

namespace deepinfer {

inline constexpr const char* kApplyPatch = "apply_patch";

ToolDefinition apply_patch_tool(PromptVersion version);

}  // namespace deepinfer
