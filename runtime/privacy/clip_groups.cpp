#include "runtime/privacy/clip_groups.h"

#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/base/check.h"
#include "runtime/base/globs.h"

namespace moonshard::privacy {
namespace {

constexpr const char* kForm = "groups such as '*lora_A* = 0.5; *.bias, score.* = 1'";

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

ClipGroup parse_group(std::string_view text) {
  const size_t sign = text.rfind('=');
  MS_CHECK(sign != std::string_view::npos,
           "clip: option 'clip_groups': expected {}, got '{}' without a bound", kForm, text);
  ClipGroup group;
  group.globs = globs_of(std::string(text.substr(0, sign)));
  const std::string_view number = trimmed(text.substr(sign + 1));
  const auto [end, failure] =
      std::from_chars(number.data(), number.data() + number.size(), group.bound);
  const bool is_number = failure == std::errc() && end == number.data() + number.size();
  MS_CHECK(is_number && group.bound >= 1e-12 && group.bound <= 1e12,
           "clip: option 'clip_groups': expected a bound from 1e-12 to 1e12, got '{}' in '{}'",
           number, text);
  MS_CHECK(!group.globs.empty(),
           "clip: option 'clip_groups': expected {}, got '{}' without names of parameters", kForm,
           text);
  return group;
}

}  // namespace

std::vector<ClipGroup> parse_clip_groups(const std::string& text) {
  std::vector<ClipGroup> groups;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = rest.find(';');
    const std::string_view part = trimmed(rest.substr(0, end));
    if (!part.empty()) groups.push_back(parse_group(part));
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  return groups;
}

std::string clip_groups_text(const std::vector<ClipGroup>& groups) {
  std::vector<std::string> parts;
  for (const ClipGroup& group : groups)
    parts.push_back(fmt::format("{} = {}", fmt::join(group.globs, ", "), group.bound));
  return fmt::format("{}", fmt::join(parts, "; "));
}

size_t clip_group_of(const std::vector<ClipGroup>& groups, const std::string& parameter) {
  size_t found = 0;
  while (found < groups.size() && !matches_any(groups[found].globs, parameter)) ++found;
  return found;
}

}  // namespace moonshard::privacy
