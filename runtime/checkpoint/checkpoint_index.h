// The index of a checkpoint: where a training run stands, and which part of which tensor lies in
// which file. Files are untrusted: what read_index returns is checked, and parts cover
// every tensor without gap or overlap.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "runtime/base/json.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/integrity.h"
#include "runtime/weights/base_weights.h"

namespace moonshard::checkpoint {

/// Of the folder's format. Readers refuse a newer one. Version 2 has checksums of whole files,
/// version 3 of every tensor; version 1 is read, but an edit of it would go unseen, so that a run
/// that resumes from it claims no epsilon.
/// Version 4 is for those that leave weights out which lie elsewhere; others still are of
/// version 3.
inline constexpr int64_t kCheckpointVersion = 4;

/// Elements first … first + count - 1 of a flattened tensor, under its name in a file.
struct StoredPart {
  std::string file;
  int64_t first = 0, count = 0;
};

struct StoredTensor {
  std::string name;  ///< a parameter's, or "optimizer/<state>/<parameter>"
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<int64_t> shape;
  std::vector<StoredPart> parts;  ///< in the order of their elements
};

struct CheckpointIndex {
  std::string id;        ///< its files carry it too: files of two checkpoints never mix
  std::string previous;  ///< seal of the index that this run saved or resumed from before; or empty
  std::string seal;      ///< its own, of an index that was read
  int64_t step = 0, seed = 0, world = 1;
  Json parallel = Json::object();   ///< how it was sharded; informative
  Json model = Json::object();      ///< options that the weights depend on
  std::vector<std::string> frozen;  ///< parameters that are not trained
  /// Frozen weights that are not in the checkpoint, and where they were.
  std::optional<weights::BaseWeights> base;
  std::string optimizer;
  std::vector<std::string> optimizer_states;
  std::map<std::string, int64_t> optimizer_steps;  ///< by parameter, where it has been updated
  std::optional<int64_t> data_position;            ///< batches drawn by all ranks together
  bool is_private = false;
  std::string engine, clipping;
  double noise_multiplier = 0, clip_bound = 0;
  int64_t privacy_steps = 0, noised_steps = 0, secret_steps = 0;
  std::string why_no_epsilon;  ///< of the run that was saved; empty where it had a claim
  /// Of the private steps that an epsilon can be claimed for: [{ q, sigma, steps }, …]. A list that
  /// is not one of an accountant's is refused on resume.
  Json privacy_history = Json::array();
  std::vector<StoredTensor> tensors;     ///< sorted by name
  bool has_sums = true;                  ///< false for those of version 1
  std::map<std::string, FileSum> files;  ///< every file of the checkpoint but the index

  /// Null when there is none.
  const StoredTensor* find(const std::string& name) const;
  /// Whether it is one of the base's, which are not in the checkpoint.
  bool is_in_base(const std::string& parameter) const;
};

/// "optimizer/mean/model.norm.weight"
std::string state_tensor_name(const std::string& state, const std::string& parameter);
/// "rank00003.safetensors"
std::string rank_file_name(int rank);

/// Sorts tensors and parts. Throws InternalError when parts do not cover their tensor. Sealed,
/// under the key if it is not empty.
std::string index_text(CheckpointIndex& index, const std::string& key = "");
/// Of a checkpoint's folder. Throws IoError, also when its seal is not that of its text, or has no
/// HMAC under the key, if one is given. Where nothing vouches for the account (no checksums, or an
/// HMAC but no key) `why_no_epsilon` says so.
CheckpointIndex read_index(const std::filesystem::path& folder, const std::string& key = "");

}  // namespace moonshard::checkpoint
