#include "runtime/weights/block_sums.h"

#include <algorithm>
#include <charconv>
#include <span>

#include "runtime/base/check.h"
#include "runtime/base/checksum.h"
#include "runtime/base/utf8.h"

namespace moonshard::weights {
namespace {

// The header's own sum follows the mark, with zeros in its place while it is computed.
constexpr std::string_view kMark = "moonshard CRC-32C of header and 4 MiB blocks: ";
constexpr size_t kDigits = 8;

uint32_t sum_of(const void* data, size_t bytes, uint32_t before = 0) {
  return crc32c({static_cast<const std::byte*>(data), bytes}, before);
}

// Where the digits of the header's own sum begin: no other text of the header has a bare quote
// before the key.
size_t own_sum_place(std::string_view header) {
  const std::string lead = fmt::format("\"{}\":\"{}", BlockSums::kKey, kMark);
  const size_t found = header.find(lead);
  return found == std::string_view::npos ? found : found + lead.size();
}

[[noreturn]] void refuse_header(const std::string& where, const std::string& expected,
                                const std::string& got) {
  throw IoError(fmt::format(
      "{}: header: expected {}, got {}; the file was damaged after it was written: copy "
      "it again, or take another",
      where, expected, got));
}

uint32_t read_digits(std::string_view digits, const std::string& where) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), value, 16);
  if (error != std::errc() || end != digits.end())
    refuse_header(where, "checksums of 8 hexadecimal digits", in_quotes(digits));
  return value;
}

}  // namespace

BlockSums::BlockSums(const std::vector<TensorEntry>& entries) {
  place_tensors(entries);
}

void BlockSums::place_tensors(const std::vector<TensorEntry>& entries) {
  first_.assign(1, 0);
  for (const TensorEntry& entry : entries) {
    bytes_.push_back(entry.end - entry.begin);
    const int64_t blocks = (bytes_.back() + kBlockBytes - 1) / kBlockBytes;
    first_.push_back(first_.back() + static_cast<size_t>(blocks));
  }
  sums_.assign(first_.back(), 0);
}

void BlockSums::add(const void* data, int64_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    while (tensor_ < bytes_.size() && added_ == bytes_[tensor_]) {
      ++tensor_;
      added_ = 0;
      next_ = tensor_ < bytes_.size() ? first_[tensor_] : next_;
    }
    MS_ASSERT(tensor_ < bytes_.size(), "{} bytes more than the tensors have", bytes);
    const int64_t to_block_end = kBlockBytes - added_ % kBlockBytes;
    const int64_t piece = std::min({bytes, to_block_end, bytes_[tensor_] - added_});
    sums_[next_] = sum_of(from, static_cast<size_t>(piece), sums_[next_]);
    from += piece;
    bytes -= piece;
    added_ += piece;
    if (piece == to_block_end) ++next_;
  }
}

std::string BlockSums::text() const {
  std::string text = fmt::format("{}{:0{}x} ", kMark, 0, kDigits);
  text.reserve(text.size() + kDigits * sums_.size());
  for (const uint32_t sum : sums_)
    fmt::format_to(std::back_inserter(text), "{:0{}x}", sum, kDigits);
  return text;
}

std::string BlockSums::header(const std::vector<TensorEntry>& entries, Metadata metadata,
                              const std::string& where) const {
  metadata[kKey] = text();
  std::string header = make_safetensors_header(entries, metadata, where);
  const size_t place = own_sum_place(header);
  MS_ASSERT(place != std::string::npos, "a header without its checksum");
  header.replace(place, kDigits,
                 fmt::format("{:0{}x}", sum_of(header.data(), header.size()), kDigits));
  return header;
}

std::optional<BlockSums> BlockSums::take(SafetensorsHeader& header, const std::string& bytes,
                                         const std::string& where) {
  const auto entry = header.metadata.find(kKey);
  if (entry == header.metadata.end()) {
    for (const auto& [key, value] : header.metadata)
      if (value.starts_with(kMark))
        refuse_header(where, fmt::format("the key {}", kKey), in_quotes(key));
    return std::nullopt;
  }
  const std::string text = std::move(entry->second);
  header.metadata.erase(entry);
  BlockSums sums;
  sums.place_tensors(header.entries);
  const size_t place = own_sum_place(bytes), rest = kMark.size() + kDigits + 1;
  if (!text.starts_with(kMark) || place == std::string::npos ||
      text.size() != rest + kDigits * sums.sums_.size()) {
    refuse_header(where, fmt::format("checksums of {} blocks", sums.sums_.size()),
                  fmt::format("{} bytes of something else", text.size()));
  }
  const std::string told = bytes.substr(place, kDigits);
  const uint32_t before = sum_of(bytes.data(), place);
  const uint32_t zeros = sum_of("00000000", kDigits, before);
  const size_t after = place + kDigits;
  const std::string found =
      fmt::format("{:0{}x}", sum_of(bytes.data() + after, bytes.size() - after, zeros), kDigits);
  // As texts: "A" for "a" is damage, too.
  if (found != told)
    refuse_header(where, fmt::format("CRC-32C {}, as it says itself", in_quotes(told)), found);
  for (size_t i = 0; i < sums.sums_.size(); ++i)
    sums.sums_[i] = read_digits(std::string_view(text).substr(rest + kDigits * i, kDigits), where);
  return sums;
}

void BlockSums::check(const TensorEntry& entry, size_t place, int64_t block, const void* data,
                      const std::string& where) const {
  const int64_t first = block * kBlockBytes;
  const int64_t count = std::min(kBlockBytes, entry.end - entry.begin - first);
  const uint32_t told = sums_[first_[place] + static_cast<size_t>(block)];
  const uint32_t found = sum_of(data, static_cast<size_t>(count));
  if (found == told) return;
  throw IoError(fmt::format(
      "{}: tensor {}: expected CRC-32C {:08x} of its bytes {} to {}, as the header says, got "
      "{:08x}; the file was damaged after it was written: copy it again, or take another",
      where, in_quotes(entry.name), told, first, first + count, found));
}

}  // namespace moonshard::weights
