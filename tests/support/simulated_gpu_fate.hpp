// What becomes of a simulated GPU: it fails or hangs where a test says so.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include <lockstep/core/base/error.hpp>

namespace lockstep::test {

/// What becomes of this process's GPU, as LOCKSTEP_SIMULATED_GPU_FAULT has it.
class Fate {
 public:
  Fate() {
    const char* const text = std::getenv("LOCKSTEP_SIMULATED_GPU_FAULT");
    if (!text) return;
    std::istringstream parts{text};
    std::string kind, rank, count;
    std::getline(parts, kind, ':');
    std::getline(parts, rank, ':');
    std::getline(parts, count);
    const char* const launched = std::getenv("OMPI_COMM_WORLD_RANK");  // before MPI has started
    if (std::stoi(rank) != (launched ? std::stoi(launched) : 0)) return;
    fails_ = kind == "fail";
    last_ = std::stoull(count);
    counts_ = last_ == 0;
  }
  Fate(const Fate&) = delete;
  ~Fate() {
    if (counts_) std::fprintf(stderr, "simulated GPU: %llu operations\n", static_cast<unsigned long long>(done_));
  }

  /// Called before each operation; false if the GPU does not come to its end.
  bool may_go_on() {
    if (is_over_) return false;
    ++done_;
    is_over_ = last_ > 0 && done_ >= last_;
    return !is_over_;
  }

  /// Whether the GPU does nothing any more.
  bool is_over() const { return is_over_; }

  /// What every call answers once work has failed.
  void check() const {
    if (is_over_ && fails_) throw DeviceError{"work enqueued earlier on the simulated GPU failed"};
  }

 private:
  bool fails_ = false;
  bool counts_ = false;
  std::uint64_t last_ = 0;
  std::uint64_t done_ = 0;
  bool is_over_ = false;
};

}  // namespace lockstep::test
