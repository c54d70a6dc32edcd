// Finds added tokens in a text: the longest one that begins at a place, by a tree of their bytes.
#include <algorithm>

#include "runtime/base/utf8.h"
#include "runtime/data/text/bpe_tokenizer.h"

namespace moonshard::data {
namespace {

size_t white_space_before(std::string_view text, size_t end) {
  size_t begin = end;
  while (begin > 0) {
    size_t at = begin - 1;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    if (!is_white_space(read_character(text, at).code)) break;
    begin = at;
  }
  return begin;
}

size_t white_space_after(std::string_view text, size_t end) {
  while (end < text.size()) {
    const Utf8Character character = read_character(text, end);
    if (!is_white_space(character.code)) break;
    end += static_cast<size_t>(character.length);
  }
  return end;
}

}  // namespace

void TokenFinder::add(const AddedToken& token, std::string_view content) {
  uint32_t node = 0;
  for (const char c : content) {
    const auto byte = static_cast<unsigned char>(c);
    auto& next = nodes_[node].next;
    const auto place = std::lower_bound(next.begin(), next.end(), std::pair(byte, uint32_t{0}));
    if (place != next.end() && place->first == byte) {
      node = place->second;
      continue;
    }
    const auto made = static_cast<uint32_t>(nodes_.size());
    next.insert(place, {byte, made});
    nodes_.emplace_back();
    node = made;
  }
  nodes_[node].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back({token.id, token.lstrip, token.rstrip});
  starts_[static_cast<unsigned char>(content[0])] = true;
}

size_t TokenFinder::longest_at(std::string_view text, size_t at, int32_t& token) const {
  uint32_t node = 0;
  size_t longest = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto& next = nodes_[node].next;
    const auto place = std::lower_bound(next.begin(), next.end(), std::pair(byte, uint32_t{0}));
    if (place == next.end() || place->first != byte) break;
    node = place->second;
    if (nodes_[node].token >= 0) {
      token = nodes_[node].token;
      longest = i + 1 - at;
    }
  }
  return longest;
}

std::vector<TextPart> TokenFinder::split(std::string_view text) const {
  std::vector<TextPart> parts;
  size_t begin = 0;
  for (size_t at = 0; !empty() && at < text.size();) {
    int32_t token = -1;
    const size_t length =
        starts_[static_cast<unsigned char>(text[at])] ? longest_at(text, at, token) : 0;
    if (length == 0) {
      ++at;
      continue;
    }
    const Found& found = tokens_[static_cast<size_t>(token)];
    // White space that an earlier token consumed is no longer there.
    const size_t from = found.lstrip ? std::max(white_space_before(text, at), begin) : at;
    at += length;
    const size_t to = found.rstrip ? white_space_after(text, at) : at;
    if (from > begin) parts.push_back({text.substr(begin, from - begin), -1});
    parts.push_back({text.substr(from, to - from), found.id});
    begin = at = to;
  }
  if (begin < text.size()) parts.push_back({text.substr(begin), -1});
  return parts;
}

}  // namespace moonshard::data
