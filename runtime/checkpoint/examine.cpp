#include "runtime/checkpoint/examine.h"

#include <algorithm>
#include <functional>
#include <set>

#include "runtime/base/check.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/checkpoint_index.h"
#include "runtime/checkpoint/integrity.h"
#include "runtime/weights/folder_sums.h"
#include "runtime/weights/safetensors.h"

namespace moonshard::checkpoint {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

bool has_weights(const fs::path& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().extension() == ".safetensors") return true;
  return false;
}

class Examination {
 public:
  explicit Examination(const fs::path& path) { check_.path = path; }

  // What work finds wrong belongs to that file. True when all is well.
  bool look(const fs::path& file, const std::function<void()>& work) {
    ++check_.files;
    try {
      work();
      return true;
    } catch (const Error& error) {
      const std::string name = shown(file), lead = file.string() + ": ";
      const std::string text = error.what();
      check_.defects.push_back({name, text.starts_with(lead) ? text.substr(lead.size()) : text});
    }
    return false;
  }

  void tensors(const fs::path& file) {
    look(file, [&] {
      const auto opened = weights::SafetensorsFile::open(file);
      if (!opened.has_sums())
        check_.notes.push_back(shown(file) + " has no checksums; another program wrote it");
      for (const weights::TensorEntry& entry : opened.entries()) {
        const auto bytes = static_cast<int64_t>(c10::elementSize(entry.dtype));
        opened.check_range(entry.name, 0, (entry.end - entry.begin) / bytes);
      }
    });
  }

  // Returns its seal and the one that it names; both empty if it cannot be read.
  std::pair<std::string, std::string> checkpoint(const fs::path& folder) {
    CheckpointIndex index;
    const bool is_good =
        look(folder / kIndexName, [&] { index = read_index(folder, checkpoint_key()); });
    if (!is_good) return {};
    ++check_.points;
    if (!index.has_sums) {
      check_.notes.push_back(shown(folder) + " has no checksums; an older version saved it");
      return {};
    }
    for (const auto& [name, sum] : index.files) {
      const fs::path file = folder / name;
      look(file, [&] { check_files(folder, index.files, {name}); });
      tensors(file);
      --check_.files;  // one file, looked at twice
    }
    return {index.seal, index.previous};
  }

  void folder_of_checkpoints(const fs::path& folder) {
    std::vector<std::string> names = checkpoints_newest_first(folder);
    std::sort(names.begin(), names.end());
    std::set<std::string> seals;
    std::vector<std::pair<std::string, std::string>> named;  // by checkpoint
    for (const std::string& name : names) {
      const auto [seal, previous] = checkpoint(folder / name);
      seals.insert(seal);
      if (!previous.empty()) named.emplace_back(name, previous);
    }
    // Older ones are removed in time: a name that nothing bears is no defect, but who looks for a
    // checkpoint that was exchanged wants to know.
    for (const auto& [name, previous] : named) {
      if (!seals.contains(previous) && name != names.front())
        check_.notes.push_back(fmt::format("{} goes on from a checkpoint {}… that is not here",
                                           name, previous.substr(0, 12)));
    }
  }

  void weights_folder(const fs::path& folder) {
    look(folder / weights::kFolderSumsName, [&] {
      for (const std::string& name : weights::summed_files(folder))
        look(folder / name, [&] { weights::check_folder_sum(folder, name); });
    });
    if (!is_file(folder / weights::kFolderSumsName)) --check_.files;
    std::vector<fs::path> files;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored))
      if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) tensors(file);
  }

  records::FolderCheck take() { return std::move(check_); }

 private:
  std::string shown(const fs::path& file) const {
    const std::string inside = file.lexically_relative(check_.path).string();
    return inside == "." ? file.filename().string() : inside;
  }

  records::FolderCheck check_;
};

}  // namespace

std::optional<records::FolderCheck> examine(const fs::path& path) {
  Examination examination(path);
  if (is_file(path)) {
    if (path.extension() != ".safetensors") return std::nullopt;
    examination.tensors(path);
  } else if (is_file(path / kIndexName) && has_weights(path)) {
    examination.checkpoint(path);
  } else if (!checkpoints_newest_first(path).empty()) {
    examination.folder_of_checkpoints(path);
  } else if (has_weights(path)) {
    examination.weights_folder(path);
  } else {
    return std::nullopt;
  }
  return examination.take();
}

}  // namespace moonshard::checkpoint
