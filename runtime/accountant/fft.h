// A Fourier transform of a power of two, in double precision. Real and imaginary parts lie apart,
// so that compilers vectorise; the spectrum stays in bit-reversed order, which saves the shuffle:
// what is done to it here (powers, products) goes point by point.
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

  /// The place of frequency -j when `place` is that of j. Place 0 and 1 are their own.
  static size_t mirrored(size_t place);

  /// Bound on the error of every value of a result over the sum of the sizes of what was
  /// transformed, and of the 2-norm of all errors over that of the result: either counts the
  /// roundings on the way from one value to another.
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
