// The numbers of a plot as a table: one row per point, for CSV files and the clipboard.
#pragma once

#include <string>

#include "runtime/records/csv.h"
#include "runtime/records/plot_spec.h"

namespace moonshard::viewer {

/// Columns: panel, series, x, y, low, high, status and label, as far as the plot has them; the
/// axes' labels with their units name x and y.
records::CsvTable plot_table(const records::PlotSpec& spec);

std::string plot_csv(const records::PlotSpec& spec);
std::string plot_markdown(const records::PlotSpec& spec);

}  // namespace moonshard::viewer
