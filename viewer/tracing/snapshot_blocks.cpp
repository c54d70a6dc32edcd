#include "viewer/tracing/snapshot_blocks.h"

#include <algorithm>

namespace moonshard::viewer {

void AllocationReplay::alloc(uint32_t event, double time_us, uint64_t address, double bytes,
                             uint32_t site) {
  if (first_us_ < 0) first_us_ = time_us;
  living_[address] = list_.size();  // one that was never freed stays in the list, too
  SnapshotAllocation made;
  made.begin = event;
  made.end = UINT32_MAX;
  made.site = site;
  made.address = address;
  made.bytes = bytes;
  made.begin_us = time_us - first_us_;
  list_.push_back(made);
}

void AllocationReplay::free(uint32_t event, double time_us, uint64_t address, double bytes,
                            uint32_t unknown_site) {
  if (first_us_ < 0) first_us_ = time_us;
  const auto found = living_.find(address);
  if (found == living_.end()) {
    SnapshotAllocation older;
    older.end = event;
    older.site = unknown_site;
    older.address = address;
    older.bytes = bytes;
    older.end_us = time_us - first_us_;
    if (event > 0) list_.push_back(older);
    return;
  }
  SnapshotAllocation& freed = list_[found->second];
  freed.end = event;
  freed.end_us = time_us - first_us_;
  living_.erase(found);
}

void AllocationReplay::hold(uint64_t address, double bytes, uint32_t site) {
  if (living_.contains(address)) return;
  living_[address] = list_.size();
  SnapshotAllocation older;
  older.end = UINT32_MAX;
  older.site = site;
  older.address = address;
  older.bytes = bytes;
  list_.push_back(older);
}

std::vector<SnapshotAllocation> AllocationReplay::take(uint32_t num_events, double end_us) {
  for (SnapshotAllocation& allocation : list_) {
    if (allocation.end != UINT32_MAX) continue;
    allocation.end = num_events;
    allocation.end_us = std::max(end_us - std::max(first_us_, 0.0), allocation.begin_us);
  }
  std::erase_if(list_, [](const SnapshotAllocation& allocation) {
    return allocation.end <= allocation.begin || !(allocation.bytes > 0);
  });
  // What was there before lies below, the largest at the bottom.
  std::ranges::stable_sort(list_, [](const SnapshotAllocation& a, const SnapshotAllocation& b) {
    if (a.begin != b.begin) return a.begin < b.begin;
    return a.begin == 0 && a.bytes > b.bytes;
  });
  return std::move(list_);
}

namespace {

// Builds the steps of some allocations; false when there would be too many.
class BlockStacker {
 public:
  BlockStacker(const std::vector<SnapshotAllocation>& allocations, const std::vector<size_t>& shown,
               size_t max_steps)
      : allocations_(allocations), shown_(shown), max_steps_(max_steps) {}

  bool run(BlockLayout& layout) {
    std::vector<size_t> by_end(shown_.size());
    for (size_t i = 0; i < by_end.size(); ++i) by_end[i] = i;
    std::ranges::stable_sort(by_end, {}, [&](size_t i) { return at(i).end; });
    steps_.resize(shown_.size());
    size_t next_end = 0;
    for (size_t i = 0; i < shown_.size(); ++i) {
      while (next_end < by_end.size() && at(by_end[next_end]).end <= at(i).begin) {
        remove(by_end[next_end++]);
      }
      steps_[i].push_back({at(i).begin, at(i).end, top_});
      stack_.push_back(i);
      top_ += at(i).bytes;
      layout.top = std::max(layout.top, top_);
      if (++num_steps_ > max_steps_) return false;
    }
    for (; next_end < by_end.size(); ++next_end) {
      remove(by_end[next_end]);
      if (num_steps_ > max_steps_) return false;
    }
    layout.shown = shown_;
    for (const std::vector<BlockStep>& steps : steps_) {
      layout.first.push_back(layout.steps.size());
      layout.steps.insert(layout.steps.end(), steps.begin(), steps.end());
    }
    layout.first.push_back(layout.steps.size());
    return true;
  }

 private:
  const SnapshotAllocation& at(size_t i) const { return allocations_[shown_[i]]; }

  // Those above it sink by its height.
  void remove(size_t gone) {
    const uint32_t event = at(gone).end;
    const double bytes = at(gone).bytes;
    size_t place = stack_.size();
    while (place > 0 && stack_[place - 1] != gone) --place;
    if (place == 0) return;
    stack_.erase(stack_.begin() + static_cast<ptrdiff_t>(place - 1));
    top_ -= bytes;
    for (size_t above = place - 1; above < stack_.size(); ++above) {
      std::vector<BlockStep>& steps = steps_[stack_[above]];
      const double foot = steps.back().foot - bytes;
      const uint32_t end = at(stack_[above]).end;
      if (steps.back().from == event) {
        steps.back().foot = foot;
        continue;
      }
      steps.back().to = event;
      if (end <= event) continue;  // it goes with the same event
      steps.push_back({event, end, foot});
      ++num_steps_;
    }
  }

  const std::vector<SnapshotAllocation>& allocations_;
  const std::vector<size_t>& shown_;
  const size_t max_steps_;
  std::vector<std::vector<BlockStep>> steps_;
  std::vector<size_t> stack_;  // places in shown_, from the bottom up
  double top_ = 0;
  size_t num_steps_ = 0;
};

}  // namespace

BlockLayout layout_blocks(const std::vector<SnapshotAllocation>& allocations, size_t max_steps) {
  std::vector<size_t> by_size(allocations.size());
  for (size_t i = 0; i < by_size.size(); ++i) by_size[i] = i;
  std::ranges::stable_sort(
      by_size, [&](size_t a, size_t b) { return allocations[a].bytes > allocations[b].bytes; });
  for (size_t count = by_size.size(); count > 0; count /= 2) {
    std::vector<size_t> shown(by_size.begin(), by_size.begin() + static_cast<ptrdiff_t>(count));
    std::ranges::sort(shown);  // by their begin
    BlockLayout layout;
    if (BlockStacker(allocations, shown, max_steps).run(layout)) return layout;
  }
  return {};
}

std::optional<size_t> block_at(const BlockLayout& layout,
                               const std::vector<SnapshotAllocation>& allocations, double event,
                               double bytes) {
  for (size_t i = 0; i < layout.shown.size(); ++i) {
    const SnapshotAllocation& allocation = allocations[layout.shown[i]];
    if (event < allocation.begin || event >= allocation.end) continue;
    for (size_t s = layout.first[i]; s < layout.first[i + 1]; ++s) {
      const BlockStep& step = layout.steps[s];
      if (event < step.from || event >= step.to) continue;
      if (bytes >= step.foot && bytes < step.foot + allocation.bytes) return i;
    }
  }
  return std::nullopt;
}

}  // namespace moonshard::viewer
