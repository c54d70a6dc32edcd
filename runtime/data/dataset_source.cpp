#include "runtime/data/dataset_source.h"

#include <algorithm>
#include <chrono>

#include <ATen/ATen.h>

#include "runtime/base/check.h"
#include "runtime/data/text/token_file.h"
#include "runtime/profile/context.h"
#include "runtime/profile/ledger.h"

namespace moonshard::data {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

DatasetSource::DatasetSource(std::shared_ptr<const Dataset> dataset, const LoaderOptions& options,
                             const RandomWords& words, c10::Device device, int rank, int world)
    : dataset_(std::move(dataset)), options_(options), device_(device), rank_(rank), world_(world) {
  MS_CHECK(options_.batch_size > 0 && options_.grad_accum > 0,
           "loader: expected batch_size and grad_accum above 0, got {} and {}", options_.batch_size,
           options_.grad_accum);
  MS_CHECK(options_.prefetch >= 0 && options_.prefetch <= 64,
           "loader: expected prefetch from 0 to 64 steps, got {}", options_.prefetch);
  // What is not drawn goes on in order, with any number of ranks: counted in micro-batches.
  stride_ = options_.sampler == "poisson" ? 1 : options_.grad_accum * world_;
  draw_from(words);
}

void DatasetSource::draw_from(const RandomWords& words) {
  const bool draws = options_.sampler == "poisson";
  int64_t size = options_.batch_size;
  if (draws) size *= options_.grad_accum * world_;
  if (draws && options_.expected_batch_size > 0) size = options_.expected_batch_size;
  sampler_ = make_sampler({options_.sampler, dataset_->size(), size}, words);
  is_secret_ = words.is_secret();
  choice_ = words.word(~uint32_t{0}, ~uint32_t{0}, ~uint64_t{0});  // no sampler draws this one
}

void DatasetSource::use_seed(int64_t seed) {
  if (is_secret_) return;
  forget_ahead();
  draw_from(RandomWords(static_cast<uint64_t>(seed)));
}

// The contents by 64 examples from the first to the last: reading all of a large file on every rank
// would take longer than many a run.
Json DatasetSource::shared_facts() const {
  const int64_t size = dataset_->size(), last = std::min<int64_t>(size, 64) - 1;
  Checksum contents;
  for (int64_t i = 0; i <= last; ++i) {
    dataset_->batch({last == 0 ? 0 : i * (size - 1) / last}).each([&](const at::Tensor& tensor) {
      const at::Tensor whole = tensor.contiguous();
      contents.add(whole.const_data_ptr(), whole.nbytes());
      return tensor;
    });
  }
  return {{"examples", size},
          {"contents", contents.value()},
          {"sampler", options_.sampler},
          {"batch_size", options_.batch_size},
          {"grad_accum", options_.grad_accum},
          {"expected_batch_size", options_.expected_batch_size},
          {"pad_batches", options_.pad_batches},
          {"seed or secret", choice_}};
}

double DatasetSource::steps_per_epoch() const {
  const Sampling sampling = this->sampling();
  if (sampling.rate > 0) return 1 / sampling.rate;
  return static_cast<double>(dataset_->size()) /
         static_cast<double>(options_.batch_size * options_.grad_accum * world_);
}

DatasetSource::~DatasetSource() {
  forget_ahead();
}

std::vector<int64_t> DatasetSource::examples_at(int64_t position) {
  std::vector<int64_t> chosen = sampler_->examples_of(position);
  for (int64_t i = 1; i < stride_; ++i) {
    const std::vector<int64_t> more = sampler_->examples_of(position + i);
    chosen.insert(chosen.end(), more.begin(), more.end());
  }
  return chosen;
}

// Every rank computes the same choice and takes every world-th example of it: all have the same
// number of micro-batches, and nearly the same number of samples. Without padding micro-batches are
// about equally large; with it all but the last are full, and on a rank with fewer samples the last
// may be padding alone.
DatasetSource::Fetched DatasetSource::fetch(const std::vector<int64_t>& chosen) {
  const auto begun = Clock::now();
  const auto all = static_cast<int64_t>(chosen.size());
  std::vector<int64_t> own;
  for (int64_t i = rank_; i < all; i += world_) own.push_back(chosen[static_cast<size_t>(i)]);
  const int64_t most = (all + world_ - 1) / world_;  // of any rank
  const int64_t parts =
      std::max<int64_t>(1, (most + options_.batch_size - 1) / options_.batch_size);
  std::vector<Batch> batches;
  const auto count = static_cast<int64_t>(own.size());
  for (int64_t i = 0; i < parts; ++i) {
    int64_t first = count * i / parts, end = count * (i + 1) / parts;
    if (options_.pad_batches) {
      first = std::min(count, i * options_.batch_size);
      end = std::min(count, first + options_.batch_size);
    }
    Batch batch = dataset_->batch({own.begin() + first, own.begin() + end});
    if (options_.pad_batches) batch = padded(batch, options_.batch_size);
    if (device_.is_cuda())
      batch = batch.each([](const at::Tensor& tensor) { return tensor.pin_memory(); });
    batches.push_back(std::move(batch));
  }
  fetching_us_ +=
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begun).count();
  return {std::move(batches), all};
}

void DatasetSource::fetch_ahead() {
  while (static_cast<int64_t>(ahead_.size()) < options_.prefetch) {
    const int64_t position = position_ + stride_ * static_cast<int64_t>(ahead_.size());
    // Drawn here: samplers remember their epoch's order.
    ahead_.push_back(std::async(std::launch::async, [this, chosen = examples_at(position),
                                                     context = profile::current_context()] {
      const profile::ContextScope on_behalf_of(context);
      const profile::OwnerScope owner(profile::Owner::Data);
      return fetch(chosen);
    }));
  }
}

void DatasetSource::forget_ahead() {
  for (auto& fetching : ahead_) fetching.wait();
  ahead_.clear();
}

std::vector<Batch> DatasetSource::next_step(int64_t grad_accum) {
  MS_CHECK(options_.sampler == "poisson" || grad_accum == options_.grad_accum,
           "loader: expected grad_accum = {}, as it was made for, got {}", options_.grad_accum,
           grad_accum);
  Fetched fetched = take();
  while (options_.skip_empty && fetched.samples == 0) fetched = take();
  for (Batch& batch : fetched.batches) {
    batch = batch.each([&](const at::Tensor& tensor) {
      return tensor.to(device_, tensor.scalar_type(), /*non_blocking=*/true);
    });
  }
  return std::move(fetched.batches);
}

// Errors of a fetching thread are thrown here, and the position stays: the next call fetches the
// same draw again.
DatasetSource::Fetched DatasetSource::take() {
  fetch_ahead();
  Fetched fetched;
  if (ahead_.empty()) {
    fetched = fetch(examples_at(position_));
  } else {
    try {
      fetched = ahead_.front().get();
    } catch (...) {
      ahead_.pop_front();
      forget_ahead();
      throw;
    }
    ahead_.pop_front();
  }
  position_ += stride_;
  fetch_ahead();
  return fetched;
}

Batch DatasetSource::next() {
  std::vector<Batch> batches = next_step(options_.grad_accum);
  MS_CHECK(batches.size() == 1,
           "loader: expected steps of one batch for next(), got one of {} micro-batches; use a "
           "trainer, or a larger batch_size",
           batches.size());
  return std::move(batches.front());
}

void DatasetSource::go_to(int64_t position) {
  forget_ahead();
  position_ = position;
}

Json DatasetSource::facts() const {
  Json facts = dataset_->facts();
  if (!facts.is_object()) facts = Json::object();
  facts["examples"] = dataset_->size();
  facts["fetching_ms"] = fetching_ms();
  return facts;
}

}  // namespace moonshard::data
