// Text to ids and back. "bytes" needs no file: id = byte, and the 0 byte stands between documents.
// Others come from a tokenizer.json of Hugging Face's format.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace moonshard::data {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// "bytes", or the path it was read from.
  virtual const std::string& name() const = 0;
  /// One more than the largest id.
  virtual int64_t vocab_size() const = 0;
  /// Appends the ids of a text, special tokens written out in it included, without those that the
  /// tokenizer puts around a whole text. Several threads may call it. Throws UsageError for text
  /// that is not UTF-8 (bytes takes anything).
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  /// The bytes that ids stand for; part of a character decodes to those bytes. Throws UsageError
  /// for an unknown id.
  virtual std::string decode(const std::vector<int32_t>& ids, bool skip_special) const = 0;
  /// What the tokenizer puts around a whole text: Llama 3's begin-of-text, for one.
  virtual const std::vector<int32_t>& prefix() const = 0;
  virtual const std::vector<int32_t>& suffix() const = 0;
  /// The id of exactly this token.
  virtual std::optional<int32_t> find(std::string_view token) const = 0;
  /// The id that separates documents, when the tokenizer has one of the usual names for it.
  virtual std::optional<int32_t> end_of_text() const = 0;
  /// Changes with anything that could change an id.
  virtual uint64_t fingerprint() const = 0;
  /// Whether text may be cut anywhere, or only where a line ends.
  virtual bool takes_any_bytes() const { return false; }
};

/// Of "bytes", a tokenizer.json, or a folder with one in it. Throws IoError that names the field
/// for a file that is damaged or needs what is not supported.
std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& name);

/// prefix + ids + suffix.
std::vector<int32_t> encode_whole(const Tokenizer& tokenizer, std::string_view text);

// Hugging Face's tokenizer.json, as far as it describes byte-level BPE (Llama 3, Qwen 2 and GPT-2
// kinds) or SentencePiece's BPE with byte fallback (Gemma, Llama 2). The file is untrusted:
// everything is checked, and what is not supported is refused by the name of its field, since
// silently different ids would be worse.

/// Of the parsed file. `where` opens every error. Throws IoError.
std::shared_ptr<const Tokenizer> tokenizer_of_json(const nlohmann::json& file,
                                                   const std::string& where, uint64_t fingerprint);

}  // namespace moonshard::data
