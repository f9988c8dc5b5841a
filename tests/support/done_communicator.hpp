// A communicator for tests of what is around one.
#pragma once

#include "core/comm/communicator.hpp"
#include "core/device/device.hpp"
#include "core/device/devices.hpp"

namespace lockstep::test {

/// Each collective is done when its call returns, as if the other ranks agreed to everything. No tensor changes.
class DoneCommunicator : public Communicator {
 public:
  DoneCommunicator(int rank, int size) : rank_{rank}, size_{size} {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view backend() const override { return "done"; }
  Stream& stream() override { return Stream::host(); }
  Buffer allocate(std::size_t bytes) override { return allocate_host(bytes); }
  Work broadcast(const TensorView&, int) override { return Work::done(); }
  Work all_to_all(const TensorView&, SliceBounds, const TensorView&) override { return Work::done(); }
  Work all_gather(const TensorView&, SliceBounds) override { return Work::done(); }
  Work gather(const TensorView&, SliceBounds, int) override { return Work::done(); }
  Work all_reduce(const TensorView&) override { return Work::done(); }
  Work reduce(const TensorView&, int) override { return Work::done(); }
  void abort() noexcept override {}

 private:
  int rank_;
  int size_;
};

}  // namespace lockstep::test
