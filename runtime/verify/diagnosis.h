// The three questions of a job whose ranks disagree (document 001): are norms different on each
// rank before they are put together, equal on all ranks afterwards, and those of one process?
#pragma once

#include <string>
#include <vector>

#include "runtime/verify/verify.h"

namespace moonshard::verify {

struct Diagnosis {
  std::string question;
  bool good = true;
  std::string answer;  ///< with figures; of a bad one what it means
};

class NormDiagnosis {
 public:
  /// Takes the norms of one comparison; of one rank alone they say nothing.
  void add(const NormsShown& shown);
  /// Whether several ranks were compared.
  bool has_ranks() const { return comparisons_ > 0; }
  std::vector<Diagnosis> conclude(const std::vector<Cell>& cells) const;

 private:
  int64_t comparisons_ = 0, identical_ = 0;
  size_t ranks_ = 0;
  std::string identical_title_;
  double largest_error_ = 0;
  std::string largest_title_;
};

Json to_json(const std::vector<Diagnosis>& diagnoses);

}  // namespace moonshard::verify
