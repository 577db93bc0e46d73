// SPDX-License-Identifier: MIT
// Tests the matrix product of lockstep with each instruction set of this machine. At every edge it
// is the sum of products and writes nothing else; the number of threads does not change a bit.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/random.h"
#include "engine/cpu/cpu_device.h"
#include "engine/cpu/product_kernels.h"
#include "engine/device/buffer.h"
#include "test/engine/ops/conformance.h"

namespace lockstep::engine {
namespace product_test {

using cpu::Product;

class Products : public testing::Test {
 protected:
  void use(std::int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  ~Products() override { use(0); }  // all sets
};

// Holds a matrix followed by guard elements.
class Matrix {
 public:
  static constexpr std::size_t kGuard = 32;
  static constexpr float kWord = 12345;
  Matrix(std::size_t elements, std::uint64_t seed)
      : elements_(elements), memory_((elements + kGuard) * sizeof(float)) {
    Random random(seed);
    for (std::size_t i = 0; i < elements; ++i) data()[i] = float(random.uniform(-1, 1));
    std::fill_n(data() + elements, kGuard, kWord);
  }
  float* data() { return reinterpret_cast<float*>(memory_.data()); }
  const float* data() const { return reinterpret_cast<const float*>(memory_.data()); }
  bool guarded() const {
    return std::count(data() + elements_, data() + elements_ + kGuard, kWord) == kGuard;
  }
  bool operator==(const Matrix& other) const {
    return std::equal(data(), data() + elements_, other.data());
  }

 private:
  std::size_t elements_;
  Buffer memory_;
};

// Computes the product in `parts` parts, as that many threads would.
void run(const Product& product, std::size_t parts) {
  Matrix packed(product.packed(), 0), panel(Product::panel(), 0);
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t first = product.strips() * part / parts;
    pack(product, first, product.strips() * (part + 1) / parts - first, packed.data());
  }
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t first = product.groups() * part / parts;
    const std::size_t count = product.groups() * (part + 1) / parts - first;
    multiply(product, packed.data(), first, count, panel.data());
  }
  EXPECT_TRUE(packed.guarded() && panel.guarded());
}

// Returns the largest difference from sums in double precision, relative to the sum of magnitudes.
// Only every `every_row`-th row and every `every_column`-th column are checked.
double error_of(const Product& p, const float* before, std::size_t every_row = 1,
                std::size_t every_column = 1) {
  double worst = 0;
  for (std::size_t i = 0; i < p.rows; i += every_row) {
    for (std::size_t j = 0; j < p.columns; j += every_column) {
      double sum = p.add ? double(before[i * p.columns + j]) : 0, size = std::abs(sum);
      for (std::size_t k = 0; k < p.depth; ++k) {
        const double a = double(p.turned ? p.a[k * p.rows + i] : p.a[i * p.depth + k]);
        sum += a * double(p.b[k * p.columns + j]);
        size += std::abs(a * double(p.b[k * p.columns + j]));
      }
      worst = std::max(worst, std::abs(double(p.c[i * p.columns + j]) - sum) / size);
    }
  }
  return worst;
}

TEST_F(Products, AreTheSumsAtEveryEdgeAndTheSameBitsInAnyNumberOfParts) {
  const std::vector<std::int64_t> targets = hwy::SupportedAndGeneratedTargets();
  ASSERT_FALSE(targets.empty());
  for (const std::int64_t target : targets) {
    use(target);
    for (std::size_t rows : {1, 2, 3, 4, 5, 6, 7, 13, 24}) {
      for (std::size_t depth : {1, 5, 256, 257, 600}) {
        for (std::size_t columns : {1, 15, 16, 64, 65, 200}) {
          const bool turned = (rows + depth + columns) % 2 == 1, add = (rows + depth) % 3 == 1;
          const Matrix a(rows * depth, 1), b(depth * columns, 2);
          Matrix c(rows * columns, 3), before(rows * columns, 3), parts(rows * columns, 3);
          Product product{rows, depth, columns, a.data(), turned, b.data(), c.data(), add};
          run(product, 1);
          SCOPED_TRACE(fmt::format("{}: {}x{}x{}{}{}", hwy::TargetName(target), rows, depth,
                                   columns, turned ? ", turned" : "", add ? ", added" : ""));
          ASSERT_LT(error_of(product, before.data()), 3e-6);
          ASSERT_TRUE(c.guarded());
          product.c = parts.data();
          run(product, 3);
          ASSERT_TRUE(parts == c);
        }
      }
    }
  }
}

// Results are written with non-temporal stores if they exceed a cache.
TEST_F(Products, OfLargeResultsAreTheSumsToo) {
  const std::size_t rows = 2050, columns = 2064;
  for (std::size_t depth : {std::size_t(3), Product::kDepth + 1}) {
    const Matrix a(rows * depth, 1), b(depth * columns, 2);
    Matrix c(rows * columns, 3);
    const Product product{rows, depth, columns, a.data(), true, b.data(), c.data(), false};
    for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
      use(target);
      std::fill_n(c.data(), rows * columns, 0.0f);
      run(product, 2);
      EXPECT_LT(error_of(product, nullptr, 97, 7), 3e-6)
          << hwy::TargetName(target) << ", depth " << depth;
      EXPECT_TRUE(c.guarded());
    }
  }
}

// The gradients of a wide layer are only sampled because the reference would be slow. Unused rows
// do not contribute, and change no bit of the others.
TEST(WideDense, HasTheSumsAsGradientsAndTheSameBitsInAShortBatch) {
  constexpr std::size_t kPlanned = 26, kInputs = 2050, kOutputs = 2064;
  const DenseSpec spec{kInputs, kOutputs, true, Activation::kRelu};
  const auto device = cpu_device();
  for (int threads : {1, 3}) {
    const auto ops = device->ops(DType::kFloat32, {.threads = threads});
    EXPECT_GE(ops->dense_memory(spec, kPlanned).bytes(), kPlanned * kOutputs * sizeof(float));
    EXPECT_EQ(ops->dense_memory(spec, 8).bytes(), 0u);
    const auto direct = device->ops(DType::kFloat32, {.kernels = Kernels::kDirect});
    EXPECT_EQ(direct->dense_memory(spec, kPlanned).bytes(), 0u);
    Matrix x(kPlanned * kInputs, 1), w(kOutputs * kInputs, 2), long_dx(kPlanned * kInputs, 3);
    for (std::size_t used : {kPlanned, kPlanned - 3}) {
      for (bool accumulate : {false, true}) {
        Matrix dy(kPlanned * kOutputs, 4), dw(kOutputs * kInputs, 5), dx(kPlanned * kInputs, 6);
        const Matrix before(kOutputs * kInputs, 5), bias_before(kOutputs, 8);
        Matrix y(kPlanned * kOutputs, 7), db(kOutputs, 8), masked(kPlanned * kOutputs, 4);
        for (std::size_t i = 0; i < kPlanned * kOutputs; ++i) {
          if (y.data()[i] <= 0) y.data()[i] = masked.data()[i] = 0;
        }
        const auto tensor = [](Matrix& m, std::size_t rows, std::size_t columns) {
          return Tensor{reinterpret_cast<std::byte*>(m.data()), {rows, columns}, DType::kFloat32};
        };
        const Tensor bias{reinterpret_cast<std::byte*>(db.data()), {kOutputs}, DType::kFloat32};
        const StepState state = state_of(used);
        ops->dense_backward(&state, spec, tensor(x, kPlanned, kInputs),
                            tensor(y, kPlanned, kOutputs), tensor(dy, kPlanned, kOutputs),
                            tensor(w, kOutputs, kInputs), tensor(dx, kPlanned, kInputs),
                            tensor(dw, kOutputs, kInputs), bias, accumulate);
        ASSERT_TRUE(dx.guarded() && dw.guarded() && db.guarded());
        for (std::size_t o = 0; o < kOutputs; ++o) {
          double sum = accumulate ? double(bias_before.data()[o]) : 0;
          for (std::size_t row = 0; row < used; ++row) {
            sum += double(masked.data()[row * kOutputs + o]);
          }
          ASSERT_NEAR(db.data()[o], sum, 1e-5) << o;
        }
        for (std::size_t i = 0; i < kInputs; i += 41) {
          for (std::size_t row = 0; row < used; ++row) {
            double sum = 0;
            for (std::size_t o = 0; o < kOutputs; ++o) {
              sum += double(masked.data()[row * kOutputs + o]) * double(w.data()[o * kInputs + i]);
            }
            ASSERT_NEAR(dx.data()[row * kInputs + i], sum, 2e-4) << row << ", " << i;
          }
          for (std::size_t o = 0; o < kOutputs; o += 43) {
            double sum = accumulate ? double(before.data()[o * kInputs + i]) : 0;
            for (std::size_t row = 0; row < used; ++row) {
              sum +=
                  double(masked.data()[row * kOutputs + o]) * double(x.data()[row * kInputs + i]);
            }
            ASSERT_NEAR(dw.data()[o * kInputs + i], sum, 1e-5) << o << ", " << i;
          }
        }
        if (used == kPlanned) {
          std::copy_n(dx.data(), kPlanned * kInputs, long_dx.data());
        } else {
          ASSERT_TRUE(std::equal(dx.data(), dx.data() + used * kInputs, long_dx.data()));
        }
      }
    }
  }
}

}  // namespace product_test
}  // namespace lockstep::engine
