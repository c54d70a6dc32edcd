#include "runtime/plan/plan_request.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/experiment/experiment.h"
#include "runtime/plan/modelled_record.h"
#include "runtime/plan/modelled_trace.h"
#include "runtime/plan/search.h"
#include "runtime/plan/search_axes.h"
#include "runtime/plan/verified_savings.h"
#include "runtime/records/schema_json.h"

namespace moonshard::plan {
namespace {

// Options that make a plan what it is, with `more`: those that were given or tried.
Json chosen_options(const experiment::ExperimentOptions& options,
                    const std::vector<std::string>& more) {
  const Json all = experiment::experiment_schema().to_json(&options);
  Json chosen = Json::object();
  for (const char* name : {"model",
                           "task",
                           "mode",
                           "batch_size",
                           "grad_accum",
                           "seq_length",
                           "dtype",
                           "param_dtype",
                           "optimizer",
                           "parallel",
                           "sharding",
                           "replicate",
                           "wrap",
                           "min_num_params",
                           "backward_prefetch",
                           "forward_prefetch",
                           "limit_all_gathers",
                           "cpu_offload",
                           "keep_frozen",
                           "reshard_root",
                           "unit_policies",
                           "no_sync",
                           "checkpointing",
                           "checkpoint_every",
                           "lora_rank"})
    chosen[name] = all.at(name);
  for (const std::string& name : more) chosen[name] = all.at(name);
  return chosen;
}

Json plan_row(const Candidate& candidate, const std::vector<std::string>& tried) {
  Json row = to_json(candidate.prediction);
  row["options"] = chosen_options(candidate.options, tried);
  row["as_fast"] = Json::array();
  for (const experiment::ExperimentOptions& other : candidate.alike) {
    std::string changed;
    const Json options = chosen_options(other, tried);  // lives as long as it is walked
    for (const auto& [name, value] : options.items())
      if (row["options"][name] != value && sharding::has_effect(other.parallel, name))
        changed += fmt::format("{}{} = {}", changed.empty() ? "" : ", ", name,
                               value.is_string() ? value.get<std::string>() : one_line(value));
    if (!changed.empty()) row["as_fast"].push_back(changed);
  }
  return row;
}

// Options of one wrapper alone may be given without it: a search leaves out the others.
experiment::ExperimentOptions resolve_any(Json options, const Cluster& cluster) {
  if (options.contains("parallel") || cluster.ranks() == 1) return resolve_for(options, cluster);
  options["parallel"] = "fsdp";
  try {
    return resolve_for(options, cluster);
  } catch (const UsageError&) {
    options["parallel"] = "ddp";
    return resolve_for(options, cluster);
  }
}

void predict_again(const Cluster& cluster, const SearchSpace& space, SearchResult& found) {
  for (auto* list : {&found.fitting, &found.too_large, &found.front}) {
    for (Candidate& candidate : *list) {
      const PlannedModel model(candidate.options, candidate.options.seq_length, cluster.machine);
      candidate.prediction = predict(model, candidate.options, cluster);
    }
    sort_by_speed(*list, space.by_tokens);
  }
  // What was slower than others may now be on the front, and the other way round.
  const std::vector<Candidate>& plans = found.fits > 0 ? found.fitting : found.too_large;
  found.front.insert(found.front.end(), plans.begin(), plans.end());
  keep_front(found.front, space.by_tokens);
}

}  // namespace

experiment::ExperimentOptions resolve_for(const Json& options, const Cluster& cluster) {
  experiment::ExperimentOptions asked;
  experiment::experiment_schema().assign_all(&asked, options);
  asked.device = "cpu";  // shapes are the same everywhere, and no GPU need be here
  asked.world = "auto";
  asked.link =
      experiment::ExperimentOptions().link;  // the cluster's, which it means in a fake world
  experiment::ExperimentOptions resolved = experiment::resolve_experiment(asked);
  resolved.device = cluster.machine.is_gpu ? "cuda" : "cpu";
  return resolved;
}

Cluster cluster_from_json(const Json& object) {
  MS_CHECK(object.is_object() && object.contains("machine"),
           "plan: expected a cluster with a machine, got {}", one_line(object));
  Cluster cluster;
  const Json& machine = object["machine"];
  if (machine.is_string()) {
    const std::string file = machine.get<std::string>();
    cluster.machine = profile_from_json(read_json_file(file), file);
  } else {
    cluster.machine = profile_from_json(machine, "plan: machine");
  }
  cluster.gpus = static_cast<int64_t>(number_or(object, "gpus", 1));
  cluster.nodes = static_cast<int64_t>(number_or(object, "nodes", 1));
  cluster.link = string_or(object, "link", cluster.machine.link);
  if (object.contains("link")) cluster.machine.collectives.clear();  // who names one means that one
  cluster.node_link = string_or(object, "node_link", cluster.node_link);
  cluster.nics = number_or(object, "nics", 0);
  const auto read_link = [&](const std::string& prefix, LinkRate& given) {
    given.bytes_per_s = 1e9 * number_or(object, (prefix + "_gb_per_s").c_str(), 0);
    const double latency = number_or(object, (prefix + "_latency_us").c_str(), -1);
    if (latency >= 0) given.latency_s = 1e-6 * latency;
  };
  read_link("link", cluster.given_link);
  read_link("node_link", cluster.given_node_link);
  if (cluster.given_link.bytes_per_s > 0 || cluster.given_link.latency_s >= 0)
    cluster.machine.collectives.clear();
  cluster.memory_bytes = number_or(object, "memory_bytes", 0);
  // What the training takes its budgets from, too.
  if (cluster.machine.is_gpu) cluster.machine.memory_bytes = cluster.memory_limit();
  cluster.host_bytes = number_or(object, "host_bytes", 0);
  // Updates and copies of a node's ranks share its host's memory.
  const double of_node = 1e9 * number_or(object, "host_gb_per_s", 0);
  cluster.shares_host = of_node > 0;
  if (cluster.shares_host)
    for (double MachineProfile::*rate :
         {&MachineProfile::host_update_per_s, &MachineProfile::to_host_per_s,
          &MachineProfile::to_device_per_s})
      cluster.machine.*rate =
          std::min(cluster.machine.*rate, of_node / static_cast<double>(cluster.gpus));
  cluster.machine.fixed_segments = object.value("fixed_segments", cluster.machine.fixed_segments);
  Stragglers& uneven = cluster.stragglers;
  uneven.slow_ranks = static_cast<int64_t>(number_or(object, "slow_ranks", 0));
  uneven.slow_by = number_or(object, "slow_by", uneven.slow_by);
  uneven.jitter = number_or(object, "jitter", 0);
  uneven.seed = static_cast<uint64_t>(std::max(0.0, number_or(object, "seed", 0)));
  if (object.contains("slowness")) cluster.slowness = object["slowness"].get<std::vector<double>>();
  return cluster;
}

Json predict_table(const Json& options, const Json& cluster_table) {
  const Cluster cluster = cluster_from_json(cluster_table);
  const experiment::ExperimentOptions resolved = resolve_any(options, cluster);
  const PlannedModel model(resolved, resolved.seq_length, cluster.machine);
  const Prediction prediction = predict(model, resolved, cluster);
  Json table = to_json(prediction);
  table["savings"] = Json::array();
  for (const records::Saving& saving : verified_savings(resolved, prediction, cluster))
    table["savings"].push_back(
        {{"change", saving.change}, {"bytes", saving.bytes}, {"reason", saving.reason}});
  if (!prediction.fits) table["why"] = why_not(resolved, prediction, cluster);
  const OptionSchema& schema = experiment::experiment_schema();
  std::vector<std::string> given;  // all known, as they were resolved
  for (const auto& [name, value] : options.items()) given.push_back(schema.find(name)->name);
  table["options"] = chosen_options(resolved, given);
  table["num_parameters"] = model.num_parameters;
  table["num_trained"] = model.num_trained;
  table["flops_per_token"] = model.flops_per_token;
  return table;
}

Json search_table(const Json& options, const Json& cluster_table, const Json& space_table) {
  const Cluster cluster = cluster_from_json(cluster_table);
  SearchSpace space;
  Json base = options;
  const bool is_private = space_table.value("private", false);
  if (is_private && !base.contains("mode")) base["mode"] = "auto";
  space.base = resolve_any(base, cluster);
  space.global_batch = static_cast<int64_t>(number_or(space_table, "global_batch", 0));
  space.by_tokens = space_table.value("by_tokens", false);
  if (space_table.contains("axes")) {
    for (const Json& axis : space_table["axes"])
      space.axes.emplace_back(axis.at("name").get<std::string>(),
                              axis.at("values").get<std::vector<Json>>());
  }
  Json asked = options;
  std::vector<std::string> tried;
  for (const auto& [name, values] : space.axes) {
    asked[name] = true;  // tried anyway
    tried.push_back(name);
    if (models::model_schema().find(name) != nullptr) space.resolved_axes.push_back(name);
  }
  space.resolve = [&](const Json& values) {
    Json with = base;
    with.update(values);
    return resolve_any(with, cluster);
  };
  space.keeps_batch = asked.contains("batch_size");
  space.keeps_accum = asked.contains("grad_accum");
  for (auto& axis : default_axes(space.base, cluster, asked, space.global_batch))
    space.axes.push_back(std::move(axis));
  const auto keep = static_cast<size_t>(number_or(space_table, "keep", 10));
  // Thousands of configurations are compared as if all ranks were alike; those that are shown are
  // simulated rank by rank.
  Cluster alike = cluster;
  alike.stragglers = {};
  SearchResult found = search(space, alike, keep);
  if (cluster.stragglers.any()) predict_again(cluster, space, found);
  Json result{{"tried", found.tried},   {"fits", found.fits},         {"refused", found.refused},
              {"plans", Json::array()}, {"too_large", Json::array()}, {"front", Json::array()}};
  for (const Candidate& candidate : found.fitting)
    result["plans"].push_back(plan_row(candidate, tried));
  for (const Candidate& candidate : found.too_large) {
    Json row = plan_row(candidate, tried);
    row["why"] = why_not(candidate.options, candidate.prediction, cluster);
    result["too_large"].push_back(std::move(row));
  }
  for (const Candidate& candidate : found.front)
    result["front"].push_back(plan_row(candidate, tried));
  return result;
}

void write_trace(const Json& options, const Json& cluster_table, const std::string& file) {
  const Cluster cluster = cluster_from_json(cluster_table);
  const experiment::ExperimentOptions resolved = resolve_for(options, cluster);
  const PlannedModel model(resolved, resolved.seq_length, cluster.machine);
  std::vector<TraceSpan> spans;
  predict(model, resolved, cluster, &spans);
  write_file_atomically(file, one_line(chrome_trace(spans)));
}

Json record_table(const Json& options, const Json& cluster_table, int64_t steps,
                  const std::string& folder) {
  const Cluster cluster = cluster_from_json(cluster_table);
  return records::json_of(modelled_record(resolve_for(options, cluster), cluster, steps, folder));
}

}  // namespace moonshard::plan
