// Names of files with millions of events, each kept once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace moonshard {

/// Names and their numbers. Bounded: what comes after the last place shares one name.
class NameTable {
 public:
  explicit NameTable(size_t max_names) : max_names_(max_names) {}
  uint32_t number(std::string_view name);
  size_t size() const { return names_.size(); }
  bool is_full() const { return is_full_; }
  std::vector<std::string> take();

 private:
  uint32_t add(std::string_view name);

  size_t max_names_, bytes_ = 0;
  bool is_full_ = false;
  std::deque<std::string> names_;  // stays where it is: the keys below look into it
  std::unordered_map<std::string_view, uint32_t> places_;
};

}  // namespace moonshard
