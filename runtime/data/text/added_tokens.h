// Tokens that are found in text before any other processing: "<|eot_id|>" and the like.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moonshard::data {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;
  bool normalized = false;              ///< is looked for after normalisation, not before
  bool lstrip = false, rstrip = false;  ///< consumes white space on that side
};

/// A stretch of text: one token, or (id < 0) text between tokens.
struct TextPart {
  std::string_view text;
  int32_t id = -1;
};

class TokenFinder {
 public:
  /// Contents are not empty. Of two equal ones the later counts.
  void add(const AddedToken& token, std::string_view content);
  bool empty() const { return tokens_.empty(); }
  /// The leftmost, of those the longest, token first; then on from its end.
  std::vector<TextPart> split(std::string_view text) const;

 private:
  struct Node {
    std::vector<std::pair<unsigned char, uint32_t>> next;  ///< sorted by byte
    int32_t token = -1;                                    ///< place in tokens_
  };
  struct Found {
    int32_t id;
    bool lstrip, rstrip;
  };
  /// Length of the longest token at a position, 0 when there is none.
  size_t longest_at(std::string_view text, size_t at, int32_t& token) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::vector<Found> tokens_;
  bool starts_[256] = {};
};

}  // namespace moonshard::data
