#include "runtime/data/classification_dataset.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include <ATen/ATen.h>

#include "runtime/base/check.h"
#include "runtime/base/utf8.h"
#include "runtime/data/text/documents.h"
#include "runtime/data/text/token_file.h"

namespace moonshard::data {
namespace {

constexpr int64_t kMaxLabels = 1'000'000;

// Uniform in [0, 1) by seed and text alone: a line that is added, removed or moved changes the part
// of no other, and equal texts are in one part. The same on every machine.
double split_draw(int64_t seed, const std::string& text) {
  Checksum checksum;
  checksum.add_number(static_cast<uint64_t>(seed));
  checksum.add(text);
  uint64_t x = checksum.value();  // then the last steps of SplitMix64 (Steele et al. 2014)
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ x >> 27) * 0x94D049BB133111EBull;
  return static_cast<double>((x ^ x >> 31) >> 11) * 0x1p-53;
}

}  // namespace

struct ClassificationDataset::Line {
  int64_t number = 0;
  int64_t label = -1;               ///< of a number
  std::optional<std::string> name;  ///< of a text
  double draw = 0;                  ///< below test_share: of part test
};

ClassificationDataset::ClassificationDataset(const ClassificationOptions& options,
                                             const models::ModelOptions* model)
    : options_(options), tokenizer_(open_tokenizer(options.tokenizer)) {
  MS_CHECK(options.max_length > 0,
           "data.classification: option 'max_length': expected 1 or more, got {}",
           options.max_length);
  DocumentKind kind = DocumentKind::Text;
  MS_CHECK(document_kind(options.file, kind) && kind == DocumentKind::JsonLines &&
               std::filesystem::exists(options.file),
           "data.classification: option 'file': expected a .jsonl file, got {}",
           in_quotes(options.file));
  MS_CHECK(model == nullptr || model->task == "classify",
           "data.classification: expected a model with task = classify, got {}", model->task);
  MS_CHECK(model == nullptr || model->vocab_size >= tokenizer_->vocab_size(),
           "data.classification: expected vocab_size of at least {} (tokenizer {}), got {}",
           tokenizer_->vocab_size(), in_quotes(tokenizer_->name()), model->vocab_size);
  padding_ = tokenizer_->end_of_text().value_or(0);
  std::vector<Line> lines;
  read(lines);
  number_labels(lines);
  if (model != nullptr) check_fits(*model, lines);
  choose(lines);
  facts_["labels"] = labels_;
  facts_["num_labels"] = num_labels_;
  facts_["part"] = options.part;
  if (options.part != "all") {
    facts_["test_share"] = options.test_share;
    facts_["split_seed"] = options.split_seed;
  }
  facts_["samples"] = size();
  facts_["privacy_unit"] = "a line of the file";
}

void ClassificationDataset::read(std::vector<Line>& lines) {
  const bool replace = options_.invalid_utf8 == "replace";
  DocumentCounts counts;
  counts.files = 1;
  int64_t truncated = 0, lost = 0, total = 0;
  read_json_lines(options_.file, replace, counts, [&](Json& value, int64_t number) {
    const std::string where = fmt::format("{}:{}", options_.file, number);
    std::string& text = text_field(value, "text", where);
    check_zero_characters(text, replace, counts.repairs, where);
    if (text.empty()) {
      ++counts.empty_texts;
      return;
    }
    Line line;
    line.number = number;
    line.draw = split_draw(options_.split_seed, text);
    const Json label = value.contains("label") ? value["label"] : Json();
    if (label.is_string()) {
      line.name = label.get<std::string>();
    } else if (label.is_number_integer() && label >= 0 && label < kMaxLabels) {
      line.label = label.get<int64_t>();
    } else {
      throw IoError(
          fmt::format("{}: expected a \"label\" that is a text or a whole number from 0 to {}, got "
                      "{}",
                      where, kMaxLabels - 1,
                      label.is_null()     ? "none"
                      : label.is_number() ? label.dump()
                                          : label.type_name()));
    }
    const std::vector<int32_t> ids = encode_whole(*tokenizer_, text);
    const auto length = static_cast<int64_t>(ids.size());
    const int64_t kept = std::min(length, options_.max_length);
    begins_.push_back(static_cast<int64_t>(tokens_.size()));
    tokens_.insert(tokens_.end(), ids.begin(), ids.begin() + kept);
    truncated += length > kept ? 1 : 0;
    lost += length - kept;
    total += length;
    ++counts.documents;
    lines.push_back(std::move(line));
  });
  begins_.push_back(static_cast<int64_t>(tokens_.size()));
  std::error_code none;
  counts.bytes = static_cast<int64_t>(std::filesystem::file_size(options_.file, none));
  MS_CHECK(!lines.empty(), "data.classification: expected labelled texts in {}, got none",
           in_quotes(options_.file));
  facts_ = {{"file", options_.file},
            {"tokenizer", tokenizer_->name()},
            {"vocab_size", tokenizer_->vocab_size()},
            {"max_length", options_.max_length}};
  facts_.update(counts.to_json());
  facts_["tokens"] = total;
  facts_["documents_truncated"] = truncated;
  facts_["tokens_dropped"] = lost;
}

void ClassificationDataset::number_labels(std::vector<Line>& lines) {
  labels_ = options_.labels;
  if (labels_.empty() && lines[0].name) {
    for (const Line& line : lines) labels_.push_back(line.name.value_or(""));
    std::sort(labels_.begin(), labels_.end());
    labels_.erase(std::unique(labels_.begin(), labels_.end()), labels_.end());
  }
  std::map<std::string, int64_t> numbers;
  for (size_t i = 0; i < labels_.size(); ++i) {
    MS_CHECK(numbers.emplace(labels_[i], static_cast<int64_t>(i)).second,
             "data.classification: option 'labels': expected each name once, got {} twice",
             in_quotes(labels_[i]));
  }
  num_labels_ = static_cast<int64_t>(labels_.size());
  for (Line& line : lines) {
    const std::string where = fmt::format("{}:{}", options_.file, line.number);
    if (line.name.has_value() != lines[0].name.has_value())
      throw IoError(
          fmt::format("{}: expected labels that are all texts or all numbers, got {} "
                      "after {} in line {}",
                      where, line.name ? "a text" : "a number", line.name ? "a number" : "a text",
                      lines[0].number));
    if (line.name) {
      const auto found = numbers.find(*line.name);
      if (found == numbers.end())
        throw IoError(fmt::format("{}: expected one of the {} labels ({} to {}), got {}", where,
                                  labels_.size(), in_quotes(labels_.front()),
                                  in_quotes(labels_.back()), in_quotes(*line.name)));
      line.label = found->second;
    } else if (!labels_.empty() && line.label >= num_labels_) {
      throw IoError(fmt::format("{}: expected a label from 0 to {}, got {}", where, num_labels_ - 1,
                                line.label));
    }
    classes_.push_back(line.label);
  }
  if (labels_.empty()) num_labels_ = *std::max_element(classes_.begin(), classes_.end()) + 1;
}

void ClassificationDataset::check_fits(const models::ModelOptions& model,
                                       const std::vector<Line>& lines) const {
  for (const Line& line : lines) {
    if (line.label < model.num_labels) continue;
    throw UsageError(fmt::format(
        "{}:{}: expected a label from 0 to {} (num_labels = {} of the model), got {}{}; make the "
        "model with num_labels = {}",
        options_.file, line.number, model.num_labels - 1, model.num_labels, line.label,
        line.name ? " for " + in_quotes(*line.name) : "", num_labels_));
  }
}

void ClassificationDataset::choose(const std::vector<Line>& lines) {
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool tested = lines[i].draw < options_.test_share;
    if (options_.part == "all" || tested == (options_.part == "test"))
      chosen_.push_back(static_cast<int64_t>(i));
  }
  MS_CHECK(!chosen_.empty(),
           "data.classification: expected samples in part '{}', got none of {} with test_share = "
           "{}",
           options_.part, lines.size(), options_.test_share);
}

Batch ClassificationDataset::batch(const std::vector<int64_t>& examples) const {
  const auto count = static_cast<int64_t>(examples.size());
  const int64_t length = options_.max_length;
  Batch batch;
  batch.input_ids = at::full({count, length}, padding_, at::kLong);
  batch.attention_mask = at::zeros({count, length}, at::kBool);
  batch.labels = at::empty({count}, at::kLong);
  auto* ids = batch.input_ids.mutable_data_ptr<int64_t>();
  auto* mask = batch.attention_mask.mutable_data_ptr<bool>();
  auto* labels = batch.labels.mutable_data_ptr<int64_t>();
  for (const int64_t example : examples) {
    MS_CHECK(example >= 0 && example < size(),
             "data.classification: expected examples from 0 to {}, got {}", size() - 1, example);
    const auto line = static_cast<size_t>(chosen_[static_cast<size_t>(example)]);
    const int64_t tokens = begins_[line + 1] - begins_[line];
    std::copy_n(tokens_.begin() + begins_[line], tokens, ids);
    std::fill_n(mask, tokens, true);
    *labels++ = classes_[line];
    ids += length, mask += length;
  }
  return batch;
}

std::shared_ptr<Dataset> make_classification_dataset(const ClassificationOptions& options,
                                                     const models::ModelOptions& model) {
  return std::make_shared<ClassificationDataset>(options, &model);
}

const OptionSchema& classification_schema() {
  static const OptionSchema schema("data.classification", [](OptionSchema& s) {
    using T = ClassificationOptions;
    s.text<T>("file", &T::file, ".jsonl file with \"text\" and \"label\" on every line");
    s.text<T>("tokenizer", &T::tokenizer, "bytes, a tokenizer.json, or a folder that has one");
    s.integer<T>("max_length", &T::max_length, 1, 1e8, "tokens of a sample");
    s.choice<T>("part", &T::part, {"all", "train", "test"}, "which lines");
    s.real<T>("test_share", &T::test_share, 0, 1, "share of the lines that part test has");
    s.integer<T>("split_seed", &T::split_seed, 0, 9007199254740992.0,
                 "draws the lines of part test");
    s.choice<T>("invalid_utf8", &T::invalid_utf8, {"error", "replace"},
                "what to do with bytes that are no UTF-8");
    s.also_known({"labels"});
  });
  return schema;
}

}  // namespace moonshard::data
