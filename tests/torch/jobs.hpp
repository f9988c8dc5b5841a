// What tests of the bridge start as jobs: one program, as LibTorch's headers take longer to compile than all of this.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace lockstep::test {

/// Each has the command line of the program, whose own arguments begin at argv[2], and returns its exit code.
int victim(int argc, char** argv);
int guest(int argc, char** argv);
int exchange(int argc, char** argv);
int models(int argc, char** argv);

/// The little-endian doubles of a file. One dimension of `shape` may be -1: as many as the file has.
at::Tensor read_doubles(const std::string& path, at::IntArrayRef shape);

}  // namespace lockstep::test
