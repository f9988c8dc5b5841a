#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace lockstep::test {

/// The little-endian doubles of a file. One dimension of `shape` may be -1: as many as the file has.
at::Tensor read_doubles(const std::string& path, at::IntArrayRef shape);

}  // namespace lockstep::test
