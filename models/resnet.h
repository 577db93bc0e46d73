// SPDX-License-Identifier: MIT
// Residual networks (He, Zhang, Ren, Sun 2015). A block's output is relu(main + shortcut), where
// the shortcut is the block's input, or a 1x1 convolution of it where the shape changes.
// Convolutions have no bias; each has a batch norm behind it. Each block of the paper is one of the
// graph (GraphSpec::begin_block). Names: "conv1", "bn1", "stage2.block1.conv3",
// "stage2.block1.bn3", "stage2.block1.shortcut", "stage2.block1.shortcut_bn", "fc".
//
// resnet20: the form for CIFAR, 32x32x3 to 10 classes: three stages of three blocks of two 3x3
// convolutions, of 16, 32 and 64 filters. 272,474 parameters: with 1x1 convolutions as shortcuts
// where the paper's has zeros (its option B).
// resnet50: the form for ImageNet, 224x224x3 to 1000 classes: 3, 4, 6 and 3 blocks of 1x1, 3x3 and
// 1x1 convolutions; of a block that halves the image the 3x3 has the stride ("v1.5").
// 25,557,032 parameters.
//
// Values; made anew by each call.
#pragma once
#include "engine/nn/graph_spec.h"

namespace lockstep::models {

struct ResnetOptions {
  bool synchronised = false;  // batch norm over all replicas together
};
engine::GraphSpec resnet20(ResnetOptions options = {});
engine::GraphSpec resnet50(ResnetOptions options = {});

}  // namespace lockstep::models
