#include "runtime/checkpoint/tensor_parts.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/split_float/split_float.h"
#include "runtime/base/check.h"
#include "runtime/base/disk.h"
#include "runtime/base/json.h"
#include "runtime/base/utf8.h"
#include "runtime/checkpoint/integrity.h"
#include "runtime/core/device.h"

namespace moonshard::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIdKey = "checkpoint";

}  // namespace

// ---- writing ----------------------------------------------------------------------------------

RankState rank_state(sharding::Parallel& parallel, const optim::Optimizer& optimizer,
                     const std::optional<weights::BaseWeights>& base) {
  RankState state;
  std::set<std::string> left_out;
  if (base) left_out.insert(base->parameters.begin(), base->parameters.end());
  std::map<uint32_t, std::vector<int64_t>> shapes;
  for (const sharding::KeptPart& part : parallel.kept_parts()) {
    const std::vector<int64_t> shape = part.parameter->value.sizes().vec();
    shapes[part.parameter->index] = shape;
    if (part.value.numel() > 0 && !left_out.contains(part.parameter->name))
      state.parts.push_back({part.parameter->name, shape, part.first, part.value, part.low});
  }
  const auto& updated = parallel.updated();
  for (size_t i = 0; i < updated.size(); ++i) {
    const models::Parameter& parameter = *updated[i];
    const optim::ParameterState remembered = optimizer.state(parameter);
    if (parameter.value.numel() == 0 || remembered.tensors.empty()) continue;
    state.optimizer_steps[parameter.name] = remembered.steps;
    for (const auto& [name, tensor] : remembered.tensors) {
      state.parts.push_back({state_tensor_name(name, parameter.name), shapes[parameter.index],
                             parallel.first_element(i), tensor.flatten(), at::Tensor()});
    }
  }
  return state;
}

std::string write_rank_file(const fs::path& folder, const std::string& id, int rank,
                            const RankState& state, bool has_key) {
  Json parts = Json::array();
  weights::NamedTensors tensors;
  weights::WriteOptions options{{}, Access::Private, has_key};
  for (const TensorPart& part : state.parts) {
    const bool is_whole = part.values.numel() == c10::multiply_integers(part.shape);
    tensors.emplace_back(part.name, is_whole ? part.values.view(part.shape) : part.values);
    if (part.low.defined()) options.low_halves[part.name] = part.low;
    const at::ScalarType type = part.low.defined() ? at::kFloat : part.values.scalar_type();
    parts.push_back({part.name, weights::dtype_label(type, part.name), part.shape, part.first,
                     part.values.numel()});
  }
  Json answer{{"parts", std::move(parts)}, {"steps", state.optimizer_steps}};
  if (!tensors.empty()) {
    MS_CHECK(is_folder(folder),
             "checkpoint: {}: expected the folder that rank 0 made, got none; save to a disk that "
             "all ranks share",
             folder.string());
    weights::Metadata metadata = weights::kPortableMetadata;
    metadata[kIdKey] = id;
    // Of what was to be written: what the disk makes of it is found at the resume.
    const weights::WrittenFile written =
        weights::write_safetensors(folder / rank_file_name(rank), tensors, metadata, options);
    answer["sum"] = {{"bytes", written.bytes},
                     {"header_sha256", written.header_sha256},
                     {"data_sha256", written.data_sha256}};
  }
  return one_line(answer);
}

void add_rank(CheckpointIndex& index, int rank, const std::string& answer) {
  const Json told = parse_json(answer, "checkpoint");
  std::map<std::string, size_t> known;
  for (size_t i = 0; i < index.tensors.size(); ++i) known[index.tensors[i].name] = i;
  for (const Json& part : told["parts"]) {
    const auto name = part[0].get<std::string>();
    const auto [place, is_new] = known.emplace(name, index.tensors.size());
    if (is_new) {
      index.tensors.push_back({name,
                               weights::dtype_from_label(part[1].get<std::string>(), name),
                               part[2].get<std::vector<int64_t>>(),
                               {}});
    }
    index.tensors[place->second].parts.push_back(
        {rank_file_name(rank), part[3].get<int64_t>(), part[4].get<int64_t>()});
  }
  if (told.contains("sum")) {
    const Json& sum = told["sum"];
    index.files[rank_file_name(rank)] = {sum["bytes"].get<int64_t>(),
                                         sum["header_sha256"].get<std::string>(),
                                         sum["data_sha256"].get<std::string>(),
                                         {}};
  }
  for (const auto& [name, steps] : told["steps"].items())
    index.optimizer_steps[name] = steps.get<int64_t>();
}

// ---- reading ----------------------------------------------------------------------------------

void PartReader::add(const std::string& name, int64_t first, const at::Tensor& target,
                     const at::Tensor& low) {
  const at::ScalarType type = low.defined() ? at::kFloat : target.scalar_type();
  const StoredTensor* tensor = index_.find(name);
  const int64_t end = first + target.numel();
  const auto fail = [&](const std::string& got) {
    throw IoError(fmt::format(
        "{}: expected elements {} to {} of {} as {}, got {}; the index is "
        "damaged or belongs to another model",
        (folder_ / kIndexName).string(), first, end, in_quotes(name), dtype_name(type), got));
  };
  if (tensor == nullptr) fail("no such tensor");
  if (tensor->dtype != type) fail(dtype_name(tensor->dtype));
  int64_t covered = first;
  for (const StoredPart& part : tensor->parts) {
    const int64_t from = std::max(first, part.first), to = std::min(end, part.first + part.count);
    if (from >= to) continue;
    files_[part.file].push_back({tensor, part.count, from - part.first,
                                 target.narrow(0, from - first, to - from),
                                 low.defined() ? low.narrow(0, from - first, to - from) : low});
    covered = to;
  }
  if (covered != end) fail(fmt::format("elements up to {} only", covered));
}

void PartReader::check() const {
  for (const auto& [name, wanted] : files_) {
    const auto file = weights::SafetensorsFile::open(folder_ / name);
    const std::string where = file.path().string();
    const auto id = file.metadata().find(kIdKey);
    if (id == file.metadata().end() || id->second != index_.id) {
      throw IoError(fmt::format(
          "{}: expected a file of the checkpoint {} that the index describes, got {}; the folder "
          "has files of two checkpoints",
          where, in_quotes(index_.id),
          id == file.metadata().end() ? "one of none" : in_quotes(id->second)));
    }
    for (const Wanted& piece : wanted) {
      const weights::TensorEntry* entry = file.find(piece.tensor->name);
      const bool fits =
          entry != nullptr && entry->dtype == piece.tensor->dtype &&
          (entry->end - entry->begin) / static_cast<int64_t>(c10::elementSize(entry->dtype)) ==
              piece.count;
      if (fits) continue;
      throw IoError(fmt::format(
          "{}: tensor {}: expected {} elements of {}, as the index says, got "
          "{}; the folder is damaged",
          where, in_quotes(piece.tensor->name), piece.count, dtype_name(piece.tensor->dtype),
          entry == nullptr ? "no such tensor" : "others"));
    }
  }
}

void PartReader::check_blocks() const {
  for (const auto& [name, wanted] : files_) {
    const auto file = weights::SafetensorsFile::open(folder_ / name);
    for (const Wanted& piece : wanted)
      file.check_range(piece.tensor->name, piece.position, piece.target.numel());
  }
}

void PartReader::add_files(std::set<std::string>& names) const {
  for (const auto& [name, wanted] : files_) names.insert(name);
}

// A few million numbers at a time: memory for all of them might not be there.
void PartReader::read_in_halves(const weights::SafetensorsFile& file, const Wanted& piece) {
  constexpr int64_t kMost = 4 << 20;
  for (int64_t i = 0; i < piece.target.numel(); i += kMost) {
    const int64_t count = std::min(kMost, piece.target.numel() - i);
    const at::Tensor values = at::empty({count}, piece.target.options().dtype(at::kFloat));
    file.read_range(piece.tensor->name, piece.position + i, values);
    kernels::split_float(values, piece.target.narrow(0, i, count), piece.low.narrow(0, i, count));
  }
}

void PartReader::read() const {
  for (const auto& [name, wanted] : files_) {
    const auto file = weights::SafetensorsFile::open(folder_ / name);
    for (const Wanted& piece : wanted) {
      if (piece.low.defined()) {
        read_in_halves(file, piece);
      } else {
        file.read_range(piece.tensor->name, piece.position, piece.target);
      }
    }
  }
}

}  // namespace moonshard::checkpoint
