// SPDX-License-Identifier: MIT
// Residual networks (He, Zhang, Ren, Sun 2015). A block's output is relu(main + shortcut). The
// shortcut is the block's input, or a 1x1 convolution of it if the shape changes. Convolutions have
// no bias, and a batch norm follows each of them. Each block of the paper is a block of the graph
// (GraphSpec::begin_block). Names: "conv1", "bn1", "stage2.block1.conv3", "stage2.block1.bn3",
// "stage2.block1.shortcut", "stage2.block1.shortcut_bn", "fc".
//
// resnet20 is the CIFAR form, from 32x32x3 to 10 classes. It has three stages of three blocks of
// two 3x3 convolutions, with 16, 32 and 64 filters. It has 272,474 parameters, because its
// shortcuts are 1x1 convolutions (option B of the paper) where the paper pads with zeros.
//
// resnet50 is the ImageNet form, from 224x224x3 to 1000 classes. It has 3, 4, 6 and 3 blocks of
// 1x1, 3x3 and 1x1 convolutions. The 3x3 convolution has the stride in blocks that halve the image
// ("v1.5"). 25,557,032 parameters.
//
// Values; each call builds a new one.
#pragma once
#include "engine/nn/graph_spec.h"

namespace lockstep::models {

struct ResnetOptions {
  bool synchronised = false;  // batch norm over all replicas together
};
engine::GraphSpec resnet20(ResnetOptions options = {});
engine::GraphSpec resnet50(ResnetOptions options = {});

}  // namespace lockstep::models
