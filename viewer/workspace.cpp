#include "viewer/workspace.h"

#include <algorithm>

#include <fmt/format.h>

#include "viewer/widgets/axis_names.h"
#include "viewer/widgets/format.h"

namespace moonshard::viewer {

void Workspace::update(std::shared_ptr<const Snapshot> snapshot) {
  if (snapshot == snapshot_) return;
  snapshot_ = std::move(snapshot);
  names_.clear();
  if (!baseline_chosen_) baseline_ = default_baseline(runs());
  keys_ = filter_keys(runs());
  metric_keys_.clear();
  for (const std::string& key : keys_.metrics) {
    const auto has = [&](const LoadedRun& loaded) {
      return loaded.data->metrics.find(key).has_value();
    };
    if (std::ranges::any_of(snapshot_->runs, has)) metric_keys_.push_back(key);
  }
  read_filter();
  find_selected();
  find_shown();
  overheads_ = overheads(runs(), baseline_);
  changed();
}

std::string Workspace::option_text(PointRef ref, const std::string& key) const {
  return value_text(run(ref), option(ref, key));
}

void Workspace::find_selected() {
  selected_run_.reset();
  selected_point_.reset();
  if (snapshot_->runs.empty()) return;
  selected_run_ = 0;
  for (size_t r = 0; r < snapshot_->runs.size(); ++r) {
    if (run(r).path == selected_.run) selected_run_ = r;
  }
  if (selected_.id.empty()) return;
  if (selected_.run.empty()) {  // an id from the command line: in whichever run has it
    for (size_t r = 0; r < snapshot_->runs.size() && !selected_point_; ++r) {
      selected_point_ = find({run(r).path, selected_.id});
    }
    if (selected_point_) {
      selected_run_ = selected_point_->run;
      selected_.run = run(selected_point_->run).path;
    }
  } else {
    selected_point_ = find(selected_);
  }
}

void Workspace::select(const PointKey& key) {
  if (key == selected_) return;
  selected_ = key;
  find_selected();
  ++revision_;
}

void Workspace::select_step(int step) {
  if (shown_.empty()) return;
  long at = step > 0 ? -1 : static_cast<long>(shown_.size());
  if (selected_point_) {
    const auto found = std::ranges::find(shown_, *selected_point_);
    if (found != shown_.end()) at = found - shown_.begin();
  }
  at = std::clamp(at + step, 0l, static_cast<long>(shown_.size()) - 1);
  select(shown_[static_cast<size_t>(at)]);
}

void Workspace::set_filter(const std::string& text) {
  if (text == filter_text_) return;
  filter_text_ = text;
  read_filter();
  show_again();
}

std::vector<const RunData*> Workspace::runs() const {
  std::vector<const RunData*> list;
  for (const LoadedRun& loaded : snapshot_->runs) list.push_back(loaded.data.get());
  return list;
}

// An expression that cannot be read (half typed, say) leaves the last valid one active.
void Workspace::read_filter() {
  ParsedFilter parsed = parse_filter(filter_text_, keys_);
  filter_error_ = parsed.error ? parsed.error->message : "";
  if (!parsed.error) filter_ = std::move(parsed.filter);
}

void Workspace::find_shown() {
  shown_.clear();
  std::vector<PointRef> rest;
  for (size_t r = 0; r < snapshot_->runs.size(); ++r) {
    const RunData& data = run(r);
    const FilterOnRun filter(filter_, data);
    for (size_t p = 0; p < data.points.size(); ++p) {
      const PointRef ref{r, p};
      if (!pinned_.empty() && pinned(ref)) {
        shown_.push_back(ref);
      } else if ((hidden_.empty() || !hidden(ref)) && filter.matches(p)) {
        rest.push_back(ref);
      }
    }
  }
  shown_.insert(shown_.end(), rest.begin(), rest.end());
}

void Workspace::set_pinned(PointRef ref, bool on) {
  on ? (void)pinned_.insert(key_of(ref)) : (void)pinned_.erase(key_of(ref));
  if (on) hidden_.erase(key_of(ref));
  show_again();
}

void Workspace::set_hidden(PointRef ref, bool on) {
  on ? (void)hidden_.insert(key_of(ref)) : (void)hidden_.erase(key_of(ref));
  if (on) pinned_.erase(key_of(ref));
  show_again();
}

void Workspace::set_baseline(Baseline baseline) {
  baseline_ = std::move(baseline);
  baseline_chosen_ = true;
  overheads_ = overheads(runs(), baseline_);
  changed();
}

const std::vector<std::string>& Workspace::numeric_axes() const {
  if (numeric_axes_of_ == shown_revision_) return numeric_axes_;
  numeric_axes_of_ = shown_revision_;
  numeric_axes_.clear();
  for (const std::string& axis : keys_.axes) {
    std::optional<double> first;
    bool numbers = true, several = false;
    std::optional<size_t> place;
    const RunData* last = nullptr;
    for (const PointRef ref : shown_) {
      const RunData& data = run(ref);
      if (&data != last) place = data.options.find_near(axis, place);
      last = &data;
      if (!place) continue;
      const Value& value = data.options.at(ref.point, *place);
      numbers = numbers && (value.kind == Value::Kind::Number || value.kind == Value::Kind::None);
      if (value.kind != Value::Kind::Number) continue;
      if (!first) first = value.number;
      several = several || value.number != *first;
    }
    if (numbers && several) numeric_axes_.push_back(axis);
  }
  return numeric_axes_;
}

std::string Workspace::baseline_text() const {
  if (baseline_.kind == Baseline::Kind::Point) {
    const std::optional<PointRef> ref = find({baseline_.run, baseline_.point});
    if (ref) return point_name(*ref);
  }
  return clean_text(describe(baseline_, runs()), 256);
}

const std::string& Workspace::point_name(PointRef ref) const {
  if (names_.empty()) names_.resize(snapshot_->runs.size());
  std::vector<std::string>& names = names_[ref.run];
  if (names.empty()) names.resize(run(ref).points.size());
  std::string& name = names[ref.point];
  if (!name.empty()) return name;
  const RunData& data = run(ref);
  name = axis_words(data, ref.point);
  if (name.empty()) name = head(ref).id;
  if (snapshot_->runs.size() > 1) name = fmt::format("{}: {}", data.name, name);
  return name = clean_text(name, 512);
}

}  // namespace moonshard::viewer
