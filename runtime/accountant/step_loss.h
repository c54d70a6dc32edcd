// The privacy loss of one noised step as a random variable, exact, and discretised on a grid.
//   Sommer, Meiser, Mohammadi: Privacy Loss Classes (2019): losses of steps add up
//   Gopi, Lee, Wutschitz: Numerical Composition of Differential Privacy (2021): Rounding::KeepMean
//   Doroshenko et al.: Connect the Dots (2022): Rounding::Upwards
// Let x be the noised sum, in units of the clipping bound, along the sample in question. Without
// the sample x is N(0, sigma^2); with it the mixture of N(0, sigma^2) and, with chance q,
// N(1, sigma^2). The loss is the logarithm of how much more likely x is in one case than in the
// other, for an x from the first of the two.
#pragma once

#include <cstdint>
#include <vector>

namespace moonshard::accountant {

enum class Neighbour {
  Removed,  ///< x comes from the data with the sample
  Added,    ///< x comes from the data without it
};

enum class Rounding {
  KeepMean,  ///< to the nearest point of the grid; drift says how much that moves the mean
  Upwards,   ///< to both neighbours, so that the result dominates the true loss
};

/// A loss on the points (first + i) * spacing.
struct LatticeLoss {
  int64_t first = 0;
  std::vector<double> mass;
  double drift = 0;  ///< KeepMean: mean of the loss minus that of the grid, per step
};

class StepLoss {
 public:
  /// Truncates x to a range outside of which less than `outside` lies: the rest must be counted as
  /// infinite loss. 0 < q <= 1, sigma > 0, 0 < outside < 1.
  StepLoss(Neighbour neighbour, double q, double sigma, double outside);

  double outside() const { return outside_; }
  double lowest() const;
  double highest() const;

  LatticeLoss on_lattice(double spacing, Rounding rounding) const;

  /// log E exp(order * loss): the cumulants, from a rule of some hundred points.
  double log_moment(double order) const;

 private:
  struct Point {
    double loss, mass;
  };
  double loss_at(double x) const;
  double x_of_loss(double loss) const;
  /// The mass of dx at x.
  double density(double x, double loss) const;
  template <class F>
  void integrate(double from, double to, F visit) const;
  void add_cell(LatticeLoss& lattice, int64_t point, double from, double to, double spacing,
                Rounding rounding) const;

  Neighbour neighbour_;
  double q_, sigma_, outside_;
  double x_low_, x_high_;
  double panel_;  ///< width at which a ten-point rule has full precision
  std::vector<Point> points_;
};

}  // namespace moonshard::accountant
