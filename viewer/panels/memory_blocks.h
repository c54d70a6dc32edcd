// The allocations of a memory snapshot as blocks over its events, coloured by owner: what the
// memory snapshot panel draws. Zoom and pan as in every plot; a click keeps a block's stack in
// sight.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "viewer/panels/panel.h"
#include "viewer/render/plot_parts.h"
#include "viewer/tracing/snapshot_blocks.h"

namespace moonshard::viewer {

/// Owners in the order of the bytes that they hold at their highest, each with its colour; beyond
/// the palette they share that of "others".
struct BlockOwners {
  std::vector<std::string> names;  ///< largest first, then "others" where there are more
  std::vector<size_t> of_site;     ///< place in names, for each site
};
BlockOwners block_owners(const MemorySnapshot& snapshot);

/// Memory by owner over the events: for export, and as the figure's data.
records::PlotSpec blocks_spec(const MemorySnapshot& snapshot, const std::string& file);

class MemoryBlocks {
 public:
  void show(std::shared_ptr<const MemorySnapshot> snapshot);
  /// Draws into the rest of the line, as high as said.
  void draw(float height, const UiStyle& style);
  bool empty() const { return layout_.shown.empty(); }

 private:
  void draw_plot_area(const UiStyle& style);
  void draw_blocks(const UiStyle& style) const;
  void draw_block(size_t index, ImU32 color, const UiStyle& style, bool framed) const;
  void draw_total(const UiStyle& style) const;
  std::string block_text(size_t index) const;
  size_t color_of(size_t index) const;
  bool is_hidden(size_t index) const;

  std::shared_ptr<const MemorySnapshot> snapshot_;
  BlockLayout layout_;
  BlockOwners owners_;
  Legend legend_;
  HiddenNames hidden_;
  std::optional<size_t> picked_;
  double factor_ = 1;  // bytes to the axis's unit
  std::string unit_;
  bool fit_ = true;
};

}  // namespace moonshard::viewer
