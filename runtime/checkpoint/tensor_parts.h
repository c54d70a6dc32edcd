// The parts of parameters and of the optimizer's state that a rank keeps, written and read by their
// place in the whole tensor, so that any number of ranks and any sharding can resume.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "runtime/checkpoint/checkpoint_index.h"
#include "runtime/optim/optimizer.h"
#include "runtime/sharding/parallel.h"
#include "runtime/weights/safetensors.h"

namespace moonshard::checkpoint {

/// A part of a tensor of the checkpoint, in this rank's memory.
struct TensorPart {
  std::string name;
  std::vector<int64_t> shape;  ///< of the whole tensor
  int64_t first = 0;
  at::Tensor values;    ///< [count]
  at::Tensor low = {};  ///< of float32 in halves (kernels/split_float): the file has float32
};

/// What one rank writes: its parts, and the optimizer's counts of them.
struct RankState {
  std::vector<TensorPart> parts;
  std::map<std::string, int64_t> optimizer_steps;
};

/// Without the parameters of `base`, where there is one.
RankState rank_state(sharding::Parallel& parallel, const optim::Optimizer& optimizer,
                     const std::optional<weights::BaseWeights>& base);

/// Writes the rank's file, if it has anything to write, and returns what the leading rank must know
/// of it for the index. Under a key that includes the SHA-256 of its data.
std::string write_rank_file(const std::filesystem::path& folder, const std::string& id, int rank,
                            const RankState& state, bool has_key = false);
/// Adds a rank's answer to the index.
void add_rank(CheckpointIndex& index, int rank, const std::string& answer);

/// Reads parts of tensors, wherever they lie: add all, check, then read. One file is open at a
/// time.
class PartReader {
 public:
  PartReader(std::filesystem::path folder, const CheckpointIndex& index)
      : folder_(std::move(folder)), index_(index) {}

  /// Requests elements first … of the tensor, as many as the target [count] has; with `low` they
  /// are float32, which becomes two halves. Throws IoError when the index has no such tensor, or
  /// one of another dtype or number of elements.
  void add(const std::string& name, int64_t first, const at::Tensor& target,
           const at::Tensor& low = {});
  /// Throws IoError when a file is missing, truncated, or does not hold what the index says: at
  /// first by headers alone, then every block of what was requested, if the file has checksums.
  void check() const;
  void check_blocks() const;
  void read() const;
  /// Those that read() opens are added.
  void add_files(std::set<std::string>& names) const;

 private:
  struct Wanted {
    const StoredTensor* tensor;
    int64_t count;     ///< of the part in the file
    int64_t position;  ///< in that part
    at::Tensor target, low;
  };

  static void read_in_halves(const weights::SafetensorsFile& file, const Wanted& piece);

  std::filesystem::path folder_;
  const CheckpointIndex& index_;
  std::map<std::string, std::vector<Wanted>> files_;
};

}  // namespace moonshard::checkpoint
