// State of the run table panel, and its menus (run_table_menu.cpp).
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "viewer/panels/panel.h"
#include "viewer/panels/run_table_model.h"

namespace moonshard::viewer {

class RunTablePanel final : public Panel {
 public:
  RunTablePanel() : Panel({"run_table", "Runs", DockPlace::Table}) {}
  void draw(const PanelContext& context) override;
  std::string script(const Workspace& workspace) const override;
  std::vector<std::pair<std::string, std::string>> shortcuts() const override;

 private:
  bool is_shown(const TableColumn& column) const {
    const auto choice = chosen_.find(column.id());
    if (choice != chosen_.end()) return choice->second;
    // The heads of groups say it.
    return column.main && column.id() != group_id_;
  }
  void choose(const std::string& column_id, bool on) {
    chosen_[column_id] = on;
    stale_ = true;
  }
  void set_group(const std::string& column_id) {
    group_id_ = column_id;
    group_chosen_ = true;
    closed_.clear();
    stale_ = true;
  }
  /// Columns that stay in sight at the left end; by default those that name the point.
  bool is_pinned(const TableColumn& column) const {
    const auto choice = pinned_.find(column.id());
    return choice != pinned_.end()
               ? choice->second
               : column.kind == TableColumn::Kind::Name || column.kind == TableColumn::Kind::Run;
  }
  void pin(const std::string& column_id, bool on) {
    pinned_[column_id] = on;
    stale_ = true;
  }
  void rebuild(const Workspace& workspace);
  const TableColumn* find_column(const std::string& id) const;
  void draw_errors(const PanelContext& context) const;
  void draw_empty(const PanelContext& context) const;
  void draw_filter(const PanelContext& context);
  /// The popup "##columns": every column with a box, a search, groups.
  void draw_column_menu();
  void draw_copy_menu(const PanelContext& context);
  void draw_table(const PanelContext& context);
  float name_width(const Workspace& workspace) const;
  void draw_headers();
  void take_sort();
  void draw_group(const PanelContext& context, const TableLine& line);
  void draw_row(const PanelContext& context, PointRef ref);
  void draw_cell(const PanelContext& context, const TableColumn& column, PointRef ref) const;

  std::vector<TableColumn> columns_;       // all that there are
  std::vector<const TableColumn*> shown_;  // into columns_
  std::vector<TableLine> lines_;
  std::map<std::string, bool> chosen_;  // by column id: switched on or off by the user
  std::map<std::string, bool> pinned_;  // the same way
  size_t num_pinned_ = 0;               // of shown_, its first ones
  std::string sort_id_, group_id_;
  bool group_chosen_ = false;  // by the user; else several runs are groups
  bool descending_ = false, only_differing_ = false;
  std::set<std::string> closed_;
  uint64_t revision_ = 0, generation_ = 0;
  Baseline baseline_;
  bool stale_ = true;               // lines_ must be made again
  std::string scroll_to_selected_;  // id that was last scrolled to
  char filter_[512] = "";
};

/// The menu of the row that was just drawn as an item, by a right click.
void draw_row_menu(const PanelContext& context, PointRef ref);

/// The tooltip of that row: why it failed, and what it is compared with.
void draw_row_tooltip(const PanelContext& context, PointRef ref);

}  // namespace moonshard::viewer
