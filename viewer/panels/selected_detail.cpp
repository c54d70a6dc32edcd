#include "viewer/panels/selected_detail.h"

#include "viewer/widgets/loading.h"

namespace moonshard::viewer {

std::optional<SelectedDetail> selected_detail(const PanelContext& context) {
  const std::optional<PointRef> ref = context.workspace.selected_point();
  if (!ref) {
    show_no_point(!context.snapshot.runs.empty(), context.style);
    return std::nullopt;
  }
  const std::string& folder = context.workspace.run(*ref).path;
  const std::string& id = context.workspace.head(*ref).id;
  return SelectedDetail{folder, id, context.store.detail(folder, id)};
}

}  // namespace moonshard::viewer
