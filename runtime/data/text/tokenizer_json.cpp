#include "runtime/data/text/tokenizer.h"

#include <algorithm>
#include <map>

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
    const json& model = object(file_, "model", "model");
    parts_.sentence_piece = flag(model, "byte_fallback", false, "model");
    read_normalizer();
    if (parts_.sentence_piece) {
      check_pre_tokenizer_of_pieces();
      read_decoder_of_pieces();
    } else {
      read_pre_tokenizer();
      read_decoder();
    }
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

  // One step, or those of a sequence.
  std::vector<const json*> steps_of(const char* key, const char* list_key) const {
    if (is_null(file_, key)) return {};
    const json& value = file_[key];
    if (type_of(value, key) != "Sequence") return {&value};
    const auto list = value.find(list_key);
    if (list == value.end() || !list->is_array() || list->size() > kMaxCuts)
      fail(std::string(key) + "." + list_key, fmt::format("a list of up to {}", kMaxCuts),
           "another");
    std::vector<const json*> steps;
    for (const json& step : *list) steps.push_back(&step);
    return steps;
  }

  void read_normalizer() {
    static const std::map<std::string, NormalForm> forms = {{"NFC", NormalForm::Nfc},
                                                            {"NFD", NormalForm::Nfd},
                                                            {"NFKC", NormalForm::Nfkc},
                                                            {"NFKD", NormalForm::Nfkd}};
    const std::vector<const json*> steps = steps_of("normalizer", "normalizers");
    for (const json* step : steps) {
      const std::string type = type_of(*step, "normalizer");
      const auto form = forms.find(type);
      if (form != forms.end()) {
        if (step != steps.front()) fail("normalizer", "a normal form as the first step", type);
        parts_.normal_form = form->second;
      } else if (parts_.sentence_piece && type == "Prepend") {
        const std::string text = text_of(*step, "prepend", "normalizer");
        if (text != kBlankMark) fail("normalizer.prepend", "U+2581", in_quotes(text));
        if (parts_.prepends_mark) fail("normalizer", "Prepend once", "twice");
        parts_.prepends_mark = true;
      } else if (parts_.sentence_piece && type == "Replace") {
        check_replacement(*step, "normalizer", " ", std::string(kBlankMark));
        parts_.marks_blanks = true;
      } else {
        fail("normalizer.type",
             parts_.sentence_piece ? "NFC, NFD, NFKC, NFKD, Prepend, Replace or null"
                                   : "NFC, NFD, NFKC, NFKD or null",
             in_quotes(type));
      }
    }
  }

  // {"type": "Replace", "pattern": {"String": from}, "content": to}.
  void check_replacement(const json& value, const std::string& field, const std::string& from,
                         const std::string& to) const {
    const json& pattern = object(value, "pattern", field + ".pattern");
    if (!pattern.contains("String") || pattern["String"] != from)
      fail(field + ".pattern", fmt::format("the String {}", in_quotes(from)), "another");
    const std::string content = text_of(value, "content", field);
    if (content != to) fail(field + ".content", in_quotes(to), in_quotes(content));
  }

  // None, or one that cuts at blanks, of which the normaliser leaves none.
  void check_pre_tokenizer_of_pieces() const {
    if (is_null(file_, "pre_tokenizer")) return;
    const json& value = file_["pre_tokenizer"];
    const std::string type = type_of(value, "pre_tokenizer");
    if (type == "ByteLevel" || type == "Sequence")
      fail("model.byte_fallback", fmt::format("false beside the pre-tokenizer {}", type), "true");
    if (type != "Split")
      fail("pre_tokenizer.type", "Split or null beside byte_fallback", in_quotes(type));
    const json& pattern = object(value, "pattern", "pre_tokenizer.pattern");
    if (!pattern.contains("String") || pattern["String"] != " " || !parts_.marks_blanks)
      fail("pre_tokenizer.pattern", "blanks, which a normaliser has replaced,", "another");
  }

  void read_decoder_of_pieces() {
    const std::vector<const json*> steps = steps_of("decoder", "decoders");
    const char* expected = "Replace, ByteFallback, Fuse and perhaps Strip";
    for (size_t i = 0; i < steps.size(); ++i) {
      const std::string type = type_of(*steps[i], "decoder");
      const char* order[] = {"Replace", "ByteFallback", "Fuse", "Strip"};
      if (i >= 4 || type != order[i]) fail("decoder", expected, in_quotes(type));
      if (i == 0) check_replacement(*steps[0], "decoder", std::string(kBlankMark), " ");
      if (i < 3) continue;
      const json& strip = *steps[i];
      if (text_of(strip, "content", "decoder") != " " || !strip.contains("start") ||
          strip["start"] != 1 || !strip.contains("stop") || strip["stop"] != 0)
        fail("decoder", "Strip of one blank at the start", "another");
      parts_.strips_blank = true;
    }
    if (!steps.empty() && steps.size() < 3) fail("decoder", expected, "fewer steps");
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
    // unk_token and fuse_unk have no meaning where every byte has a token.
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
      const bool known = key_of(token, bytes);
      parts_.token_bytes[static_cast<size_t>(id)] = known ? bytes : token;
      if (parts_.sentence_piece)
        parts_.token_bytes[static_cast<size_t>(id)] = replace_all(token, kBlankMark, " ");
      if (known && !token.empty()) by_bytes.emplace(bytes, id);
    }
    for (int byte = 0; byte < 256; ++byte) {
      const char c = static_cast<char>(byte);
      const std::string token = parts_.sentence_piece ? byte_token(byte) : std::string(1, c);
      const auto found = by_bytes.find(token);
      if (found == by_bytes.end())
        fail("model.vocab", "a token for each of the 256 bytes", fmt::format("none for {}", byte));
      parts_.token_bytes[static_cast<size_t>(found->second)] = std::string(1, c);
    }
    using Start = BpeModel::Start;
    parts_.model = std::make_unique<BpeModel>(
        std::move(by_bytes), parts_.sentence_piece ? Start::Characters : Start::Bytes);
  }

  // What the model knows a token by; false where it cannot know it.
  bool key_of(const std::string& token, std::string& key) const {
    if (!parts_.sentence_piece) return bytes_of_alphabet(token, key);
    key = token;
    return true;
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
    const auto found = key_of(token, bytes) ? vocabulary.find(bytes) : vocabulary.end();
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
    const auto& vocabulary = parts_.model->vocabulary();
    const auto known = key_of(token.content, bytes) ? vocabulary.find(bytes) : vocabulary.end();
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
    if (parts_.sentence_piece) {
      parts_.token_bytes[at] = replace_all(token.content, kBlankMark, " ");
    } else {
      parts_.token_bytes[at] =
          token.normalized ? normalized(token.content, parts_.normal_form) : token.content;
    }
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
