// Forward, backward, norms and clipped sums of a step as one CUDA graph: small models are bound by
// kernel launches, and a graph is one launch. Two steps run eagerly, which also makes every
// one-time choice (attention kernels, handles of libraries); the next one of the same shapes is
// captured, and from then on it is replayed. With compile = auto only where eager steps have shown
// that the host takes most of the time, or that replays are faster.
//
// Note: what a graph may contain. A replay repeats its kernels with the parameters of the
// capture. Noise has the step number as a parameter: noise in a graph would be the same in every
// step, and subtracting two of them would undo it. So the captured part ends with the clipped sums;
// noise and optimizer run after the replay, and StepUpdate refuses to work during a capture.
// LibTorch's own random numbers cannot be captured either: its generators refuse captures that they
// are not registered with, the capture fails, and steps run eagerly.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/core/batch.h"
#include "runtime/models/model.h"
#include "runtime/sharding/sharding_options.h"

namespace moonshard::train {

class StepGraph {
 public:
  /// Steps of equal shapes before one is captured.
  static constexpr int64_t kEagerSteps = 2;
  /// From this share of the host in a step on, compile = auto makes graphs. A host that only waits
  /// for its queue of launches shows up to 0.66.
  static constexpr double kHostBound = 0.7;
  /// From this one on it tries them, as the device idles between small kernels, too: DiT-XL with 32
  /// samples takes 61 ms with a graph and 64 without, at shares from below 0.5 to 0.8, by the host.
  /// So many replays are timed; where they are not faster, steps stay eager. The shortest of a few
  /// eager steps says too little of later ones, which wait for a busy host now and then (61.2, and
  /// 63 to 67 behind the trial), so that any gain counts.
  static constexpr double kHostTried = 0.4;
  static constexpr int64_t kTimedReplays = 2;
  /// So many steps behind the first one must have such a share, before as many have not.
  static constexpr int64_t kDecidingSteps = 2;
  /// Until it is decided, at the latest: eager steps, and then one that is captured and timed
  /// replays.
  static constexpr int64_t kMostEagerSteps = 2 * kDecidingSteps;
  static constexpr int64_t kStepsOfATrial = 1 + kTimedReplays;
  /// Where no step is captured for so long, as shapes keep changing or somebody looks into every
  /// step, there is nothing to time.
  static constexpr int64_t kMostStepsOfATrial = 16;
  enum class Verdict { No, Try, Yes };
  /// Whether steps become graphs, where nothing stands in the way, or a trial decides. A plan asks
  /// the same (runtime/plan).
  static Verdict verdict(double host_share, bool has_room) {
    if (!has_room || host_share < kHostTried) return Verdict::No;
    return host_share < kHostBound ? Verdict::Try : Verdict::Yes;
  }
  static bool is_faster(double replay_ms, double eager_ms) { return replay_ms < eager_ms; }
  /// A graph holds a step's temporaries, and all its gradients, beside those of steps without one.
  /// Bytes: at a step's peak, between steps, of all gradients, and of the device (0: not known).
  static bool has_room(int64_t at_peak, int64_t at_rest, int64_t gradients, int64_t all) {
    return all == 0 || at_peak + (at_peak - at_rest) + gradients < all / 10 * 9;
  }

  /// In this order: of what several ranks can do, the least is what all of them can.
  enum class Way { Eager, Capture, Replay };

  struct Gradient {
    at::Tensor grad, rows, row_factors;  ///< as in models::Parameter
  };
  /// What a step leaves for its end, in memory of the graph: the next replay overwrites it.
  struct Outputs {
    std::vector<at::Tensor> losses, norms, factors;  ///< by micro-batch
    std::vector<Gradient> gradients;                 ///< by place in Parallel::updated()
    int64_t kept_bytes = 0;                          ///< by the engine
    std::vector<comm::Traffic> traffic;              ///< of every replay
    int64_t gradient_bytes() const;
  };
  using Parameters = std::vector<std::unique_ptr<models::Parameter>>;

  /// `obstacle`: why no step can be captured; "" when no reason is known. `by_itself`: nobody asked
  /// for graphs; there are none until observe() finds that they help, and no obstacle is worth a
  /// word.
  StepGraph(c10::Device device, std::string obstacle, bool by_itself = false);
  ~StepGraph();

  /// False when no step will ever be captured; the first call prints the reason.
  bool is_possible();
  struct Observed {
    double host_share = 0;  ///< of an eager step's time (PhaseTimer::host_share)
    bool has_room = false;  ///< for a graph's memory beside the step's own
    double ms = 0;
    int64_t tokens = 0;  ///< steps of different sizes cannot be compared
    bool replayed = false;
  };
  /// What a step has shown. The first one, which also makes one-time choices, does not count; of
  /// the next three, two decide: a stall of one of them is no reason for a graph, and a hurried one
  /// none against it.
  void observe(const Observed& step);
  /// Why no step can be captured, or "".
  const std::string& obstacle() const { return obstacle_; }
  /// Whether observe() has anything to decide.
  bool awaits_decision() const { return waits_ || tries_; }
  /// How the step on these micro-batches, as they were drawn, could run; it may run in a lesser
  /// way. `bound` is the clipping bound: a number in the kernels.
  Way next(const std::vector<Batch>& batches, const models::Model& model, const Parameters& updated,
           double bound);
  /// Captures `run` on the graph's own inputs; nothing is computed. False when it failed:
  /// one line says why, and every later step is Eager.
  bool capture(const std::vector<Batch>& batches,
               const std::function<Outputs(const std::vector<Batch>&)>& run);
  /// Computes the captured step on these micro-batches, on the current stream.
  const Outputs& replay(const std::vector<Batch>& batches);
  /// Gradients that the graph holds between steps belong to the owners that they have in a step.
  void claim_memory() const;
  /// Forgets the graph; two equal steps later there is another.
  void drop();
  /// Forgets the graph for good.
  void give_up(const std::string& obstacle);
  /// Bytes of tensors that replays work in, at their peak, beside what the graph holds between
  /// steps. LibTorch does not count them as allocated.
  int64_t working_bytes() const;

  /// LibTorch records allocations: a replay would show none.
  static bool memory_history_is_recorded();

 private:
  /// Numbers that must be equal for a graph to fit.
  using Key = std::vector<int64_t>;
  struct Captured;

  void say(const std::string& what);
  void decide(const Observed& step);
  void time_replay(const Observed& step);
  void end_trial(bool is_won);

  c10::Device device_;
  std::string obstacle_;
  bool by_itself_, waits_;  ///< the latter for observe()'s decision
  bool is_needed_ = true;
  bool tries_ = false;                                              ///< replays are timed
  int64_t observed_steps_ = 0, bound_steps_ = 0, tried_steps_ = 0;  ///< until it is decided
  int64_t steps_of_trial_ = 0, timed_replays_ = 0;
  double eager_ms_, replay_ms_;  ///< the shortest of those that count
  int64_t eager_tokens_ = 0;     ///< of each of the former
  std::vector<std::string> said_;
  Key shapes_, places_;  ///< of the last eager steps
  int64_t equal_steps_ = 0, captures_ = 0;
  int64_t replays_ = 0;      ///< of steps with the shapes of the graph that is there
  int64_t hardly_used_ = 0;  ///< graphs that gave way to other shapes before they were worth it
  std::unique_ptr<Captured> captured_;
};

/// For tests without a GPU: while it lives, graphs of this thread are imitated on any device. A
/// capture computes its step at once, on the graph's inputs, and the replay after it does nothing;
/// no step is replayed without. With `fails` every capture computes its step and then says that it
/// failed.
class ImitatedGraphs {
 public:
  explicit ImitatedGraphs(bool fails = false);
  ~ImitatedGraphs();
  ImitatedGraphs(const ImitatedGraphs&) = delete;
  ImitatedGraphs& operator=(const ImitatedGraphs&) = delete;
};

/// Why no step of such a trainer can be captured; "" when no reason is known.
std::string graph_obstacle(c10::Device device, const std::string& engine,
                           const std::string& clipping, const sharding::ShardingOptions& sharding);

}  // namespace moonshard::train
