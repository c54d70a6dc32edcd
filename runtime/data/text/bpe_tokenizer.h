// BPE with the stages before and after it: added tokens, normalisation, splitting into pieces, and
// the tokens around a whole text. Put together by tokenizer_json.cpp. Two kinds: byte-level (Llama
// 3, Qwen 2, GPT-2), and SentencePiece's with byte fallback (Gemma, Llama 2), where characters are
// merged, blanks are written as U+2581, and a character without a token becomes its bytes' tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/data/text/split_pattern.h"
#include "runtime/data/text/tokenizer.h"

namespace moonshard::data {

/// Tokens that are found in text before any other processing: "<|eot_id|>" and the like.
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

// Unicode normalisation forms of a text.

enum class NormalForm { None, Nfc, Nfd, Nfkc, Nfkd };

/// Of valid UTF-8. Linear in the length (times a logarithm in the longest run of accents).
std::string normalized(std::string_view text, NormalForm form);

// Byte-level byte-pair encoding (Sennrich et al. 2016; Radford et al. 2019): a piece of text starts
// as single bytes, and of all neighbours the pair that was learned first is merged, again and
// again.

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

/// "<0x0A>": the token of a byte in vocabularies with byte fallback.
std::string byte_token(int byte);

class BpeModel {
 public:
  enum class Start { Bytes, Characters };  ///< what a piece is before the first merge

  /// Ids by the tokens' bytes. Every single byte must be there, or (of characters) every
  /// byte_token.
  BpeModel(TextMap<int32_t> vocabulary, Start start);

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
  std::vector<int32_t> first_ids(std::string_view piece) const;
  const Merge* find_merge(int32_t left, int32_t right) const;

  TextMap<int32_t> vocabulary_;
  std::unordered_map<uint64_t, Merge> merges_;
  Start start_;
  int32_t byte_ids_[256];  ///< of bytes, or of characters without a token
  bool ignore_merges_ = false;

  mutable std::mutex cache_mutex_;
  mutable TextMap<std::vector<int32_t>> cache_;
};

struct BpeParts {
  std::string name;
  uint64_t fingerprint = 0;
  NormalForm normal_form = NormalForm::None;
  std::vector<SplitPattern> cuts;  ///< one after another
  bool prefix_space = false;       ///< a blank goes before text that does not begin with one
  bool sentence_piece = false;     ///< characters with byte fallback instead of bytes
  bool marks_blanks = false;       ///< of sentence_piece: blanks become U+2581
  bool prepends_mark = false;      ///< of sentence_piece: U+2581 goes before every text
  bool strips_blank = false;       ///< of sentence_piece: decoding drops a blank at the start
  std::unique_ptr<BpeModel> model;
  std::vector<std::string> token_bytes;  ///< by id; what an id decodes to
  std::vector<char> used;                ///< by id: there is such a token
  std::vector<AddedToken> added;
  std::vector<int32_t> prefix, suffix;
};

/// What the tokenizer's normalisers make of a text.
std::string normalized(std::string_view text, const BpeParts& parts);

/// U+2581, which stands for a blank.
inline constexpr std::string_view kBlankMark = "\xE2\x96\x81";
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

class BpeTokenizer : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeParts parts);

  const std::string& name() const override { return parts_.name; }
  int64_t vocab_size() const override { return static_cast<int64_t>(parts_.token_bytes.size()); }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override;
  std::string decode(const std::vector<int32_t>& ids, bool skip_special) const override;
  const std::vector<int32_t>& prefix() const override { return parts_.prefix; }
  const std::vector<int32_t>& suffix() const override { return parts_.suffix; }
  std::optional<int32_t> find(std::string_view token) const override;
  std::optional<int32_t> end_of_text() const override;
  uint64_t fingerprint() const override { return parts_.fingerprint; }

 private:
  void encode_plain(std::string_view text, std::vector<int32_t>& ids) const;

  bool normalises_ = false;
  BpeParts parts_;
  TokenFinder before_, after_;  ///< normalisation
  std::vector<char> special_;   ///< by id
};

}  // namespace moonshard::data
