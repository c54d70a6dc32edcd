// Model::check: a batch is looked at before anything is computed from it, so that a mistake in the
// data is named as such. Values are read only where that costs nothing: on the CPU.
#include <ATen/ATen.h>

#include "runtime/models/model.h"

namespace moonshard::models {
namespace {

class Checker {
 public:
  Checker(const ModelOptions& options, const Batch& batch) : options_(options), batch_(batch) {}

  void run() const {
    if (options_.task == "regress" || options_.task == "denoise") {
      check_images_or_vectors();
    } else {
      check_tokens();
    }
  }

 private:
  void expect(const at::Tensor& tensor, const char* name, int64_t dims, const char* shape) const {
    MS_CHECK(tensor.defined() && tensor.dim() == dims && tensor.size(0) == batch_.size(),
             "model '{}': batch field '{}': expected {} with {} samples, got {}", options_.model,
             name, shape, batch_.size(),
             tensor.defined() ? c10::str(tensor.sizes()) : std::string("nothing"));
  }

  void expect_range(const at::Tensor& tensor, const char* name, int64_t low, int64_t high,
                    bool ignored_allowed, const char* advice) const {
    if (!tensor.is_cpu() || tensor.numel() == 0) return;
    at::Tensor bad = tensor.lt(low).logical_or(tensor.gt(high));
    if (ignored_allowed) bad = bad.logical_and(tensor.ne(-100));
    if (!bad.any().item<bool>()) return;
    throw UsageError(fmt::format("model '{}': batch field '{}': expected {} to {}{}, got {}; {}",
                                 options_.model, name, low, high,
                                 ignored_allowed ? " or -100 (ignored)" : "",
                                 tensor.masked_select(bad)[0].item<int64_t>(), advice));
  }

  void check_tokens() const {
    expect(batch_.input_ids, "input_ids", 2, "[samples, tokens]");
    MS_CHECK(batch_.input_ids.size(1) > 0,
             "model '{}': batch field 'input_ids': expected at least one token, got {}",
             options_.model, c10::str(batch_.input_ids.sizes()));
    expect_range(batch_.input_ids, "input_ids", 0, options_.vocab_size - 1, false,
                 "check vocab_size and the data");
    const bool is_lm = options_.task == "lm";
    expect(batch_.labels, "labels", is_lm ? 2 : 1, is_lm ? "[samples, tokens]" : "[samples]");
    MS_CHECK(!is_lm || batch_.labels.sizes() == batch_.input_ids.sizes(),
             "model '{}': batch field 'labels': expected the shape {} of input_ids, got {}",
             options_.model, c10::str(batch_.input_ids.sizes()), c10::str(batch_.labels.sizes()));
    expect_range(batch_.labels, "labels", 0,
                 (is_lm ? options_.vocab_size : options_.num_labels) - 1, is_lm,
                 is_lm ? "check vocab_size" : "check num_labels");
    if (is_lm && !batch_.attention_mask.defined()) return;
    const at::Tensor& mask = batch_.attention_mask;
    expect(mask, "attention_mask", 2, "[samples, tokens]");
    MS_CHECK(mask.sizes() == batch_.input_ids.sizes(),
             "model '{}': batch field 'attention_mask': expected the shape {} of input_ids, got {}",
             options_.model, c10::str(batch_.input_ids.sizes()), c10::str(mask.sizes()));
    const int64_t T = mask.size(1);
    if (!mask.is_cpu()) return;
    MS_CHECK(mask.any(1).all().item<bool>(),
             "model '{}': batch field 'attention_mask': expected a real token in every sample, got "
             "one without any; leave that sample out",
             options_.model);
    if (is_lm) {
      MS_CHECK(!mask.logical_not().logical_and(batch_.labels.ne(-100)).any().item<bool>(),
               "model '{}': batch field 'labels': expected -100 (ignored) at padding, got a label "
               "there",
               options_.model);
    }
    if (T < 2) return;
    const at::Tensor starts_late =
        mask.narrow(1, 1, T - 1).logical_and(mask.narrow(1, 0, T - 1).logical_not());
    MS_CHECK(!starts_late.any().item<bool>(),
             "model '{}': batch field 'attention_mask': expected padding on the right, got a real "
             "token after padding; move each sample's tokens to the left",
             options_.model);
  }

  void check_images_or_vectors() const {
    const bool images = options_.task == "denoise";
    const int64_t dims = images ? 4 : batch_.inputs.defined() ? batch_.inputs.dim() : 2;
    expect(batch_.inputs, "inputs", dims,
           images ? "[samples, channels, height, width]" : "[samples, width]");
    MS_CHECK(batch_.inputs.dim() >= 2 && (images || batch_.inputs.size(-1) == options_.hidden_dim),
             "model '{}': batch field 'inputs': expected [samples, {}], got {}", options_.model,
             options_.hidden_dim, c10::str(batch_.inputs.sizes()));
    MS_CHECK(batch_.targets.defined() && batch_.targets.sizes() == batch_.inputs.sizes(),
             "model '{}': batch field 'targets': expected the shape {} of inputs, got {}",
             options_.model, c10::str(batch_.inputs.sizes()),
             batch_.targets.defined() ? c10::str(batch_.targets.sizes()) : std::string("nothing"));
    if (!images) return;
    expect(batch_.labels, "labels", 1, "[samples]");
    expect(batch_.timesteps, "timesteps", 1, "[samples]");
    expect_range(batch_.labels, "labels", 0, options_.num_classes, false,
                 "check num_classes; that number itself is the null class");
    expect_range(batch_.timesteps, "timesteps", 0, 999, false, "diffusion has 1000 steps");
  }

  const ModelOptions& options_;
  const Batch& batch_;
};

}  // namespace

void Model::check(const Batch& batch) const {
  Checker(options_, batch).run();
}

}  // namespace moonshard::models
