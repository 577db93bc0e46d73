// SPDX-License-Identifier: MIT
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/nn/layers.h"

namespace lockstep::engine {
namespace {

// The numbers of the reductions of forward and backward, and how many there are.
constexpr int kForwardSums = 0, kGradientSums = 1, kSums = 2;

// A fused ReLU, or a second input that is added before it, runs in the same pass. So does a merged
// batch norm that makes the second input: this layer then has two members, numbered 0 and 1 as
// their inputs are.
class BatchNorm final : public Layer {
 public:
  // `members` has the options of one batch norm or of two.
  BatchNorm(std::vector<BatchNormOptions> members, Activation activation, bool adds)
      : members_(std::move(members)), activation_(activation), adds_(adds) {}

  std::string describe() const override {
    const std::string other = is_pair() ? fmt::format(" batch_norm, momentum {}, epsilon {}",
                                                      members_[1].momentum, members_[1].epsilon)
                                        : "";
    return fmt::format("batch_norm, momentum {}, epsilon {}{}{}{}{}", members_[0].momentum,
                       members_[0].epsilon, synchronised() ? ", synchronised" : "",
                       adds_ ? ", add" : "", other,
                       activation_ == Activation::kRelu ? ", relu" : "");
  }
  bool on_device() const override { return true; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    require(inputs.size() == (adds_ ? 2 : 1), "takes {}, not {}",
            adds_ ? "two inputs" : "one input", inputs.size());
    require(inputs[0].rank() >= 1 && inputs[0].elements() > 0,
            "takes an input of at least one channel, not {}", to_string(inputs[0]));
    return inputs[0];
  }
  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    const std::size_t channels = spec(inputs[0], 0).channels;
    return of_members<ParameterSpec>({{"scale", {channels}, constant(1), Group::kNorm},
                                      {"shift", {channels}, constant(0), Group::kNorm}});
  }
  std::vector<StatisticSpec> statistics(std::span<const Shape> inputs) const override {
    const std::size_t channels = spec(inputs[0], 0).channels;
    return of_members<StatisticSpec>({{"mean", channels, 0}, {"variance", channels, 1}});
  }
  std::vector<ReductionSpec> reductions(std::span<const Shape> inputs) const override {
    if (!synchronised()) return {};
    const BatchNormSpec s = spec(inputs[0], 0);
    return of_members<ReductionSpec>({{"sums", s.sums()}, {"gradient_sums", s.gradient_sums()}});
  }
  std::size_t workspace(Ops&, std::span<const Shape> inputs, std::size_t rows) const override {
    const BatchNormSpec s = spec(inputs[0], 0);
    return members_.size() * Workspace::bytes(s) + rows * s.mask_of_row();
  }
  LayerPtr with_relu() const override {
    if (activation_ != Activation::kNone) return nullptr;
    return std::make_shared<BatchNorm>(members_, Activation::kRelu, adds_);
  }
  LayerPtr with_add() const override {
    if (activation_ != Activation::kNone || adds_) return nullptr;
    return std::make_shared<BatchNorm>(members_, activation_, true);
  }
  LayerPtr with_maker(const Layer& maker) const override {
    const auto* const other = dynamic_cast<const BatchNorm*>(&maker);
    if (other == nullptr || other->adds_ || other->activation_ != Activation::kNone ||
        other->synchronised() != synchronised() || !adds_ || is_pair()) {
      return nullptr;
    }
    return std::make_shared<BatchNorm>(std::vector{members_[0], other->members_[0]}, activation_,
                                       true);
  }
  bool backward_reads_output() const override { return false; }
  bool backward_reads_input(std::size_t input) const override { return input < members_.size(); }

  // Member 1 is first, because the second input was often made last and may be in a cache.
  void forward(Context& context, const ForwardArguments& a) const override {
    const BatchNormSpec s = spec(a.x[0].shape, 1);
    for (std::size_t member = members_.size(); member-- > 0;) {
      if (!context.training) {
        context.ops->batch_norm_fixed_moments(spec(a.x[0].shape, 1, member),
                                              a.statistics + member * s.moments(),
                                              Workspace(s, a.workspace, member).moments);
      } else if (!a.again) {
        find_moments(context, a, member);
      }
    }
    BatchNormForward call{a.x[0], a.w[0], a.w[1]};
    if (adds_) call.other = a.x[1];
    call.y = a.y;
    call.moments = Workspace(s, a.workspace, 0).moments;
    call.mask = mask(s, a.workspace);
    if (is_pair()) {
      call.other_moments = Workspace(s, a.workspace, 1).moments;
      call.other_scale = a.w[2], call.other_shift = a.w[3];
    }
    context.ops->batch_norm_forward(context.state, s, call);
  }

  void backward(Context& context, const BackwardArguments& a) const override {
    const BatchNormSpec s = spec(a.x[0].shape, 1);
    BatchNormPair calls;
    std::array<BatchNormGradients, 2> results;
    for (std::size_t member = 0; member < members_.size(); ++member) {
      const Workspace kept(s, a.workspace, member);
      BatchNormBackward& call = calls[member];
      call = {a.x[member], a.dy, a.w[2 * member], a.dx[member]};
      call.moments = kept.moments;
      call.mask = mask(s, a.workspace);
      if (context.training) call.sums = kept.sums, call.count = kept.count;
      results[member] = {kept.sums, a.dw[2 * member], a.dw[2 * member + 1]};
    }
    if (adds_ && !is_pair()) calls[0].dother = a.dx[1];
    Ops& ops = *context.ops;
    if (is_pair()) {
      ops.batch_norm_pair_gradient_sums(context.state, s, calls, a.accumulate, results);
    } else {
      ops.batch_norm_gradient_sums(context.state, s, calls[0], results[0].dscale, results[0].dshift,
                                   a.accumulate, results[0].sums);
    }
    for (std::size_t member = 0; member < members_.size(); ++member)
      if (synchronised() && context.training)
        add_up(context, point(a.point, member) + kGradientSums, results[member].sums,
               s.gradient_sums());
    if (is_pair()) {
      ops.batch_norm_pair_backward(context.state, s, calls);
    } else if (calls[0].dx || calls[0].dother) {
      ops.batch_norm_backward(context.state, s, calls[0]);
    }
  }

 private:
  // Lies in the layer's workspace from forward to backward: for each member moments, how many
  // values they are of, and room for sums; then the bits of ReLU.
  struct Workspace {
    double *moments, *count, *sums;
    Workspace(const BatchNormSpec& s, std::byte* memory, std::size_t member)
        : moments(reinterpret_cast<double*>(memory + member * bytes(s))),
          count(moments + s.moments()),
          sums(count + 1) {}
    static std::size_t bytes(const BatchNormSpec& s) {
      return (s.moments() + 1 + s.sums()) * sizeof(double);
    }
  };
  std::uint8_t* mask(const BatchNormSpec& s, std::byte* workspace) const {
    return reinterpret_cast<std::uint8_t*>(workspace + members_.size() * Workspace::bytes(s));
  }

  bool is_pair() const { return members_.size() == 2; }
  bool synchronised() const { return members_[0].synchronised; }  // all members or none
  // Returns the first reduction of a member, from that of the layer.
  static int point(int first, std::size_t member) { return first + int(member) * kSums; }
  template <class T>
  std::vector<T> of_members(const std::vector<T>& of_one) const {
    std::vector<T> all = of_one;
    if (is_pair()) all.insert(all.end(), of_one.begin(), of_one.end());
    return all;
  }

  // Returns the spec for a shape whose last extent is the channels, after `skip` that do not count.
  BatchNormSpec spec(const Shape& shape, std::size_t skip, std::size_t member = 0) const {
    const std::size_t channels = shape[shape.rank() - 1];
    std::size_t positions = 1;
    for (std::size_t i = skip; i + 1 < shape.rank(); ++i) positions *= shape[i];
    return {positions, channels, members_[member].epsilon, activation_};
  }

  // Replaces the sums by those over all replicas. If kernels are queued, so is all of this.
  static void add_up(Context& context, int point, double* sums, std::size_t count) {
    std::byte* const exchange = context.exchange(point);
    std::byte* const here = reinterpret_cast<std::byte*>(sums);
    context.ops->copy_bytes(here, exchange, count * sizeof(double));
    context.reduce(point);
    context.ops->copy_bytes(exchange, here, count * sizeof(double));
  }

  void find_moments(Context& context, const ForwardArguments& a, std::size_t member) const {
    const BatchNormSpec s = spec(a.x[member].shape, 1, member);
    const Workspace kept(s, a.workspace, member);
    const BatchNormMoments call{kept.sums, kept.moments, kept.count,
                                a.statistics + member * s.moments(), members_[member].momentum};
    if (!synchronised())
      return context.ops->batch_norm_statistics(context.state, s, a.x[member], kept.sums, call);
    context.ops->batch_norm_sums(context.state, s, a.x[member], kept.sums);
    add_up(context, point(a.point, member) + kForwardSums, kept.sums, s.sums());
    context.ops->batch_norm_moments(s, call);
  }

  std::vector<BatchNormOptions> members_;
  Activation activation_;
  bool adds_;
};

}  // namespace

LayerPtr batch_norm(BatchNormOptions options) {
  require(options.momentum >= 0 && options.momentum < 1,
          "batch_norm: momentum {} is not a part that is kept; 0 <= momentum < 1",
          options.momentum);
  require(std::isfinite(options.epsilon) && options.epsilon > 0,
          "batch_norm: epsilon is {}; it must be above 0", options.epsilon);
  return std::make_shared<BatchNorm>(std::vector{options}, Activation::kNone, false);
}

}  // namespace lockstep::engine
