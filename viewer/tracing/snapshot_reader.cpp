#include "viewer/tracing/memory_snapshot.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>

#include <fmt/format.h>

#include "runtime/input/json_fields.h"
#include "viewer/tracing/pickle_reader.h"
#include "viewer/tracing/snapshot_blocks.h"
#include "viewer/tracing/snapshot_owner.h"

namespace moonshard::viewer {
namespace {

namespace fs = std::filesystem;
using Kind = PickleValue::Kind;

constexpr size_t kMaxSegments = 1000, kMaxBlocks = 100, kMaxHistory = 4000, kMaxFrames = 4;
constexpr size_t kMaxActions = 100;
constexpr size_t kMaxAllocations = 8000, kMaxSites = 4000, kMaxStack = 200;
constexpr size_t kMaxHeld = 200'000;
// A list may hold the same segment a million times: what is looked at is counted, too.
constexpr uint64_t kMaxVisits = 5'000'000;
constexpr double kMaxBytes = 1e18;  // of anything

double bytes_of(const PickleData& data, const PickleValue& dict, std::string_view key) {
  const double value = data.number(data.get(dict, key));
  return std::isfinite(value) ? std::clamp(value, -kMaxBytes, kMaxBytes) : 0;
}

// One entry of the history, taken from its dict while the file is read.
struct HistoryEvent {
  uint32_t action = 0;  // place of its text
  double bytes = 0, time_us = 0;
  uint64_t address = 0;
  PickleValue frames, said_owner;
};

using History = std::deque<HistoryEvent>;

// False for a dict that is no entry of it.
bool take_event(const PickleData& data, const PickleValue& dict, History& history) {
  const PickleValue action = data.get(dict, "action");
  if (action.kind != Kind::Text || data.get(dict, "size").kind != Kind::Int) return false;
  const double time_us = data.number(data.get(dict, "time_us"));
  const PickleValue address = data.get(dict, "addr");
  history.push_back({action.place, bytes_of(data, dict, "size"),
                     std::isfinite(time_us) ? time_us : 0,
                     address.kind == Kind::Int ? static_cast<uint64_t>(address.integer) : 0,
                     data.get(dict, "frames"), data.get(dict, "user_metadata")});
  return true;
}

class Summary {
 public:
  Summary(const PickleData& data, const ReadControl& control) : data_(data), control_(control) {}

  MemorySnapshot take(History history) {
    const PickleValue& root = data_.root();
    // Before 2023 the list of segments was all of it.
    const PickleValue segments = root.kind == Kind::List ? root : data_.get(root, "segments");
    for (const PickleValue& segment : data_.items(segments)) add_segment(segment);
    keep_largest_segments();
    add_history(std::move(history));
    keep_largest_allocations();
    if (visits_ > kMaxVisits) {
      made_.problems.push_back("too many blocks: the sums are of the first ones only");
    }
    return std::move(made_);
  }

 private:
  bool may_visit() {
    if (++visits_ % 65536 == 0) control_.check();
    return visits_ <= kMaxVisits;
  }

  int64_t integer(const PickleValue& dict, const char* key) const {
    const PickleValue value = data_.get(dict, key);
    return value.kind == Kind::Int ? value.integer : 0;
  }

  std::string short_text(const PickleValue& value) const {
    return cut_text(data_.text(value), kMaxNameBytes);
  }

  void add_segment(const PickleValue& from) {
    if (from.kind != Kind::Dict || !may_visit()) return;
    SnapshotSegment segment;
    segment.address = static_cast<uint64_t>(integer(from, "address"));
    segment.device = integer(from, "device");
    segment.stream = integer(from, "stream");
    segment.kind = short_text(data_.get(from, "segment_type"));
    segment.total = bytes_of(data_, from, "total_size");
    segment.allocated = bytes_of(data_, from, "allocated_size");
    segment.expandable = data_.number(data_.get(from, "is_expandable")) != 0;
    double requested = 0;
    uint64_t address = segment.address;
    for (const PickleValue& block : data_.items(data_.get(from, "blocks"))) {
      if (block.kind != Kind::Dict || !may_visit()) continue;
      ++segment.num_blocks;
      requested += add_block(block, segment, address);
    }
    const PickleValue said = data_.get(from, "requested_size");
    made_.reserved += segment.total;
    made_.allocated += segment.allocated;
    made_.active += bytes_of(data_, from, "active_size");
    made_.requested += said.kind == Kind::None ? requested : data_.number(said);
    made_.num_segments += 1;
    made_.num_blocks += segment.num_blocks;
    made_.segments.push_back(std::move(segment));
    if (made_.segments.size() >= 2 * kMaxSegments) keep_largest_segments();
  }

  // Returns what was asked for; `address` moves on behind the block.
  double add_block(const PickleValue& from, SnapshotSegment& segment, uint64_t& address) {
    SnapshotBlock block;
    block.address = static_cast<uint64_t>(integer(from, "address"));
    if (block.address == 0) block.address = address;
    block.size = std::max(0.0, bytes_of(data_, from, "size"));
    const double requested = block.requested = bytes_of(data_, from, "requested_size");
    address = block.address + static_cast<uint64_t>(block.size);
    const std::string& state = data_.text(data_.get(from, "state"));
    if (state == "inactive") {
      made_.free_in_segments += block.size;
      made_.largest_free = std::max(made_.largest_free, block.size);
      segment.largest_free = std::max(segment.largest_free, block.size);
      return 0;
    }
    if (state == "active_allocated") {
      block.state = state;
      if (held_.size() < kMaxHeld) held_.push_back({block.address, block.size, from});
      if (made_.largest.size() < kMaxBlocks || block.size > made_.largest.back().size) {
        block.where = frames_of(from);
        keep_largest(std::move(block));
      }
    }
    return requested;
  }

  void keep_largest(SnapshotBlock block) {
    const auto place =
        std::upper_bound(made_.largest.begin(), made_.largest.end(), block.size,
                         [](double size, const SnapshotBlock& other) { return size > other.size; });
    made_.largest.insert(place, std::move(block));
    if (made_.largest.size() > kMaxBlocks) made_.largest.pop_back();
  }

  // One site for each stack. Python shares equal frames, so that their places tell stacks apart;
  // other writers repeat them, and their contents must be compared.
  uint32_t site_of(const PickleValue& frames, const PickleValue& said_owner) {
    const std::vector<PickleValue>& list = data_.items(frames);
    const size_t depth = std::min(list.size(), kMaxStack);
    uint64_t places = said_owner.place + 1, contents = places;
    for (size_t i = 0; i < depth; ++i) places = mixed(places, list[i].place);
    const auto known = sites_by_place_.find(places);
    if (known != sites_by_place_.end()) return known->second;
    if (!may_visit()) return unknown_site();
    for (size_t i = 0; i < depth; ++i) {
      contents = mixed(contents, data_.get(list[i], "name").place);
      contents = mixed(contents, data_.get(list[i], "filename").place);
      contents = mixed(contents, static_cast<uint64_t>(integer(list[i], "line")));
    }
    const auto [found, added] =
        sites_.try_emplace(contents, static_cast<uint32_t>(made_.sites.size()));
    if (added && made_.sites.size() >= kMaxSites) {
      found->second = unknown_site();
    } else if (added) {
      std::string owner = said_owner.kind == Kind::Text ? short_text(said_owner) : "";
      if (owner.empty()) owner = owner_of_frames(list);
      made_.sites.push_back({std::move(owner), where_of(list)});
    }
    if (sites_by_place_.size() < kMaxHeld) sites_by_place_[places] = found->second;
    return found->second;
  }

  static uint64_t mixed(uint64_t hash, uint64_t value) {
    return (hash ^ value) * 0x9E3779B97F4A7C15ull + (hash >> 29);
  }

  uint32_t unknown_site() {
    if (!unknown_site_) {
      unknown_site_ = static_cast<uint32_t>(made_.sites.size());
      made_.sites.push_back({"not recorded", ""});
    }
    return *unknown_site_;
  }

  std::string owner_of_frames(const std::vector<PickleValue>& list) {
    std::vector<StackFrame> stack;
    for (size_t i = 0; i < list.size() && i < kMaxStack && may_visit(); ++i) {
      stack.push_back({data_.text(data_.get(list[i], "name")),
                       data_.text(data_.get(list[i], "filename")),
                       static_cast<long>(integer(list[i], "line"))});
    }
    return stack.empty() ? "not recorded" : owner_of_stack(stack);
  }

  std::string frames_of(const PickleValue& block) const {
    return where_of(data_.items(data_.get(block, "frames")));
  }

  // The innermost frames that say something: not the allocator's own.
  std::string where_of(const std::vector<PickleValue>& frames) const {
    std::string where;
    size_t count = 0, seen = 0;
    for (const PickleValue& frame : frames) {
      if (count >= kMaxFrames || ++seen > 200) break;
      const std::string name = short_text(data_.get(frame, "name"));
      const std::string file = short_text(data_.get(frame, "filename"));
      const bool own = name.find("unwind") != std::string::npos ||
                       name.find("gather") != std::string::npos ||
                       name.find("CachingAllocator") != std::string::npos;
      if (name.empty() || own) continue;
      const int64_t line = integer(frame, "line");
      where += where.empty() ? "" : "\n";
      where += line > 0 ? fmt::format("{} ({}:{})", name, file, line) : name;
      ++count;
    }
    return where;
  }

  void keep_largest_segments() {
    std::ranges::stable_sort(
        made_.segments,
        [](const SnapshotSegment& a, const SnapshotSegment& b) { return a.total > b.total; });
    if (made_.segments.size() > kMaxSegments) made_.segments.resize(kMaxSegments);
  }

  void add_history(History events) {
    made_.num_events = events.size();
    // One list per device; between devices the clock decides.
    const auto earlier = [](const HistoryEvent& a, const HistoryEvent& b) {
      return a.time_us < b.time_us;
    };
    if (!std::ranges::is_sorted(events, earlier)) std::ranges::stable_sort(events, earlier);
    std::map<uint32_t, SnapshotAction> actions;
    std::vector<double> changes(events.size());
    double sum = 0;
    AllocationReplay replay;
    for (size_t i = 0; i < events.size(); ++i) {
      const HistoryEvent& event = events[i];
      const auto number = static_cast<uint32_t>(std::min<size_t>(i, UINT32_MAX - 1));
      const std::string& name = data_.text(PickleValue::at(Kind::Text, events[i].action));
      if (actions.contains(events[i].action) || actions.size() < kMaxActions) {
        SnapshotAction& action = actions[events[i].action];
        if (action.count == 0) action.action = cut_text(name, kMaxNameBytes);
        action.count += 1;
        action.bytes += events[i].bytes;
      }
      // Allocated bytes fall when a free is asked for, not when the block is idle.
      sum += name == "alloc" ? events[i].bytes : name == "free_requested" ? -events[i].bytes : 0;
      changes[i] = sum;
      if (event.address == 0) continue;
      if (name == "alloc") {
        replay.alloc(number, event.time_us, event.address, event.bytes,
                     site_of(event.frames, event.said_owner));
      } else if (name == "free_requested") {
        replay.free(number, event.time_us, event.address, event.bytes, unknown_site());
      }
    }
    for (const HeldBlock& block : held_) {
      replay.hold(block.address, block.bytes,
                  site_of(data_.get(block.from, "frames"), data_.get(block.from, "user_metadata")));
    }
    if (!events.empty()) {
      made_.allocations =
          replay.take(static_cast<uint32_t>(std::min<size_t>(events.size(), UINT32_MAX - 1)),
                      events.back().time_us);
    }
    for (auto& [place, action] : actions) made_.actions.push_back(std::move(action));
    std::ranges::stable_sort(made_.actions, [](const SnapshotAction& a, const SnapshotAction& b) {
      return a.count > b.count;
    });
    // The history may begin late; its end is what the segments hold now.
    thin(changes, made_.allocated - sum);
  }

  void keep_largest_allocations() {
    std::vector<SnapshotAllocation>& list = made_.allocations;
    made_.num_allocations = list.size();
    if (list.size() <= kMaxAllocations) return;
    std::vector<double> sizes;
    for (const SnapshotAllocation& allocation : list) sizes.push_back(allocation.bytes);
    std::ranges::nth_element(sizes, sizes.begin() + kMaxAllocations, std::greater());
    const double least = sizes[kMaxAllocations];
    // Of those that are just as large, as many as there is room for.
    const auto larger =
        std::ranges::count_if(list, [&](const SnapshotAllocation& a) { return a.bytes > least; });
    size_t room = kMaxAllocations - static_cast<size_t>(larger);
    std::erase_if(list, [&](const SnapshotAllocation& a) {
      return a.bytes < least || (a.bytes == least && (room == 0 || room-- == 0));
    });
  }

  // The largest of each stretch, so that peaks stay.
  void thin(const std::vector<double>& changes, double base) {
    const size_t count = std::min(changes.size(), kMaxHistory);
    for (size_t i = 0; i < count; ++i) {
      const size_t begin = changes.size() * i / count, end = changes.size() * (i + 1) / count;
      const double most = *std::max_element(changes.begin() + static_cast<ptrdiff_t>(begin),
                                            changes.begin() + static_cast<ptrdiff_t>(end));
      made_.history_bytes.push_back(std::max(0.0, base + most));
    }
  }

  const PickleData& data_;
  const ReadControl& control_;
  MemorySnapshot made_;
  uint64_t visits_ = 0;
  struct HeldBlock {
    uint64_t address;
    double bytes;
    PickleValue from;
  };
  std::vector<HeldBlock> held_;
  std::unordered_map<uint64_t, uint32_t> sites_, sites_by_place_;
  std::optional<uint32_t> unknown_site_;
};

// Passes bytes on and reports how far the file was read.
class ReportingSource final : public ByteSource {
 public:
  ReportingSource(OpenFile file, const ReadControl& control)
      : source_(std::move(file), control), control_(control) {}
  size_t read(char* to, size_t capacity) override {
    control_.report(0.9 * static_cast<double>(source_.taken()) /
                    static_cast<double>(source_.size_hint() + 1));
    return source_.read(to, capacity);
  }
  uint64_t size_hint() const override { return source_.size_hint(); }

 private:
  FileSource source_;
  const ReadControl& control_;
};

}  // namespace

MemorySnapshot read_snapshot(const fs::path& path, const ReadControl& control) {
  return read_snapshot(open_plain_file(path), control);
}

MemorySnapshot read_snapshot(OpenFile file, const ReadControl& control) {
  const std::string where = file.name();
  ReportingSource source(std::move(file), control);
  History history;
  const PickleData data = read_pickle(
      source, where, {}, [&](const auto&... entry) { return take_event(entry..., history); });
  const PickleValue& root = data.root();
  if (root.kind != Kind::List && data.get(root, "segments").kind != Kind::List) {
    throw IoError(fmt::format(
        "{}: expected a memory snapshot with segments, got a pickle of something else", where));
  }
  MemorySnapshot snapshot = Summary(data, control).take(std::move(history));
  control.report(1);
  return snapshot;
}

}  // namespace moonshard::viewer
