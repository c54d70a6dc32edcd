#include "runtime/records/file_check.h"

#include <algorithm>
#include <cstdint>
#include <fstream>

#include "runtime/base/check.h"

namespace moonshard::records {
namespace {

// First and last bytes of a file: enough to tell a whole one from one that was cut off.
struct FileEnds {
  std::string first, last;
  uintmax_t size = 0;
};

FileEnds ends_of(const std::filesystem::path& path) {
  constexpr std::streamoff kBytes = 64;
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) throw IoError(path.string() + ": cannot be opened");
  const std::streamoff size = in.tellg();
  const std::streamoff count = std::min(size, kBytes);
  FileEnds ends;
  ends.size = static_cast<uintmax_t>(size);
  ends.first.resize(static_cast<size_t>(count));
  ends.last.resize(static_cast<size_t>(count));
  in.seekg(0);
  in.read(ends.first.data(), count);
  in.seekg(size - count);
  in.read(ends.last.data(), count);
  return ends;
}

}  // namespace

void expect_gzip(const std::filesystem::path& path) {
  const FileEnds ends = ends_of(path);
  if (ends.size < 18 || !ends.first.starts_with("\x1f\x8b"))
    throw IoError("expected a gzip file, got something else");
}

void expect_pickle(const std::filesystem::path& path) {
  const FileEnds ends = ends_of(path);
  if (ends.size < 3 || ends.first[0] != '\x80' || ends.last.back() != '.')
    throw IoError("expected a whole pickle, got something else or a part of one");
}

void expect_png(const std::filesystem::path& path) {
  const FileEnds ends = ends_of(path);
  if (!ends.first.starts_with("\x89PNG") || ends.last.find("IEND") == std::string::npos)
    throw IoError("expected a whole PNG, got something else or a part of one");
}

void expect_page(const std::filesystem::path& path) {
  if (ends_of(path).last.find("</html>") == std::string::npos)
    throw IoError("expected a whole page, got one without its end");
}

void expect_some_text(const std::filesystem::path& path) {
  if (ends_of(path).size == 0) throw IoError("it is empty");
}

std::string first_difference(const CsvTable& found, const CsvTable& made) {
  if (found.rows.size() != made.rows.size())
    return fmt::format("expected {} rows, got {}", made.rows.size(), found.rows.size());
  for (size_t c = 0; c < found.columns.size(); ++c) {
    const auto own = std::find(made.columns.begin(), made.columns.end(), found.columns[c]);
    if (own == made.columns.end())
      return fmt::format("column '{}' is not in the record", found.columns[c]);
    const auto at = static_cast<size_t>(own - made.columns.begin());
    for (size_t r = 0; r < found.rows.size(); ++r) {
      if (found.rows[r][c] == made.rows[r][at]) continue;
      return fmt::format("row {}, column '{}': expected '{}', got '{}'", r + 1, found.columns[c],
                         made.rows[r][at].substr(0, 60), found.rows[r][c].substr(0, 60));
    }
  }
  return "";
}

}  // namespace moonshard::records
