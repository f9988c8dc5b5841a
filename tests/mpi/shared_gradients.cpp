// Gradients of ranks that share a node: one mapping for all of them, or none for any.
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include <catch2/catch.hpp>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "support/child_process.hpp"
#include "support/ranks.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// Whether `address` is in memory without a name that processes can share.
bool is_shared(const void* address) {
  std::ifstream maps{"/proc/self/maps"};
  for (std::string line; std::getline(maps, line);) {
    std::istringstream range{line};
    std::uintptr_t first = 0, last = 0;
    char dash = 0;
    range >> std::hex >> first >> dash >> last;
    const auto at = reinterpret_cast<std::uintptr_t>(address);
    if (at >= first && at < last) return line.find("/memfd:lockstep") != std::string::npos;
  }
  return false;
}

/// No further descriptor can be opened while it lives.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::close(next);
    const rlimit none{static_cast<rlim_t>(next), before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  NoDescriptors(const NoDescriptors&) = delete;
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_ = {};
};

MirroredVariable make(Strategy& strategy, DType dtype, std::int64_t count, bool trainable = true) {
  return strategy.create_variable({.trainable = trainable}, [&] { return Tensor::zeros(dtype, {count}); });
}

/// Whether the sum over the ranks of the variable's gradients is exact.
template <class T>
bool sums(Strategy& strategy, const MirroredVariable& variable) {
  const TensorView gradient = strategy.store().gradient(variable);
  const auto elements = gradient.elements<T>();
  const auto number = [](std::size_t i) { return static_cast<T>(i % 1000); };
  for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = number(i) * static_cast<T>(1 + rank());
  strategy.run([&](ReplicaContext& context) {
    context.merge_call([&](Strategy& merged) {
      inside(merged).reductions().all_reduce(ReduceOp::sum, {&gradient, 1});
    });
  });
  for (std::size_t i = 0; i < elements.size(); ++i)
    if (elements[i] != number(i) * static_cast<T>(triangle())) return false;
  return true;
}

}  // namespace

TEST_CASE("gradients of ranks on one node lie in memory that they share, at each seal of each strategy") {
  Strategy first = runtime().make_strategy(), second = runtime().make_strategy();
  const auto a = make(first, DType::f32, 40'001), b = make(first, DType::f64, 3), c = make(first, DType::f32, 5, false);
  const auto d = make(second, DType::f32, 7);
  first.seal();
  second.seal();
  const auto later = make(first, DType::f32, 100'003);
  first.seal();
  for (const auto& [strategy, variable] : {std::pair{&first, a}, {&first, b}, {&first, later}, {&second, d}}) {
    CHECK(is_shared(strategy->store().gradient(variable).data()));
    CHECK_FALSE(is_shared(variable.local().data()));
  }
  CHECK(sums<float>(first, a));
  CHECK(sums<double>(first, b));
  CHECK(sums<float>(first, later));
  CHECK(sums<float>(second, d));
}

TEST_CASE("if one rank gets no memory to share, all ranks sum by messages, and that one says why") {
  for (int culprit = 0; culprit < ranks(); ++culprit) {
    Strategy strategy = runtime().make_strategy();
    const auto variable = make(strategy, DType::f32, 40'001);
    std::string log;
    {
      CapturedStderr captured;
      {
        std::optional<NoDescriptors> none;
        if (rank() == culprit) none.emplace();
        strategy.seal();
      }
      log = captured.text();
    }
    CAPTURE(culprit, log);
    CHECK_FALSE(is_shared(strategy.store().gradient(variable).data()));
    CHECK((log.find("warning: gradients are summed by messages") != std::string::npos) == (rank() == culprit));
    if (rank() == culprit) CHECK(log.find("Too many open files") != std::string::npos);
    CHECK(sums<float>(strategy, variable));

    const auto later = make(strategy, DType::f32, 40'001);
    strategy.seal();
    CHECK(is_shared(strategy.store().gradient(later).data()));
    CHECK(sums<float>(strategy, later));
  }
}
