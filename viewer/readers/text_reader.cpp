#include "viewer/readers/readers.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/input/open_file.h"

namespace moonshard::viewer {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxTableBytes = 64u << 20, kMaxRows = 1'000'000;
// Rows are padded to the header's width: without a limit a wide header and many short rows make
// gigabytes of a small file.
constexpr size_t kMaxCsvCells = 8'000'000, kMaxColumns = 10'000;

OpenFile open_in_its_folder(const fs::path& path) {
  std::optional<OpenFile> file =
      InsideFolder(path.parent_path().empty() ? fs::path(".") : path.parent_path())
          .open(path.filename());
  if (!file) throw IoError(path.string() + ": cannot read: there is no such file");
  return std::move(*file);
}

// Cells of the first and of the widest line, quotes respected as in records/csv.
struct TableWidth {
  size_t header = 0, widest = 0;
};

TableWidth measure(std::string_view text) {
  TableWidth width;
  size_t cells = 1;
  bool quoted = false;
  for (const char letter : text) {
    if (letter == '"') quoted = !quoted;
    if (quoted) continue;
    if (letter == ',') ++cells;
    width.widest = std::max(width.widest, cells);
    if (letter == '\n') {
      if (width.header == 0) width.header = cells;
      cells = 1;
    }
  }
  width.header = std::max<size_t>(width.header, 1);
  return width;
}

}  // namespace

std::string read_log(const fs::path& path, size_t max_bytes) {
  return read_log(open_in_its_folder(path), max_bytes);
}

std::string read_log(OpenFile file, size_t max_bytes) {
  const uint64_t start = file.size() > max_bytes ? file.size() - max_bytes : 0;
  file.seek(start);
  std::string text(static_cast<size_t>(std::min<uint64_t>(file.size(), max_bytes)), '\0');
  size_t size = 0;
  while (size < text.size()) {  // it may have become shorter meanwhile
    const size_t count = file.read(text.data() + size, text.size() - size);
    if (count == 0) break;
    size += count;
  }
  text.resize(size);
  if (start == 0) return text;
  const size_t line = text.find('\n');  // the first line is not whole
  if (line != std::string::npos) text.erase(0, line + 1);
  return fmt::format("(the first {} bytes of this log are not shown)\n",
                     file.size() - text.size()) +
         text;
}

records::CsvTable read_table(const fs::path& path) {
  return read_table(open_in_its_folder(path));
}

records::CsvTable read_table(OpenFile file) {
  const std::string text = file.read_all(kMaxTableBytes);
  const TableWidth width = measure(text);
  if (width.widest > kMaxColumns) {
    throw IoError(fmt::format("{}: expected at most {} columns, got {}; it is not a table",
                              file.name(), kMaxColumns, width.widest));
  }
  return records::parse_csv(text, file.name(), std::min(kMaxRows, kMaxCsvCells / width.header));
}

}  // namespace moonshard::viewer
