#include "runtime/input/name_table.h"

#include <iterator>

namespace moonshard {
namespace {

constexpr size_t kMaxNameBytesKept = 4096;  // names of kernels reach some thousand letters
constexpr size_t kMaxBytesOfNames = 256u << 20;

}  // namespace

uint32_t NameTable::number(std::string_view name) {
  name = name.substr(0, kMaxNameBytesKept);
  const auto place = places_.find(name);
  if (place != places_.end()) return place->second;
  if (names_.size() + 1 < max_names_ && bytes_ + name.size() <= kMaxBytesOfNames) return add(name);
  is_full_ = true;
  const std::string_view rest = "(one of too many names)";
  const auto shared = places_.find(rest);
  return shared != places_.end() ? shared->second : add(rest);
}

uint32_t NameTable::add(std::string_view name) {
  const auto number = static_cast<uint32_t>(names_.size());
  names_.emplace_back(name);
  bytes_ += name.size();
  places_.emplace(names_.back(), number);
  return number;
}

std::vector<std::string> NameTable::take() {
  places_.clear();
  std::vector<std::string> all(std::make_move_iterator(names_.begin()),
                               std::make_move_iterator(names_.end()));
  names_.clear();
  return all;
}

}  // namespace moonshard
