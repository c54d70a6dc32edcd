// Text of a folder as samples for language models: documents become tokens once, the tokens lie in
// a file (token_file.h), and a sample is a stretch of it.
//
// Note on the unit of privacy. What is clipped, drawn by a sampler and protected is one SAMPLE.
// Packed samples hold parts of one or many documents, and a long document is in many samples: an
// epsilon then refers to stretches of max_length tokens, not of documents and not of people. Padded
// samples are documents. facts() says which.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/data/source.h"
#include "runtime/data/text/token_file.h"
#include "runtime/data/text/tokenizer.h"
#include "runtime/models/model_options.h"

namespace moonshard::data {

struct TextOptions {
  std::string folder;
  std::string tokenizer = "bytes";     ///< or a tokenizer.json, or a folder that has one
  std::string packing = "packed";      ///< packed | padded
  int64_t max_length = 0;              ///< tokens of a sample
  std::string invalid_utf8 = "error";  ///< error | replace
  std::string end_of_text;             ///< token between documents; empty takes the tokenizer's own
  std::string cache = "auto";          ///< auto | none | a folder
};

class TextDataset : public Dataset {
 public:
  /// Throws UsageError for bad options, a folder without text or of less than one sample; IoError
  /// with file and line for a file that is not what its name says.
  /// A model that the text does not fit is an error before anything is read.
  explicit TextDataset(const TextOptions& options, const models::ModelOptions* model = nullptr);

  int64_t size() const override;
  Batch batch(const std::vector<int64_t>& examples) const override;
  Json facts() const override { return facts_; }

  const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  /// Where sample n lies among the tokens: its first, and how many.
  std::pair<int64_t, int64_t> place_of(int64_t sample) const;
  void choose_documents();
  void check_fits(const models::ModelOptions& model) const;

  TextOptions options_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const TokenFile> tokens_;
  int64_t separator_ = 0;  ///< id between documents, and of padding
  std::vector<std::pair<int64_t, int64_t>>
      documents_;  ///< padded: places of those that are samples
  int64_t samples_ = 0;
  Json facts_;
};

/// The dataset of these options, checked against the model's resolved options.
std::shared_ptr<Dataset> make_text_dataset(const TextOptions& options,
                                           const models::ModelOptions& model);

/// Schema of ms.data.text, where: "data.text".
const OptionSchema& text_schema();

}  // namespace moonshard::data
