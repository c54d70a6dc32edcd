// Byte-level BPE with the stages before and after it: added tokens, normalisation, splitting
// into pieces, and the tokens around a whole text. Put together by tokenizer_json.cpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/data/text/added_tokens.h"
#include "runtime/data/text/bpe_model.h"
#include "runtime/data/text/normalizer.h"
#include "runtime/data/text/split_pattern.h"
#include "runtime/data/text/tokenizer.h"

namespace moonshard::data {

struct BpeParts {
  std::string name;
  uint64_t fingerprint = 0;
  NormalForm normal_form = NormalForm::None;
  std::vector<SplitPattern> cuts;  ///< one after another
  bool prefix_space = false;       ///< a blank goes before text that does not begin with one
  std::unique_ptr<BpeModel> model;
  std::vector<std::string> token_bytes;  ///< by id; what an id decodes to
  std::vector<char> used;                ///< by id: there is such a token
  std::vector<AddedToken> added;
  std::vector<int32_t> prefix, suffix;
};

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

  BpeParts parts_;
  TokenFinder before_, after_;  ///< normalisation
  std::vector<char> special_;   ///< by id
};

}  // namespace moonshard::data
