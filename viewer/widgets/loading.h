// What a panel shows while something is being read, or when it could not be.
#pragma once

#include <string>
#include <vector>

#include "viewer/context.h"
#include "viewer/store.h"

namespace moonshard::viewer {

/// True when there is a value to show. Else fills the panel: a progress bar with a button that
/// cancels, or the reason with a button that tries again. A value that is out of date, because the
/// file can no longer be read, is shown with the reason above it.
template <class T>
bool show_loading(const Loaded<T>& loaded, Store& store, ReadRequest::Kind kind,
                  const std::string& folder, const std::vector<std::string>& names,
                  const UiStyle& style);

/// Fills a panel about one point when none is selected.
void show_no_point(bool any_folder, const UiStyle& style);

/// The part of it that does not depend on the type.
bool show_loading_state(bool has_value, bool loading, double progress, const std::string& error,
                        Store& store, const ReadRequest& request, const UiStyle& style);

template <class T>
bool show_loading(const Loaded<T>& loaded, Store& store, ReadRequest::Kind kind,
                  const std::string& folder, const std::vector<std::string>& names,
                  const UiStyle& style) {
  return show_loading_state(loaded.value != nullptr, loaded.loading, loaded.progress, loaded.error,
                            store, {kind, folder, names}, style);
}

}  // namespace moonshard::viewer
