// Filters on the points of one run. Whether a pattern matches is computed once per text of the
// run, not once per point.
#include "viewer/data/filter.h"

namespace moonshard::viewer {
namespace {

using Kind = FilterNode::Kind;
using Field = FilterNode::Field;
using Relation = FilterNode::Relation;

// Files say true and false, tables yes and no.
bool matches_truth(bool value, std::string_view pattern) {
  return matches_wildcards(value ? "true" : "false", pattern) ||
         matches_wildcards(value ? "yes" : "no", pattern);
}

bool in_order(double value, Relation relation, double bound) {
  if (relation == Relation::Less) return value < bound;
  if (relation == Relation::LessEqual) return value <= bound;
  return relation == Relation::Greater ? value > bound : value >= bound;
}

}  // namespace

FilterOnRun::FilterOnRun(const Filter& filter, const RunData& run) : filter_(filter), run_(run) {
  for (const std::string& axis : filter.axes)
    if (const auto column = run.options.find(axis)) axis_columns_.push_back(*column);
  places_.resize(filter.nodes.size());
  for (size_t i = 0; i < filter.nodes.size(); ++i) {
    const FilterNode& node = filter.nodes[i];
    Place& place = places_[i];
    if (node.kind == Kind::And || node.kind == Kind::Or || node.kind == Kind::Not) continue;
    if (node.kind != Kind::Has) {
      place.pattern = node.kind == Kind::Word ? "*" + node.text + "*" : node.text;
      // Text with other letters than these is in no number.
      place.in_numbers = node.text.find_first_not_of("0123456789.e+-infa*?") == std::string::npos;
      place.run_name = matches_wildcards(run.name, place.pattern);
      place.texts.resize(run.texts.size());
      for (size_t t = 0; t < run.texts.size(); ++t)
        place.texts[t] = matches_wildcards(run.texts[t], place.pattern);
    }
    if (node.kind == Kind::Word || node.field > Field::Metric) continue;
    // A name may be an option in one run and a figure in another.
    const ValueTable* tables[2] = {&run.options, &run.metrics};
    if (node.field == Field::Metric) std::swap(tables[0], tables[1]);
    for (const ValueTable* table : tables) {
      const auto column = table->find(node.key);
      if (!column) continue;
      place.table = table;
      place.column = *column;
      break;
    }
  }
}

bool FilterOnRun::matches(size_t point) const {
  return filter_.nodes.empty() || matches(filter_.nodes.size() - 1, point);
}

bool FilterOnRun::matches(size_t index, size_t point) const {
  const FilterNode& node = filter_.nodes[index];
  const Place& place = places_[index];
  if (node.kind == Kind::And) return matches(node.left, point) && matches(node.right, point);
  if (node.kind == Kind::Or) return matches(node.left, point) || matches(node.right, point);
  if (node.kind == Kind::Not) return !matches(node.left, point);
  if (node.kind == Kind::Word) return has_word(place, point);
  if (node.kind == Kind::Compare) return compare(node, place, point);
  if (node.field == Field::Error) return !run_.points[point].error.empty();
  if (node.field > Field::Metric) return true;
  if (place.table == nullptr) return false;
  const Value& value = place.table->at(point, place.column);
  return value.kind != Value::Kind::None &&
         (value.kind != Value::Kind::Number || !std::isnan(value.number));
}

bool FilterOnRun::has_word(const Place& place, size_t point) const {
  if (place.run_name) return true;
  const std::string& pattern = place.pattern;
  const PointHead& head = run_.points[point];
  if (matches_wildcards(head.status, pattern) || matches_wildcards(head.id, pattern) ||
      matches_wildcards(head.error, pattern))
    return true;
  for (const size_t column : axis_columns_) {
    const Value& value = run_.options.at(point, column);
    if (value.kind == Value::Kind::Text && place.texts[value.text]) return true;
    if (value.kind == Value::Kind::Number && place.in_numbers &&
        matches_wildcards(plain_number(value.number), pattern))
      return true;
    if (value.kind == Value::Kind::Bool && matches_truth(value.number != 0, pattern)) return true;
  }
  return false;
}

bool FilterOnRun::equals(const FilterNode& node, const Place& place, size_t point) const {
  const PointHead& head = run_.points[point];
  if (node.field == Field::Run) return place.run_name;
  if (node.field == Field::Status) return matches_wildcards(head.status, node.text);
  if (node.field == Field::Id) return matches_wildcards(head.id, node.text);
  if (node.field == Field::Error) return matches_wildcards(head.error, node.text);
  if (place.table == nullptr) return false;
  const Value& value = place.table->at(point, place.column);
  if (value.kind == Value::Kind::None) return false;
  if (value.kind == Value::Kind::Bool) return matches_truth(value.number != 0, node.text);
  if (value.kind == Value::Kind::Text) return place.texts[value.text];
  return std::isnan(node.number) ? matches_wildcards(plain_number(value.number), node.text)
                                 : value.number == node.number;
}

bool FilterOnRun::compare(const FilterNode& node, const Place& place, size_t point) const {
  if (node.relation == Relation::Equal) return equals(node, place, point);
  if (node.relation == Relation::NotEqual) return !equals(node, place, point);
  if (place.table == nullptr) return false;
  const Value& value = place.table->at(point, place.column);
  return value.kind == Value::Kind::Number && in_order(value.number, node.relation, node.number);
}

}  // namespace moonshard::viewer
