#include "runtime/data/text/bpe_model.h"

#include <array>
#include <queue>

#include "runtime/base/check.h"
#include "runtime/base/interrupt.h"
#include "runtime/data/text/utf8.h"

namespace moonshard::data {
namespace {

// Words repeat; long pieces hardly do and would fill the memory.
constexpr size_t kMaxCachedWords = 1 << 16;
constexpr size_t kMaxCachedBytes = 64;

// Printable characters of Latin-1 stand for themselves, the other bytes, in order, for U+0100 and
// up.
struct Alphabet {
  std::array<int, 0x180> byte_of{};
  Alphabet() {
    byte_of.fill(-1);
    size_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) ||
                             (byte >= 0xAE && byte <= 0xFF);
      byte_of[printable ? static_cast<size_t>(byte) : next++] = byte;
    }
  }
};

struct Symbol {
  int32_t id;
  int32_t previous, next;  ///< -1 at the ends
  bool gone;
};

struct Candidate {
  uint32_t rank;
  int32_t left;    ///< symbol
  int32_t merged;  ///< id
  // The one learned first, of equals the leftmost, comes out of the queue first.
  bool operator<(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

bool bytes_of_alphabet(std::string_view token, std::string& bytes) {
  static const Alphabet alphabet;
  bytes.clear();
  for (size_t at = 0; at < token.size();) {
    const Utf8Character character = read_character(token, at);
    const bool known = character.valid && character.code < alphabet.byte_of.size();
    const int byte = known ? alphabet.byte_of[character.code] : -1;
    if (byte < 0) return false;
    bytes.push_back(static_cast<char>(byte));
    at += static_cast<size_t>(character.length);
  }
  return true;
}

BpeModel::BpeModel(TextMap<int32_t> vocabulary) : vocabulary_(std::move(vocabulary)) {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const auto found = vocabulary_.find(std::string_view(&c, 1));
    MS_ASSERT(found != vocabulary_.end(), "no token for byte {}", byte);
    byte_ids_[byte] = found->second;
  }
}

bool BpeModel::add_merge(int32_t left, int32_t right, int32_t merged) {
  const auto rank = static_cast<uint32_t>(merges_.size());
  return merges_.try_emplace(pair_key(left, right), Merge{rank, merged}).second;
}

const BpeModel::Merge* BpeModel::find_merge(int32_t left, int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BpeModel::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  if (piece.empty()) return;
  if (piece.size() == 1) {
    ids.push_back(byte_ids_[static_cast<unsigned char>(piece[0])]);
    return;
  }
  if (ignore_merges_) {
    const auto whole = vocabulary_.find(piece);
    if (whole != vocabulary_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  if (piece.size() > kMaxCachedBytes) return merge_all(piece, ids);
  {
    const std::lock_guard lock(cache_mutex_);
    const auto known = cache_.find(piece);
    if (known != cache_.end()) {
      ids.insert(ids.end(), known->second.begin(), known->second.end());
      return;
    }
  }
  std::vector<int32_t> made;
  merge_all(piece, made);
  ids.insert(ids.end(), made.begin(), made.end());
  const std::lock_guard lock(cache_mutex_);
  if (cache_.size() >= kMaxCachedWords) cache_.clear();
  cache_.emplace(piece, std::move(made));
}

void BpeModel::merge_all(std::string_view piece, std::vector<int32_t>& ids) const {
  MS_CHECK(piece.size() < (1u << 31), "tokenizer: expected pieces below 2 GiB, got {} bytes",
           piece.size());
  const auto count = static_cast<int32_t>(piece.size());
  std::vector<Symbol> symbols(piece.size());
  const auto symbol = [&](int32_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };
  std::priority_queue<Candidate> queue;
  const auto consider = [&](int32_t left) {
    const int32_t right = left < 0 ? -1 : symbol(left).next;
    if (right < 0) return;
    const Merge* merge = find_merge(symbol(left).id, symbol(right).id);
    if (merge != nullptr) queue.push({merge->rank, left, merge->merged});
  };
  for (int32_t i = 0; i < count; ++i)
    symbol(i) = {byte_ids_[static_cast<unsigned char>(piece[static_cast<size_t>(i)])], i - 1,
                 i + 1 < count ? i + 1 : -1, false};
  for (int32_t i = 0; i < count; ++i) consider(i);
  size_t rounds = 0;
  while (!queue.empty()) {
    if (++rounds % (1 << 16) == 0) throw_if_interrupted();
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = symbol(top.left);
    if (left.gone || left.next < 0) continue;
    Symbol& right = symbol(left.next);
    // One of the two may have been merged with another since.
    const Merge* merge = find_merge(left.id, right.id);
    if (merge == nullptr || merge->rank != top.rank) continue;
    left.id = merge->merged;
    left.next = right.next;
    right.gone = true;
    if (right.next >= 0) symbol(right.next).previous = top.left;
    consider(left.previous);
    consider(top.left);
  }
  for (int32_t i = 0; i >= 0; i = symbol(i).next) ids.push_back(symbol(i).id);
}

}  // namespace moonshard::data
