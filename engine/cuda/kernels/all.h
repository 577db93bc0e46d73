// SPDX-License-Identifier: MIT
// The arguments of all kernels of a module.
#pragma once
#include <tuple>

#include "engine/cuda/kernels/batch_norm.h"
#include "engine/cuda/kernels/column_sums.h"
#include "engine/cuda/kernels/embedding.h"
#include "engine/cuda/kernels/factors.h"
#include "engine/cuda/kernels/few_channel.h"
#include "engine/cuda/kernels/losses.h"
#include "engine/cuda/kernels/narrow.h"
#include "engine/cuda/kernels/narrow_group_gradient.h"
#include "engine/cuda/kernels/narrow_outputs.h"
#include "engine/cuda/kernels/pointwise.h"
#include "engine/cuda/kernels/pool.h"
#include "engine/cuda/kernels/reduce.h"
#include "engine/cuda/kernels/rows.h"
#include "engine/cuda/kernels/space_to_depth.h"
#include "engine/cuda/kernels/sums.h"

namespace lockstep::engine::cuda {

using Kernels = decltype(std::tuple_cat(
    PointwiseKernels(), RowsKernels(), LossesKernels(), SumsKernels(), EmbeddingKernels(),
    BatchNormKernels(), ColumnSumsKernels(), SpaceToDepthKernels(), PoolKernels(), ReduceKernels(),
    FewChannelKernels(), NarrowKernels(), NarrowOutputKernels(), NarrowGroupKernels(),
    FactorsKernels()));

}  // namespace lockstep::engine::cuda
