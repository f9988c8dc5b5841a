// LibTorch and Catch2, which both have a macro CHECK. The tests mean that of Catch2.
#pragma once

#include <ATen/DLConvertor.h>
#include <torch/autograd.h>
#include <torch/nn.h>
#include <torch/optim.h>

#undef CHECK
#include <catch2/catch.hpp>
