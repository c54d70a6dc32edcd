#include "viewer/tracing/trace_search.h"

#include <algorithm>
#include <bit>
#include <string>
#include <tuple>

namespace moonshard::viewer {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// Order of hits: by start, and where several rows start at once from the top down.
using Order = std::tuple<double, uint32_t, uint32_t>;
Order order_of(const Trace& trace, const TraceIndex& index, SpanRef span) {
  return {index.row(trace, span.row).start_us[span.index], span.row, span.index};
}

// Spans of a row that come before a place in that order.
uint32_t num_before(const TraceRow& row, uint32_t number, const Order& place) {
  const auto& [start, at_row, at_index] = place;
  if (number == at_row) return at_index;
  const auto& starts = row.start_us;
  const auto end = number < at_row ? std::ranges::upper_bound(starts, start)
                                   : std::ranges::lower_bound(starts, start);
  return static_cast<uint32_t>(end - starts.begin());
}

}  // namespace

bool contains_lower(std::string_view text, std::string_view part) {
  return std::search(text.begin(), text.end(), part.begin(), part.end(),
                     [](char a, char b) { return lower(a) == b; }) != text.end();
}

TraceSearch::TraceSearch(const Trace& trace, const TraceIndex& index, std::string_view text) {
  std::string part(text);
  std::transform(part.begin(), part.end(), part.begin(), lower);
  active_ = !part.empty();
  lane_hits_.resize(trace.lanes.size(), 0);
  names_.resize(trace.names.size(), 0);
  rows_.resize(index.rows.size());
  if (!active_) return;
  for (uint32_t name = 0; name < trace.names.size(); ++name) {
    if (!contains_lower(trace.names[name], part)) continue;
    names_[name] = 1;
    for (uint32_t g = index.name_group[name]; g < index.name_group[name + 1]; ++g) {
      const NameGroup& group = index.groups[g];
      const uint32_t last = index.groups[g + 1].first_span;
      RowHits& hits = rows_[group.row];
      if (hits.bits.empty()) hits.bits.resize(index.row(trace, group.row).size() / 64 + 1, 0);
      for (uint32_t k = group.first_span; k < last; ++k) {
        const uint32_t span = index.group_spans[k];
        hits.bits[span / 64] |= uint64_t{1} << (span % 64);
      }
      num_hits_ += last - group.first_span;
      lane_hits_[index.rows[group.row].lane] += last - group.first_span;
    }
  }
  for (RowHits& hits : rows_) {
    uint32_t sum = 0;
    hits.before.reserve(hits.bits.size());
    for (const uint64_t word : hits.bits) {
      hits.before.push_back(sum);
      sum += static_cast<uint32_t>(std::popcount(word));
    }
  }
}

uint32_t TraceSearch::RowHits::count_before(uint32_t index) const {
  if (bits.empty()) return 0;
  const uint64_t below = bits[index / 64] & ((uint64_t{1} << (index % 64)) - 1);
  return before[index / 64] + static_cast<uint32_t>(std::popcount(below));
}

std::optional<uint32_t> TraceSearch::RowHits::at_or_after(uint32_t index) const {
  for (size_t word = index / 64; word < bits.size(); ++word) {
    uint64_t rest = bits[word];
    if (word == index / 64) rest &= ~uint64_t{0} << (index % 64);
    if (rest) return static_cast<uint32_t>(word * 64 + static_cast<size_t>(std::countr_zero(rest)));
  }
  return std::nullopt;
}

std::optional<uint32_t> TraceSearch::RowHits::before_index(uint32_t index) const {
  if (bits.empty()) return std::nullopt;
  for (size_t word = index / 64 + 1; word-- > 0;) {
    uint64_t rest = bits[word];
    if (word == index / 64) rest &= (uint64_t{1} << (index % 64)) - 1;
    if (rest) {
      return static_cast<uint32_t>(word * 64 + 63 - static_cast<size_t>(std::countl_zero(rest)));
    }
  }
  return std::nullopt;
}

template <class Find>
std::optional<SpanRef> TraceSearch::first_of_rows(const Trace& trace, const TraceIndex& index,
                                                  bool from_the_end, const Find& find) const {
  std::optional<SpanRef> best;
  for (uint32_t r = 0; r < rows_.size(); ++r) {
    const std::optional<uint32_t> hit = find(r, index.row(trace, r));
    if (!hit) continue;
    const SpanRef span{r, *hit};
    const bool earlier = best && order_of(trace, index, span) < order_of(trace, index, *best);
    if (!best || earlier != from_the_end) best = span;
  }
  return best;
}

std::optional<SpanRef> TraceSearch::next(const Trace& trace, const TraceIndex& index,
                                         std::optional<SpanRef> from) const {
  return first_of_rows(trace, index, false, [&](uint32_t r, const TraceRow& row) {
    uint32_t start = from ? num_before(row, r, order_of(trace, index, *from)) : 0;
    if (from && r == from->row) ++start;
    return rows_[r].at_or_after(start);
  });
}

std::optional<SpanRef> TraceSearch::previous(const Trace& trace, const TraceIndex& index,
                                             std::optional<SpanRef> from) const {
  return first_of_rows(trace, index, true, [&](uint32_t r, const TraceRow& row) {
    return rows_[r].before_index(from ? num_before(row, r, order_of(trace, index, *from))
                                      : static_cast<uint32_t>(row.size()));
  });
}

std::optional<SpanRef> TraceSearch::first_from(const Trace& trace, const TraceIndex& index,
                                               double time_us) const {
  return first_of_rows(trace, index, false, [&](uint32_t r, const TraceRow& row) {
    const auto place = std::ranges::lower_bound(row.start_us, time_us);
    return rows_[r].at_or_after(static_cast<uint32_t>(place - row.start_us.begin()));
  });
}

uint64_t TraceSearch::place_of(const Trace& trace, const TraceIndex& index, SpanRef span) const {
  const Order order = order_of(trace, index, span);
  uint64_t count = 0;
  for (uint32_t r = 0; r < rows_.size(); ++r) {
    count += rows_[r].count_before(num_before(index.row(trace, r), r, order));
  }
  return count;
}

}  // namespace moonshard::viewer
