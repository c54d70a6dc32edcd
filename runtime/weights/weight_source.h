// Weights by name from any layout on disk: one safetensors file, shards with an index, or a folder.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runtime/weights/safetensors.h"

namespace moonshard::weights {

class WeightSource {
 public:
  const std::filesystem::path& path() const { return path_; }
  /// Sorted.
  std::vector<std::string> names() const;
  size_t size() const { return tensors_.size(); }
  /// Null when there is none.
  const TensorEntry* find(const std::string& name) const;
  /// The file that holds a tensor; for error texts.
  std::string file_of(const std::string& name) const;
  /// Of all files; where they disagree the first file's value stands.
  const Metadata& metadata() const { return metadata_; }

  /// As SafetensorsFile's. Throw UsageError for an unknown name, with the nearest.
  at::Tensor read(const std::string& name) const;
  void read_into(const std::string& name, const at::Tensor& target) const;
  void read_range(const std::string& name, int64_t first, const at::Tensor& target) const;

 private:
  friend WeightSource open_weights(const std::filesystem::path& path);
  struct Place {
    const SafetensorsFile* file;
    const TensorEntry* entry;
  };
  const SafetensorsFile& add_file(const std::filesystem::path& path);
  void add_whole_file(const std::filesystem::path& path);
  void add_index(const std::filesystem::path& index);
  void add_folder();
  void sort_names();
  const Place* search(const std::string& name) const;
  const Place& place(const std::string& name) const;

  std::filesystem::path path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<Place> tensors_;  ///< sorted by name; the names stay in the headers, which are many
  Metadata metadata_;
};

/// Opens a .safetensors file, a .json index, or a folder (its model.safetensors.index.json, else
/// its model.safetensors, else every *.safetensors in it). Throws IoError for damaged files; for a
/// path that is not there a UsageError that says how to get gated models.
WeightSource open_weights(const std::filesystem::path& path);

/// Throws the UsageError of open_weights unless the path exists.
void check_weights_exist(const std::filesystem::path& path);

}  // namespace moonshard::weights
