#include "runtime/plan/step_costs.h"

#include <algorithm>
#include <cmath>

#include "runtime/plan/block_groups.h"
#include "runtime/plan/step_program.h"

namespace moonshard::plan {
namespace {

// Dropout of adapters (kernels/sample_dropout): numbers that are read and written for it. Backward
// makes the adapter's input again and adds what it gives to the gradient of the layer's.
constexpr double kDroppedForward = 2, kDroppedBackward = 2 + 3;

// Deterministic operations, where backward runs twice: attention's backward takes so much longer.
constexpr double kInOrder = 0.7;
// Of an engine's operations on a layer that no kernel takes.
constexpr double kPlainNorm = 8, kPlainSum = 4;
// Keys whose tiles have nothing to wait for.
constexpr double kFreeKeys = 256;
// Of a copy between layouts of heads: its share of the speed of element-wise kernels. Of a sum over
// positions, which goes by elements: bytes that a fast kernel moves in the time of one. From
// kernels of traced steps.
constexpr double kStrided = 0.8, kReduced = 6;
// Operations of a block's conditioning beside its layer.
constexpr double kConditioning = 0.7;
// Of a bias's gradient, which is one sum.
constexpr double kBias = 4, kBiasLaunches = 0.2;
// Between two kernels of a graph, over that of kernels that the host launches.
constexpr double kGraphGap = 0.4;
// Scores of capped logits in the loss: instructions rather than bytes, in seconds on an H200.
constexpr double kCappedScore = 1.5e-12;

class Costs {
 public:
  Costs(const PlannedModel& model, const EngineWays& ways, int64_t samples, bool casts,
        bool in_graph, const MachineProfile& machine)
      : model_(model),
        ways_(ways),
        machine_(machine),
        rates_(machine.rates(model.compute_bytes == 2 ? "bfloat16" : "float32")),
        casts_(casts && model.value_bytes != model.compute_bytes),
        in_graph_(in_graph),
        samples_(static_cast<double>(samples)),
        rows_(samples_ * static_cast<double>(model.tokens)) {}

  StepCosts all() {
    StepCosts costs;
    add_layers(costs.before, model_.before, ways_.before, /*is_first=*/true);
    add_layers(costs.block, model_.block, ways_.block, /*is_first=*/false);
    add_layers(costs.last_block, model_.last_block, ways_.last_block, /*is_first=*/false);
    add_layers(costs.behind, model_.behind, ways_.behind, /*is_first=*/false);
    add_launches(costs);
    add_elements(costs.block);
    add_attention(costs.block);
    if (model_.has_last) add_scored(costs.last_block);
    add_outside(costs);
    return costs;
  }

 private:
  double positions_of(const PlannedLayer& layer) const {
    return layer.one_position ? samples_ : rows_;
  }

  double element_bytes() const { return static_cast<double>(model_.compute_bytes); }
  double gap() const { return machine_.gap_us * 1e-6 * (in_graph_ ? kGraphGap : 1); }

  void add_layers(StretchCost& cost, const std::vector<PlannedLayer>& layers,
                  const std::vector<LayerWay>& ways, bool is_first) const {
    for (size_t i = 0; i < layers.size(); ++i) {
      const PlannedLayer& layer = layers[i];
      if (!layer.is_matrix) continue;
      const double m = positions_of(layer), in = static_cast<double>(layer.in),
                   out = static_cast<double>(layer.out);
      cost.forward += product(layer, m, out, in, is_adapter_up(layer)) + gap();
      if (!is_first) cost.backward += product(layer, m, in, out, layer.is_adapter) + gap();
      if (layer.by_samples) cost.backward += again(layer);
      if (has_dropout(layer)) {
        cost.forward += dropout_seconds(m * in, kDroppedForward, 1);
        cost.backward += dropout_seconds(m * in, kDroppedBackward, 2);
      }
      // Weights that are kept in another dtype, at each use; frozen ones are in that of the
      // computation.
      if (casts_ && layer.trained) {
        const double cast =
            static_cast<double>(layer.weight * (model_.value_bytes + model_.compute_bytes)) /
            machine_.element_per_s;
        cost.forward += cast + gap();
        if (!is_first) cost.backward += cast + gap();
      }
      if (layer.trained && !ways_.is_private) {
        cost.backward += product(layer, out, in, m, false) + gap();
        cost.backward +=
            static_cast<double>(model_.sum_bytes * layer.weight) / machine_.element_per_s;
      }
      if (layer.bias > 0 && machine_.is_gpu) {
        cost.norm_launches += kBiasLaunches;
        cost.backward +=
            m * static_cast<double>(layer.bias) * kBias / machine_.element_per_s + gap();
      }
    }
    for (size_t i = 0; i < ways.size(); ++i) {
      const LayerWay& way = ways[i];
      // Without kernels that join layers, each has its own operations, and many small ones.
      const bool own = ways_.is_private && machine_.is_gpu && layers[i].is_matrix &&
                       layers[i].trained && !way.joins;
      if (own && model_.compute_bytes > 2) {
        cost.norm_launches += kPlainNorm;
        cost.sum_launches += kPlainSum;
      } else if (own && !layers[i].is_adapter) {  // theirs are among their own launches
        cost.norm_launches += machine_.in_step.plain_gradients;
      }
      // Kernels that multiply are timed one by one, at a higher clock than a step leaves them.
      const double clock = machine_.is_gpu ? machine_.in_step.sums : 1;
      cost.norms += way.norm_s / (way.joins ? clock : 1);
      cost.sums += way.sum_s / (way.kept == Kept::Rows ? 1 : clock);
    }
  }

  // [m, k] x [k, n], no sooner than its operands are read and its result is written; `adds`: to
  // what is there, which is read, too. Ranks of adapters are so few that this is all they cost.
  double product(const PlannedLayer& layer, double m, double n, double k, bool adds) const {
    const double seconds = product_seconds(rates_, m, n, k) / machine_.in_step.products;
    if (!machine_.is_gpu || layer.one_position) return seconds;
    const double numbers = m * k + k * n + m * n * (adds ? 2 : 1);
    return std::max(seconds, numbers * element_bytes() / machine_.element_per_s);
  }
  // A head in chunks makes its scores again; the sum over chunks is read and written by each.
  double again(const PlannedLayer& layer) const {
    const auto chunk = static_cast<double>(
        std::clamp<int64_t>(model_.options().head_chunk, 1, std::max<int64_t>(1, model_.tokens)));
    const double chunks = samples_ * std::ceil(static_cast<double>(model_.tokens) / chunk);
    const double sums = layer.trained ? 2 * static_cast<double>(model_.sum_bytes * layer.weight) *
                                            std::max(0.0, chunks - 1) / machine_.element_per_s
                                      : 0;
    return product(layer, rows_, static_cast<double>(layer.out), static_cast<double>(layer.in),
                   false) +
           sums + 4 * chunks * gap();
  }
  bool has_dropout(const PlannedLayer& layer) const {
    return layer.is_adapter && !is_adapter_up(layer) && model_.options().lora_dropout > 0;
  }
  double dropout_seconds(double numbers, double passes, double kernels) const {
    return numbers * passes * element_bytes() / machine_.element_per_s + kernels * gap();
  }
  static bool is_adapter_up(const PlannedLayer& layer) {
    return layer.is_adapter && layer.in < layer.out;
  }

  // Element-wise bytes of a block: norms read and write their input, the operation between two
  // groups reads what the first made and writes the second's input, branches are added to the
  // stream. Backward reads what was saved beside what it is given, and adds the input's gradients
  // of layers that read the same.
  void add_elements(StretchCost& cost) const {
    const std::vector<BlockGroup> groups = block_groups(model_);
    double forward = 0, backward = 0;
    for (size_t i = 0; i < groups.size(); ++i) {
      const BlockGroup& group = groups[i];
      // A GPU's products add to what the others have made.
      backward +=
          (static_cast<double>(group.layers.size()) - 1) * (machine_.is_gpu ? 1 : 3) * group.in;
      if (i % 2 == 0) {
        forward += 2 * group.in;
        backward += 4 * group.in;
        continue;
      }
      const double before = groups[i - 1].out;
      const bool is_attention = i == 1 && has_attention();
      forward += is_attention ? 4.0 / 3 * before : before + group.in;
      backward += is_attention ? 4.0 / 3 * before : 2 * before + 2 * group.in;
      forward += 3 * group.out;
      backward += 3 * group.out;
    }
    if (machine_.is_gpu) backward += layout_copies(groups) + modulation_sums();
    // Norms of heads, and behind the branches.
    forward += 2 * more_norms(groups);
    backward += 4 * more_norms(groups);
    const double plain = model_.fused ? 1 : 2.2;  // a chain of operations instead of one kernel
    const double scale =
        plain * rows_ * static_cast<double>(model_.compute_bytes) / machine_.element_per_s;
    cost.forward += forward * scale + 4 * gap();
    cost.backward += backward * scale + 6 * gap();
  }

  // The last block of a classifier: for all tokens a norm, keys and values, which are read by one
  // query and made wide for it; backward fills two streams with zeros but for one token. The rest
  // has one position of each sample.
  void add_scored(StretchCost& cost) const {
    const auto& o = model_.options();
    const double stream = rows_ * static_cast<double>(o.hidden_dim) * element_bytes(),
                 wide = std::max(4.0, element_bytes()),
                 both = 2 * rows_ * static_cast<double>(o.num_kv_heads * o.head_dim);
    constexpr double kForward = 2, kBackward = 4 + 2 * 2, kReadWide = 2, kGradients = 2;
    cost.attention = both * (element_bytes() + kReadWide * wide) / machine_.element_per_s;
    cost.forward += kForward * stream / machine_.element_per_s + cost.attention;
    cost.backward +=
        (kBackward * stream + both * (element_bytes() + kGradients * kReadWide * wide)) /
        machine_.element_per_s;
  }

  void add_launches(StepCosts& costs) const {
    const InStep& step = machine_.in_step;
    const double usual = ways_.is_private ? step.backward : step.plain_backward;
    // `plain`: operations that have one each in backward.
    const auto set = [&](StretchCost& cost, double times, double launches, double plain) {
      cost.forward_launches = launches + plain;
      cost.backward_launches = times * launches + plain;
    };
    set(costs.before, usual, static_cast<double>(model_.before.size()), 0);
    set(costs.behind, usual, static_cast<double>(model_.behind.size()), 0);
    // An engine takes the rows of every norm; of two a block's layers have the time.
    const auto norms = static_cast<double>(std::ranges::count_if(
        model_.block, [](const PlannedLayer& layer) { return layer.is_small && layer.trained; }));
    const bool is_bare = std::ranges::none_of(model_.block, &PlannedLayer::is_small);
    if (ways_.is_private) costs.block.norm_launches += step.more_norms * std::max(0.0, norms - 2);
    set(costs.block, is_bare && has_attention() && machine_.is_gpu ? step.bare_backward : usual,
        has_attention() ? launches_of(model_.block, kConditioning)
                        : static_cast<double>(model_.block.size()),
        launches_of_scores() + launches_of_casts());
    // Its operations but for attention, which has as many more in products and copies.
    if (model_.has_last) {
      costs.last_block.norm_launches += costs.block.norm_launches;
      set(costs.last_block, usual, launches_of(model_.last_block, 0),
          launches_of_casts() + machine_.in_step.capped);
    }
  }

  double launches_of_casts() const {
    const auto trained = std::ranges::count_if(model_.block, [](const PlannedLayer& layer) {
      return layer.trained && !layer.is_adapter;  // of adapters it is in their own launches
    });
    return casts_ ? static_cast<double>(trained) * machine_.in_step.cast : 0;
  }

  // Operations of attention that its kernel does not have.
  double launches_of_scores() const {
    const auto& o = model_.options();
    if (!has_attention()) return 0;
    if (o.attention_softcap > 0) return machine_.in_step.capped;
    return model_.kept.masked * machine_.in_step.masked;
  }

  // In units of calibration, which counts a ninth of a block with seven matrices and two norms.
  // Norms launch one kernel, adapters run inside of their layer's call; `of_one_position`: what
  // such a layer has beside itself.
  double launches_of(const std::vector<PlannedLayer>& layers, double of_one_position) const {
    constexpr double kMatrix = 8.0 / 7, kNorm = 0.5;
    double launches = 0, norms = 0;
    for (const PlannedLayer& layer : layers) {
      if (layer.is_matrix) launches += layer.is_adapter ? machine_.in_step.adapter : kMatrix;
      if (has_dropout(layer)) launches += 1 / kKernelsOfLayer;
      if (layer.is_small) norms += kNorm;
      if (layer.one_position) launches += of_one_position;
    }
    return launches + std::max(norms, 2 * kNorm);
  }

  double more_norms(const std::vector<BlockGroup>& groups) const {
    double widths = 0;
    size_t norms = 0;
    for (const PlannedLayer& layer : model_.block) {
      if (!layer.is_small) continue;
      const bool of_heads = layer.in == model_.options().head_dim;
      if (of_heads && !groups.empty()) widths += groups[0].out / 3;
      if (!of_heads && ++norms > 2) widths += static_cast<double>(layer.in);
    }
    return widths;
  }

  // One layer for q, k and v: their gradients are put into one tensor (blocks/joined_heads.h).
  double layout_copies(const std::vector<BlockGroup>& groups) const {
    const bool is_joint = has_attention() && !groups.empty() && groups[0].layers.size() == 1 &&
                          groups[0].out >= 3 * groups[0].in;
    return is_joint ? 2 / kStrided * groups[0].out : 0;
  }

  // A layer of one position whose output scales, shifts and gates all of them: sums over positions.
  double modulation_sums() const {
    double elements = 0;
    for (const PlannedLayer& layer : model_.block)
      if (layer.one_position) elements += static_cast<double>(layer.out);
    return kReduced / element_bytes() * elements;
  }

  bool has_attention() const { return model_.options().num_heads > 0; }

  void add_attention(StretchCost& cost) const {
    const auto& o = model_.options();
    if (!has_attention() || model_.num_blocks == 0) return;
    const double width = static_cast<double>(o.num_heads * o.head_dim);
    const bool causal = o.task != "denoise";
    const double T = static_cast<double>(model_.tokens);
    const double whole = 4 * rows_ * T * width;
    const bool twice = ways_.two_passes && machine_.is_gpu;
    if (machine_.is_gpu && is_a_matrix(twice)) {
      const double chain = rows_ * T * static_cast<double>(o.num_heads) * machine_.in_step.chain /
                           machine_.element_per_s;
      const double product = whole / (fastest_product() * machine_.in_step.products);
      cost.attention = chain * score_bytes(causal, false) + product + 12 * gap();
      cost.backward += chain * score_bytes(causal, true) + 2 * product + 14 * gap();
    } else {
      const AttentionRate rate = attention_rate(rates_, T, static_cast<double>(o.head_dim), causal);
      const InStep& step = machine_.in_step;
      // With a mask every score is computed, and q and the output are copied to another order.
      const double masked = machine_.is_gpu ? model_.kept.masked : 0;
      // A window leaves tiles out, of which those at its border are half empty.
      const double windowed = model_.kept.windowed;
      const double work = whole * (causal ? 0.5 : 1) *
                          (1 - masked - windowed +
                           windowed * model_.kept.window_scores / machine_.in_step.windowed);
      const double forward = rate.forward_per_s * step.attention_forward,
                   backward = rate.backward_per_s * step.attention_backward;
      const double copies = 4 * rows_ * width * element_bytes() / machine_.element_per_s;
      cost.attention +=
          work / forward + gap() + masked * (whole / (forward * step.masked_forward) + copies);
      cost.backward +=
          kAttentionBackward * work / backward + 2 * gap() +
          masked * (kAttentionBackward * whole / (backward * step.masked_backward) + copies);
      // Twice the same bits: attention's kernel adds up in order, a tile of keys after the other,
      // and into copies that are filled, added to and read.
      if (twice) {
        constexpr double kCopied = 12;
        cost.backward +=
            kInOrder * std::max(0.0, 1 - kFreeKeys / T) * kAttentionBackward * work / backward +
            ordered_copies(model_, samples_) * kCopied * rows_ * width / machine_.element_per_s;
      }
    }
    cost.forward += cost.attention;
  }

  // Scores as a tensor: "standard" attention, capped ones, and float32 where two passes must see
  // the same bits (blocks/attention.cpp).
  bool is_a_matrix(bool twice) const {
    const auto& o = model_.options();
    return o.attention != "flash" || o.attention_softcap > 0 ||
           (twice && model_.compute_bytes >= 4);
  }

  // Bytes of a score through the operations on it: scaled, capped in three, copied and masked, made
  // wide, its exponential divided by the row's sum, and narrow again.
  double score_bytes(bool causal, bool is_backward) const {
    const double s = element_bytes(), wide = s < 4 ? 4 + s : 0;
    const double capped = model_.options().attention_softcap > 0 ? (is_backward ? 7 : 6) * s : 0;
    return 2 * s + capped + (causal ? 5 * s : 0) + 2 * wide + (is_backward ? 12 : 8);
  }

  double fastest_product() const {
    double fastest = 0;
    for (const ProductRate& rate : rates_.products) fastest = std::max(fastest, rate.per_s);
    return fastest;
  }

  void add_outside(StepCosts& costs) const {
    const double hidden = rows_ * static_cast<double>(model_.options().hidden_dim) *
                          static_cast<double>(model_.compute_bytes) / machine_.element_per_s;
    costs.before.forward += 2 * hidden + gap();
    if (!ways_.is_private) {
      for (const PlannedLayer& layer : model_.before)
        if (!layer.is_matrix && layer.trained)
          costs.before.backward +=
              2 * hidden +
              static_cast<double>(model_.sum_bytes * layer.weight) / machine_.element_per_s;
    }
    for (size_t i = 0; i < model_.before.size(); ++i)
      if (ways_.is_private && !model_.before[i].is_matrix && model_.before[i].trained)
        costs.before.sums += static_cast<double>(model_.sum_bytes * model_.before[i].weight) /
                             machine_.element_per_s;
    const double of_norm = model_.has_last ? hidden / static_cast<double>(model_.tokens) : hidden;
    costs.behind.forward += 2 * of_norm;
    costs.behind.backward += 4 * of_norm;
    // Scores are read for the loss, and their gradient takes their place.
    const auto& o = model_.options();
    const double in_chunks =  // not among what is kept
        o.head_chunk > 0 ? static_cast<double>(model_.compute_bytes * o.vocab_size) : 0;
    const double scores =
        (static_cast<double>(model_.kept.outside) + in_chunks) * rows_ / machine_.element_per_s;
    const double bent = machine_.is_gpu && o.task == "lm" && o.logit_softcap > 0
                            ? kCappedScore * rows_ * static_cast<double>(o.vocab_size)
                            : 0;
    costs.behind.forward += std::max(scores, bent) + 4 * gap();
    costs.behind.backward += std::max(2 * scores, bent) + 4 * gap();
  }

  const PlannedModel& model_;
  const EngineWays& ways_;
  const MachineProfile& machine_;
  const DtypeRates& rates_;
  bool casts_, in_graph_;
  double samples_, rows_;
};

}  // namespace

StepCosts step_costs(const PlannedModel& model, const EngineWays& ways, int64_t samples, bool casts,
                     bool in_graph, const MachineProfile& machine) {
  return Costs(model, ways, samples, casts, in_graph, machine).all();
}

}  // namespace moonshard::plan
