// The communicator of a group of one, which sends nothing.

#include "core/comm/backends.hpp"
#include "core/comm/communicator.hpp"
#include "core/device/device.hpp"

namespace lockstep {
namespace {

class LocalCommunicator final : public Communicator {
 public:
  explicit LocalCommunicator(Stream& stream) : stream_{stream} {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string_view backend() const override { return "local"; }
  Stream& stream() override { return stream_; }
  Buffer allocate(std::size_t bytes) override { return inside(stream_).allocate(bytes); }

  Work broadcast(const TensorView&, int) override { return Work::done(); }
  Work all_to_all(const TensorView& mine, SliceBounds, const TensorView& received) override {
    copy(mine.reshaped({mine.count()}), received.reshaped({received.count()}), stream_);
    return Work::done();
  }
  Work all_gather(const TensorView&, SliceBounds) override { return Work::done(); }
  Work gather(const TensorView&, SliceBounds, int) override { return Work::done(); }
  Work all_reduce(const TensorView&) override { return Work::done(); }
  Work reduce(const TensorView&, int) override { return Work::done(); }
  std::unique_ptr<Communicator> subset(std::span<const int>, std::uint64_t) override {
    return std::make_unique<LocalCommunicator>(stream_);
  }
  void abort() noexcept override {}

 private:
  Stream& stream_;
};

}  // namespace

std::unique_ptr<Communicator> make_local_communicator(Stream& stream) {
  return std::make_unique<LocalCommunicator>(stream);
}

}  // namespace lockstep
