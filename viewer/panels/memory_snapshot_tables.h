// The tables of the memory snapshot panel: largest blocks, segments, actions. Each can be sorted by
// its headers and copied as Markdown.
#pragma once

#include <string>
#include <vector>

#include "viewer/panels/panel.h"
#include "viewer/tracing/memory_snapshot.h"

namespace moonshard::viewer {

class SnapshotTables {
 public:
  /// Takes the figures of another snapshot.
  void show(const MemorySnapshot& snapshot);
  void draw(AppRequests& requests) {
    for (Table& table : tables_) draw_table(table, requests);
  }

 private:
  struct Cell {
    std::string text;
    double number;  ///< NaN: sorted by its text
  };
  struct Table {
    const char* title;
    std::string more;  ///< "the 100 largest of 5000"; may be empty
    std::vector<std::pair<const char*, const char*>> columns;  ///< name, meaning
    std::vector<std::vector<Cell>> rows;
    std::string markdown() const;
  };
  static void draw_table(Table& table, AppRequests& requests);
  static void sort_rows(Table& table);

  std::vector<Table> tables_;
};

}  // namespace moonshard::viewer
