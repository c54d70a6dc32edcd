#include "runtime/data/text/tokenizer.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/utf8.h"
#include "runtime/data/text/bpe_tokenizer.h"

namespace moonshard::data {
namespace {

using nlohmann::json;

constexpr int64_t kMaxId = 10'000'000;
constexpr size_t kMaxAddedBytes = 4096;
constexpr size_t kMaxCuts = 16;
// Ids without a token cost memory: a few are usual, a million in a small file are not.
constexpr size_t kMaxGap = 65536;

class Reader {
 public:
  Reader(const json& file, const std::string& where) : file_(file), where_(where) {}

  BpeParts read() {
    for (const char* field : {"truncation", "padding"}) {
      if (!is_null(file_, field))
        fail(field, "null (max_length says how long samples are)", "something else");
    }
    read_normalizer();
    read_pre_tokenizer();
    read_decoder();
    read_model();
    read_added_tokens();
    read_post_processor();
    return std::move(parts_);
  }

 private:
  [[noreturn]] void fail(const std::string& field, const std::string& expected,
                         const std::string& got) const {
    throw IoError(
        fmt::format("{}: field '{}': expected {}, got {}; this tokenizer is not supported", where_,
                    field, expected, got));
  }

  static bool is_null(const json& object, const char* key) {
    const auto found = object.find(key);
    return found == object.end() || found->is_null();
  }
  const json& object(const json& parent, const char* key, const std::string& field) const {
    if (is_null(parent, key) || !parent[key].is_object()) fail(field, "an object", "none");
    return parent[key];
  }
  std::string type_of(const json& value, const std::string& field) const {
    return text_of(value, "type", field);
  }
  std::string text_of(const json& value, const char* key, const std::string& field) const {
    if (!value.is_object() || !value.contains(key) || !value[key].is_string())
      fail(field + "." + key, "a text", "none");
    return value[key].get<std::string>();
  }
  bool flag(const json& value, const char* key, bool fallback, const std::string& field) const {
    if (is_null(value, key)) return fallback;
    if (!value[key].is_boolean()) fail(field + "." + key, "true or false", value[key].type_name());
    return value[key].get<bool>();
  }

  void read_normalizer() {
    if (is_null(file_, "normalizer")) return;
    const json* value = &file_["normalizer"];
    std::string field = "normalizer";
    if (value->is_object() && type_of(*value, field) == "Sequence") {
      const auto list = value->find("normalizers");
      if (list == value->end() || !list->is_array()) fail(field + ".normalizers", "a list", "none");
      if (list->empty()) return;
      if (list->size() > 1) fail(field + ".normalizers", "one entry", std::to_string(list->size()));
      value = &(*list)[0];
    }
    const std::string type = type_of(*value, field);
    if (type == "NFC") {
      parts_.normal_form = NormalForm::Nfc;
    } else if (type == "NFD") {
      parts_.normal_form = NormalForm::Nfd;
    } else if (type == "NFKC") {
      parts_.normal_form = NormalForm::Nfkc;
    } else if (type == "NFKD") {
      parts_.normal_form = NormalForm::Nfkd;
    } else {
      fail(field + ".type", "NFC, NFD, NFKC, NFKD or null", in_quotes(type));
    }
  }

  void read_pre_tokenizer() {
    const json& value = object(file_, "pre_tokenizer", "pre_tokenizer");
    if (type_of(value, "pre_tokenizer") != "Sequence") {
      read_pre_step(value, "pre_tokenizer", true);
    } else {
      const auto list = value.find("pretokenizers");
      if (list == value.end() || !list->is_array() || list->empty() || list->size() > kMaxCuts)
        fail("pre_tokenizer.pretokenizers", fmt::format("a list of 1 to {}", kMaxCuts), "another");
      for (size_t i = 0; i < list->size(); ++i) {
        if (byte_level_)
          fail("pre_tokenizer.pretokenizers", "ByteLevel as the last one", "another");
        read_pre_step((*list)[i], fmt::format("pre_tokenizer.pretokenizers[{}]", i), i == 0);
      }
    }
    if (!byte_level_) fail("pre_tokenizer", "a ByteLevel step", "none");
  }

  void read_pre_step(const json& value, const std::string& field, bool first) {
    const std::string type = type_of(value, field);
    if (type == "ByteLevel") {
      byte_level_ = true;
      // The reference's defaults: both true.
      if (flag(value, "add_prefix_space", true, field)) {
        if (!first) fail(field + ".add_prefix_space", "false after another step", "true");
        parts_.prefix_space = true;
      }
      if (flag(value, "use_regex", true, field)) add_cut(kByteLevelPattern, field);
    } else if (type == "Split") {
      if (text_of(value, "behavior", field) != "Isolated")
        fail(field + ".behavior", "Isolated", in_quotes(text_of(value, "behavior", field)));
      if (flag(value, "invert", false, field)) fail(field + ".invert", "false", "true");
      const json& pattern = object(value, "pattern", field + ".pattern");
      if (!pattern.contains("Regex")) fail(field + ".pattern", "a Regex", "another kind");
      add_cut(text_of(pattern, "Regex", field + ".pattern"), field + ".pattern.Regex");
    } else {
      fail(field + ".type", "Split or ByteLevel", in_quotes(type));
    }
  }

  void add_cut(const std::string& pattern, const std::string& field) {
    parts_.cuts.emplace_back(pattern, fmt::format("{}: field '{}'", where_, field));
  }

  void read_decoder() {
    if (is_null(file_, "decoder")) return;
    const std::string type = type_of(file_["decoder"], "decoder");
    if (type != "ByteLevel") fail("decoder.type", "ByteLevel", in_quotes(type));
  }

  void read_model() {
    const json& model = object(file_, "model", "model");
    if (text_of(model, "type", "model") != "BPE")
      fail("model.type", "BPE", in_quotes(text_of(model, "type", "model")));
    if (!is_null(model, "dropout") && model["dropout"] != 0.0)
      fail("model.dropout", "null (ids must not be random)", "a number");
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!is_null(model, name) && model[name] != "")
        fail(std::string("model.") + name, "null or empty", "a text");
    }
    // unk_token and fuse_unk have no meaning where every byte has a token; neither has a fallback.
    if (flag(model, "byte_fallback", false, "model")) fail("model.byte_fallback", "false", "true");
    read_vocabulary(object(model, "vocab", "model.vocab"));
    parts_.model->ignore_merges(flag(model, "ignore_merges", false, "model"));
    read_merges(model);
  }

  void read_vocabulary(const json& vocab) {
    int64_t largest = -1;
    for (const auto& [token, id] : vocab.items()) {
      if (!id.is_number_integer() || id < 0 || id >= kMaxId)
        fail("model.vocab", fmt::format("ids from 0 to {}", kMaxId - 1),
             fmt::format("{} for {}", id.is_number() ? id.dump() : id.type_name(),
                         in_quotes(token)));
      largest = std::max(largest, id.get<int64_t>());
    }
    if (largest >= 16 * static_cast<int64_t>(vocab.size()) + static_cast<int64_t>(kMaxGap))
      fail("model.vocab", "ids without large gaps",
           fmt::format("id {} in {} tokens", largest, vocab.size()));
    grow(largest);
    TextMap<int32_t> by_bytes;
    by_bytes.reserve(vocab.size());
    std::string bytes;
    for (const auto& [token, number] : vocab.items()) {
      const auto id = number.get<int32_t>();
      take_id(id, token, "model.vocab");
      const bool of_alphabet = bytes_of_alphabet(token, bytes);
      parts_.token_bytes[static_cast<size_t>(id)] = of_alphabet ? bytes : token;
      if (of_alphabet && !token.empty()) by_bytes.emplace(bytes, id);
    }
    for (int byte = 0; byte < 256; ++byte) {
      const char c = static_cast<char>(byte);
      if (!by_bytes.contains(std::string_view(&c, 1)))
        fail("model.vocab", "a token for each of the 256 bytes", fmt::format("none for {}", byte));
    }
    parts_.model = std::make_unique<BpeModel>(std::move(by_bytes));
  }

  void grow(int64_t largest) {
    const auto size = static_cast<size_t>(largest + 1);
    if (size <= parts_.used.size()) return;
    parts_.used.resize(size);
    parts_.token_bytes.resize(size);
  }

  void take_id(int32_t id, const std::string& token, const char* field) {
    char& used = parts_.used[static_cast<size_t>(id)];
    if (used != 0)
      fail(field, "each id once", fmt::format("{} twice, for {}", id, in_quotes(token)));
    used = 1;
  }

  void read_merges(const json& model) {
    const auto merges = model.find("merges");
    if (merges == model.end() || !merges->is_array()) fail("model.merges", "a list", "none");
    for (size_t i = 0; i < merges->size(); ++i) {
      const std::string field = fmt::format("model.merges[{}]", i);
      const auto [left, right] = pair_of((*merges)[i], field);
      const int32_t left_id = id_of(left, field), right_id = id_of(right, field);
      if (!parts_.model->add_merge(left_id, right_id, id_of(left + right, field)))
        fail(field, "each pair once",
             fmt::format("{} {} again", in_quotes(left), in_quotes(right)));
    }
  }

  std::pair<std::string, std::string> pair_of(const json& entry, const std::string& field) const {
    if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string())
      return {entry[0].get<std::string>(), entry[1].get<std::string>()};
    if (entry.is_string()) {
      const auto& text = entry.get_ref<const std::string&>();
      const size_t blank = text.find(' ');
      if (blank != std::string::npos && text.find(' ', blank + 1) == std::string::npos)
        return {text.substr(0, blank), text.substr(blank + 1)};
    }
    fail(field, "two tokens, as \"a b\" or [\"a\", \"b\"]", "something else");
  }

  int32_t id_of(const std::string& token, const std::string& field) const {
    std::string bytes;
    const auto& vocabulary = parts_.model->vocabulary();
    const auto found = bytes_of_alphabet(token, bytes) ? vocabulary.find(bytes) : vocabulary.end();
    if (found == vocabulary.end()) fail(field, "tokens of the vocabulary", in_quotes(token));
    return found->second;
  }

  void read_added_tokens() {
    if (is_null(file_, "added_tokens")) return;
    const json& list = file_["added_tokens"];
    if (!list.is_array()) fail("added_tokens", "a list", list.type_name());
    TextMap<size_t> seen;
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string field = fmt::format("added_tokens[{}]", i);
      AddedToken token = added_token(list[i], field);
      if (!seen.emplace(token.content, i).second)
        fail(field + ".content", "each content once", in_quotes(token.content) + " again");
      add_token(std::move(token), field);
    }
  }

  AddedToken added_token(const json& value, const std::string& field) const {
    AddedToken token;
    token.content = text_of(value, "content", field);
    if (token.content.empty() || token.content.size() > kMaxAddedBytes)
      fail(field + ".content", fmt::format("1 to {} bytes", kMaxAddedBytes),
           std::to_string(token.content.size()));
    const auto id = value.find("id");
    if (id == value.end() || !id->is_number_integer() || *id < 0 || *id >= kMaxId)
      fail(field + ".id", fmt::format("0 to {}", kMaxId - 1), "something else");
    token.id = id->get<int32_t>();
    token.special = flag(value, "special", false, field);
    token.normalized = flag(value, "normalized", !token.special, field);
    token.lstrip = flag(value, "lstrip", false, field);
    token.rstrip = flag(value, "rstrip", false, field);
    if (flag(value, "single_word", false, field)) fail(field + ".single_word", "false", "true");
    return token;
  }

  void add_token(AddedToken token, const std::string& field) {
    std::string bytes;
    const bool of_alphabet = bytes_of_alphabet(token.content, bytes);
    const auto& vocabulary = parts_.model->vocabulary();
    const auto known = of_alphabet ? vocabulary.find(bytes) : vocabulary.end();
    const auto at = static_cast<size_t>(token.id);
    if (known != vocabulary.end()) {
      if (known->second != token.id)
        fail(field + ".id", fmt::format("{} as in the vocabulary", known->second),
             std::to_string(token.id));
    } else {
      if (at >= parts_.used.size() + kMaxGap)
        fail(field + ".id", "an id near the others", std::to_string(token.id));
      grow(token.id);
      // A token of characters beyond the alphabet is in the vocabulary as it is written.
      const bool same = parts_.used[at] != 0 && parts_.token_bytes[at] == token.content;
      if (!same) take_id(token.id, token.content, "added_tokens");
    }
    parts_.token_bytes[at] =
        token.normalized ? normalized(token.content, parts_.normal_form) : token.content;
    parts_.added.push_back(std::move(token));
  }

  void read_post_processor() {
    if (is_null(file_, "post_processor")) return;
    const json& value = file_["post_processor"];
    if (type_of(value, "post_processor") != "Sequence") {
      return read_post_step(value, "post_processor");
    }
    const auto list = value.find("processors");
    if (list == value.end() || !list->is_array())
      fail("post_processor.processors", "a list", "none");
    for (size_t i = 0; i < list->size(); ++i)
      read_post_step((*list)[i], fmt::format("post_processor.processors[{}]", i));
  }

  void read_post_step(const json& value, const std::string& field) {
    const std::string type = type_of(value, field);
    if (type == "ByteLevel") return;  // moves offsets, not ids
    if (type != "TemplateProcessing")
      fail(field + ".type", "TemplateProcessing or ByteLevel", in_quotes(type));
    if (has_template_) fail(field, "one template", "a second");
    has_template_ = true;
    const auto single = value.find("single");
    if (single == value.end() || !single->is_array()) fail(field + ".single", "a list", "none");
    bool text_seen = false;
    for (const json& piece : *single) {
      if (piece.is_object() && piece.contains("Sequence") && !text_seen) {
        if (text_of(piece["Sequence"], "id", field + ".single") != "A")
          fail(field + ".single", "the sequence A", "another");
        text_seen = true;
      } else if (piece.is_object() && piece.contains("SpecialToken")) {
        add_template_ids(value, text_of(piece["SpecialToken"], "id", field + ".single"), field,
                         text_seen ? parts_.suffix : parts_.prefix);
      } else {
        fail(field + ".single", "special tokens and the sequence A once", "something else");
      }
    }
    if (!text_seen) fail(field + ".single", "the sequence A", "none");
  }

  void add_template_ids(const json& value, const std::string& name, const std::string& field,
                        std::vector<int32_t>& to) const {
    const json& tokens = object(value, "special_tokens", field + ".special_tokens");
    const auto entry = tokens.find(name);
    const bool good = entry != tokens.end() && entry->is_object() && entry->contains("ids") &&
                      (*entry)["ids"].is_array();
    if (!good) fail(field + ".special_tokens", "the ids of " + in_quotes(name), "none");
    for (const json& id : (*entry)["ids"]) {
      const bool known = id.is_number_integer() && id >= 0 && id < parts_.used.size() &&
                         parts_.used[id.get<size_t>()] != 0;
      if (!known) fail(field + ".special_tokens", "ids that have a token", id.dump());
      to.push_back(id.get<int32_t>());
    }
  }

  const json& file_;
  const std::string& where_;
  BpeParts parts_;
  bool byte_level_ = false, has_template_ = false;
};

}  // namespace

std::shared_ptr<const Tokenizer> tokenizer_of_json(const json& file, const std::string& where,
                                                   uint64_t fingerprint) {
  if (!file.is_object())
    throw IoError(fmt::format("{}: expected an object, got {}", where, file.type_name()));
  BpeParts parts = Reader(file, where).read();
  parts.name = where;
  parts.fingerprint = fingerprint;
  return std::make_shared<BpeTokenizer>(std::move(parts));
}

}  // namespace moonshard::data
