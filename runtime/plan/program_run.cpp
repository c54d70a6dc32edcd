#include "runtime/plan/program_run.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/base/check.h"

namespace moonshard::plan {
namespace {

constexpr double kMsOfSecond = 1e3, kUnknown = -1;
constexpr double kQueued = 1024;  // kernels, before a launch waits for the device

const char* lane_name(Lane lane) {
  switch (lane) {
    case Lane::Compute:
      return "compute";
    case Lane::Communication:
      return "communication";
    case Lane::Copies:
      return "communication between copies";
    case Lane::ToDevice:
      return "copies to device";
    case Lane::ToHost:
      return "copies to host";
    default:
      return "host";
  }
}

uint64_t mixed(uint64_t x) {  // SplitMix64's finaliser
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

double unit_number(uint64_t x) {  // in (0, 1)
  return (static_cast<double>(x >> 11) + 0.5) * 0x1p-53;
}

}  // namespace

double standard_normal(uint64_t seed, uint64_t first, uint64_t second) {
  const uint64_t key = mixed(mixed(mixed(seed) ^ first) ^ second);
  return std::sqrt(-2 * std::log(unit_number(key))) *
         std::cos(2 * std::numbers::pi * unit_number(mixed(key)));
}

ProgramRun::ProgramRun(const StepProgram& program, const TimeSituation& situation, int64_t holders,
                       double launch_s, std::vector<TraceSpan>* trace)
    : program_(program),
      launch_s_(launch_s),
      first_steps_(situation.first_steps),
      at_once_(situation.collectives_at_once),
      jitter_(situation.jitter),
      seed_(situation.seed),
      trace_(trace),
      ranks_(std::max<size_t>(1, situation.slowness.size())),
      links_(situation.topology, situation.slowness.empty()),
      transfer_of_slot_(program.num_slots(), kNone),
      slots_(program.num_slots() * ranks_.size(), kUnknown) {
  for (size_t r = 0; r < situation.slowness.size(); ++r)
    ranks_[r].slowness = 1 + situation.slowness[r];
  make_groups(situation, std::max<int64_t>(1, holders));
  if (situation.slowness.empty()) transfers_.reserve(program.num_slots());
  launched_.reserve(program.operations().size());
}

void ProgramRun::make_groups(const TimeSituation& situation, int64_t holders) {
  const int64_t all = situation.topology.ranks(), copies = std::max<int64_t>(1, all / holders);
  const bool folded = situation.slowness.empty();
  const auto add = [&](GroupKind kind, const RankGroup& group, int64_t groups) {
    auto& list = groups_[static_cast<size_t>(kind)];
    auto& of_rank = group_of_[static_cast<size_t>(kind)];
    of_rank.resize(ranks_.size());
    Members members;
    members.route = links_.route_of(group, groups);
    for (int64_t i = 0; i < (folded ? 1 : group.size); ++i) {
      const auto rank = static_cast<size_t>(group.first + i * group.stride);
      members.ranks.push_back(rank);
      of_rank[rank] = list.size();
    }
    list.push_back(std::move(members));
  };
  add(GroupKind::All, {0, 1, all}, 1);
  for (int64_t i = 0; i < (folded ? 1 : copies); ++i)
    add(GroupKind::Shards, {i * holders, 1, holders}, copies);
  for (int64_t i = 0; i < (folded ? 1 : holders); ++i)
    add(GroupKind::Replicas, {i, holders, copies}, holders);
}

TimePlan ProgramRun::run() {
  for (size_t r = 0; r < ranks_.size(); ++r) go_on(r);
  while (const std::optional<size_t> ended = links_.next_end()) end(transfer_of_number_[*ended]);
  double latest = 0;
  for (Rank& rank : ranks_) {
    MS_ASSERT(rank.next == program_.operations().size(),
              "plan: a simulated rank waits for a transfer that never ends");
    const double own = std::max(rank.lane(Lane::Compute), rank.lane(Lane::Host));
    latest = std::max(latest, own);
    double communication = 0;
    for (const auto& [begin, end] : rank.transferring) communication += end - begin;
    plan_.ranks.push_back(
        {own * kMsOfSecond, communication * kMsOfSecond, rank.exposed_s * kMsOfSecond});
  }
  for (size_t r = 0; r < ranks_.size(); ++r) begin_phase(r, "");
  plan_.step_ms = latest * kMsOfSecond;
  plan_.communication_ms = plan_.ranks[0].communication_ms;
  plan_.exposed_ms = plan_.ranks[0].exposed_ms;
  return std::move(plan_);
}

void ProgramRun::go_on(size_t rank) {
  const auto& operations = program_.operations();
  size_t& next = ranks_[rank].next;
  while (next < operations.size() && carry_out(rank, operations[next])) ++next;
}

bool ProgramRun::carry_out(size_t r, const StepOperation& operation) {
  Rank& rank = ranks_[r];
  double& compute = rank.lane(Lane::Compute);
  double& host = rank.lane(Lane::Host);
  switch (operation.kind) {
    case StepOperation::Kind::Phase:
      if (r == 0) note_mark();
      begin_phase(r, operation.name);
      return true;
    case StepOperation::Kind::Compute: {
      const double launching = operation.launches * launch_s_;
      if (r == 0 && operation.phase != nullptr) note_mark();
      const double before = compute, begin = std::max(compute, host);
      host += launching;
      // The device runs behind the host: it ends no sooner than the last launch.
      compute = std::max(begin + jittered(r, operation), host);
      span(r, "compute", operation.name, begin, compute);
      if (r != 0) return true;
      plan_.host_ms += launching * kMsOfSecond;
      launched_.push_back(
          {(launched_.empty() ? 0 : launched_.back().layers) + operation.launches, compute});
      plan_.compute_ms += operation.seconds * kMsOfSecond;
      if (operation.phase != nullptr) {
        add_to_phase(operation.phase, compute - before);
        add_to_phase(rank.phase, before - compute);
        note_mark();
      }
      return true;
    }
    case StepOperation::Kind::Launched:
      if (r == 0) note_launched();
      return true;
    case StepOperation::Kind::Collective:
      join_collective(r, operation);
      return true;
    case StepOperation::Kind::Wait:
    case StepOperation::Kind::HostWait: {
      const double moment = slot_of(operation.slot, r);
      rank.blocked = moment < 0 ? operation.slot : kNoSlot;
      if (moment < 0) return false;
      double& waits = operation.kind == StepOperation::Kind::Wait ? compute : host;
      note_wait(r, operation, waits, moment);
      waits = std::max(waits, moment);
      return true;
    }
    case StepOperation::Kind::Copy: {
      double& lane = rank.lane(operation.lane);
      const double issued = operation.lane == Lane::ToDevice ? host : 0;
      const double begin = std::max({lane, compute, issued});
      slot_of(operation.slot, r) = lane = begin + operation.seconds;
      span(r, lane_name(operation.lane), operation.name, begin, lane);
      return true;
    }
    case StepOperation::Kind::HostWork: {
      double& worker = rank.lane(Lane::Worker);
      const double begin = std::max(worker, slot_of(operation.after, r));
      slot_of(operation.slot, r) = worker = begin + operation.seconds;
      span(r, lane_name(Lane::Worker), operation.name, begin, worker);
      return true;
    }
    case StepOperation::Kind::Join:
      compute = std::max({compute, rank.lane(Lane::Worker), host});
      return true;
  }
  return true;
}

// A collective that a copy from the host goes before is waited for from then on.
void ProgramRun::note_wait(size_t r, const StepOperation& wait, double from, double moment) {
  const size_t first = transfer_of_slot_[wait.slot];
  const bool is_copy = first == kNone && wait.kind == StepOperation::Kind::Wait;
  double copied = is_copy ? moment : from;
  if (first != kNone && transfers_[first].operation->after != kNoSlot)
    copied =
        std::clamp(slot_of(transfers_[first].operation->after, r), from, std::max(from, moment));
  if (r == 0) plan_.copies_exposed_ms += std::max(0.0, copied - from) * kMsOfSecond;
  if (first == kNone) return;
  const double exposed = std::max(0.0, moment - copied);
  ranks_[r].exposed_s += exposed;
  if (r == 0) times_of(*transfers_[first].operation).exposed_ms += exposed * kMsOfSecond;
}

// Groups of one collective have their transfers side by side: the first rank that comes makes them.
void ProgramRun::join_collective(size_t r, const StepOperation& operation) {
  const auto kind = static_cast<size_t>(operation.group);
  size_t& first = transfer_of_slot_[operation.slot];
  if (first == kNone) {
    first = transfers_.size();
    for (Members& group : groups_[kind]) {
      const size_t own = transfers_.size();
      transfers_.push_back({&group, &operation, group.ranks.size()});
      Members::Queue& queue = group.queues[static_cast<size_t>(operation.lane)];
      if (queue.begun < at_once_) {
        ++queue.begun;
        continue;
      }
      transfers_[own].waits = true;
      (queue.first == kNone ? queue.first : transfers_[queue.last].behind) = own;
      queue.last = own;
    }
  }
  const size_t own = first + group_of_[kind][r];
  Rank& rank = ranks_[r];
  double ready = std::max(rank.lane(Lane::Compute), rank.lane(Lane::Host));
  if (operation.after != kNoSlot) ready = std::max(ready, slot_of(operation.after, r));
  rank.lane(Lane::Compute) += operation.seconds;
  Transfer& transfer = transfers_[own];
  transfer.begin = std::max(transfer.begin, ready);
  if (--transfer.missing == 0 && !transfer.waits) start(own);
}

void ProgramRun::start(size_t number) {
  const Transfer& transfer = transfers_[number];
  const size_t as_numbered =
      links_.start(transfer.begin, transfer.group->route, transfer.operation->sent);
  transfer_of_number_.resize(std::max(transfer_of_number_.size(), as_numbered + 1));
  transfer_of_number_[as_numbered] = number;
}

void ProgramRun::end(size_t number) {
  const double moment = links_.now();
  const StepOperation& operation = *transfers_[number].operation;
  const std::vector<size_t>& members = transfers_[number].group->ranks;
  for (const size_t r : members) {
    const double own = note_transfer(ranks_[r], transfers_[number].begin, moment);
    if (r == 0) {
      CollectiveTime& times = times_of(operation);
      ++times.count;
      times.bytes += operation.bytes;
      times.work_ms += own * kMsOfSecond;
    }
    slot_of(operation.slot, r) = moment;
    span(r, lane_name(operation.lane), operation.name, transfers_[number].begin, moment);
  }
  Members::Queue& queue = transfers_[number].group->queues[static_cast<size_t>(operation.lane)];
  if (const size_t next = queue.first; next == kNone) {
    --queue.begun;
  } else {
    queue.first = transfers_[next].behind;
    transfers_[next].waits = false;
    transfers_[next].begin = std::max(transfers_[next].begin, moment);
    if (transfers_[next].missing == 0) start(next);
  }
  for (const size_t r : members)
    if (ranks_[r].blocked == operation.slot) go_on(r);
}

// Transfers end in order; one that began early may cover several that ended before it.
double ProgramRun::note_transfer(Rank& rank, double begin, double end) {
  double known = 0;
  for (auto& done = rank.transferring; !done.empty() && done.back().second >= begin;
       done.pop_back()) {
    begin = std::min(begin, done.back().first);
    known += done.back().second - done.back().first;
  }
  rank.transferring.emplace_back(begin, end);
  return end - begin - known;
}

CollectiveTime& ProgramRun::times_of(const StepOperation& operation) {
  for (CollectiveTime& times : plan_.collectives)
    if (times.operation == operation.name) return times;
  plan_.collectives.emplace_back().operation = operation.name;
  return plan_.collectives.back();
}

double ProgramRun::jittered(size_t rank, const StepOperation& operation) const {
  const double seconds = operation.seconds * ranks_[rank].slowness;
  if (jitter_ == 0) return seconds;
  const auto place = static_cast<uint64_t>(&operation - program_.operations().data());
  return seconds * std::exp(jitter_ * standard_normal(seed_, rank, place));
}

void ProgramRun::span(size_t rank, const char* lane, const char* name, double begin, double end) {
  if (trace_ != nullptr && end > begin)
    trace_->push_back({static_cast<int>(rank), lane, name, begin * kMsOfSecond, end * kMsOfSecond});
}

// Where the training's timer has a mark (PhaseTimer). The host's launches beyond CUDA's queue wait
// for the device.
void ProgramRun::note_mark() {
  if (launched_.empty() || is_launched_) return;
  const double device = ranks_[0].lane(Lane::Compute);
  const double done = launched_.back().layers - kQueued / kKernelsOfLayer;
  const auto at = std::find_if(launched_.begin(), launched_.end(),
                               [&](const Launched& row) { return row.layers > done; });
  double host = std::min(device, first_steps_ * ranks_[0].lane(Lane::Host));
  if (done > 0) {
    const Launched before = at == launched_.begin() ? Launched{0, 0} : *(at - 1);
    const double part = (done - before.layers) / (at->layers - before.layers);
    host = std::max(host, before.done + part * (at->done - before.done));
  }
  host_share_.add(host * kMsOfSecond, device * kMsOfSecond);
}

void ProgramRun::note_launched() {
  note_mark();
  plan_.host_share = host_share_.least();
  is_launched_ = true;
}

// Times of phases are those of the first rank; a trace has them of all.
void ProgramRun::begin_phase(size_t r, const char* name) {
  Rank& rank = ranks_[r];
  const double at = rank.lane(Lane::Compute);
  if (*rank.phase != 0) span(r, "phases", rank.phase, rank.phase_began, at);
  if (r == 0) add_to_phase(rank.phase, at - rank.phase_began);
  rank.phase = name;
  rank.phase_began = at;
}

void ProgramRun::add_to_phase(const std::string& name, double seconds) {
  if (name.empty()) return;
  for (auto& [known, sum] : plan_.phases_ms) {
    if (known != name) continue;
    sum += seconds * kMsOfSecond;
    return;
  }
  plan_.phases_ms.emplace_back(name, seconds * kMsOfSecond);
}

}  // namespace moonshard::plan
