// The record of the selected point, for panels about one point.
#pragma once

#include "viewer/panels/panel.h"
#include "viewer/store.h"

namespace moonshard::viewer {

struct SelectedDetail {
  std::string folder, id;
  Loaded<PointDetail> detail;
};

/// Nothing when no point is selected; the panel then says so.
std::optional<SelectedDetail> selected_detail(const PanelContext& context);

}  // namespace moonshard::viewer
