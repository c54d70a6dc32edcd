// A tokenizer.json from anybody: it is refused, or encodes any text to ids that it has, which
// decode to that text when nothing normalises it. The first line is the text, the rest the file.
#include "runtime/base/utf8.h"
#include "runtime/data/text/bpe_tokenizer.h"
#include "runtime/data/text/tokenizer.h"
#include "tests/fuzz/fuzz_support.h"

using namespace moonshard;
using namespace moonshard::viewer;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input = as_text(data, size);
  const size_t end = input.find('\n');
  if (end == std::string_view::npos) return 0;
  const auto file = nlohmann::json::parse(input.substr(end + 1), nullptr, false);
  if (file.is_discarded()) return 0;
  std::string text;
  for (size_t at = 0; at < end;) {
    const Utf8Character character = read_character(input.substr(0, end), at);
    append_character(text, character.code);
    at += static_cast<size_t>(character.length);
  }
  return refuse_or_read([&] {
    const auto tokenizer = data::tokenizer_of_json(file, "tokenizer", 1);
    std::vector<int32_t> ids;
    tokenizer->encode(text, ids);
    for (const int32_t id : ids) {
      if (id < 0 || id >= tokenizer->vocab_size()) std::abort();
    }
    const std::string back = tokenizer->decode(ids, false);
    // Added tokens may swallow white space or be found in another normal form.
    const bool plain = file.value("added_tokens", nlohmann::json::array()).empty();
    const bool spaced = back.size() == text.size() + 1 && back[0] == ' ';
    const bool unchanged = !file.contains("normalizer") || file["normalizer"].is_null();
    if (plain && unchanged && back != text && !(spaced && back.substr(1) == text)) std::abort();
  });
}
