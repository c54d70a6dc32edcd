// Byte-level byte-pair encoding (Sennrich et al. 2016; Radford et al. 2019): a piece of text starts
// as single bytes, and of all neighbours the pair that was learned first is merged, again and
// again.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace moonshard::data {

/// Bytes of a token that is written in the byte-level alphabet, where every byte has a visible
/// character. False when it has a character that is not of that alphabet.
bool bytes_of_alphabet(std::string_view token, std::string& bytes);

/// For look-ups by string_view without a copy.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
template <class T>
using TextMap = std::unordered_map<std::string, T, TextHash, std::equal_to<>>;

class BpeModel {
 public:
  /// Ids by the tokens' bytes. Every single byte must be there.
  explicit BpeModel(TextMap<int32_t> vocabulary);

  /// The next pair to be learned. False when it was learned before.
  bool add_merge(int32_t left, int32_t right, int32_t merged);
  /// A piece that is a token as a whole is that token, whatever the merges would make.
  void ignore_merges(bool yes) { ignore_merges_ = yes; }

  const TextMap<int32_t>& vocabulary() const { return vocabulary_; }
  /// Appends the ids of a piece. Several threads may call it. n log n in its length.
  void encode(std::string_view piece, std::vector<int32_t>& ids) const;

 private:
  struct Merge {
    uint32_t rank;
    int32_t merged;
  };
  void merge_all(std::string_view piece, std::vector<int32_t>& ids) const;
  const Merge* find_merge(int32_t left, int32_t right) const;

  TextMap<int32_t> vocabulary_;
  std::unordered_map<uint64_t, Merge> merges_;
  int32_t byte_ids_[256];
  bool ignore_merges_ = false;

  mutable std::mutex cache_mutex_;
  mutable TextMap<std::vector<int32_t>> cache_;
};

}  // namespace moonshard::data
