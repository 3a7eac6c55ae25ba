# SPDX-License-Identifier: MIT
"""The public names of deepseek-recipe 0.2.0, for programs that change their import:

    from deepinfer_cpp import recipe as deepseek_recipe

Requests are read and answers written as that package does (with its known defects repaired). README.md says what is
covered and where this differs; names that are not covered are absent, so that an import of one fails at once.
"""

from __future__ import annotations

from ._recipe_conversation import (
    AssistantMessage,
    BytesImageSource,
    Conversation,
    DataUrlImageSource,
    ImageSource,
    LatestReminderMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolDefinition,
    ToolMessage,
    UrlImageSource,
    UserMessage,
)
from ._recipe_request import (
    ChatCompletionRequest,
    ConversationRequest,
    ConversionError,
    ConversionOptions,
    DeepseekV4Encoding,
    DeepseekV41Encoding,
    InferenceOptions,
    MessagesRequest,
    OutputConstraint,
    ParsingOptions,
    RenderedPrompt,
    ResponsesEcho,
    ResponsesRequest,
    Tokenizer,
)
from ._recipe_response import (
    ChatCompletionChunk,
    ChatCompletionChunkGenerator,
    ChatCompletionResponse,
    InferenceChunk,
    MessagesChunkGenerator,
    MessagesResponse,
    MessagesStreamEvent,
    PromptUsage,
    ResponsesChunkGenerator,
    ResponsesResponse,
    ResponsesStreamEvent,
    StreamProcessor,
)
from ._recipe_tokens import (
    IMAGE_SPECIAL_TOKEN_ID,
    InferenceFinishReason,
    ModelVersion,
    ReasoningContentBehavior,
    SpecialToken,
    SpecialTokens,
    ThinkingInitialStage,
    WebSearchBehavior,
)

__version__ = "0.2.0"

__all__ = [
    "IMAGE_SPECIAL_TOKEN_ID",
    "AssistantMessage",
    "BytesImageSource",
    "ChatCompletionChunk",
    "ChatCompletionChunkGenerator",
    "ChatCompletionRequest",
    "ChatCompletionResponse",
    "Conversation",
    "ConversationRequest",
    "ConversionError",
    "ConversionOptions",
    "DataUrlImageSource",
    "DeepseekV41Encoding",
    "DeepseekV4Encoding",
    "ImageSource",
    "InferenceChunk",
    "InferenceFinishReason",
    "InferenceOptions",
    "LatestReminderMessage",
    "Message",
    "MessagesChunkGenerator",
    "MessagesRequest",
    "MessagesResponse",
    "MessagesStreamEvent",
    "ModelVersion",
    "OutputConstraint",
    "ParsingOptions",
    "PromptUsage",
    "ReasoningContentBehavior",
    "RenderedPrompt",
    "ResponsesChunkGenerator",
    "ResponsesEcho",
    "ResponsesRequest",
    "ResponsesResponse",
    "ResponsesStreamEvent",
    "SpecialToken",
    "SpecialTokens",
    "StreamProcessor",
    "SystemMessage",
    "ThinkingInitialStage",
    "Tokenizer",
    "ToolCall",
    "ToolDefinition",
    "ToolMessage",
    "UrlImageSource",
    "UserMessage",
    "WebSearchBehavior",
    "__version__",
]
