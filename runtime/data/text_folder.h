// Text of a folder as batches of bytes: .txt files, .json files with a "text", .jsonl files with a
// "text" on every line, also in folders below. Documents follow each other with a 0 byte between
// them, cut into samples of seq_length; after the last sample the first comes again.
#pragma once

#include <filesystem>
#include <string>

#include "runtime/data/source.h"
#include "runtime/models/model_options.h"

namespace moonshard::data {

class TextFolder : public Source {
 public:
  /// Throws UsageError for a folder without text or of less than one sample, a model that has no
  /// use for tokens, and a file that is not what its name says (with its line).
  TextFolder(const std::filesystem::path& folder, const models::ModelOptions& model,
             int64_t batch_size, int64_t seq_length, int rank = 0, int world = 1);
  Batch next() override;
  int64_t position() const override { return position_; }
  void go_to(int64_t position) override { position_ = position; }
  int64_t bytes() const { return static_cast<int64_t>(text_.size()); }

 private:
  models::ModelOptions model_;
  int64_t batch_size_, seq_length_;
  int rank_, world_;
  int64_t position_ = 0, samples_ = 0;
  std::string text_;
};

}  // namespace moonshard::data
