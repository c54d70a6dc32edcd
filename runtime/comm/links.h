// The links that a fake world's communication is modelled from. Needs no torch: option schemas
// list them.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/options.h"

namespace moonshard::comm {

/// Bytes per second and direction that one GPU achieves in a ring, and the minimum time of a
/// collective. Order of magnitude of published measurements; the result names the link. NVLink is
/// Hopper's, its third generation Ampere's.
struct Link {
  const char* name;
  double bytes_per_s, latency_us;
};
inline constexpr Link kLinks[] = {
    {"nvlink", 360e9, 12},    {"nvlink3", 235e9, 12},    {"pcie5", 50e9, 15},
    {"infiniband", 45e9, 20}, {"ethernet100", 11e9, 40}, {"ethernet10", 1.1e9, 60},
    {"instant", 1e18, 0},
};

/// Collectives of a group that Gloo's threads carry out side by side. NCCL has a stream for them.
inline constexpr int kGlooAtOnce = 2;

inline std::vector<std::string> link_names() {
  std::vector<std::string> names;
  for (const Link& link : kLinks) names.emplace_back(link.name);
  return names;
}

/// Throws UsageError "WHERE: expected one of …" for a name that none has.
inline const Link& link_named(const std::string& name, const std::string& where = "option 'link'") {
  for (const Link& link : kLinks)
    if (name == link.name) return link;
  fail_unknown_name(where, name, link_names());
}

}  // namespace moonshard::comm
