// Update rule, learning rate and its schedule. Needs no torch.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/options.h"

namespace moonshard::optim {

struct OptimizerOptions {
  std::string optimizer = "sgd";
  double lr = 1e-5;
  std::string lr_schedule = "constant";
  int64_t lr_warmup_steps = 0;
  int64_t lr_total_steps = 0;
  double lr_min_ratio = 0;
  double momentum = 0;
  double weight_decay = -1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  std::string state_dtype = "auto";
  std::string no_decay;
  bool noise_correction = false;
  double noise_floor = 0;
};

template <class T>
void add_optimizer_options(OptionSchema& schema) {
  schema.choice<T>("optimizer", &T::optimizer, {"sgd", "adam", "adamw"}, "update rule");
  schema.real<T>("lr", &T::lr, 0, 1e6, "learning rate").aliases = {"learning_rate"};
  schema.choice<T>("lr_schedule", &T::lr_schedule, {"constant", "linear", "cosine", "inverse_sqrt"},
                   "how the learning rate falls after its warm-up; inverse_sqrt has no end");
  schema.integer<T>("lr_warmup_steps", &T::lr_warmup_steps, 0, 1e12,
                    "steps over which the learning rate rises from 0");
  schema.integer<T>("lr_total_steps", &T::lr_total_steps, 0, 1e12,
                    "steps until the schedule's end; 0 takes the experiment's own, or a trainer's "
                    "plan (privacy = { epochs or budget_steps })");
  schema.real<T>("lr_min_ratio", &T::lr_min_ratio, 0, 1,
                 "share of the learning rate that is left at the schedule's end");
  schema.real<T>("momentum", &T::momentum, 0, 0.999999999, "sgd: decay of the running sum");
  schema.real<T>("weight_decay", &T::weight_decay, -1, 1e6,
                 "adamw: decoupled decay; adam: added to the gradient; -1 takes 0.1 and 0");
  schema.real<T>("beta1", &T::beta1, 0, 0.999999999, "adam, adamw: decay of the mean");
  schema.real<T>("beta2", &T::beta2, 0, 0.999999999, "adam, adamw: decay of the mean square");
  schema.real<T>("eps", &T::eps, 0, 1, "adam, adamw: added to the root of the mean square");
  schema.choice<T>("state_dtype", &T::state_dtype, {"auto", "bfloat16"},
                   "dtype that moments and sums are kept in: the weights', or 16 bits, rounded by "
                   "a coin so that small changes add up");
  schema.text<T>("no_decay", &T::no_decay,
                 "parameters without weight decay: norms, biases, embeddings and globs of names, "
                 "separated by commas");
  schema.boolean<T>("noise_correction", &T::noise_correction,
                    "adam, adamw in private training: takes the noise's variance out of the mean "
                    "square (DP-AdamBC, Tang et al. 2024)");
  schema.real<T>("noise_floor", &T::noise_floor, 0, 1e6,
                 "noise_correction: least mean square that is left; 0 takes a hundredth of the "
                 "noise's variance");
}

}  // namespace moonshard::optim
