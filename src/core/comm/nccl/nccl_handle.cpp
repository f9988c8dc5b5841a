#include "core/comm/nccl/nccl_handle.hpp"

#include <algorithm>
#include <chrono>
#include <future>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/log.hpp>

#include "core/base/awake_clock.hpp"
#include "core/base/log_settings.hpp"
#include "core/base/start_thread.hpp"
#include "core/device/device_call.hpp"

namespace lockstep {
namespace {

void log_warning(std::string_view line) noexcept {
  try {
    log::warning(line);
  } catch (...) {  // The end of a communicator has nobody left to tell.
  }
}

/// A failure of the GPU is told as one, and one that another rank has caused as that.
[[noreturn]] void fail(NcclApi& api, NcclCall call, const std::string& text) {
  if (call.result == ncclUnhandledCudaError) api.check_device(call.name);
  if (call.result == ncclRemoteError) throw NcclRemoteError{text};
  throw CommError{text};
}

}  // namespace

NcclTools real_nccl_tools() {
  return {real_nccl_api(), make_poll_clock(), make_ticker(watch_beat), {}};
}

bool is_failure(ncclResult_t result) {
  return result != ncclSuccess && result != ncclInProgress;
}

int rank_in_messages(int rank) {
  return log::rank() < 0 ? rank : log::rank();
}

void check_nccl(NcclApi& api, NcclCall call, const std::string& device, int rank) {
  if (is_failure(call.result))
    fail(api, call,
         fmt::format("{} failed on {} of rank {}: {}", call.name, device, rank_in_messages(rank),
                     api.error_text(call.result)));
}

NcclHandle::NcclHandle(NcclTools tools, int rank, std::string device)
    : tools_{std::move(tools)}, rank_{rank}, device_{std::move(device)} {}

NcclHandle::~NcclHandle() {
  if (!comm_ || state_->given_up) return;
  try {
    finish();
  } catch (const NcclRemoteError&) {
    abort();  // that rank has its own words
  } catch (const std::exception& error) {
    log_warning(error.what());
    abort();
  }
}

void NcclHandle::finish() {
  Patience patience{*tools_.clock, tools_.limits.finalize};
  const auto begun =
      call_for(tools_.limits.finalize, "ncclCommFinalize", [api = tools_.api, state = state_, comm = comm_] {
        const std::lock_guard lock{state->mutex};
        return api->comm_finalize(comm);
      });
  if (!begun) return abort();
  check_nccl(*tools_.api, settle({"ncclCommFinalize", *begun}, patience), device_, rank_);
  // If another thread has aborted since then, that freed it.
  if (state_->given_up.exchange(true)) return;
  const auto ended =
      call_for(tools_.limits.abort, "ncclCommDestroy",
               [api = tools_.api, comm = std::exchange(comm_, nullptr)] { return api->comm_destroy(comm); });
  if (ended) check_nccl(*tools_.api, {"ncclCommDestroy", *ended}, device_, rank_);
}

void NcclHandle::start(int size, const ncclUniqueId& id, Patience& patience) {
  ncclResult_t result = ncclSuccess;
  {
    const detail::DeviceCall call;
    result = tools_.api->comm_init(&comm_, size, id, rank_);
  }
  require_success(settle({"ncclCommInitRankConfig", result}, patience));
}

void NcclHandle::call(const char* purpose, const Body& body) {
  Patience patience{*tools_.clock, tools_.limits.enqueue, tools_.progress};
  call(purpose, body, patience);
}

void NcclHandle::call(const char* purpose, const Body& body, Patience& patience) {
  check(purpose);
  NcclCall made{};
  {
    const std::lock_guard lock{state_->mutex};
    const detail::DeviceCall call;
    require_usable(purpose);
    made = body(*tools_.api, comm_);
  }
  require_success(settle(made, patience));
}

void NcclHandle::check(const char* purpose) {
  const ncclResult_t state = look(purpose);
  if (!is_failure(state)) return;
  failure_known_ = true;
  const std::string text = fmt::format("a collective failed before {} on {} of rank {}: {}", purpose, device_,
                                       rank_in_messages(rank_), tools_.api->error_text(state));
  await_word_of_others(state);
  fail(*tools_.api, {purpose, state}, text);
}

std::optional<NcclHandle::Failure> NcclHandle::failure() noexcept {
  try {
    const std::unique_lock lock{state_->mutex, std::try_to_lock};
    if (!lock || state_->given_up) return std::nullopt;
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = tools_.api->comm_get_async_error(comm_, &state);
    if (is_failure(asked)) state = asked;
    if (!is_failure(state) || failure_known_.exchange(true)) return std::nullopt;
    return Failure{fmt::format("a collective under way failed on {} of rank {}: {}", device_, rank_in_messages(rank_),
                               tools_.api->error_text(state)),
                   state == ncclRemoteError};
  } catch (const std::exception& error) {
    log_warning(error.what());
    return std::nullopt;
  }
}

void NcclHandle::abort() noexcept {
  if (state_->given_up.exchange(true) || !comm_) return;
  try {
    run_abort();
  } catch (const std::exception& error) {
    log_warning(error.what());
  }
}

void NcclHandle::run_abort() {
  (void)call_for(tools_.limits.abort, "ncclCommAbort",
                 [api = tools_.api, state = state_, comm = comm_, limit = tools_.limits.abort] {
                   // A thread inside NCCL gets time to leave, and a later one sees that the communicator is given up.
                   // ncclCommAbort is for a thread that stays inside.
                   if (state->mutex.try_lock_for(limit / 2)) state->mutex.unlock();
                   return api->comm_abort(comm);
                 });
}

/// Makes a call that may hang on a thread of its own. Empty, with a warning, if it does not return within the limit.
std::optional<ncclResult_t> NcclHandle::call_for(Seconds limit, const char* name, std::function<ncclResult_t()> call) {
  auto [thread, result] = start_task(fmt::format("for {}", name), std::move(call));
  // The other thread stands still with this one.
  constexpr std::chrono::milliseconds between_looks{100};
  const auto start = AwakeClock::now();
  for (Seconds left = limit; left > Seconds{0}; left = limit - Seconds{AwakeClock::now() - start})
    if (result.wait_for(std::min<Seconds>(left, between_looks)) == std::future_status::ready) {
      thread.join();
      return result.get();
    }
  thread.detach();
  log_warning(fmt::format("{} on {} of rank {} is stuck; going on without it", name, device_, rank_in_messages(rank_)));
  return std::nullopt;
}

void NcclHandle::await_word_of_others(ncclResult_t result) {
  if (result != ncclRemoteError) return;
  Patience patience{*tools_.clock, tools_.limits.word_of_others};
  while (!patience.is_over() && !state_->given_up) patience.pause();
}

void NcclHandle::require_usable(const char* purpose) const {
  if (state_->given_up)
    throw CommError{
        fmt::format("{} on {} of rank {}: the communicator was aborted", purpose, device_, rank_in_messages(rank_))};
}

ncclResult_t NcclHandle::look(const char* purpose) {
  const detail::DeviceCall call;
  const std::lock_guard lock{state_->mutex};
  require_usable(purpose);
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = tools_.api->comm_get_async_error(comm_, &state);
  return is_failure(asked) ? asked : state;
}

NcclCall NcclHandle::settle(NcclCall call, Patience& patience) {
  while (call.result == ncclInProgress) {
    if (patience.is_over())
      throw NcclTimeout{fmt::format("{} is still in progress on {} of rank {} after {:g} s", call.name, device_,
                                    rank_in_messages(rank_), patience.limit().count())};
    patience.pause();
    call.result = look(call.name);
  }
  return call;
}

void NcclHandle::require_success(NcclCall call) {
  if (is_failure(call.result)) failure_known_ = true;
  await_word_of_others(call.result);
  check_nccl(*tools_.api, call, device_, rank_);
}

}  // namespace lockstep
