#include "viewer/workspace.h"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/base/options.h"
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

void Workspace::select_first() {
  const PointRef* best = nullptr;
  int best_rank = -1;
  for (const PointRef& ref : shown_) {
    const std::string profile = option_text(ref, "profile");
    const int detail = profile == "trace" ? 2 : profile == "layers" ? 1 : 0;
    const bool compared = overhead(ref).baseline && !overhead(ref).is_baseline;
    const int rank = (head(ref).status == "ok" ? 100 : 0) + 10 * detail + (compared ? 1 : 0);
    if (rank <= best_rank) continue;
    best_rank = rank;
    best = &ref;
  }
  if (best) select(*best);
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

std::string Workspace::filter_problem() const {
  if (!filter_error_.empty()) return filter_error_;
  size_t all = 0;
  for (const LoadedRun& loaded : snapshot_->runs) all += loaded.data->points.size();
  if (!shown_.empty() || all == 0) return "";
  std::string problem = fmt::format("expected some of the {} points, got none of them", all);
  for (const FilterNode& node : filter_.nodes) {
    const bool names_value = node.kind == FilterNode::Kind::Compare &&
                             node.field == FilterNode::Field::Option &&
                             node.relation == FilterNode::Relation::Equal;
    if (!names_value && node.kind != FilterNode::Kind::Word) continue;
    std::set<std::string> values;
    for (const LoadedRun& loaded : snapshot_->runs) {
      for (size_t p = 0; p < loaded.data->points.size(); ++p) {
        for (const std::string& axis : names_value ? std::vector{node.key} : filter_.axes) {
          values.insert(value_text(*loaded.data, loaded.data->options.get(p, axis)));
        }
      }
    }
    values.erase("");
    const bool known = std::ranges::any_of(values, [&](const std::string& value) {
      return value.find(node.text) != std::string::npos;
    });
    if (!known && node.text.find_first_of("*?") == std::string::npos) {
      return problem + did_you_mean(node.text, {values.begin(), values.end()},
                                    fmt::format("; no point has '{}'", node.text));
    }
  }
  return problem;
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

const Workspace::ShownAxes& Workspace::shown_axes() const {
  if (shown_axes_.of == shown_revision_) return shown_axes_;
  shown_axes_ = {};
  shown_axes_.of = shown_revision_;
  const auto same = [&](const RunData& run_a, const Value& a, const RunData& run_b,
                        const Value& b) {
    if (a.kind != b.kind) return false;
    if (a.kind != Value::Kind::Text) return a.number == b.number;
    return &run_a == &run_b ? a.text == b.text : run_a.text_of(a) == run_b.text_of(b);
  };
  static const Value kNothing;
  for (const std::string& axis : keys_.axes) {
    std::optional<double> first;
    bool numbers = true, several = false, varies = false;
    std::optional<size_t> place;
    const RunData *last = nullptr, *first_run = nullptr;
    const Value* first_value = nullptr;
    for (const PointRef ref : shown_) {
      const RunData& data = run(ref);
      if (&data != last) place = data.options.find_near(axis, place);
      shown_axes_.several_runs = shown_axes_.several_runs || (last && &data != last);
      last = &data;
      const Value& value = place ? data.options.at(ref.point, *place) : kNothing;
      if (!first_value) {
        first_value = &value;
        first_run = &data;
      }
      varies = varies || !same(*first_run, *first_value, data, value);
      numbers = numbers && (value.kind == Value::Kind::Number || value.kind == Value::Kind::None);
      if (value.kind != Value::Kind::Number) continue;
      if (!first) first = value.number;
      several = several || value.number != *first;
    }
    if (numbers && several) shown_axes_.numeric.push_back(axis);
    if (varies) shown_axes_.varying.push_back(axis);
  }
  return shown_axes_;
}

const std::vector<std::string>& Workspace::numeric_axes() const {
  return shown_axes().numeric;
}

const std::vector<std::string>& Workspace::varying_axes() const {
  return shown_axes().varying;
}

bool Workspace::shows_several_runs() const {
  return shown_axes().several_runs;
}

std::string Workspace::baseline_text() const {
  if (baseline_.kind == Baseline::Kind::Point) {
    const std::optional<PointRef> ref = find({baseline_.run, baseline_.point});
    if (ref) return short_name(*ref);
  }
  return clean_text(describe(baseline_, runs()), 256);
}

const Workspace::PointNames& Workspace::names_of(PointRef ref) const {
  if (names_.empty()) names_.resize(snapshot_->runs.size());
  std::vector<PointNames>& names = names_[ref.run];
  if (!names.empty()) return names[ref.point];
  const RunData& data = run(ref);
  names.resize(data.points.size());
  std::vector<size_t> all(data.points.size());
  for (size_t p = 0; p < all.size(); ++p) all[p] = p;
  const std::vector<std::string> axes = telling_axes(data, all);
  std::vector<std::string> words = words_of_points(data, all, axes, false);
  for (size_t p = 0; p < all.size(); ++p) {
    PointNames& name = names[p];
    name.full = axis_words(data, p);
    name.words = std::move(words[p]);
    if (name.words.empty()) name.words = axes.empty() ? name.full : "default";
    for (std::string* text : {&name.full, &name.words}) {
      if (text->empty()) *text = data.points[p].id;
      *text = clean_text(*text, 512);
    }
    name.brief = name.words;
    if (snapshot_->runs.size() > 1) {
      for (std::string* text : {&name.full, &name.brief}) {
        *text = clean_text(fmt::format("{}: {}", data.name, *text), 512);
      }
    }
  }
  return names[ref.point];
}

const std::string& Workspace::point_name(PointRef ref) const {
  return names_of(ref).full;
}

const std::string& Workspace::short_name(PointRef ref) const {
  return names_of(ref).brief;
}

const std::string& Workspace::words(PointRef ref) const {
  return names_of(ref).words;
}

bool Workspace::is_modelled(PointRef ref) const {
  const Value world = option(ref, "world");
  return is_simulated(ref) ||
         (world.kind == Value::Kind::Text && run(ref).text_of(world).starts_with("fake:"));
}

bool Workspace::is_simulated(PointRef ref) const {
  const Value world = option(ref, "world");
  return world.kind == Value::Kind::Text && run(ref).text_of(world).starts_with("modelled:");
}

bool Workspace::shows_simulated_alone() const {
  return !shown_.empty() &&
         std::ranges::all_of(shown_, [&](PointRef ref) { return is_simulated(ref); });
}

}  // namespace moonshard::viewer
