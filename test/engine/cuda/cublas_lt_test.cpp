// SPDX-License-Identifier: MIT
// Tests the calls of CublasLt with a fake library that records them and computes by its own rules.
#include "engine/cuda/cublas_lt.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "test/engine/cuda/fake_cublas_lt.h"
#include "test/engine/cuda/fake_gpu.h"

namespace lockstep::engine::cuda {
namespace cublas_lt_test {

class CublasLtTest : public testing::Test {
 protected:
  CublasLtTest()
      : driver_(gpu_.driver()),
        context_(driver_, 0),
        memory_(context_),
        stream_(context_),
        functions_(library_.functions()) {}

  void make(bool tf32 = true) {
    products_.reset();
    products_.emplace(functions_, context_, memory_, tf32);
  }
  std::vector<float> random(std::size_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = uniform_(random_);
    return values;
  }
  template <class Value>
  Value asked(std::size_t question, int attribute) const {
    const std::vector<std::byte>& bytes = library_.asked.at(question).attributes.at(attribute);
    EXPECT_EQ(bytes.size(), sizeof(Value));
    Value value{};
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }

  FakeGpu gpu_;
  Driver driver_;
  Context context_;
  Memory memory_;
  CudaStream stream_;
  FakeCublasLt library_;
  CublasLtFunctions functions_;
  std::optional<CublasLt> products_;
  std::mt19937 random_{3};
  std::uniform_real_distribution<float> uniform_{-1, 1};
};

constexpr Product kSmall{.m = 2, .n = 3, .k = 4};

// Computes c[i][j] = relu(sum over l of op(a)[i][l] op(b)[l][j] + c[i][j] + bias[j]), as far as the
// product requests it.
std::vector<float> formula(const Product& p, const std::vector<float>& a,
                           const std::vector<float>& b, const std::vector<float>& bias,
                           std::vector<float> c) {
  for (std::size_t i = 0; i < p.m; ++i) {
    for (std::size_t j = 0; j < p.n; ++j) {
      float sum = 0;
      for (std::size_t l = 0; l < p.k; ++l) {
        sum += (p.transpose_a ? a[l * p.m + i] : a[i * p.k + l]) *
               (p.transpose_b ? b[j * p.k + l] : b[l * p.n + j]);
      }
      float& place = c[i * p.n + j];
      sum += (p.accumulate ? place : 0) + (p.bias ? bias[j] : 0);
      place = p.relu && sum < 0 ? 0 : sum;
    }
  }
  return c;
}

TEST_F(CublasLtTest, ComputesTheFormulaOfRowMajorMatrices) {
  make();
  for (int flags = 0; flags < 32; ++flags) {
    Product p{.m = 5, .n = 3, .k = 7};
    p.transpose_a = (flags & 1) != 0;
    p.transpose_b = (flags & 2) != 0;
    p.accumulate = (flags & 4) != 0;
    p.bias = (flags & 8) != 0;
    p.relu = (flags & 16) != 0;
    const std::vector<float> a = random(35), b = random(21), bias = random(3);
    std::vector<float> c = random(15);
    const std::vector<float> expected = formula(p, a, b, bias, c);
    products_->run(stream_, p, a.data(), b.data(), bias.data(), c.data());
    for (std::size_t i = 0; i < c.size(); ++i) {
      ASSERT_NEAR(c[i], expected[i], 1e-5) << "flags " << flags << ", element " << i;
    }
  }
}

TEST_F(CublasLtTest, QueuesOnTheStreamWithTheWorkspaceThatTheKernelNeeds) {
  make();
  std::vector<float> a(8), b(12), c(6);
  products_->run(stream_, kSmall, a.data(), b.data(), nullptr, c.data());
  ASSERT_EQ(library_.computed.size(), 1u);
  EXPECT_EQ(library_.computed[0].stream, stream_.handle());
  EXPECT_NE(library_.computed[0].workspace, nullptr);
  EXPECT_EQ(library_.computed[0].workspace_bytes, 4096u);
}

TEST_F(CublasLtTest, AsksOnceForAShapeAndAnAlignment) {
  make();
  alignas(256) float a[16] = {}, b[16] = {}, c[16] = {};
  const auto run = [&](const Product& product, const float* from) {
    products_->run(stream_, product, from, b, nullptr, c);
    return library_.asked.size();
  };
  EXPECT_EQ(run(kSmall, a), 1u);
  EXPECT_EQ(run(kSmall, a), 1u);
  Product other = kSmall;
  other.accumulate = true;
  EXPECT_EQ(run(other, a), 2u);
  EXPECT_EQ(run(kSmall, a + 4), 3u);
  EXPECT_EQ(run(kSmall, a), 3u);
  EXPECT_EQ(run(other, a), 3u);
}

TEST_F(CublasLtTest, AsksForKernelsThatAddInOneOrderAndFitTheOperands) {
  make();
  alignas(256) float a[32] = {}, b[32] = {}, c[32] = {};
  products_->run(stream_, kSmall, a + 4, b + 2, nullptr, c + 1);
  EXPECT_EQ(asked<std::uint32_t>(0, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK),
            std::uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  EXPECT_EQ(asked<std::uint64_t>(0, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES), 32u << 20);
  // The library's first operand is b.
  EXPECT_EQ(asked<std::uint32_t>(0, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES), 8u);
  EXPECT_EQ(asked<std::uint32_t>(0, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES), 16u);
  EXPECT_EQ(asked<std::uint32_t>(0, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES), 4u);
  EXPECT_EQ(asked<std::uint32_t>(0, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES), 4u);
}

TEST_F(CublasLtTest, OnlyFloat32IsRoundedAndOnlyWhereThatIsAllowed) {
  alignas(256) float a[32] = {}, b[32] = {}, c[32] = {};
  const auto compute = [&](DType dtype, bool tf32) {
    make(tf32);
    Product product = kSmall;
    product.dtype = dtype;
    products_->run(stream_, product, a, b, nullptr, c);
    return library_.computed.back().compute;
  };
  EXPECT_EQ(compute(DType::kFloat32, true), CUBLAS_COMPUTE_32F_FAST_TF32);
  EXPECT_EQ(compute(DType::kFloat32, false), CUBLAS_COMPUTE_32F);
  EXPECT_EQ(compute(DType::kBFloat16, true), CUBLAS_COMPUTE_32F);
  EXPECT_EQ(library_.computed.back().type, CUDA_R_16BF);
  EXPECT_EQ(compute(DType::kFloat16, true), CUBLAS_COMPUTE_32F);
  EXPECT_EQ(library_.computed.back().type, CUDA_R_16F);
}

TEST_F(CublasLtTest, GivesBackAllThatItMade) {
  std::vector<float> a(8), b(12), c(6);
  make();
  products_->run(stream_, kSmall, a.data(), b.data(), nullptr, c.data());
  EXPECT_GT(library_.objects(), 0u);
  products_.reset();
  EXPECT_EQ(library_.objects(), 0u);
  EXPECT_EQ(memory_.taken(), 0u);
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kDevice);
    return error.what();
  }
  return "no error";
}

TEST_F(CublasLtTest, ErrorsNameTheCallTheStatusAndTheProduct) {
  make();
  std::vector<float> a(8), b(12), c(6);
  const auto run = [&] { products_->run(stream_, kSmall, a.data(), b.data(), nullptr, c.data()); };
  library_.answer = CUBLAS_STATUS_EXECUTION_FAILED;
  EXPECT_EQ(message_of(run),
            "cuda:0: cublasLtMatmul failed: the fake says no (CUBLAS_STATUS_OF_A_FAKE), for the "
            "product of float32, 2x4 by 4x3");
  make();
  library_.kernels = 0;
  EXPECT_EQ(message_of(run),
            "cuda:0: cuBLASLt has no kernel that gives the same bits every time for the product of "
            "float32, 2x4 by 4x3");
}

TEST(CublasLtLibrary, HasTheFunctionsThatAreCalled) {
  try {
    const CublasLtFunctions functions = load_cublas_lt();
    EXPECT_EQ(functions.version() / 10000, std::size_t(CUBLAS_VER_MAJOR));
    EXPECT_STREQ(functions.get_status_name(CUBLAS_STATUS_SUCCESS), "CUBLAS_STATUS_SUCCESS");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kUnavailable);
    GTEST_SKIP() << error.what();
  }
}

}  // namespace cublas_lt_test
}  // namespace lockstep::engine::cuda
