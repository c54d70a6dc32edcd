// Spans whose name holds a text, marked by one bit each: a million events take 190 KB, and "is
// there a hit in this box", "the next one" and "which one of how many" cost a few binary searches.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "viewer/tracing/trace_index.h"

namespace moonshard::viewer {

class TraceSearch {
 public:
  TraceSearch() = default;
  /// Text is looked for anywhere in a name; case does not matter (ASCII). Empty text: no search.
  TraceSearch(const Trace& trace, const TraceIndex& index, std::string_view text);

  bool active() const { return active_; }
  uint64_t num_hits() const { return num_hits_; }
  uint64_t num_hits_in_lane(uint32_t lane) const { return lane_hits_[lane]; }
  bool matches_name(uint32_t name) const { return names_[name] != 0; }
  /// Whether one of the spans first .. first + count - 1 of a row is a hit.
  bool any_in(uint32_t row, uint32_t first, uint32_t count) const {
    return rows_[row].count_before(first + count) > rows_[row].count_before(first);
  }

  /// The first hit after a span in order of start, then row; from nothing: the very first.
  std::optional<SpanRef> next(const Trace& trace, const TraceIndex& index,
                              std::optional<SpanRef> from) const;
  std::optional<SpanRef> previous(const Trace& trace, const TraceIndex& index,
                                  std::optional<SpanRef> from) const;
  /// The first hit that starts at or after a time.
  std::optional<SpanRef> first_from(const Trace& trace, const TraceIndex& index,
                                    double time_us) const;
  /// How many hits come before this span in that order.
  uint64_t place_of(const Trace& trace, const TraceIndex& index, SpanRef span) const;

 private:
  struct RowHits {
    std::vector<uint64_t> bits;
    std::vector<uint32_t> before;  // hits before each word
    uint32_t count_before(uint32_t index) const;
    std::optional<uint32_t> at_or_after(uint32_t index) const;
    std::optional<uint32_t> before_index(uint32_t index) const;
  };
  /// The first, or the last, of the hits that find(row number, row) names, in the order of hits.
  template <class Find>
  std::optional<SpanRef> first_of_rows(const Trace& trace, const TraceIndex& index,
                                       bool from_the_end, const Find& find) const;

  std::vector<RowHits> rows_;  // empty for a row without hits
  std::vector<uint8_t> names_;
  std::vector<uint64_t> lane_hits_;
  uint64_t num_hits_ = 0;
  bool active_ = false;
};

/// Whether text holds part, without regard to ASCII case. Part is in lower case.
bool contains_lower(std::string_view text, std::string_view part);

}  // namespace moonshard::viewer
