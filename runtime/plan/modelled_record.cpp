#include "runtime/plan/modelled_record.h"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/analysis/rows.h"
#include "runtime/base/files.h"
#include "runtime/plan/modelled_trace.h"
#include "runtime/plan/verified_savings.h"
#include "runtime/profile/trace.h"
#include "runtime/records/writer.h"

namespace moonshard::plan {
namespace {

constexpr int kMostTraces = 8;

class RecordOfPlan {
 public:
  RecordOfPlan(const experiment::ExperimentOptions& options, const Cluster& cluster)
      : options_(options),
        cluster_(cluster),
        model_(options, options.seq_length, cluster.machine) {}

  records::Result make(int64_t steps, const std::filesystem::path& folder) {
    const Prediction first = step(0, folder);
    begin(first);
    if (!first.fits) {
      refuse(first);
      return record_;
    }
    add_step(first);
    for (int64_t i = 1; i < steps; ++i) add_step(cluster_.stragglers.any() ? step(i, {}) : first);
    add_times();
    add_communication(first);
    add_layers(first);
    return record_;
  }

 private:
  Prediction step(int64_t number, const std::filesystem::path& folder) const {
    Cluster cluster = cluster_;
    cluster.stragglers.seed = cluster_.stragglers.seed * 1'000'003 + static_cast<uint64_t>(number);
    if (folder.empty()) return predict(model_, options_, cluster);
    std::vector<TraceSpan> spans;
    Prediction prediction = predict(model_, options_, cluster, &spans);
    const auto ranks = std::min<int>(kMostTraces, static_cast<int>(prediction.time.ranks.size()));
    for (int rank = 0; rank < ranks; ++rank) {
      const std::filesystem::path raw = folder / "trace.raw";
      write_file_atomically(raw, one_line(chrome_trace(spans, rank)));
      profile::add_about_trace(raw, folder / profile::trace_file_name(rank),
                               {.rank = rank,
                                .world = cluster_.ranks(),
                                .transport = "modelled",
                                .what = options_.model + " " + options_.mode + " (modelled)"});
      std::filesystem::remove(raw);
    }
    return prediction;
  }

  // "nvlink", "nvlink at 50 GB/s, 12 us".
  static std::string link_text(const std::string& name, const LinkRate& given) {
    std::string text = name;
    if (given.bytes_per_s > 0) text += fmt::format(" at {:g} GB/s", given.bytes_per_s / 1e9);
    if (given.latency_s >= 0) text += fmt::format(", {:g} us", given.latency_s * 1e6);
    return text;
  }

  void begin(const Prediction& plan) {
    record_.schema_version = kSchemaVersion;
    record_.status = "ok";
    record_.created = records::timestamp_utc();
    record_.options = experiment::experiment_schema().to_json(&options_);
    record_.options["world"] = modelled_world(cluster_);
    record_.options["link"] = cluster_.link;
    record_.modelled = fmt::format(
        "every figure: nothing ran; simulated on {} x {} {} ({}), link = {}, node_link = {}",
        cluster_.nodes, cluster_.gpus, cluster_.machine.device, cluster_.machine.source,
        link_text(cluster_.link, cluster_.given_link),
        link_text(cluster_.node_link, cluster_.given_node_link));
    records::Metrics& metrics = record_.metrics;
    metrics.peak_memory_bytes = std::round(plan.memory.peak);
    metrics.peak_memory_mb = plan.memory.peak / 1048576.0;
    metrics.peak_memory_gb = plan.memory.peak / kGiB;
    metrics.num_parameters = static_cast<double>(model_.num_parameters);
    metrics.parameter_bytes = static_cast<double>(model_.num_parameters * model_.value_bytes);
    metrics.optimizer_bytes =
        std::round(plan.memory.at_peak[static_cast<size_t>(Holder::OptimizerState)]);
    metrics.flops_per_step =
        static_cast<double>(options_.batch_size * options_.grad_accum * model_.tokens) *
        model_.flops_per_token;
    record_.memory.peak_bytes = metrics.peak_memory_bytes;
    record_.memory.peak_phase = plan.memory.phase;
    for (size_t i = 0; i < kHolders; ++i)
      if (plan.memory.at_peak[i] > 0)
        record_.memory.breakdown.push_back(
            {holder_name(static_cast<Holder>(i)), std::round(plan.memory.at_peak[i])});
    record_.privacy.why_no_epsilon = "modelled: nothing was trained";
    if (options_.parallel == "none") return;
    record_.sharding.rank = 0;
    record_.sharding.world = cluster_.ranks();
    record_.sharding.fake = true;
    record_.sharding.transport = "modelled";
  }

  void refuse(const Prediction& plan) {
    record_.status = "oom";
    record_.phase = "plan";
    record_.error = "modelled: " + summary(plan, cluster_.memory_limit());
    record_.bytes_asked = plan.memory.peak;
    record_.bytes_free = cluster_.memory_limit();
    record_.savings = verified_savings(options_, plan, cluster_);
  }

  void add_step(const Prediction& plan) {
    records::StepRow row;
    row.step = static_cast<double>(record_.steps.size() + 1);
    row.time_ms = plan.time.step_ms;
    for (const auto& [name, ms] : plan.time.phases_ms) {
      row.phases_ms.push_back({name, ms});
      samples_of(name).push_back(ms);
    }
    record_.steps.push_back(std::move(row));
    record_.time.samples_ms.push_back(plan.time.step_ms);
  }

  std::vector<double>& samples_of(const std::string& phase) {
    for (auto& [known, samples] : phases_)
      if (known == phase) return samples;
    phases_.emplace_back(phase, std::vector<double>());
    return phases_.back().second;
  }

  void add_times() {
    const records::Statistics time = analysis::summarize(record_.time.samples_ms);
    record_.time.step_ms = time;
    for (const auto& [name, samples] : phases_) {
      record_.time.phases_ms.push_back({name, analysis::summarize(samples)});
      record_.time.phase_order.push_back(name);
    }
    records::Metrics& metrics = record_.metrics;
    metrics.avg_time_ms = time.mean;
    metrics.median_time_ms = time.median;
    metrics.min_time_ms = time.min;
    metrics.p95_time_ms = time.p95;
    metrics.iqr_time_ms = time.iqr;
    const double samples =
        static_cast<double>(options_.batch_size * options_.grad_accum) * cluster_.ranks();
    metrics.samples_per_s = samples / (time.mean / 1e3);
    metrics.tokens_per_s = metrics.samples_per_s * static_cast<double>(model_.tokens);
  }

  void add_communication(const Prediction& plan) {
    if (options_.parallel == "none") return;
    const auto overlap = [](double work, double exposed) {
      return work > 0 ? 100 * std::max(0.0, 1 - exposed / work) : NAN;
    };
    records::Metrics& metrics = record_.metrics;
    metrics.comm_bytes = 0;
    for (const CollectiveTime& kind : plan.time.collectives) {
      record_.comm.push_back({kind.operation, kind.count, std::round(kind.bytes), kind.work_ms,
                              kind.exposed_ms, overlap(kind.work_ms, kind.exposed_ms), true});
      record_.sharding.traffic.push_back({kind.operation, kind.count, std::round(kind.bytes)});
      metrics.comm_bytes += std::round(kind.bytes);
    }
    metrics.comm_work_ms = plan.time.communication_ms;
    metrics.comm_exposed_ms = plan.time.exposed_ms;
    metrics.comm_overlap_percent = overlap(plan.time.communication_ms, plan.time.exposed_ms);
    metrics.comm_share_percent = 100 * plan.time.exposed_ms / plan.time.step_ms;
    for (size_t r = 0; r < plan.time.ranks.size(); ++r) {
      const RankTime& rank = plan.time.ranks[r];
      record_.ranks.push_back({static_cast<double>(r), metrics.peak_memory_bytes, rank.step_ms,
                               rank.communication_ms, rank.exposed_ms,
                               overlap(rank.communication_ms, rank.exposed_ms)});
    }
  }

  void add_layers(const Prediction& plan) {
    if (options_.mode == "none" || options_.profile != "layers") return;
    const EngineWays& ways = plan.ways;
    add_stretch(model_.before, ways.before, -1);
    for (int64_t block = model_.num_blocks - model_.blocks_in_backward(); block < model_.num_blocks;
         ++block)
      add_stretch(model_.block, ways.block, block);
    add_stretch(model_.last_block, ways.last_block, -1);
    add_stretch(model_.behind, ways.behind, -1);
  }

  void add_stretch(const std::vector<PlannedLayer>& layers, const std::vector<LayerWay>& ways,
                   int64_t block) {
    for (size_t i = 0; i < layers.size(); ++i) {
      if (!layers[i].trained) continue;
      records::LayerTime row;
      row.layer = layers[i].name;
      // A plan has the layers of one block.
      const std::string own = fmt::format(".{}.", model_.shown_block);
      if (const size_t at = row.layer.find(own); block >= 0 && at != std::string::npos)
        row.layer.replace(at, own.size(), fmt::format(".{}.", block));
      row.kind = layers[i].kind;
      row.norm_ms = ways[i].norm_s * 1e3;
      row.parameters = static_cast<double>(layers[i].weight + layers[i].bias);
      row.in_features = static_cast<double>(layers[i].in);
      row.out_features = static_cast<double>(layers[i].out);
      row.tokens =
          static_cast<double>(options_.batch_size * (layers[i].one_position ? 1 : model_.tokens));
      record_.layers.push_back(std::move(row));
    }
  }

  const experiment::ExperimentOptions& options_;
  const Cluster& cluster_;
  PlannedModel model_;
  records::Result record_;
  std::vector<std::pair<std::string, std::vector<double>>> phases_;
};

}  // namespace

std::string modelled_world(const Cluster& cluster) {
  const std::string adapters =
      cluster.nodes > 1 && cluster.nics > 0 ? fmt::format(" x {:g}", cluster.nics) : "";
  return fmt::format("modelled:{} = {} x {} {}{}{}", cluster.ranks(), cluster.nodes, cluster.gpus,
                     cluster.machine.name, cluster.nodes > 1 ? ", " + cluster.node_link : "",
                     adapters);
}

records::Result modelled_record(const experiment::ExperimentOptions& resolved,
                                const Cluster& cluster, int64_t steps,
                                const std::filesystem::path& folder) {
  return RecordOfPlan(resolved, cluster).make(std::max<int64_t>(1, steps), folder);
}

}  // namespace moonshard::plan
