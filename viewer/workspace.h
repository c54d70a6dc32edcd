// What the user has picked, shared by all panels: the selected point, which points are shown, the
// baseline, the linked cursor. Held by names, so that it survives a reload; what follows from it is
// worked out once per change, not once per panel and frame.
#pragma once

#include <compare>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "viewer/data/filter.h"
#include "viewer/data/overhead.h"
#include "viewer/document.h"

namespace moonshard::viewer {

/// A point of the open folders by its place; valid until folders are read again.
using PointRef = PointPlace;

struct PointKey {
  std::string run;  ///< path of the folder
  std::string id;
  auto operator<=>(const PointKey&) const = default;
};

class Workspace {
 public:
  /// Follows a new snapshot; call once per frame before panels draw.
  void update(std::shared_ptr<const Snapshot> snapshot);

  // What is selected. An empty id means the run itself.
  void select_run(const std::string& path) { select(PointKey{path, ""}); }
  void select(PointRef ref) { select(key_of(ref)); }
  void select(const PointKey& key);
  const PointKey& selected() const { return selected_; }
  std::optional<size_t> selected_run() const { return selected_run_; }
  std::optional<PointRef> selected_point() const { return selected_point_; }
  /// Something to look at when folders were opened: a point with a result, rather one that was
  /// profiled in detail, rather a private one than its baseline.
  void select_first();
  /// The next or previous of the shown points.
  void select_step(int step);

  // What is shown: everything that passes the filter and is not hidden; pinned points always,
  // first.
  void set_filter(const std::string& text);
  const std::string& filter_text() const { return filter_text_; }
  const std::string& filter_error() const { return filter_error_; }
  /// Why the filter cannot be what was meant: it cannot be read, or takes no point at all, with the
  /// value that was probably meant; empty where it is good.
  std::string filter_problem() const;
  const Filter& filter() const { return filter_; }
  void set_pinned(PointRef ref, bool on);
  void set_hidden(PointRef ref, bool on);
  void show_all_hidden() {
    hidden_.clear();
    show_again();
  }
  bool pinned(PointRef ref) const { return pinned_.contains(key_of(ref)); }
  bool hidden(PointRef ref) const { return hidden_.contains(key_of(ref)); }
  size_t num_hidden() const { return hidden_.size(); }
  const std::vector<PointRef>& shown() const { return shown_; }

  // What is compared with what. The default is the first sweep's own baseline.
  void set_baseline(Baseline baseline);
  const Baseline& baseline() const { return baseline_; }
  const Overhead& overhead(PointRef ref) const { return overheads_[ref.run][ref.point]; }
  /// "mode = none", "first / 1a2b", or "none".
  std::string baseline_text() const;

  const Snapshot& snapshot() const { return *snapshot_; }
  std::vector<const RunData*> runs() const;
  const RunData& run(size_t index) const { return *snapshot_->runs[index].data; }
  const RunData& run(PointRef ref) const { return run(ref.run); }
  const PointHead& head(PointRef ref) const { return run(ref).points[ref.point]; }
  PointKey key_of(PointRef ref) const { return {run(ref).path, head(ref).id}; }
  std::optional<PointRef> find(const PointKey& key) const {
    return find_point(runs(), key.run, key.id);
  }
  Value option(PointRef ref, const std::string& key) const {
    return run(ref).options.get(ref.point, key);
  }
  /// An option's value of a point as text; empty where it has none.
  std::string option_text(PointRef ref, const std::string& key) const;
  /// A point by all of its swept options, and the run's name where several are open: for tooltips.
  const std::string& point_name(PointRef ref) const;
  /// A point by what tells it from the others of its run, and the run's name where several are
  /// open: for titles and legends.
  const std::string& short_name(PointRef ref) const;
  /// The same without the run's name.
  const std::string& words(PointRef ref) const;
  /// One rank of several ran, and what the others would send is modelled (world = "fake:N"), or
  /// nothing ran at all.
  bool is_modelled(PointRef ref) const;
  /// A plan's simulated run (world = "modelled:…"): every figure is modelled.
  bool is_simulated(PointRef ref) const;
  /// All shown points are of that kind: nothing was measured.
  bool shows_simulated_alone() const;

  /// Options and metrics that any of the open folders has, and the swept ones among them.
  const FilterKeys& keys() const { return keys_; }
  /// Metrics that some point has; the filter knows a few more.
  const std::vector<std::string>& metric_keys() const { return metric_keys_; }
  /// Swept options whose values are numbers, two or more among the shown points.
  const std::vector<std::string>& numeric_axes() const;
  /// Swept options in which the shown points differ, and whether these are of several runs.
  const std::vector<std::string>& varying_axes() const;
  bool shows_several_runs() const;

  /// Changes whenever shown points, baseline or selection change, and with every new snapshot.
  uint64_t revision() const { return revision_; }
  /// The same without the selection.
  uint64_t shown_revision() const { return shown_revision_; }

  std::vector<std::string> snapshot_files;  ///< memory snapshots outside of run folders
  std::string plot;                 ///< file name of the shown plot spec; empty: the run's first
  std::optional<double> cursor_ms;  ///< linked cursor: a moment of the step

 private:
  void changed() {
    ++revision_;
    ++shown_revision_;
  }
  void find_selected();
  void find_shown();
  void show_again() {
    find_shown();
    changed();
  }
  void read_filter();

  std::shared_ptr<const Snapshot> snapshot_ = std::make_shared<Snapshot>();
  PointKey selected_;
  std::optional<size_t> selected_run_;
  std::optional<PointRef> selected_point_;
  struct PointNames {
    std::string full, words, brief;
  };
  const PointNames& names_of(PointRef ref) const;

  mutable std::vector<std::vector<PointNames>> names_;  // per run, made when asked for
  FilterKeys keys_;
  std::vector<std::string> metric_keys_;
  struct ShownAxes {
    std::vector<std::string> numeric, varying;
    bool several_runs = false;
    uint64_t of = 0;  ///< shown_revision
  };
  const ShownAxes& shown_axes() const;
  mutable ShownAxes shown_axes_;  // made when asked for
  std::string filter_text_, filter_error_;
  Filter filter_;
  std::set<PointKey> pinned_, hidden_;
  std::vector<PointRef> shown_;
  Baseline baseline_;
  bool baseline_chosen_ = false;
  std::vector<std::vector<Overhead>> overheads_;
  uint64_t revision_ = 0, shown_revision_ = 0;
};

}  // namespace moonshard::viewer
