// Labelled texts: a .jsonl file with "text" and "label" on every line. One line is one sample and
// the unit of privacy. Tokens are kept in memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/data/source.h"
#include "runtime/data/text/tokenizer.h"
#include "runtime/models/model_options.h"

namespace moonshard::data {

struct ClassificationOptions {
  std::string file;
  std::string tokenizer = "bytes";  ///< or a tokenizer.json, or a folder that has one
  int64_t max_length = 0;           ///< tokens of a sample
  std::string part = "all";         ///< all | train | test
  double test_share = 0.2;          ///< of the lines, drawn by their text and split_seed
  int64_t split_seed = 0;
  std::string invalid_utf8 = "error";  ///< error | replace
  /// Names of the classes in order; empty takes the file's: whole numbers as they are, texts in
  /// sorted order. Give it where two files must agree.
  std::vector<std::string> labels;
};

class ClassificationDataset : public Dataset {
 public:
  /// Throws UsageError for bad options and for a model with another task, fewer labels or a smaller
  /// vocabulary; IoError with file and line for a line that is not as expected.
  explicit ClassificationDataset(const ClassificationOptions& options,
                                 const models::ModelOptions* model = nullptr);

  int64_t size() const override { return static_cast<int64_t>(chosen_.size()); }
  Batch batch(const std::vector<int64_t>& examples) const override;
  Json facts() const override { return facts_; }

  /// Names of the classes by number; empty when the file has numbers only.
  const std::vector<std::string>& labels() const { return labels_; }
  int64_t num_labels() const { return num_labels_; }

 private:
  struct Line;
  void read(std::vector<Line>& lines);
  void number_labels(std::vector<Line>& lines);
  void choose(const std::vector<Line>& lines);
  void check_fits(const models::ModelOptions& model, const std::vector<Line>& lines) const;

  ClassificationOptions options_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<int32_t> tokens_;   ///< of all lines, truncated
  std::vector<int64_t> begins_;   ///< of each line's tokens, and the end
  std::vector<int64_t> classes_;  ///< of each line
  std::vector<int64_t> chosen_;   ///< lines that are samples of this part
  std::vector<std::string> labels_;
  int64_t num_labels_ = 0, padding_ = 0;
  Json facts_;
};

/// The dataset of these options, checked against the model's resolved options.
std::shared_ptr<Dataset> make_classification_dataset(const ClassificationOptions& options,
                                                     const models::ModelOptions& model);

/// Schema of ms.data.classification, but for `labels`, which is a list.
const OptionSchema& classification_schema();

}  // namespace moonshard::data
