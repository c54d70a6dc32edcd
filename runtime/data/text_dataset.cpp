#include "runtime/data/text_dataset.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "runtime/base/check.h"
#include "runtime/base/utf8.h"
#include "runtime/data/text/documents.h"
#include "runtime/data/text/token_file.h"

namespace moonshard::data {
namespace {

constexpr int64_t kIgnored = -100;
// Raised when the same files would give other tokens.
constexpr uint64_t kReadingVersion = 1;

void check_word(const char* option, const std::string& given, const char* one, const char* other) {
  MS_CHECK(given == one || given == other, "data.text: option '{}': expected {} or {}, got {}",
           option, one, other, in_quotes(given));
}

int64_t separator_of(const Tokenizer& tokenizer, const std::string& asked) {
  if (!asked.empty()) {
    const auto id = tokenizer.find(asked);
    MS_CHECK(id.has_value(), "data.text: option 'end_of_text': expected a token of {}, got {}",
             in_quotes(tokenizer.name()), in_quotes(asked));
    return *id;
  }
  const auto id = tokenizer.end_of_text();
  MS_CHECK(id.has_value(),
           "data.text: expected a tokenizer with an end-of-text token, got {} without a known one; "
           "name it with end_of_text = \"…\"",
           in_quotes(tokenizer.name()));
  return *id;
}

TokenKey key_of(const TextOptions& options, const Tokenizer& tokenizer, int64_t separator,
                const FolderListing& listing) {
  Checksum setting;
  setting.add_number(kReadingVersion);
  setting.add_field(std::filesystem::weakly_canonical(options.folder).string());
  setting.add_field(tokenizer.takes_any_bytes() ? "bytes" : "json");
  setting.add_number(tokenizer.fingerprint());
  setting.add_number(static_cast<uint64_t>(separator));
  setting.add_field(options.invalid_utf8);
  Checksum contents;
  for (const DocumentFile& file : listing.files) {
    contents.add_field(file.name);
    contents.add_number(static_cast<uint64_t>(file.bytes));
    contents.add_number(static_cast<uint64_t>(file.changed_ns));
  }
  return {setting.value(), contents.value()};
}

Json read_all(const FolderListing& listing, const Tokenizer& tokenizer, bool replace,
              TokenWriter& writer) {
  DocumentCounts counts;
  std::vector<int32_t> ids;
  for (const DocumentFile& file : listing.files) {
    read_documents(file, replace, counts, [&](const DocumentPart& part) {
      ids.clear();
      if (part.first) {
        writer.begin_document();
        ids = tokenizer.prefix();
      }
      tokenizer.encode(part.text, ids);
      if (part.last) ids.insert(ids.end(), tokenizer.suffix().begin(), tokenizer.suffix().end());
      writer.add(ids);
    });
  }
  return counts.to_json();
}

}  // namespace

TextDataset::TextDataset(const TextOptions& options, const models::ModelOptions* model)
    : options_(options), tokenizer_(open_tokenizer(options.tokenizer)) {
  if (model != nullptr) check_fits(*model);
  check_word("packing", options.packing, "packed", "padded");
  check_word("invalid_utf8", options.invalid_utf8, "error", "replace");
  MS_CHECK(options.max_length > 1, "data.text: option 'max_length': expected 2 or more, got {}",
           options.max_length);
  separator_ = separator_of(*tokenizer_, options.end_of_text);
  const FolderListing listing = list_documents(options.folder);
  CacheRequest request;
  request.data_folder = options.folder;
  request.place = options.cache;
  request.key = key_of(options, *tokenizer_, separator_, listing);
  request.vocab_size = tokenizer_->vocab_size();
  request.separator = static_cast<int32_t>(separator_);
  request.fill = [&](TokenWriter& writer) {
    return read_all(listing, *tokenizer_, options.invalid_utf8 == "replace", writer);
  };
  CachedTokens cached = open_or_make_tokens(request);
  tokens_ = std::move(cached.tokens);

  facts_ = {{"folder", options.folder},
            {"tokenizer", tokenizer_->name()},
            {"vocab_size", tokenizer_->vocab_size()},
            {"packing", options.packing},
            {"max_length", options.max_length}};
  facts_.update(tokens_->counts());
  if (!facts_["skipped"].is_object()) facts_["skipped"] = Json::object();  // a file made by hand
  facts_["skipped"]["other_files"] = listing.other_files;
  facts_["skipped"]["hidden"] = listing.hidden;
  facts_["skipped"]["links"] = listing.links;
  facts_["tokens"] = tokens_->num_tokens();
  if (options.packing == "packed") {
    samples_ = tokens_->num_tokens() / options.max_length;
    facts_["tokens_dropped"] = tokens_->num_tokens() % options.max_length;
    facts_["privacy_unit"] = fmt::format(
        "a stretch of {} tokens, which is neither a document nor a person", options.max_length);
  } else {
    choose_documents();
    facts_["privacy_unit"] = "a document";
  }
  facts_["samples"] = samples_;
  facts_["cache"] = std::move(cached.facts);
  MS_CHECK(samples_ > 0,
           "data folder: expected at least one sample of {} tokens in {}, got {} tokens in {} "
           "documents; give more text or a smaller max_length",
           options.packing == "packed" ? options.max_length : 2, options.folder,
           tokens_->num_tokens(), tokens_->num_documents());
}

void TextDataset::choose_documents() {
  int64_t truncated = 0, lost = 0, too_short = 0;
  tokens_->each_document([&](int64_t begin, int64_t length) {
    if (length < 2) {  // nothing follows its only token: nothing to learn
      ++too_short;
      return;
    }
    documents_.emplace_back(begin, std::min(length, options_.max_length));
    if (length > options_.max_length) {
      ++truncated;
      lost += length - options_.max_length;
    }
  });
  samples_ = static_cast<int64_t>(documents_.size());
  facts_["documents_truncated"] = truncated;
  facts_["tokens_dropped"] = lost;
  facts_["skipped"]["documents_of_one_token"] = too_short;
}

int64_t TextDataset::size() const {
  return samples_;
}

std::pair<int64_t, int64_t> TextDataset::place_of(int64_t sample) const {
  const int64_t most = options_.max_length;
  if (options_.packing == "packed") return {sample * most, most};
  return documents_[static_cast<size_t>(sample)];
}

Batch TextDataset::batch(const std::vector<int64_t>& examples) const {
  const auto count = static_cast<int64_t>(examples.size());
  const int64_t length = options_.max_length;
  Batch batch;
  batch.input_ids = at::full({count, length}, separator_, at::kLong);
  batch.attention_mask = at::zeros({count, length}, at::kBool);
  batch.labels = at::full({count, length}, kIgnored, at::kLong);
  auto* ids = batch.input_ids.mutable_data_ptr<int64_t>();
  auto* mask = batch.attention_mask.mutable_data_ptr<bool>();
  auto* labels = batch.labels.mutable_data_ptr<int64_t>();
  for (const int64_t example : examples) {
    MS_CHECK(example >= 0 && example < samples_,
             "data.text: expected examples from 0 to {}, got {}", samples_ - 1, example);
    const auto [first, tokens] = place_of(example);
    tokens_->copy(first, tokens, ids);
    std::fill_n(mask, tokens, true);
    std::copy_n(ids + 1, tokens - 1, labels);  // what follows; the last token has no label
    ids += length, mask += length, labels += length;
  }
  return batch;
}

void TextDataset::check_fits(const models::ModelOptions& model) const {
  MS_CHECK(model.task == "lm",
           "data.text: expected a model with task = lm, got {}; text has no labels for other tasks",
           model.task);
  MS_CHECK(model.vocab_size >= tokenizer_->vocab_size(),
           "data.text: expected vocab_size of at least {} (tokenizer {}), got {}",
           tokenizer_->vocab_size(), in_quotes(tokenizer_->name()), model.vocab_size);
}

std::shared_ptr<Dataset> make_text_dataset(const TextOptions& options,
                                           const models::ModelOptions& model) {
  return std::make_shared<TextDataset>(options, &model);
}

const OptionSchema& text_schema() {
  static const OptionSchema schema("data.text", [](OptionSchema& s) {
    using T = TextOptions;
    s.text<T>("folder", &T::folder,
              "folder with .txt, .json and .jsonl files, also in folders below");
    s.text<T>("tokenizer", &T::tokenizer, "bytes, a tokenizer.json, or a folder that has one");
    s.choice<T>("packing", &T::packing, {"packed", "padded"},
                "samples cut from all documents joined, or one per document");
    s.integer<T>("max_length", &T::max_length, 2, 1e8, "tokens of a sample");
    s.choice<T>("invalid_utf8", &T::invalid_utf8, {"error", "replace"},
                "what to do with bytes that are no UTF-8");
    s.text<T>("end_of_text", &T::end_of_text,
              "token between documents; empty takes the tokenizer's own");
    s.text<T>("cache", &T::cache, "auto, none, or a folder for the file of tokens");
  });
  return schema;
}

}  // namespace moonshard::data
