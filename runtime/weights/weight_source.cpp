#include "runtime/weights/weight_source.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <system_error>

#include "runtime/base/check.h"
#include "runtime/base/json.h"
#include "runtime/base/utf8.h"
#include "runtime/weights/folder_sums.h"
#include "runtime/weights/safetensors.h"

namespace moonshard::weights {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxShards = 4096;
constexpr ForeignLimits kIndexLimits{64u << 20, 2'000'000, 32};

bool is_word(std::string_view text) {
  return !text.empty() && text[0] != '.' && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
  });
}

// "owner/model", as the Hub names models: two plain words.
bool looks_like_hub_name(const std::string& text) {
  const size_t slash = text.find('/');
  return slash != std::string::npos && is_word(text.substr(0, slash)) &&
         is_word(text.substr(slash + 1));
}

// A file name and nothing else: an index may not lead out of its folder.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

}  // namespace

void check_weights_exist(const fs::path& path) {
  if (is_there(path)) return;
  const std::string text = path.string();
  if (looks_like_hub_name(text)) {
    const std::string folder = text.substr(text.find('/') + 1);
    throw UsageError(fmt::format(
        "weights: expected a local file or folder, got {}, which looks like a model on the "
        "Hugging Face Hub; moonshard downloads nothing. Fetch it once: if the model is gated, "
        "accept its licence on its page and set HF_TOKEN to your access token (or log in with 'hf "
        "auth login'); then run 'hf download {} --local-dir {}' and give weights = \"{}\"",
        in_quotes(text), text, folder, folder));
  }
  throw UsageError(fmt::format(
      "weights: expected a .safetensors file or a folder with such files, got {}, which does not "
      "exist; check the path",
      in_quotes(text)));
}

WeightSource open_weights(const fs::path& path) {
  check_weights_exist(path);
  WeightSource source;
  source.path_ = path;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    source.add_folder();
  } else if (path.extension() == ".json") {
    source.add_index(path);
  } else {
    MS_CHECK(path.extension() == ".safetensors",
             "weights: expected a .safetensors file, an index (.json) or a folder, got {}; convert "
             "other formats to safetensors first",
             in_quotes(path.string()));
    source.add_whole_file(path);
  }
  source.sort_names();
  return source;
}

// ---- opening ----------------------------------------------------------------------------------

const SafetensorsFile& WeightSource::add_file(const fs::path& path) {
  if (files_.size() == kMaxShards) {
    throw IoError(fmt::format("{}: expected at most {} files of weights, got more; merge some",
                              path_.string(), kMaxShards));
  }
  files_.push_back(std::make_unique<SafetensorsFile>(SafetensorsFile::open(path)));
  const auto& metadata = files_.back()->metadata();
  metadata_.insert(metadata.begin(), metadata.end());
  return *files_.back();
}

void WeightSource::add_whole_file(const fs::path& path) {
  const SafetensorsFile& file = add_file(path);
  for (const TensorEntry& entry : file.entries()) tensors_.push_back({&file, &entry});
}

// Names are unique within a file and within an index, but not over all files of a folder.
void WeightSource::sort_names() {
  std::stable_sort(tensors_.begin(), tensors_.end(),
                   [](const Place& a, const Place& b) { return a.entry->name < b.entry->name; });
  const auto twice = std::adjacent_find(
      tensors_.begin(), tensors_.end(),
      [](const Place& a, const Place& b) { return a.entry->name == b.entry->name; });
  if (twice == tensors_.end()) return;
  throw IoError(fmt::format(
      "{}: tensor {}: expected it in one file, got it also in {}; keep the files of one model in "
      "the folder, or name one file",
      (twice + 1)->file->path().string(), in_quotes(twice->entry->name),
      twice->file->path().string()));
}

void WeightSource::add_index(const fs::path& index) {
  check_folder_sum(index.parent_path(), index.filename().string());
  const nlohmann::json content = read_foreign_json(index, kIndexLimits);
  const auto map = content.find("weight_map");
  if (map == content.end() || !map->is_object() || map->empty()) {
    throw IoError(
        fmt::format("{}: expected 'weight_map' with names and files, got {}; the index "
                    "is damaged or foreign",
                    index.string(),
                    map == content.end() ? "none"
                    : map->is_object()   ? "an empty one"
                                         : map->type_name()));
  }
  std::map<std::string, const SafetensorsFile*> files;
  for (const auto& [name, value] : map->items()) {
    const std::string file_name = value.is_string() ? value.get<std::string>() : "";
    if (!is_plain_name(file_name)) {
      throw IoError(fmt::format(
          "{}: weight_map entry {}: expected the plain name of a file in the same folder, got {}; "
          "the index is damaged or hostile",
          index.string(), in_quotes(name),
          value.is_string() ? in_quotes(file_name) : value.type_name()));
    }
    const SafetensorsFile*& file = files[file_name];
    if (file == nullptr) {
      const fs::path path = index.parent_path() / file_name;
      if (!is_there(path)) {
        throw IoError(
            fmt::format("{}: expected the file {} that it names, got none; the download "
                        "is not complete: fetch the folder again",
                        index.string(), in_quotes(file_name)));
      }
      file = &add_file(path);
    }
    const TensorEntry* entry = file->find(name);
    if (entry == nullptr) {
      throw IoError(
          fmt::format("{}: expected tensor {} in {}, got none there; index and files do "
                      "not belong together: fetch the folder again",
                      index.string(), in_quotes(name), in_quotes(file_name)));
    }
    tensors_.push_back({file, entry});
  }
}

void WeightSource::add_folder() {
  if (is_there(path_ / kIndexFileName)) return add_index(path_ / kIndexFileName);
  if (is_there(path_ / kSingleFileName)) return add_whole_file(path_ / kSingleFileName);
  std::vector<fs::path> found;
  std::error_code error;
  fs::directory_iterator items(path_, error);
  if (error) {
    throw IoError(fmt::format("{}: cannot list the folder: {}; check the rights on it",
                              path_.string(), error.message()));
  }
  for (const auto& item : items) {
    if (item.path().extension() == ".safetensors") found.push_back(item.path());
  }
  MS_CHECK(!found.empty(),
           "weights: expected .safetensors files in the folder {}, got none; fetch the weights, or "
           "convert other formats to safetensors",
           in_quotes(path_.string()));
  std::sort(found.begin(), found.end());
  for (const fs::path& path : found) add_whole_file(path);
}

// ---- reading ----------------------------------------------------------------------------------

std::vector<std::string> WeightSource::names() const {
  std::vector<std::string> result;
  result.reserve(tensors_.size());
  for (const Place& place : tensors_) result.push_back(place.entry->name);
  return result;
}

const WeightSource::Place* WeightSource::search(const std::string& name) const {
  const auto found = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const Place& place, const std::string& n) { return place.entry->name < n; });
  return found == tensors_.end() || found->entry->name != name ? nullptr : &*found;
}

const TensorEntry* WeightSource::find(const std::string& name) const {
  const Place* found = search(name);
  return found == nullptr ? nullptr : found->entry;
}

std::string WeightSource::file_of(const std::string& name) const {
  return place(name).file->path().string();
}

const WeightSource::Place& WeightSource::place(const std::string& name) const {
  const Place* found = search(name);
  if (found != nullptr) return *found;
  throw UsageError(unknown_tensor_message(path_.string(), name, names()));
}

at::Tensor WeightSource::read(const std::string& name) const {
  return place(name).file->read(name);
}

void WeightSource::read_into(const std::string& name, const at::Tensor& target) const {
  place(name).file->read_into(name, target);
}

void WeightSource::read_range(const std::string& name, int64_t first,
                              const at::Tensor& target) const {
  place(name).file->read_range(name, first, target);
}

}  // namespace moonshard::weights
