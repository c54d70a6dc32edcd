#include "runtime/data/text/text_stream.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/base/interrupt.h"
#include "runtime/data/text/utf8.h"

namespace moonshard::data {
namespace {

constexpr int64_t kPieceBytes = 1 << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Bytes from `at` on that are ASCII and not zero, eight at a time.
size_t plain_bytes(std::string_view bytes, size_t at) {
  const size_t begin = at;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t eight = 0;
    std::memcpy(&eight, bytes.data() + at, 8);
    // The second part has a high bit for every byte that is zero (and may err beside one).
    if ((eight & 0x8080808080808080ull) != 0 ||
        ((eight - 0x0101010101010101ull) & 0x8080808080808080ull) != 0)
      break;
  }
  while (at < bytes.size() && static_cast<signed char>(bytes[at]) > 0) ++at;
  return at - begin;
}

}  // namespace

TextStream::TextStream(const std::filesystem::path& path, bool replace, Repairs& repairs)
    : file_(ReadOnlyFile::open(path)), replace_(replace), repairs_(repairs) {}

void TextStream::fail(size_t at, const std::string& got) const {
  const auto lines = std::count(raw_.begin(), raw_.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  throw IoError(fmt::format(
      "{}:{}: expected text in UTF-8, got {} at byte {}; convert the file (a UTF-16 or a binary "
      "file looks like this, too), or read it with invalid_utf8 = \"replace\"",
      file_.path().string(), line_ + lines, got, taken_ + static_cast<int64_t>(at)));
}

bool TextStream::read(std::string& text) {
  const size_t before = text.size();
  while (text.size() == before) {
    throw_if_interrupted();
    const int64_t count = std::min(kPieceBytes, file_.size() - position_);
    if (count == 0 && raw_.empty()) return false;
    const size_t kept = raw_.size();
    raw_.resize(kept + static_cast<size_t>(count));
    file_.read_at(position_, raw_.data() + kept, count, "text");
    const bool at_start = position_ == 0;
    position_ += count;
    if (at_start && raw_.starts_with(kByteOrderMark)) {
      ++repairs_.byte_order_marks;
      taken_ += static_cast<int64_t>(kByteOrderMark.size());
      raw_.erase(0, kByteOrderMark.size());
    }
    const bool ended = position_ == file_.size();
    // A character may go on in the next piece.
    take(text, ended || raw_.size() < 4 ? raw_.size() : raw_.size() - 3);
    if (ended && raw_.empty() && text.size() == before) return false;
  }
  return true;
}

void TextStream::take(std::string& text, size_t end) {
  const bool ended = position_ == file_.size();
  size_t at = 0;
  while (at < end) {
    const size_t plain = plain_bytes(std::string_view(raw_).substr(0, end), at);
    text.append(raw_, at, plain);
    at += plain;
    if (at >= end) break;
    const Utf8Character character = read_character(raw_, at);
    if (character.cut && !ended) break;
    const bool good = character.valid && character.code != 0;
    if (!good && !replace_) {
      fail(at, character.valid ? std::string("a zero byte")
                               : fmt::format("byte {:#04x}", static_cast<unsigned char>(raw_[at])));
    }
    if (good) {
      text.append(raw_, at, static_cast<size_t>(character.length));
    } else {
      text += kReplacement;
      ++repairs_.replaced_characters;
    }
    at += static_cast<size_t>(character.length);
  }
  line_ += std::count(raw_.begin(), raw_.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  taken_ += static_cast<int64_t>(at);
  raw_.erase(0, at);
}

}  // namespace moonshard::data
