// SPDX-License-Identifier: MIT
// A damaged tokenizer.json is refused or works: whatever loads gives back the bytes it is fed. The input is the file
// itself, or, when it does not begin like one, a list of edits of a sound file: (place, value) pairs for merges and
// vocabulary.
#include <string>

#include "base/check.h"
#include "base/file.h"
#include "base/fuzz.h"
#include "base/json.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {
namespace {

void try_file(std::string_view json) {
  auto loaded = Tokenizer::from_json(json);
  if (!loaded.ok()) {
    CHECK(!loaded.status().message().empty());
    return;
  }
  const Tokenizer& tokenizer = **loaded;
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  for (const std::string& text : {std::string("The  model, weight!  12345\n\n\n"), std::string(100, ' '), all,
                                  std::string(json.substr(0, 300))}) {
    std::string bytes;
    for (const TokenId id : tokenizer.encode(text)) {
      CHECK(!tokenizer.is_control(id));
      bytes += tokenizer.token_bytes(id);
    }
    CHECK(bytes == text);
    tokenizer.encode_with_added(text);
  }
}

}  // namespace

int fuzz_tokenizer_json(const uint8_t* data, size_t size) {
  if (size > 0 && data[0] == '{') {
    try_file({reinterpret_cast<const char*>(data), size});
    return 0;
  }
  static const Json* sound = new Json(*parse_json(*read_file(DEEPINFER_TESTDATA "/model_a/tokenizer.json")));
  Json file = *sound;
  Json::Array& merges = file.find("model")->find("merges")->as_array();
  Json::Object& vocab = file.find("model")->find("vocab")->as_object();
  for (size_t i = 0; i + 3 < size && i < 64; i += 4) {
    const size_t place = data[i + 1] * 256u + data[i + 2];
    switch (data[i] % 4) {
      case 0: std::swap(merges[place % merges.size()], merges[data[i + 3] % merges.size()]); break;
      case 1: merges.erase(merges.begin() + static_cast<ptrdiff_t>(place % merges.size())); break;
      case 2: vocab[place % vocab.size()].second = static_cast<int64_t>(data[i + 3]) * 5; break;
      case 3: std::swap(vocab[place % vocab.size()].first, vocab[data[i + 3]].first); break;
    }
  }
  try_file(to_json(file));
  return 0;
}

}  // namespace deepinfer
