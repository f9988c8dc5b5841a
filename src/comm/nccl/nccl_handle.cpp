#include "comm/nccl/nccl_handle.hpp"

#include <future>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include <lockstep/base/log.hpp>

namespace lockstep {
namespace {

void log_warning(std::string_view line) noexcept {
  try {
    log::warning(line);
  } catch (...) {  // The end of a communicator has nobody left to tell.
  }
}

}  // namespace

NcclTools real_nccl_tools() {
  return {real_nccl_api(), make_poll_clock(), make_ticker(Seconds{0.1}), {}};
}

bool is_failure(ncclResult_t result) {
  return result != ncclSuccess && result != ncclInProgress;
}

void check_nccl(NcclApi& api, NcclCall call, const std::string& device, int rank) {
  if (is_failure(call.result))
    throw CommError{
        fmt::format("{} failed on {} of rank {}: {}", call.name, device, rank, api.error_text(call.result))};
}

NcclHandle::NcclHandle(NcclTools tools, int rank, std::string device)
    : tools_{std::move(tools)}, rank_{rank}, device_{std::move(device)} {}

NcclHandle::~NcclHandle() {
  if (!comm_ || state_->given_up) return;
  try {
    finish();
  } catch (const std::exception& error) {
    log_warning(error.what());
    abort();
  }
}

void NcclHandle::finish() {
  ncclResult_t result = ncclSuccess;
  {
    const std::lock_guard lock{state_->mutex};
    result = tools_.api->comm_finalize(comm_);
  }
  Patience patience{*tools_.clock, tools_.limits.finalize};
  require_success(settle({"ncclCommFinalize", result}, patience));
  // If another thread has aborted since then, that freed it.
  if (state_->given_up.exchange(true)) return;
  require_success({"ncclCommDestroy", tools_.api->comm_destroy(std::exchange(comm_, nullptr))});
}

void NcclHandle::start(int size, const ncclUniqueId& id, Patience& patience) {
  const ncclResult_t result = tools_.api->comm_init(&comm_, size, id, rank_);
  require_success(settle({"ncclCommInitRankConfig", result}, patience));
}

void NcclHandle::call(const char* purpose, const Body& body) {
  Patience patience{*tools_.clock, tools_.limits.enqueue};
  call(purpose, body, patience);
}

void NcclHandle::call(const char* purpose, const Body& body, Patience& patience) {
  check(purpose);
  NcclCall made{};
  {
    const std::lock_guard lock{state_->mutex};
    require_usable(purpose);
    made = body(*tools_.api, comm_);
  }
  require_success(settle(made, patience));
}

void NcclHandle::check(const char* purpose) {
  const ncclResult_t state = look(purpose);
  if (!is_failure(state)) return;
  failure_known_ = true;
  throw CommError{fmt::format("a collective failed before {} on {} of rank {}: {}", purpose, device_, rank_,
                              tools_.api->error_text(state))};
}

std::optional<std::string> NcclHandle::failure() noexcept {
  try {
    const std::unique_lock lock{state_->mutex, std::try_to_lock};
    if (!lock || state_->given_up) return std::nullopt;
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = tools_.api->comm_get_async_error(comm_, &state);
    if (is_failure(asked)) state = asked;
    if (!is_failure(state) || failure_known_.exchange(true)) return std::nullopt;
    return fmt::format("a collective under way failed on {} of rank {}: {}", device_, rank_,
                       tools_.api->error_text(state));
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
  std::promise<ncclResult_t> promise;
  std::future<ncclResult_t> result = promise.get_future();
  std::thread thread{[api = tools_.api, state = state_, comm = comm_, limit = tools_.limits.abort,
                      promise = std::move(promise)]() mutable {
    // A thread inside NCCL gets time to leave, and a later one sees that the communicator is given up. ncclCommAbort is
    // for a thread that stays inside.
    if (state->mutex.try_lock_for(limit / 2)) state->mutex.unlock();
    promise.set_value(api->comm_abort(comm));
  }};
  if (result.wait_for(tools_.limits.abort) == std::future_status::ready) {
    thread.join();
  } else {
    thread.detach();
    log_warning(fmt::format("ncclCommAbort on {} of rank {} is stuck; going on without it", device_, rank_));
  }
}

void NcclHandle::require_usable(const char* purpose) const {
  if (state_->given_up)
    throw CommError{fmt::format("{} on {} of rank {}: the communicator was aborted", purpose, device_, rank_)};
}

ncclResult_t NcclHandle::look(const char* purpose) {
  const std::lock_guard lock{state_->mutex};
  require_usable(purpose);
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = tools_.api->comm_get_async_error(comm_, &state);
  return is_failure(asked) ? asked : state;
}

NcclCall NcclHandle::settle(NcclCall call, Patience& patience) {
  while (call.result == ncclInProgress) {
    if (patience.is_over())
      throw NcclTimeout{fmt::format("{} is still in progress on {} of rank {} after {:g} s", call.name, device_, rank_,
                                    patience.limit().count())};
    patience.pause();
    call.result = look(call.name);
  }
  return call;
}

void NcclHandle::require_success(NcclCall call) {
  if (is_failure(call.result)) failure_known_ = true;
  check_nccl(*tools_.api, call, device_, rank_);
}

}  // namespace lockstep
