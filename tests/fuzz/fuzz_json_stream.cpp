// The token stream reads or refuses any bytes, and agrees with the records' parser on which.
#include "runtime/base/json.h"
#include "runtime/input/json_stream.h"
#include "tests/fuzz/fuzz_support.h"

using namespace moonshard;
using namespace moonshard::viewer;

namespace {

// Gives the bytes in two pieces, so that tokens are torn.
class TornSource final : public ByteSource {
 public:
  TornSource(std::string_view text, size_t first) : text_(text), next_(first) {}
  size_t read(char* to, size_t capacity) override {
    const size_t count = std::min({capacity, text_.size(), next_ == 0 ? text_.size() : next_});
    next_ = 0;
    text_.copy(to, count);
    text_.remove_prefix(count);
    return count;
  }
  uint64_t size_hint() const override { return text_.size(); }

 private:
  std::string_view text_;
  size_t next_;
};

bool reads(std::string_view text, size_t first) {
  try {
    TornSource source(text, first);
    JsonStream stream(source, "input");
    while (stream.next() != JsonToken::End) {
    }
    return true;
  } catch (const IoError&) {
    return false;
  }
}

// What follows the first key, passed over.
void skip(std::string_view text) {
  JsonStreamOptions options;
  options.allow_nan = true;
  options.refuse_duplicates = false;
  MemorySource source(text);
  JsonStream stream(source, "input", options);
  for (JsonToken token = stream.next(); token != JsonToken::End; token = stream.next()) {
    if (token == JsonToken::Key) stream.skip_value();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = as_text(data, size);
  const bool whole = reads(text, 0);
  if (reads(text, size / 2) != whole) std::abort();
  refuse_or_read([&] { skip(text); });
  // nlohmann refuses bad UTF-8, which the stream lets pass; what that accepts, the stream must.
  const bool expected = [&] {
    try {
      parse_json(text, "input");
      return true;
    } catch (const IoError&) {
      return false;
    }
  }();
  const bool byte_order_mark = text.starts_with("\xef\xbb\xbf");
  if (expected && !whole && !byte_order_mark) std::abort();
  return 0;
}
