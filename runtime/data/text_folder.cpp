#include "runtime/data/text_folder.h"

#include <algorithm>
#include <sstream>

#include <ATen/ATen.h>

#include "runtime/core/device.h"
#include "runtime/records/json.h"

namespace moonshard::data {
namespace {

namespace fs = std::filesystem;
using records::Json;

constexpr size_t kMaxFile = 4ull << 30;
constexpr const char* kFormats = ".txt, .json {\"text\": …} or .jsonl with one such per line";

std::string text_of(const Json& value, const std::string& where) {
  MS_CHECK(value.is_object() && value.contains("text") && value["text"].is_string(),
           "data_folder: {}: expected an object with \"text\", got {}", where,
           value.is_object() ? "one without" : value.type_name());
  return value["text"].get<std::string>();
}

void add_document(std::string& text, const std::string& document) {
  if (document.empty()) return;
  if (!text.empty()) text.push_back('\0');
  text += document;
}

void read_file(std::string& text, const fs::path& path) {
  const std::string bytes = records::read_text_file(path, kMaxFile);
  const std::string kind = path.extension().string();
  if (kind == ".txt") return add_document(text, bytes);
  const std::string where = path.string();
  if (kind == ".json") {
    const Json value = records::parse_json(bytes, where);
    if (!value.is_array()) return add_document(text, text_of(value, where));
    for (const Json& entry : value) add_document(text, text_of(entry, where));
    return;
  }
  std::istringstream lines(bytes);
  std::string line;
  for (int64_t number = 1; std::getline(lines, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string place = fmt::format("{}:{}", where, number);
    add_document(text, text_of(records::parse_json(line, place), place));
  }
}

std::vector<fs::path> text_files(const fs::path& folder) {
  MS_CHECK(fs::is_directory(folder), "data_folder: expected a folder, got '{}'", folder.string());
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string kind = entry.path().extension().string();
    if (entry.is_regular_file() && (kind == ".txt" || kind == ".json" || kind == ".jsonl"))
      files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());  // the same order on every machine
  MS_CHECK(!files.empty(), "data_folder: expected files {} in {}, got none", kFormats,
           folder.string());
  return files;
}

}  // namespace

TextFolder::TextFolder(const fs::path& folder, const models::ModelOptions& model,
                       int64_t batch_size, int64_t seq_length, int rank, int world)
    : model_(model), batch_size_(batch_size), seq_length_(seq_length), rank_(rank), world_(world) {
  MS_CHECK(model.task == "lm",
           "data_folder: expected task = lm, got {}; text has no labels for other tasks",
           model.task);
  MS_CHECK(model.vocab_size >= 256,
           "data_folder: expected vocab_size of at least 256 (one id per byte), got {}",
           model.vocab_size);
  MS_CHECK(batch_size > 0 && seq_length > 1,
           "data_folder: expected batch_size > 0 and seq_length > 1, got {} and {}", batch_size,
           seq_length);
  for (const fs::path& file : text_files(folder)) read_file(text_, file);
  samples_ = static_cast<int64_t>(text_.size()) / seq_length;
  MS_CHECK(samples_ > 0, "data_folder: expected at least {} bytes of text in {}, got {}",
           seq_length, folder.string(), text_.size());
}

Batch TextFolder::next() {
  at::Tensor ids = at::empty({batch_size_, seq_length_}, at::kLong);
  int64_t* to = ids.mutable_data_ptr<int64_t>();
  const int64_t first = (position_ + rank_) * batch_size_;
  position_ += world_;
  for (int64_t b = 0; b < batch_size_; ++b) {
    const char* from = text_.data() + ((first + b) % samples_) * seq_length_;
    for (int64_t t = 0; t < seq_length_; ++t)
      *to++ = static_cast<int64_t>(static_cast<unsigned char>(from[t]));
  }
  const c10::Device device = resolve_device(model_.device);
  Batch batch;
  batch.input_ids = ids.to(device);
  batch.attention_mask =
      at::ones({batch_size_, seq_length_}, at::TensorOptions().dtype(at::kBool).device(device));
  batch.labels = at::full_like(batch.input_ids, -100);
  batch.labels.slice(1, 0, seq_length_ - 1).copy_(batch.input_ids.slice(1, 1));
  return batch;
}

}  // namespace moonshard::data
