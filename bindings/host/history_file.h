// The history on disk: one entry per line, line breaks inside an entry escaped. An entry is in the
// file before it runs, so a crash loses nothing; several programs may append at the same time.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace moonshard::host {

class HistoryFile {
 public:
  /// `path` may be empty: then nothing is read or written. Missing folders are made on first write.
  explicit HistoryFile(std::string path, size_t max_entries = 5000);

  /// All entries, oldest first, at most max_entries. A file grown well beyond that is cut here.
  std::vector<std::string> load();

  /// Adds an entry unless it repeats the one before it (of this session). False when the file could
  /// not be written; the session continues without it.
  bool append(const std::string& entry);

  static std::string escape(const std::string& entry);
  static std::string unescape(const std::string& line);

 private:
  int open_locked() const;
  void shorten(const std::vector<std::string>& kept) const;

  std::string path_;
  size_t max_entries_;
  std::string last_;
};

}  // namespace moonshard::host
