// SPDX-License-Identifier: MIT
// Every recorded stream of testdata/codec/responses.jsonl.gz, in all the protocols it was recorded for, read as the
// original reads it; and the same streams cut at every other place, which must give the same answer.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "chat/output_vocabulary.h"
#include "protocol/response_replay.h"

namespace deepinfer {
namespace {

const std::string kFolder = std::string(DEEPINFER_TESTDATA) + "/codec/";

const OutputVocabulary& vocabulary() {
  static const OutputVocabulary* loaded = [] {
    auto tokenizer = Tokenizer::load(kFolder + "tokenizer_v41.json.gz");
    CHECK(tokenizer.ok());
    auto made = OutputVocabulary::create(tokenizer.value());
    CHECK(made.ok());
    return new OutputVocabulary(made.value());
  }();
  return *loaded;
}

const std::vector<Json>& records() {
  static const std::vector<Json>* loaded = [] {
    const auto text = read_file(kFolder + "responses.jsonl.gz");
    CHECK(text.ok());
    auto* list = new std::vector<Json>;
    std::string_view rest = text.value();
    while (!rest.empty()) {
      const size_t end = rest.find('\n');
      auto record = parse_json(rest.substr(0, end));
      CHECK(record.ok());
      list->push_back(std::move(record).value());
      rest.remove_prefix(end + 1);
    }
    return list;
  }();
  return *loaded;
}

// Ids of calls end in random characters, for which the records write `*`. Event numbers depend on how text was cut.
void normalise(Json& value) {
  if (value.is_string()) {
    std::string& text = value.as_string();
    if (text.size() < 10 || !text.starts_with("call_") || text[7] != '_') return;
    text = text.substr(0, text.substr(8, 3) == "ET_" ? 11 : 8) + "*";
  } else if (value.is_array()) {
    for (Json& item : value.as_array()) normalise(item);
  } else if (value.is_object()) {
    auto& members = value.as_object();
    std::erase_if(members, [](const Json::Member& member) { return member.first == "sequence_number"; });
    for (auto& [key, item] : members) normalise(item);
  }
}

// Where a delta event holds its text (nullptr: it is none), and its log probabilities (nullptr: it has none).
Json* delta_text(Json& event) {
  if (Json* choices = event.find("choices")) {
    Json& choice = choices->as_array()[0];
    if (!choice.find("finish_reason")->is_null()) return nullptr;
    Json* delta = choice.find("delta");
    if (delta->find("role") != nullptr) return nullptr;
    if (Json* calls = delta->find("tool_calls")) {
      Json& call = calls->as_array()[0];
      return call.find("id") == nullptr ? call.find("function")->find("arguments") : nullptr;
    }
    Json* content = delta->find("content");
    return content->is_string() ? content : delta->find("reasoning_content");
  }
  Json* data = event.find("data");
  Json* delta = data->find("delta");
  if (delta == nullptr || delta->is_string()) return delta;
  if (delta->find("signature") != nullptr || delta->find("stop_reason") != nullptr) return nullptr;
  for (const char* key : {"thinking", "text", "partial_json"}) {
    if (Json* text = delta->find(key)) return text;
  }
  return nullptr;
}

Json* delta_logprobs(Json& event) {
  if (Json* choices = event.find("choices")) {
    Json* logprobs = choices->as_array()[0].find("logprobs");
    if (!logprobs->is_object()) return nullptr;
    return &logprobs->as_object()[0].second;
  }
  return event.find("data")->find("logprobs");
}

// Joins neighbouring deltas that differ in their text alone.
Json joined(const Json& events) {
  Json::Array out;
  for (Json event : events.as_array()) {
    Json* text = delta_text(event);
    if (text != nullptr && !out.empty()) {
      Json before = out.back();
      if (Json* before_text = delta_text(before)) {
        Json same_before = before, same_event = event;
        *delta_text(same_before) = *delta_text(same_event) = "";
        if (Json* list = delta_logprobs(same_before)) *list = Json::Array{};
        if (Json* list = delta_logprobs(same_event)) *list = Json::Array{};
        if (same_before == same_event) {
          before_text->as_string() += text->as_string();
          Json* list = delta_logprobs(event);
          for (size_t i = 0; list != nullptr && i < list->as_array().size(); ++i) {
            delta_logprobs(before)->push_back(list->as_array()[i]);
          }
          out.back() = std::move(before);
          continue;
        }
      }
    }
    out.push_back(std::move(event));
  }
  return out;
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

// For records where the number of spaces around JSON is free: all texts without them.
void trim_texts(Json& value) {
  if (value.is_string()) value = trimmed(value.as_string());
  if (value.is_array()) std::for_each(value.as_array().begin(), value.as_array().end(), trim_texts);
  if (value.is_object()) {
    for (auto& [key, item] : value.as_object()) trim_texts(item);
  }
}

DecodedRequest decode(const std::string& protocol, const Json& request) {
  DecodeOptions options;
  options.recipe_compatible = true;
  DecodedRequest out;
  const Refusal refusal = find_codec(protocol)->decode(to_json(request), options, out);
  EXPECT_FALSE(refusal.has_value()) << refusal->message;
  return out;
}

struct Answer {
  Json events, final_object;
  size_t num_chunks_read = 0;
};

Answer replay(const std::string& protocol, const DecodedRequest& request, const Json& chunks, bool is_loose) {
  auto replayed = replay_response(vocabulary(), *find_codec(protocol), request, "resp-1", chunks);
  EXPECT_TRUE(replayed.ok()) << replayed.status().message();
  auto events = parse_json(replayed->events);
  auto final_object = parse_json(replayed->final_object);
  EXPECT_TRUE(events.ok() && final_object.ok()) << replayed->events << replayed->final_object;
  Answer answer{events.value(), final_object.value(), replayed->num_chunks_read};
  normalise(answer.events);
  normalise(answer.final_object);
  answer.events = joined(answer.events);
  if (is_loose) trim_texts(answer.events), trim_texts(answer.final_object);
  return answer;
}

// What a reply says, whatever the protocol.
struct Said {
  std::string content, reasoning, arguments;
};
Said said(const std::string& protocol, const Json& reply) {
  Said out;
  if (protocol == "chat") {
    const Json& message = *reply.find("choices")->as_array()[0].find("message");
    out.content = message.find("content")->as_string();
    if (const Json* reasoning = message.find("reasoning_content")) out.reasoning = reasoning->as_string();
    if (const Json* calls = message.find("tool_calls")) {
      out.arguments = calls->as_array()[0].find("function")->find("arguments")->as_string();
    }
    return out;
  }
  const Json& items = *reply.find(protocol == "responses" ? "output" : "content");
  for (const Json& item : items.as_array()) {
    const std::string& type = item.find("type")->as_string();
    if (type == "message") out.content += item.find("content")->as_array()[0].find("text")->as_string();
    if (type == "text") out.content += item.find("text")->as_string();
    if (type == "reasoning") out.reasoning += item.find("content")->as_array()[0].find("text")->as_string();
    if (type == "thinking") out.reasoning += item.find("thinking")->as_string();
    if (type == "function_call") out.arguments = item.find("arguments")->as_string();
    if (type == "tool_use") out.arguments = to_json(*item.find("input"), {.spaces = true});
  }
  return out;
}

std::string where(const Json& record, const std::string& protocol) {
  const Json* note = record.find("note");
  return record.find("id")->as_string() + " " + protocol + " " + (note == nullptr ? "" : note->as_string());
}

void expect_right(const Json& record, const std::string& protocol, const Answer& answer) {
  const Said got = said(protocol, answer.final_object);
  const Json& right = *record.find("right");
  if (const Json* want = right.find("content")) {
    EXPECT_EQ(got.content, want->as_string()) << where(record, protocol);
  }
  if (const Json* want = right.find("reasoning")) {
    EXPECT_EQ(got.reasoning, want->as_string()) << where(record, protocol);
  }
  if (const Json* want = right.find("arguments")) {
    EXPECT_EQ(got.arguments, want->as_string()) << where(record, protocol);
  }
}

TEST(ResponseGolden, EveryRecordedStreamGivesItsEventsAndItsReply) {
  size_t num_runs = 0, num_events = 0;
  for (const Json& record : records()) {
    const bool is_loose = record.find("loose") != nullptr;
    for (const auto& [protocol, expect] : record.find("expect")->as_object()) {
      ++num_runs;
      num_events += expect.find("events")->as_array().size();
      const DecodedRequest request = decode(protocol, *expect.find("request"));
      const Answer answer = replay(protocol, request, *record.find("chunks"), is_loose);
      EXPECT_EQ(static_cast<int64_t>(answer.num_chunks_read), expect.find("chunks_read")->as_int())
          << where(record, protocol);
      if (record.find("known_bug") != nullptr) {
        expect_right(record, protocol, answer);
        continue;
      }
      Json events = joined(*expect.find("events")), final_object = *expect.find("final");
      normalise(events);
      normalise(final_object);
      events = joined(events);
      if (is_loose) trim_texts(events), trim_texts(final_object);
      EXPECT_TRUE(answer.final_object == final_object)
          << where(record, protocol) << "\n got  " << to_json(answer.final_object) << "\n want "
          << to_json(final_object);
      EXPECT_TRUE(answer.events == events)
          << where(record, protocol) << "\n got  " << to_json(answer.events) << "\n want " << to_json(events);
    }
  }
  EXPECT_EQ(records().size(), 518u);
  EXPECT_EQ(num_runs, 1375u);
  EXPECT_EQ(num_events, 22022u);
}

// The record's output as one run of ids, or of text cut into code points; what follows it stays.
struct Output {
  Json::Array units;  // ids, or strings of one code point
  bool is_text = false;
  Json::Array before, after;
};

Output output_of(const Json& chunks) {
  Output out;
  for (const Json& chunk : chunks.as_array()) {
    if (const Json* ids = chunk.find("ids")) {
      for (const Json& id : ids->as_array()) out.units.push_back(id);
    } else if (const Json* text = chunk.find("text")) {
      out.is_text = true;
      for (const char byte : text->as_string()) {
        const bool is_continuation = (static_cast<uint8_t>(byte) & 0xC0) == 0x80;
        if (!is_continuation) out.units.push_back("");
        out.units.back().as_string() += byte;
      }
    } else {
      (out.units.empty() ? out.before : out.after).push_back(chunk);
    }
  }
  return out;
}

// Chunks of the output cut before each index of `cuts`.
Json cut_at(const Output& output, const std::vector<size_t>& cuts) {
  Json::Array chunks = output.before;
  Json run;
  const auto flush = [&] {
    if (run.is_null()) return;
    Json chunk;
    chunk.set(output.is_text ? "text" : "ids", std::move(run));
    chunks.push_back(std::move(chunk));
    run = Json();
  };
  for (size_t i = 0, next = 0; i < output.units.size(); ++i) {
    if (next < cuts.size() && cuts[next] == i) flush(), ++next;
    if (!output.is_text) {
      run.push_back(output.units[i]);
    } else if (run.is_null()) {
      run = output.units[i];
    } else {
      run.as_string() += output.units[i].as_string();
    }
  }
  flush();
  chunks.insert(chunks.end(), output.after.begin(), output.after.end());
  return chunks;
}

void drop_usage(Json& value) {
  if (value.is_array()) std::for_each(value.as_array().begin(), value.as_array().end(), drop_usage);
  if (!value.is_object()) return;
  std::erase_if(value.as_object(), [](const Json::Member& member) { return member.first == "usage"; });
  for (auto& [key, item] : value.as_object()) drop_usage(item);
}

// Every single cut, every token alone, and all in one: the same answer. As the original counts, the step that completes
// a stop sequence counts whole, and each step outside a JSON value is a space: there usage and spaces are left out.
TEST(ResponseGolden, TheAnswerDoesNotDependOnTheCut) {
  size_t num_replays = 0;
  for (size_t r = 0; r < records().size(); ++r) {
    const Json& record = records()[r];
    const auto& runs = record.find("expect")->as_object();
    const auto& [protocol, expect] = runs[r % runs.size()];
    DecodedRequest request = decode(protocol, *expect.find("request"));
    const Output output = output_of(*record.find("chunks"));
    std::vector<size_t> all;
    for (size_t i = 0; i < output.units.size(); ++i) all.push_back(i);
    for (const bool compatible : {false, true}) {
      request.response.recipe_compatible = compatible;
      const bool is_loose = compatible && request.chat.parsing.parse_json_output;
      const auto answer_at = [&](const std::vector<size_t>& cuts) {
        ++num_replays;
        Answer answer = replay(protocol, request, cut_at(output, cuts), is_loose);
        if (compatible) drop_usage(answer.events), drop_usage(answer.final_object);
        return answer;
      };
      const Answer whole = answer_at({});
      const auto expect_same = [&](const Answer& answer, const std::string& cut) {
        ASSERT_TRUE(answer.final_object == whole.final_object)
            << where(record, protocol) << " cut at " << cut << "\n got  " << to_json(answer.final_object) << "\n want "
            << to_json(whole.final_object);
        ASSERT_TRUE(answer.events == whole.events) << where(record, protocol) << " cut at " << cut;
      };
      expect_same(answer_at(all), "every token");
      for (size_t i = 1; i < output.units.size(); i += compatible ? 7 : 1)
        expect_same(answer_at({i}), std::to_string(i));
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(num_replays, 30000u);
}

}  // namespace
}  // namespace deepinfer
