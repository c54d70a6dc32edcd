// Menus of the run table: the choice of columns, and what can be done with one row.
#pragma once

#include "viewer/panels/run_table.h"

namespace moonshard::viewer {

/// The popup "##columns": every column with a box, a search, groups.
void draw_column_menu(RunTablePanel& panel, const PanelContext& context);

/// The menu of the row that was just drawn as an item, by a right click.
void draw_row_menu(const PanelContext& context, PointRef ref);

/// The tooltip of that row: why it failed, and what it is compared with.
void draw_row_tooltip(const PanelContext& context, PointRef ref);

}  // namespace moonshard::viewer
