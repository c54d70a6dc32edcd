// What the user has picked. Held by name, so that it survives a reload; panels read and write it.
#pragma once

#include <cstddef>
#include <string>

#include "viewer/document.h"

namespace moonshard::viewer {

struct Selection {
  size_t run = 0;        ///< index into the snapshot's runs
  std::string point_id;  ///< empty: the run itself
  std::string plot;      ///< file name of the shown plot spec; empty: the run's first
};

/// The selected run, or nothing when no folder is open.
inline const LoadedRun* selected_run(const Snapshot& snapshot, const Selection& selection) {
  return selection.run < snapshot.runs.size() ? &snapshot.runs[selection.run] : nullptr;
}

/// The selected point, or nothing when none is picked or it is gone.
inline const records::PointRecord* selected_point(const Snapshot& snapshot,
                                                  const Selection& selection) {
  const LoadedRun* run = selected_run(snapshot, selection);
  if (!run || selection.point_id.empty()) return nullptr;
  for (const records::PointRecord& point : run->run.points) {
    if (point.id == selection.point_id) return &point;
  }
  return nullptr;
}

}  // namespace moonshard::viewer
