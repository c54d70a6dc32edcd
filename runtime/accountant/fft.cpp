#include "runtime/accountant/fft.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "runtime/base/check.h"

namespace moonshard::accountant {
namespace {

// Roots of unity of large blocks are a product of two: a table of this many, and one per run of
// them. Whole tables would be as large as the data.
constexpr size_t kRun = 512;

double angle(size_t k, size_t size) {
  return -2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(size);
}

}  // namespace

Fft::Fft(size_t size) : size_(size) {
  MS_ASSERT(std::has_single_bit(size), "size {}", size);
  for (size_t block = 1; block <= size; block *= 2) {
    Twiddles table;
    for (size_t k = 0; k < std::min(block / 4, kRun); ++k) {
      table.re.push_back(std::cos(angle(k, block)));
      table.im.push_back(std::sin(angle(k, block)));
    }
    twiddles_.push_back(std::move(table));
  }
}

size_t Fft::mirrored(size_t place) {
  if (place < 2) return place;
  return 3 * std::bit_floor(place) - 1 - place;
}

double Fft::relative_error() const {
  // Per two stages: a root that is a product of up to six factors of 3 roundings each, three more
  // for every product of two, one multiplication and four sums; a rounding is half of epsilon.
  return 10 * std::numeric_limits<double>::epsilon() * std::max<int>(1, std::bit_width(size_) - 1);
}

// Two radix-2 stages at once: four quarters of a block.
template <bool kForward>
void Fft::butterflies(double* __restrict re, double* __restrict im, size_t size) const {
  const size_t quarter = size / 4;
  const Twiddles& table = twiddles_[static_cast<size_t>(std::bit_width(size)) - 1];
  const size_t run = std::min(quarter, kRun);
  const double* __restrict table_re = table.re.data();
  const double* __restrict table_im = table.im.data();
  for (size_t start = 0; start < quarter; start += run) {
    const double base_re = std::cos(angle(start, size)), base_im = std::sin(angle(start, size));
    double *re0 = re + start, *re1 = re0 + quarter, *re2 = re1 + quarter, *re3 = re2 + quarter;
    double *im0 = im + start, *im1 = im0 + quarter, *im2 = im1 + quarter, *im3 = im2 + quarter;
#pragma GCC ivdep
    for (size_t k = 0; k < run; ++k) {
      const double w1r = base_re * table_re[k] - base_im * table_im[k];
      const double w1i = base_re * table_im[k] + base_im * table_re[k];
      const double w2r = w1r * w1r - w1i * w1i, w2i = 2 * w1r * w1i;
      const double w3r = w2r * w1r - w2i * w1i, w3i = w2r * w1i + w2i * w1r;
      if constexpr (kForward) {
        const double sr = re0[k] + re2[k], si = im0[k] + im2[k];
        const double tr = re1[k] + re3[k], ti = im1[k] + im3[k];
        const double dr = re0[k] - re2[k], di = im0[k] - im2[k];
        const double er = re1[k] - re3[k], ei = im1[k] - im3[k];
        re0[k] = sr + tr;
        im0[k] = si + ti;
        const double ar = sr - tr, ai = si - ti;
        re1[k] = ar * w2r - ai * w2i;
        im1[k] = ar * w2i + ai * w2r;
        const double br = dr + ei, bi = di - er;  // d - i e
        re2[k] = br * w1r - bi * w1i;
        im2[k] = br * w1i + bi * w1r;
        const double cr = dr - ei, ci = di + er;  // d + i e
        re3[k] = cr * w3r - ci * w3i;
        im3[k] = cr * w3i + ci * w3r;
      } else {
        // The same backwards, with conjugate roots.
        const double ar = re1[k] * w2r + im1[k] * w2i, ai = im1[k] * w2r - re1[k] * w2i;
        const double br = re2[k] * w1r + im2[k] * w1i, bi = im2[k] * w1r - re2[k] * w1i;
        const double cr = re3[k] * w3r + im3[k] * w3i, ci = im3[k] * w3r - re3[k] * w3i;
        const double sr = re0[k] + ar, si = im0[k] + ai;
        const double tr = re0[k] - ar, ti = im0[k] - ai;
        const double dr = br + cr, di = bi + ci;
        const double er = br - cr, ei = bi - ci;  // times i below
        re0[k] = sr + dr;
        im0[k] = si + di;
        re2[k] = sr - dr;
        im2[k] = si - di;
        re1[k] = tr - ei;
        im1[k] = ti + er;
        re3[k] = tr + ei;
        im3[k] = ti - er;
      }
    }
  }
}

// Depth first: a block that fits a cache is finished before the next one is touched.
void Fft::forward_block(double* re, double* im, size_t size) const {
  if (size == 1) return;
  if (size == 2) {
    const double r = re[0] - re[1], i = im[0] - im[1];
    re[0] += re[1];
    im[0] += im[1];
    re[1] = r;
    im[1] = i;
    return;
  }
  butterflies<true>(re, im, size);
  const size_t quarter = size / 4;
  if (quarter == 1) return;
  for (size_t part = 0; part < 4; ++part)
    forward_block(re + part * quarter, im + part * quarter, quarter);
}

void Fft::inverse_block(double* re, double* im, size_t size) const {
  if (size <= 2) return forward_block(re, im, size);  // its own inverse, times 2
  const size_t quarter = size / 4;
  if (quarter > 1) {
    for (size_t part = 0; part < 4; ++part)
      inverse_block(re + part * quarter, im + part * quarter, quarter);
  }
  butterflies<false>(re, im, size);
}

void Fft::forward(double* re, double* im) const {
  forward_block(re, im, size_);
}

void Fft::inverse(double* re, double* im) const {
  inverse_block(re, im, size_);
}

}  // namespace moonshard::accountant
