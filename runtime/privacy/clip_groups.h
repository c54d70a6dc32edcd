// Groups of parameters that are clipped each to a bound of its own (clipping = groups). A sample's
// part of the sum then has at most the norm C = sqrt(C_1^2 + … + C_K^2), which the noise is scaled
// to. Needs no torch.
#pragma once

#include <string>
#include <vector>

namespace moonshard::privacy {

struct ClipGroup {
  std::vector<std::string> globs;  ///< of parameter names; none in the group of the rest
  double bound = 0;
};

/// Of option clip_groups: "*lora_A*, *lora_B* = 0.5; score.* = 1". Throws UsageError for a text of
/// another form, and for bounds that max_grad_norm may not have.
std::vector<ClipGroup> parse_clip_groups(const std::string& text);
/// The text that is parsed to these.
std::string clip_groups_text(const std::vector<ClipGroup>& groups);

/// The first group that matches the name; `groups.size()` when none does.
size_t clip_group_of(const std::vector<ClipGroup>& groups, const std::string& parameter);

}  // namespace moonshard::privacy
