// What a probe is, and what probes share. A probe tests one statement of NVIDIA's documentation, which the comment
// before it gives in our words, on whatever CUDA the program is built for: silicon's or cusim's.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

namespace lockstep::probes {

/// Thrown by a probe whose statement does not hold.
struct Differs {
  std::string expected;
  std::string got;
};

/// Thrown by a probe that cannot be tried here.
struct NotTried {
  std::string why;
};

enum class Where {
  together,      ///< in a process with others
  ends_cusim,    ///< in one of its own, as it leaves an error that nothing clears; cusim may end the process (code 86)
  with_partner,  ///< in one of its own, and start_partner() has forked another before the first call of CUDA
};

struct Probe {
  std::string name;
  Where where = Where::together;
  void (*run)() = nullptr;
};

/// All of the program, those that run together first.
std::vector<Probe> all_probes();

struct Registered {
  Registered(std::string_view name, Where where, void (*run)());
};

#define PROBE_IN(where, name)                                                               \
  static void name();                                                                       \
  static const ::lockstep::probes::Registered name##_registered{#name, Where::where, name}; \
  static void name()
#define PROBE(name) PROBE_IN(together, name)

/// Forks the second process of a probe of two ranks.
void start_partner();

// --- What is expected ---

std::string text_of(cudaError_t error);

template <class Value>
std::string text_of(const Value& value) {
  std::ostringstream text;
  text.precision(17);
  text << value;
  return text.str();
}

template <class Value>
void expect(const std::string& what, const Value& got, const Value& expected) {
  if (got == expected) return;
  throw Differs{what + " " + text_of(expected), text_of(got)};
}
inline void expect(const std::string& what, bool holds) {
  if (!holds) throw Differs{what, "the contrary"};
}
template <class Value>
void expect_all(const std::string& what, const std::vector<Value>& got, const std::vector<Value>& expected) {
  expect(what + ", size", got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    expect(what + ", element " + std::to_string(i) + ",", got[i], expected[i]);
}

#define OK(...) ::lockstep::probes::expect(#__VA_ARGS__, (__VA_ARGS__), cudaSuccess)

// --- Waiting with a limit ---

constexpr std::chrono::seconds limit{10};

/// Asks until the answer is yes, or the limit is over.
bool within_limit(const std::function<bool()>& is_so);

/// Until the stream or event is done.
void wait(cudaStream_t stream);
void wait(cudaEvent_t event);

// --- What belongs to a probe ---

class Stream {
 public:
  explicit Stream(unsigned flags = cudaStreamNonBlocking) { OK(cudaStreamCreateWithFlags(&stream_, flags)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    if (stream_) (void)cudaStreamDestroy(stream_);
  }
  operator cudaStream_t() const { return stream_; }
  cudaStream_t release() { return std::exchange(stream_, nullptr); }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  explicit Event(unsigned flags = cudaEventDisableTiming) { OK(cudaEventCreateWithFlags(&event_, flags)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() {
    if (event_) (void)cudaEventDestroy(event_);
  }
  operator cudaEvent_t() const { return event_; }
  cudaEvent_t release() { return std::exchange(event_, nullptr); }

 private:
  cudaEvent_t event_ = nullptr;
};

/// GPU memory. Its constructors and `values` wait for the GPU.
template <class T>
class Array {
 public:
  /// With parentheses: braces are for values.
  explicit Array(std::size_t count) : count_{count} {
    OK(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(T)));
  }
  Array(std::initializer_list<T> values) : Array(std::vector<T>(values)) {}
  explicit Array(const std::vector<T>& values) : Array(values.size()) {
    OK(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    wait(cudaStream_t{nullptr});
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { (void)cudaFree(data_); }

  T* data() const { return data_; }
  std::size_t count() const { return count_; }
  std::size_t bytes() const { return count_ * sizeof(T); }
  std::vector<T> values() const {
    std::vector<T> values(count_);
    OK(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  std::size_t count_;
  T* data_ = nullptr;
};

/// Pinned memory of the host, zero at first.
template <class T>
class Pinned {
 public:
  explicit Pinned(std::size_t count) : count_{count} {
    OK(cudaMallocHost(reinterpret_cast<void**>(&data_), count * sizeof(T)));
    for (std::size_t i = 0; i < count; ++i) data_[i] = T{};
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned() { (void)cudaFreeHost(data_); }

  T* data() const { return data_; }
  std::size_t bytes() const { return count_ * sizeof(T); }
  T& operator[](std::size_t i) const { return data_[i]; }

 private:
  std::size_t count_;
  T* data_ = nullptr;
};

// --- Captures ---

/// A graph that can be launched.
class Graph {
 public:
  explicit Graph(cudaGraph_t graph) : graph_{graph} { OK(cudaGraphInstantiateWithFlags(&launchable_, graph, 0)); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    (void)cudaGraphExecDestroy(launchable_);
    (void)cudaGraphDestroy(graph_);
  }
  void launch(cudaStream_t stream) const { OK(cudaGraphLaunch(launchable_, stream)); }
  std::size_t nodes() const {
    std::size_t count = 0;
    OK(cudaGraphGetNodes(graph_, nullptr, &count));
    return count;
  }

 private:
  cudaGraph_t graph_;
  cudaGraphExec_t launchable_ = nullptr;
};

/// What ends the capture, so that a probe that differs leaves none.
class Capture {
 public:
  explicit Capture(cudaStream_t stream, cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal)
      : stream_{stream} {
    OK(cudaStreamBeginCapture(stream, mode));
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() {
    if (has_ended_) return;
    cudaGraph_t graph = nullptr;
    if (cudaStreamEndCapture(stream_, &graph) == cudaSuccess && graph) (void)cudaGraphDestroy(graph);
    (void)cudaGetLastError();
  }

  cudaError_t end(cudaGraph_t* graph) {
    has_ended_ = true;
    return cudaStreamEndCapture(stream_, graph);
  }
  cudaGraph_t end() {
    cudaGraph_t graph = nullptr;
    OK(end(&graph));
    return graph;
  }
  void expect_end(cudaError_t expected) {
    cudaGraph_t graph = nullptr;
    const cudaError_t got = end(&graph);
    expect("cudaStreamEndCapture is", got, expected);
    expect("the graph is null", graph == nullptr);
  }

 private:
  cudaStream_t stream_;
  bool has_ended_ = false;
};

// --- Holding work back ---

/// A host function that keeps a stream from going on until it is opened, at the latest after the limit. Made last in a
/// probe, so that it is opened before other things end. What needs memory, or a kernel for the first time, comes before
/// it, as that may wait for the whole GPU.
class Gate {
 public:
  /// Returns once the stream has come to the gate. Throws NotTried where work runs in the calls that enqueue it.
  explicit Gate(cudaStream_t stream);
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate();

  /// Afterwards the stream goes on.
  void open();

 private:
  struct State;
  State* state_;
};

/// Expects that the stream, or the work before the event, is not done yet.
inline void expect_waits(const std::string& what, cudaStream_t stream) {
  expect(what, cudaStreamQuery(stream), cudaErrorNotReady);
}
inline void expect_waits(const std::string& what, cudaEvent_t event) {
  expect(what, cudaEventQuery(event), cudaErrorNotReady);
}

}  // namespace lockstep::probes
