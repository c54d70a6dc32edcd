#include "runtime/data/text/tokenizer.h"

#include <filesystem>

#include "runtime/base/check.h"
#include "runtime/base/json.h"
#include "runtime/base/utf8.h"
#include "runtime/data/text/token_file.h"

namespace moonshard::data {
namespace {

namespace fs = std::filesystem;

// Llama 3's has 9 MB and 0.7 million values, the largest in use four times that.
constexpr size_t kMaxFileBytes = 256u << 20;
constexpr size_t kMaxValues = 10'000'000;

class ByteTokenizer : public Tokenizer {
 public:
  const std::string& name() const override { return name_; }
  int64_t vocab_size() const override { return 256; }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    ids.reserve(ids.size() + text.size());
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  }
  std::string decode(const std::vector<int32_t>& ids, bool) const override {
    std::string text;
    text.reserve(ids.size());
    for (const int32_t id : ids) {
      MS_CHECK(id >= 0 && id < 256, "tokenizer 'bytes': expected ids from 0 to 255, got {}", id);
      text.push_back(static_cast<char>(id));
    }
    return text;
  }
  const std::vector<int32_t>& prefix() const override { return none_; }
  const std::vector<int32_t>& suffix() const override { return none_; }
  std::optional<int32_t> find(std::string_view token) const override {
    if (token.size() != 1) return std::nullopt;
    return static_cast<unsigned char>(token[0]);
  }
  std::optional<int32_t> end_of_text() const override { return 0; }
  uint64_t fingerprint() const override { return 0; }
  bool takes_any_bytes() const override { return true; }

 private:
  std::string name_ = "bytes";
  std::vector<int32_t> none_;
};

}  // namespace

std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& name) {
  if (name == "bytes") return std::make_shared<ByteTokenizer>();
  fs::path path = name;
  std::error_code none;
  if (fs::is_directory(path, none)) path /= "tokenizer.json";
  MS_CHECK(!name.empty() && fs::exists(path, none),
           "tokenizer: expected \"bytes\", a tokenizer.json or a folder with one, got {}; there is "
           "no file of that name",
           in_quotes(name));
  const auto file = read_foreign_json(path, {kMaxFileBytes, kMaxValues, 32});
  Checksum checksum;
  checksum.add(read_text_file(path, kMaxFileBytes));
  return tokenizer_of_json(file, path.string(), checksum.value());
}

std::vector<int32_t> encode_whole(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids = tokenizer.prefix();
  tokenizer.encode(text, ids);
  ids.insert(ids.end(), tokenizer.suffix().begin(), tokenizer.suffix().end());
  return ids;
}

}  // namespace moonshard::data
