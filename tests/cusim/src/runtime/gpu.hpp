// What a simulated GPU has, and what it takes.
#pragma once

namespace cusim {

/// A GPU of compute capability 9.0 with few multiprocessors, so that grids that fill it stay small.
struct Gpu {
  int major = 9;
  int minor = 0;
  int multiprocessors = 4;
  int warp = 32;
  int threads_of_block = 1024;
  int threads_of_multiprocessor = 2048;
  int blocks_of_multiprocessor = 32;
  int shared_of_block = 48 << 10;
  int shared_of_block_optin = 227 << 10;
  int shared_of_multiprocessor = 228 << 10;
  int registers = 65536;
  int largest_grid[3] = {2147483647, 65535, 65535};
  int largest_block[3] = {1024, 1024, 64};
  int parameters_of_kernel = 32764;  ///< bytes
  int cache = 1 << 20;
  int constant = 64 << 10;
};
inline constexpr Gpu gpu;

}  // namespace cusim
