// What rewritten sources call (rewrite.py): each function does what the source said, or its mistake
// where the variable MUTANT has its number. With MUTANTS_REACHED a file of a byte per mutant says
// which of them were reached.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <type_traits>

namespace mutants {

inline int chosen_number() {
  const char* text = std::getenv("MUTANT");
  return text == nullptr ? -1 : std::atoi(text);
}

/// Shared with children, and whole whatever ends the process.
inline char* reached_map() {
  const char* path = std::getenv("MUTANTS_REACHED");
  if (path == nullptr) return nullptr;
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  const off_t bytes = lseek(file, 0, SEEK_END);
  void* map =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return map == MAP_FAILED ? nullptr : static_cast<char*>(map);
}

inline bool on(int number) {
  static const int chosen = chosen_number();
  static char* const reached = reached_map();
  if (reached != nullptr) reached[number] = 1;
  return number == chosen;
}

#define MUTANTS_BINARY(name, right_one, wrong_one)                                            \
  template <typename A, typename B>                                                           \
  auto name(int number, A&& a, B&& b)->std::decay_t<decltype(a right_one b)> {                \
    if (on(number)) return static_cast<std::decay_t<decltype(a right_one b)>>(a wrong_one b); \
    return a right_one b;                                                                     \
  }
MUTANTS_BINARY(minus_for_plus, +, -)
MUTANTS_BINARY(plus_for_minus, -, +)
MUTANTS_BINARY(plus_for_times, *, +)
MUTANTS_BINARY(times_for_divided, /, *)
MUTANTS_BINARY(at_most_for_less, <, <=)
MUTANTS_BINARY(less_for_at_most, <=, <)
MUTANTS_BINARY(at_least_for_more, >, >=)
MUTANTS_BINARY(more_for_at_least, >=, >)
MUTANTS_BINARY(unequal_for_equal, ==, !=)
MUTANTS_BINARY(equal_for_unequal, !=, ==)
#undef MUTANTS_BINARY

template <typename T>
bool yes(int number, T&& value) {
  const bool is = static_cast<bool>(value);
  return on(number) || is;
}
template <typename T>
bool no(int number, T&& value) {
  const bool is = static_cast<bool>(value);
  return !on(number) && is;
}
template <typename T>
bool turned_round(int number, T&& value) {
  return static_cast<bool>(value) != on(number);
}
template <typename T>
T number(int number, T right_one, T wrong_one) {
  return on(number) ? wrong_one : right_one;
}

}  // namespace mutants
