#include "runtime/data/text/bpe_tokenizer.h"

#include <algorithm>
#include <array>
#include <queue>
#include <vector>

#include <utf8proc.h>

#include "runtime/base/check.h"
#include "runtime/base/interrupt.h"
#include "runtime/base/utf8.h"

namespace moonshard::data {
namespace {

bool is_ascii(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
}

bool is_accent(int32_t code) {
  return utf8proc_get_property(code)->combining_class != 0;
}

void sort_accents(std::vector<int32_t>& codes) {
  for (size_t i = 0; i < codes.size(); ++i) {
    if (!is_accent(codes[i])) continue;
    size_t end = i;
    while (end < codes.size() && is_accent(codes[end])) ++end;
    const auto class_of = [](int32_t code) { return utf8proc_get_property(code)->combining_class; };
    std::stable_sort(codes.begin() + static_cast<std::ptrdiff_t>(i),
                     codes.begin() + static_cast<std::ptrdiff_t>(end),
                     [&](int32_t a, int32_t b) { return class_of(a) < class_of(b); });
    i = end;
  }
}

// Characters and their classes come from utf8proc. Its own way through a whole text sorts accents
// by neighbours, which takes quadratic time for a long run of them in the wrong order; so each
// character is taken apart alone, runs are sorted here, and only putting together is left to it.

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

std::string normalized(std::string_view text, NormalForm form) {
  if (form == NormalForm::None || is_ascii(text)) return std::string(text);
  const bool compatible = form == NormalForm::Nfkc || form == NormalForm::Nfkd;
  const auto apart = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                    (compatible ? UTF8PROC_COMPAT : 0));
  std::vector<int32_t> codes;
  codes.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Character character = read_character(text, at);
    MS_ASSERT(character.valid, "ill-formed UTF-8 at byte {}", at);
    at += static_cast<size_t>(character.length);
    int32_t parts[32];  // the longest, U+FDFA in the compatible forms, has 18
    int boundary = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<int32_t>(character.code), parts, 32, apart, &boundary);
    MS_ASSERT(count >= 0 && count <= 32, "U+{:04X} falls into {} parts", character.code, count);
    codes.insert(codes.end(), parts, parts + count);
  }
  sort_accents(codes);
  auto length = static_cast<utf8proc_ssize_t>(codes.size());
  if (form == NormalForm::Nfc || form == NormalForm::Nfkc) {
    length = utf8proc_normalize_utf32(
        codes.data(), length, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    MS_ASSERT(length >= 0, "utf8proc: {}", utf8proc_errmsg(length));
  }
  std::string result;
  result.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < length; ++i)
    append_character(result, static_cast<uint32_t>(codes[static_cast<size_t>(i)]));
  return result;
}

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

std::string byte_token(int byte) {
  return fmt::format("<0x{:02X}>", byte);
}

BpeModel::BpeModel(TextMap<int32_t> vocabulary, Start start)
    : vocabulary_(std::move(vocabulary)), start_(start) {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const std::string token = start == Start::Bytes ? std::string(1, c) : byte_token(byte);
    const auto found = vocabulary_.find(token);
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
  if (piece.size() == 1 && start_ == Start::Bytes) {
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

std::vector<int32_t> BpeModel::first_ids(std::string_view piece) const {
  std::vector<int32_t> ids;
  ids.reserve(piece.size());
  for (size_t at = 0; at < piece.size();) {
    size_t length = 1;
    if (start_ == Start::Characters) {
      length = static_cast<size_t>(read_character(piece, at).length);
      const auto known = vocabulary_.find(piece.substr(at, length));
      if (known != vocabulary_.end()) {
        ids.push_back(known->second);
        at += length;
        continue;
      }
    }
    for (const size_t end = at + length; at < end; ++at)
      ids.push_back(byte_ids_[static_cast<unsigned char>(piece[at])]);
  }
  return ids;
}

void BpeModel::merge_all(std::string_view piece, std::vector<int32_t>& ids) const {
  MS_CHECK(piece.size() < (1u << 31), "tokenizer: expected pieces below 2 GiB, got {} bytes",
           piece.size());
  const std::vector<int32_t> first = first_ids(piece);
  const auto count = static_cast<int32_t>(first.size());
  std::vector<Symbol> symbols(first.size());
  const auto symbol = [&](int32_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };
  std::priority_queue<Candidate> queue;
  const auto consider = [&](int32_t left) {
    const int32_t right = left < 0 ? -1 : symbol(left).next;
    if (right < 0) return;
    const Merge* merge = find_merge(symbol(left).id, symbol(right).id);
    if (merge != nullptr) queue.push({merge->rank, left, merge->merged});
  };
  for (int32_t i = 0; i < count; ++i)
    symbol(i) = {first[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1, false};
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

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t next = std::min(text.find(from, at), text.size());
    result += text.substr(at, next - at);
    if (next < text.size()) result += to;
    at = next + from.size();
  }
  return result;
}

std::string normalized(std::string_view text, const BpeParts& parts) {
  std::string result = normalized(text, parts.normal_form);
  if (parts.prepends_mark && !result.empty()) result.insert(0, kBlankMark);
  return parts.marks_blanks ? replace_all(result, " ", kBlankMark) : result;
}

BpeTokenizer::BpeTokenizer(BpeParts parts) : parts_(std::move(parts)) {
  normalises_ =
      parts_.normal_form != NormalForm::None || parts_.marks_blanks || parts_.prepends_mark;
  special_.resize(parts_.token_bytes.size());
  for (const AddedToken& token : parts_.added) {
    special_[static_cast<size_t>(token.id)] = token.special;
    if (token.normalized) {
      after_.add(token, normalized(token.content, parts_));
    } else {
      before_.add(token, token.content);
    }
  }
}

void BpeTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  const auto invalid = first_invalid_utf8(text);
  MS_CHECK(
      !invalid,
      "tokenizer {}: expected text in UTF-8, got byte {:#04x} at position {}; convert or repair "
      "it first",
      in_quotes(name()), static_cast<unsigned char>(text[invalid.value_or(0)]),
      invalid.value_or(0));
  for (const TextPart& outer : before_.split(text)) {
    if (outer.id >= 0) {
      ids.push_back(outer.id);
      continue;
    }
    const std::string changed = normalises_ ? normalized(outer.text, parts_) : std::string();
    for (const TextPart& inner :
         after_.split(normalises_ ? std::string_view(changed) : outer.text)) {
      if (inner.id >= 0) {
        ids.push_back(inner.id);
      } else {
        encode_plain(inner.text, ids);
      }
    }
  }
}

void BpeTokenizer::encode_plain(std::string_view text, std::vector<int32_t>& ids) const {
  std::string spaced;
  if (parts_.prefix_space && text[0] != ' ') {
    spaced = ' ';
    spaced += text;
    text = spaced;
  }
  std::vector<std::string_view> pieces{text}, next;
  for (size_t i = 0; i < parts_.cuts.size(); ++i) {
    next.clear();
    for (const std::string_view piece : pieces) parts_.cuts[i].split(piece, next);
    std::swap(pieces, next);
  }
  for (const std::string_view piece : pieces) parts_.model->encode(piece, ids);
}

std::string BpeTokenizer::decode(const std::vector<int32_t>& ids, bool skip_special) const {
  std::string text;
  for (const int32_t id : ids) {
    const auto at = static_cast<size_t>(id);
    MS_CHECK(id >= 0 && at < parts_.used.size() && parts_.used[at] != 0,
             "tokenizer {}: expected ids from 0 to {} that have a token, got {}", in_quotes(name()),
             vocab_size() - 1, id);
    if (!skip_special || special_[at] == 0) text += parts_.token_bytes[at];
  }
  if (parts_.strips_blank && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

std::optional<int32_t> BpeTokenizer::find(std::string_view token) const {
  for (const AddedToken& added : parts_.added) {
    if (added.content == token) return added.id;
  }
  std::string bytes(token);
  if (!parts_.sentence_piece && !bytes_of_alphabet(token, bytes)) return std::nullopt;
  const auto& vocabulary = parts_.model->vocabulary();
  const auto found = vocabulary.find(bytes);
  if (found == vocabulary.end()) return std::nullopt;
  return found->second;
}

std::optional<int32_t> BpeTokenizer::end_of_text() const {
  for (const char* usual : {"<|end_of_text|>", "<|endoftext|>", "</s>", "<eos>"}) {
    if (const auto id = find(usual)) return id;
  }
  return std::nullopt;
}

}  // namespace moonshard::data
