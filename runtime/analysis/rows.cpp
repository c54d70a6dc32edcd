#include "runtime/analysis/rows.h"

#include <algorithm>
#include <charconv>
#include <set>

#include <fmt/format.h>

#include "runtime/profile/owner_names.h"
#include "runtime/profile/phase_names.h"

namespace moonshard::analysis {
namespace {

// "512" is 512; so is the text that tables show of a number with more than 14 digits.
bool says_number(const std::string& text, double number) {
  double parsed = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  if (code != std::errc() || end != text.data() + text.size()) return false;
  return parsed == number || text_of(number) == text;
}

template <class Descriptors>
std::vector<std::string> names_of(const Descriptors& descriptors) {
  std::vector<std::string> names;
  for (const auto& descriptor : descriptors) names.emplace_back(descriptor.name);
  return names;
}

}  // namespace

std::string text_of(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* number = std::get_if<double>(&value)) return fmt::format("{:.14g}", *number);
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
  return "nil";
}

bool is_asked(const Value& value, const Value& asked) {
  if (std::holds_alternative<std::monostate>(value)) return false;
  if (value.index() == asked.index()) return value == asked;
  const auto* word = std::get_if<std::string>(&asked);
  if (word == nullptr) return false;
  if (const auto* number = std::get_if<double>(&value)) return says_number(*word, *number);
  if (const auto* truth = std::get_if<bool>(&value))
    return *word == (*truth ? "true" : "false") || *word == (*truth ? "yes" : "no");
  return false;
}

const Value& Table::at(size_t row, std::string_view option) const {
  static const Value kNone;
  const auto found = std::find(options.begin(), options.end(), option);
  return found == options.end() ? kNone
                                : rows[row].values[static_cast<size_t>(found - options.begin())];
}

std::vector<std::string> in_order(const std::vector<std::string>& names,
                                  const std::vector<std::string>& known) {
  const std::set<std::string> present(names.begin(), names.end());
  std::set<std::string> taken;
  std::vector<std::string> order;
  for (const std::vector<std::string>* list : {&known, &names})
    for (const std::string& name : *list)
      if (present.contains(name) && taken.insert(name).second) order.push_back(name);
  return order;
}

std::vector<std::string> owners_in_order(const std::vector<std::string>& names) {
  std::vector<std::string> order = in_order(names, names_of(profile::kOwnerNames));
  std::stable_partition(order.begin(), order.end(),
                        [](const std::string& name) { return name != "rest"; });
  return order;
}

std::vector<std::string> phases_in_order(const std::vector<std::string>& names) {
  return in_order(names, names_of(profile::kPhases));
}

}  // namespace moonshard::analysis
