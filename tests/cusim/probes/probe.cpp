#include "probe.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::probes {
namespace {

std::vector<Probe>& registered() {
  static std::vector<Probe> all;
  return all;
}

}  // namespace

Registered::Registered(std::string_view name, Where where, void (*run)()) {
  std::string words{name};
  std::replace(words.begin(), words.end(), '_', '-');
  registered().push_back({std::move(words), where, run});
}

std::vector<Probe> all_probes() {
  std::vector<Probe> all = registered();
  std::stable_partition(all.begin(), all.end(), [](const Probe& probe) { return probe.where == Where::together; });
  return all;
}

std::string text_of(cudaError_t error) {
  return cudaGetErrorName(error);
}

bool within_limit(const std::function<bool()>& is_so) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds{50});
  }
  return true;
}

namespace {

template <class Ask>
void wait_for(const char* what, const Ask& ask) {
  cudaError_t last = cudaSuccess;
  (void)within_limit([&] { return (last = ask()) != cudaErrorNotReady; });
  expect(what, last, cudaSuccess);
}

}  // namespace

void wait(cudaStream_t stream) {
  wait_for("the end of a stream's work:", [&] { return cudaStreamQuery(stream); });
}

void wait(cudaEvent_t event) {
  wait_for("an event's completion:", [&] { return cudaEventQuery(event); });
}

/// Kept for ever, as the function may come after the probe.
struct Gate::State {
  std::atomic<bool> is_reached = false;
  std::atomic<bool> is_open = false;
  std::thread::id owner = std::this_thread::get_id();
  std::atomic<bool> gave_way = false;
};

Gate::Gate(cudaStream_t stream) : state_{new State} {
  const auto function = [](void* data) {
    auto& state = *static_cast<State*>(data);
    state.is_reached = true;
    if (std::this_thread::get_id() == state.owner)
      state.gave_way = true;
    else
      (void)within_limit([&] { return state.is_open.load(); });
  };
  OK(cudaLaunchHostFunc(stream, function, state_));
  const bool is_reached = within_limit([&] { return state_->is_reached.load(); });
  if (!is_reached) open();
  expect("a host function at the head of a stream is called", is_reached);
  if (state_->gave_way) throw NotTried{"work runs in the call that enqueues it, so that nothing can be held back"};
}

Gate::~Gate() {
  open();
}

void Gate::open() {
  state_->is_open = true;
}

}  // namespace lockstep::probes
