// A Fourier transform of a power of two, in double precision. Real and imaginary parts are separate
// arrays, so that compilers vectorise; the spectrum stays in bit-reversed order, which saves the
// shuffle: only pointwise operations (powers, products) are applied to it.
#pragma once

#include <cstddef>
#include <vector>

namespace moonshard::accountant {

class Fft {
 public:
  explicit Fft(size_t size);  ///< a power of two

  size_t size() const { return size_; }

  /// x_k -> sum_k x_k exp(-2 pi i j k / size), the value of frequency j at place reversed(j).
  void forward(double* re, double* im) const;
  /// Back from that order, times size.
  void inverse(double* re, double* im) const;

  /// The index of frequency -j when `place` is that of j. Indices 0 and 1 map to themselves.
  static size_t mirrored(size_t place);

  /// Bound on the error of every output value relative to the 1-norm of the input, and on the
  /// 2-norm of all errors relative to that of the output: both count the roundings on the path from
  /// one value to another.
  ///   Higham: Accuracy and Stability of Numerical Algorithms (2002), theorem 24.2
  double relative_error() const;

 private:
  void forward_block(double* re, double* im, size_t size) const;
  void inverse_block(double* re, double* im, size_t size) const;
  template <bool kForward>
  void butterflies(double* re, double* im, size_t size) const;

  struct Twiddles {
    std::vector<double> re, im;
  };
  size_t size_;
  std::vector<Twiddles> twiddles_;  ///< by the logarithm of the block size; the first kRun of each
};

}  // namespace moonshard::accountant
