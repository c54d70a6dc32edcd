// A panel that shows a chart made from the records: it makes a plot spec, and the renderer of the
// PNG files draws it. So every chart can be exported as it stands, and its data as a table.
// Hovering names the point, a click selects it everywhere.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "viewer/panels/panel.h"
#include "viewer/render/plot_renderer.h"

namespace moonshard::viewer {

struct Chart {
  records::PlotSpec spec;  ///< no panels: nothing to draw, and empty_what says why
  /// [panel][series][entry]: the point behind each mark; may be shorter than the spec.
  std::vector<std::vector<std::vector<PointRef>>> refs;
  /// Panel and series whose marks can be clicked, and get no frame when their point is selected:
  /// too many belong to one point.
  std::set<std::pair<size_t, size_t>> unframed;
  std::string empty_what, empty_next;  ///< what is missing, what to do about it
  bool waiting = false;                ///< something is still being read
};

/// Of charts of all shown points another selection only moves the frame.
enum class ChartSubject { SelectedPoint, ShownPoints };

/// The empty state of a chart: no folder is open, or what is missing in those that are.
void say_why_empty(const Snapshot& snapshot, const char* what, const char* next, Chart& chart);

/// The note of a chart that shows only so many points.
std::string first_points_note(size_t count, size_t all);
/// Puts a sentence before the note that the chart has already.
void add_note(Chart& chart, std::string note);

/// Says in the title which charts show points of a modelled world (Workspace::is_modelled), and in
/// the note what of them is modelled.
void name_modelled(const Workspace& workspace, Chart& chart, bool of_selected);

/// True where some axis begins at zero only because axes do (lines and dots on a linear axis).
bool has_zero_axes(const records::PlotSpec& spec);
/// Gives those axes the ends of their data.
void cut_axes(records::PlotSpec& spec);

class ChartPanel : public Panel {
 public:
  explicit ChartPanel(const PanelInfo& info, ChartSubject subject = ChartSubject::SelectedPoint)
      : Panel(info), subject_(subject) {}
  void draw(const PanelContext& context) final;
  const records::PlotSpec* shown_plot() const override {
    return chart_.spec.panels.empty() ? nullptr : &chart_.spec;
  }

 protected:
  /// Fills an empty chart from what the workspace shows. Called again when anything it may look at
  /// has changed, or after remake().
  virtual void make_chart(const PanelContext& context, Chart& chart) = 0;
  /// Widgets above the chart; call remake() when one changed.
  virtual void draw_controls(const PanelContext&) {}
  /// Linked cursor: true when x of this chart is a moment of the step in ms.
  virtual bool x_is_step_time() const { return false; }
  void remake() { stale_ = true; }
  /// Axes of lines and dots begin at zero; a chart with some offers to change that.
  bool from_zero() const { return from_zero_; }

 private:
  void draw_toolbar(const PanelContext& context);
  void draw_figure(const PanelContext& context);
  void mark_selected(const PanelContext& context);

  ChartSubject subject_;
  Chart chart_;
  PreparedPlot plot_;
  PlotState state_;
  bool stale_ = true, from_zero_ = true, zero_axes_ = false;
  uint64_t workspace_revision_ = 0, store_revision_ = 0;
  size_t shape_ = 0;  // of the last chart: another shape shows its whole range again
};

/// Points a chart of details shows at most; more would not be told apart, and must all be read.
inline constexpr size_t kMaxDetailedPoints = 96;

/// The shown points' details as far as they are read, in order; adds a note to the spec when there
/// are more points than a chart takes, and sets waiting while some are still missing.
struct DetailedPoint {
  PointRef ref;
  std::shared_ptr<const PointDetail> detail;  ///< may be null: no result, or not read yet
};
std::vector<DetailedPoint> shown_details(const PanelContext& context, Chart& chart);

/// Charts of one point: the selected one's detail, or an empty state in the chart.
std::shared_ptr<const PointDetail> selected_detail(const PanelContext& context, Chart& chart);

/// Unit and factor for bytes or milliseconds of about this size.
struct Unit {
  std::string name;
  double factor = 1;
};
Unit memory_unit(double bytes);
Unit time_unit(double ms);

}  // namespace moonshard::viewer
