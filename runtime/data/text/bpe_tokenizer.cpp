#include "runtime/data/text/bpe_tokenizer.h"

#include "runtime/base/check.h"
#include "runtime/data/text/utf8.h"

namespace moonshard::data {

BpeTokenizer::BpeTokenizer(BpeParts parts) : parts_(std::move(parts)) {
  special_.resize(parts_.token_bytes.size());
  for (const AddedToken& token : parts_.added) {
    special_[static_cast<size_t>(token.id)] = token.special;
    if (token.normalized) {
      after_.add(token, normalized(token.content, parts_.normal_form));
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
    const bool plain = parts_.normal_form == NormalForm::None;
    const std::string changed = plain ? std::string() : normalized(outer.text, parts_.normal_form);
    for (const TextPart& inner : after_.split(plain ? outer.text : std::string_view(changed))) {
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
  return text;
}

std::optional<int32_t> BpeTokenizer::find(std::string_view token) const {
  for (const AddedToken& added : parts_.added) {
    if (added.content == token) return added.id;
  }
  std::string bytes;
  if (!bytes_of_alphabet(token, bytes)) return std::nullopt;
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
