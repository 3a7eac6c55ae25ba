// SPDX-License-Identifier: MIT
// deepinfer chat: a conversation in the terminal. The answer streams, reasoning is dimmed, Ctrl-C stops the answer and
// not the program. Lines that begin with / are commands; /help lists them.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/file.h"
#include "serve/answer_reader.h"
#include "serve/request_preparer.h"
#include "serve/sampling_of.h"
#include "serve/step_loop.h"
#include "tools/answer_printer.h"
#include "tools/command.h"
#include "tools/engine_target.h"
#include "tools/interrupt.h"
#include "tools/model_options.h"

namespace deepinfer {
namespace {

struct ChatArguments {
  ModelOptions model;
  std::string system, thinking = "off";
  double temperature = 0.0;
  int64_t max_tokens = 1024, context = 0;
};

constexpr const char* kHelp =
    "/help             this text\n"
    "/new              forget the conversation\n"
    "/system TEXT      set the system message and start anew\n"
    "/thinking off|on|max\n"
    "/temperature T    0 = always the likeliest token\n"
    "/image FILE       attach a picture to the next message\n"
    "/undo             take back the last exchange\n"
    "/stats            figures of the last answer\n"
    "/quit             leave (or Ctrl-D)\n"
    "Ctrl-C stops the answer.\n";

class ChatSession {
 public:
  ChatSession(ChatArguments arguments, RequestPreparer& preparer, StepLoop& loop)
      : arguments_(std::move(arguments)), preparer_(preparer), loop_(loop) {
    start_anew();
  }

  // False to leave.
  bool take_line(const std::string& line) {
    if (line.empty()) return true;
    if (line[0] == '/') return take_command(line);
    Message message{.role = Role::kUser};
    message.content.text = line;
    for (ImageSource& image : images_) {
      message.content.image_offsets.push_back(0);
      message.content.images.push_back(std::move(image));
    }
    images_.clear();
    messages_.push_back(std::move(message));
    answer();
    return true;
  }

 private:
  void start_anew() {
    messages_.clear();
    if (arguments_.system.empty()) return;
    Message system{.role = Role::kSystem};
    system.content.text = arguments_.system;
    messages_.push_back(std::move(system));
  }

  bool take_command(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string name = line.substr(0, space), value = space == std::string::npos ? "" : line.substr(space + 1);
    if (name == "/quit" || name == "/exit") return false;
    if (name == "/help") fmt::print("{}", kHelp);
    else if (name == "/new") start_anew();
    else if (name == "/system") {
      arguments_.system = value;
      start_anew();
    } else if (name == "/thinking" && (value == "off" || value == "on" || value == "max")) arguments_.thinking = value;
    else if (name == "/temperature") arguments_.temperature = std::atof(value.c_str());
    else if (name == "/image") attach(value);
    else if (name == "/undo") undo();
    else if (name == "/stats") fmt::print("{}\n", stats_);
    else fmt::print("unknown command {}; /help lists them\n", line);
    return true;
  }

  void attach(const std::string& path) {
    auto bytes = read_file(path, size_t{32} << 20);
    if (!bytes.ok()) {
      fmt::print("{}\n", bytes.status().message());
      return;
    }
    images_.push_back({.kind = ImageSource::Kind::kBytes, .path = path, .value = std::move(bytes).value()});
  }

  void undo() {
    while (!messages_.empty() && messages_.back().role != Role::kUser) messages_.pop_back();
    if (!messages_.empty()) messages_.pop_back();
  }

  ChatRequest request() const {
    ChatRequest chat;
    chat.conversation.messages = messages_;
    chat.conversation.thinking = arguments_.thinking != "off";
    if (chat.conversation.thinking) {
      chat.conversation.effort = arguments_.thinking == "max" ? ReasoningEffort::kMax : ReasoningEffort::kHigh;
      chat.parsing.thinking_stage = ThinkingStage::kReasoningStart;
    }
    chat.inference.temperature = static_cast<float>(arguments_.temperature);
    chat.inference.max_tokens = static_cast<uint32_t>(arguments_.max_tokens);
    return chat;
  }

  void answer() {
    PreparedRequest prepared;
    if (const Refusal refusal = preparer_.prepare(request(), prepared)) {
      fmt::print("{}\n", refusal->message);
      undo();
      return;
    }
    AnswerPrinter printer;
    AnswerReader reader(preparer_.tokenizer(), &preparer_.vocabulary(), prepared.chat.parsing,
                        [&](AnswerReader::Part part, std::string_view piece) { printer.print(part, piece); });
    run(prepared, reader);
    printer.end();
    for (const Json& call : reader.tool_calls) fmt::print("\n[call] {}", to_json(call));
    fmt::print("\n");
    Message message{.role = Role::kAssistant};
    message.content.text = reader.text;
    if (!reader.reasoning.empty()) message.reasoning = reader.reasoning;
    messages_.push_back(std::move(message));
  }

  void run(PreparedRequest& prepared, AnswerReader& reader) {
    LoopRequest request{.sampling = prepared.sampling, .images = std::move(prepared.images)};
    const size_t num_prompt = prepared.tokens.size();
    request.sequence.prompt = std::move(prepared.tokens);
    request.sequence.media = std::move(prepared.media);
    request.sequence.max_output_tokens = prepared.max_tokens;
    request.sequence.stop_ids = ending_ids(prepared.sampling);
    bool done = false;
    int64_t num_tokens = 0;
    const auto id = loop_.submit(std::move(request), [&](const LoopUpdate& update) {
      for (const TokenId token : update.tokens)
        if (!reader.push(token, ends_sequence(prepared.sampling, token, num_tokens++))) loop_.cancel(update.id);
      if (!update.refused.ok()) fmt::print("{}", update.refused.message());
      if (update.record) note(*update.record, num_prompt, num_tokens);
      done = update.finished || !update.refused.ok();
    });
    if (!id.ok()) return;
    while (!done) {
      if (interrupted()) {
        loop_.cancel(id.value());
        clear_interrupt();
      }
      if (const auto ran = loop_.run_step(); !ran.ok()) {
        fmt::print("{}\n", ran.status().message());
        return;
      }
    }
    reader.finish(BackendFinish::kStop);
  }

  void note(const SequenceRecord& r, size_t num_prompt, int64_t num_tokens) {
    const double decode_s = static_cast<double>(r.finished_ns - r.first_token_ns) * 1e-9;
    stats_ = fmt::format(
        "{} prompt tokens, {} from the cache; first token after {:.2f} s; {} tokens at {:.1f} tokens/s; {} of {} "
        "drafts accepted",
        num_prompt, r.num_cached_tokens, static_cast<double>(r.first_token_ns - r.arrival_ns) * 1e-9, num_tokens,
        decode_s > 0 ? static_cast<double>(num_tokens - 1) / decode_s : 0.0, r.num_accepted, r.num_verified);
  }

  ChatArguments arguments_;
  RequestPreparer& preparer_;
  StepLoop& loop_;
  std::vector<Message> messages_;
  std::vector<ImageSource> images_;
  std::string stats_ = "no answer yet";
};

// One line from standard input; false at its end. Ctrl-C at the prompt clears the line.
bool read_line(std::string& line) {
  line.clear();
  for (;;) {
    const int c = std::getchar();
    if (c == EOF && interrupted()) {
      clear_interrupt();
      std::clearerr(stdin);
      fmt::print("\n> ");
      std::fflush(stdout);
      continue;
    }
    if (c == EOF) return !line.empty();
    if (c == '\n') {
      if (isatty(0) == 0) fmt::print("{}\n", line);  // from a pipe nobody has seen it yet
      return true;
    }
    line.push_back(static_cast<char>(c));
  }
}

Status run_chat(const ChatArguments& arguments) {
  const SystemClock clock;
  ASSIGN_OR_RETURN(const Target target, engine_target(arguments.model));
  ASSIGN_OR_RETURN(const LoadedModel model, load_model(arguments.model));
  const ModelConfig& config = model.weights->config();
  const int64_t context = arguments.context > 0 ? arguments.context : std::min<int64_t>(config.context_max, 32768);
  EngineOptions engine_options;
  engine_options.num_threads = static_cast<int>(arguments.model.num_threads);
  engine_options.target = target;
  engine_options.expert_bytes_max = model.expert_bytes_max;
  engine_options.lanes_max = 1;
  engine_options.blocks_max = BlockTable::blocks_for(context) + 8;
  ASSIGN_OR_RETURN(const auto engine, Engine::open(model.weights, model.token_map, engine_options));
  ASSIGN_OR_RETURN(const auto preparer,
                   RequestPreparer::create(model, target, static_cast<int>(arguments.model.num_threads), context));
  StepLoopOptions options;
  options.pipelined = false;  // one reader, who sees every token as it comes
  options.scheduler.num_lanes = 1;
  options.scheduler.rows_max = engine_options.rows_max;
  options.scheduler.context_tokens_max = context;
  options.scheduler.num_drafts = draft_run_max(config);
  options.scheduler.has_draft_head = config.draft.num_layers > 0;
  StepLoop loop(*engine, options, clock);
  ChatSession session(arguments, *preparer, loop);
  if (isatty(0) == 1)
    fmt::print("deepinfer chat with {}; /help lists commands, Ctrl-D leaves\n", arguments.model.model);
  std::string line;
  do {
    fmt::print("> ");
    std::fflush(stdout);
  } while (read_line(line) && session.take_line(line));
  fmt::print("\n");
  return {};
}

}  // namespace

Command chat_command() {
  const auto arguments = std::make_shared<ChatArguments>();
  return {
      .name = "chat",
      .summary = "a conversation in the terminal",
      .examples = "  deepinfer chat\n  deepinfer chat --model checkpoint/ --thinking on --system \"Answer briefly.\"\n",
      .declare =
          [arguments](OptionSet& options) {
            declare_model_options(options, arguments->model);
            options.add("--system", arguments->system, "system message");
            options.choice("--thinking", arguments->thinking, {"off", "on", "max"},
                           "whether answers begin with reasoning (default off)");
            options.add("--temperature", arguments->temperature, {0, 100},
                        "0 = always the likeliest token (default 0)");
            options.add("--max-tokens", arguments->max_tokens, {1, 1 << 24}, "longest answer in tokens (default 1024)");
            options.add("--context", arguments->context,
                        "tokens of the whole conversation (default: the model's, at most 32768)");
          },
      .run = [arguments] { return exit_status(run_chat(*arguments)); }};
}

}  // namespace deepinfer
