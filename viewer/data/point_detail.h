// Everything of one point that only its own panels need: its whole record and the files beside it.
// Read when the point is selected, from an untrusted result.json.
#pragma once

#include <string>
#include <vector>

#include "runtime/records/schema.h"
#include "viewer/data/run_data.h"

namespace moonshard::viewer {

using records::Collective;
using records::LayerTime;
using records::MemoryStage;
using records::MemoryTimeline;
using records::OwnedBytes;
using records::PrivacyPart;
using records::PrivacyPhase;
using records::RankRow;
using records::Statistics;
using records::StepRow;
using PhaseTime = records::Named<Statistics>;

/// Of the record's free objects, options are the run table's and data is a list of lines here.
struct PointDetail : records::Result {
  std::vector<TextPair> data_lines;
  std::vector<std::string> traces;     ///< file names in the point's folder: *.json, *.json.gz
  std::vector<std::string> snapshots;  ///< *.pickle
  std::vector<std::string> logs;       ///< log.*.txt
  std::vector<std::string> tables;     ///< *.csv
};

}  // namespace moonshard::viewer
