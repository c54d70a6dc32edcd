#include "runtime/weights/folder_sums.h"

#include <cstdio>
#include <map>
#include <span>
#include <sstream>

#include "runtime/base/check.h"
#include "runtime/base/checksum.h"
#include "runtime/base/files.h"
#include "runtime/base/json.h"

namespace moonshard::weights {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostBytes = 256 << 20;  // an index of a million tensors
constexpr int64_t kMostListBytes = 1 << 20;

struct SmallFile {
  int64_t bytes = 0;
  uint32_t sum = 0;
};

SmallFile small_file(const std::string& text) {
  return {static_cast<int64_t>(text.size()), crc32c(std::as_bytes(std::span(text)))};
}

std::string line_of(const SmallFile& file, const std::string& name) {
  return fmt::format("{:08x} {:>12} {}\n", file.sum, file.bytes, name);
}

[[noreturn]] void refuse_file(const fs::path& path, const std::string& expected,
                              const std::string& got) {
  throw IoError(
      fmt::format("{}: expected {}, got {}; the file was damaged or edited after it was written: "
                  "copy it again, or remove {} beside it if the change was yours",
                  path.string(), expected, got, kFolderSumsName));
}

std::map<std::string, SmallFile> read_list(const fs::path& folder) {
  const fs::path path = folder / kFolderSumsName;
  std::error_code ignored;
  std::map<std::string, SmallFile> files;
  if (!fs::exists(path, ignored)) return files;
  const std::string text = read_text_file(path, kMostListBytes);
  const size_t last = text.size() < 2 ? std::string::npos : text.rfind('\n', text.size() - 2);
  const std::string listed = last == std::string::npos ? "" : text.substr(0, last + 1);
  const std::string own = line_of(small_file(listed), kFolderSumsName);
  if (text != listed + own) refuse_file(path, "its own checksum in the last line", "another");
  std::istringstream lines(listed);
  for (std::string line; std::getline(lines, line);) {
    unsigned sum = 0;
    long long bytes = 0;
    int head = 0;
    if (std::sscanf(line.c_str(), "%8x %lld %n", &sum, &bytes, &head) != 2 || head == 0)
      refuse_file(path, "lines of a checksum, a size and a name", line);
    files[line.substr(static_cast<size_t>(head))] = {bytes, sum};
  }
  return files;
}

}  // namespace

void write_folder_sums(const fs::path& folder, const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names)
    text += line_of(small_file(read_text_file(folder / name, kMostBytes)), name);
  write_file_atomically(folder / kFolderSumsName,
                        text + line_of(small_file(text), kFolderSumsName));
}

void check_folder_sum(const fs::path& folder, const std::string& name) {
  const auto files = read_list(folder);
  const auto found = files.find(name);
  if (found == files.end()) return;
  const SmallFile now = small_file(read_text_file(folder / name, kMostBytes));
  const SmallFile& told = found->second;
  if (now.bytes != told.bytes)
    refuse_file(folder / name, fmt::format("{} bytes", told.bytes), fmt::format("{}", now.bytes));
  if (now.sum != told.sum)
    refuse_file(folder / name, fmt::format("CRC-32C {:08x}", told.sum),
                fmt::format("{:08x}", now.sum));
}

std::vector<std::string> summed_files(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& [name, file] : read_list(folder)) names.push_back(name);
  return names;
}

}  // namespace moonshard::weights
