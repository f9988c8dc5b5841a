// Sources that ranks share out among themselves, by element or by file.
#include <cstddef>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>
#include <lockstep/sync/strategy/strategy.hpp>
#include <lockstep/tf/feed/iterator.hpp>

#include "tf/feed/feed.hpp"

namespace lockstep::detail {
namespace {

using AutoShard = InputOptions::AutoShard;
using Inputs = std::function<AnySource(const InputContext& context)>;
using Open = std::function<AnySource(const std::filesystem::path& file)>;
using Files = std::vector<std::filesystem::path>;

/// Whether ranks take elements of a source that is no file. InvalidArgument if they are to take files.
bool is_by_element(AutoShard shard) {
  switch (shard) {
    case AutoShard::off: return false;
    case AutoShard::by_element:
    case AutoShard::automatic: return true;
    case AutoShard::by_file: break;
  }
  throw InvalidArgument{fmt::format("{}; expected off, by_element or automatic",
                                    shard == AutoShard::by_file
                                        ? "`auto_shard` is by_file, and an input function has no files"
                                        : fmt::format("`auto_shard` is {}", static_cast<int>(shard)))};
}

/// Whether ranks take files, or elements.
bool is_by_file(AutoShard shard) {
  switch (shard) {
    case AutoShard::off:
    case AutoShard::by_element: return false;
    case AutoShard::by_file:
    case AutoShard::automatic: return true;
  }
  return false;  // is_by_element refuses it
}

/// The elements that belong to the pipeline.
AnySource own_elements(AnySource source, const InputContext& context) {
  return [source = std::move(source), context, at = 0]() mutable -> std::shared_ptr<void> {
    while (std::shared_ptr<void> element = source()) {
      const int owner = at;
      at = (at + 1) % context.num_input_pipelines();
      if (owner == context.input_pipeline_id()) return element;
    }
    return nullptr;
  };
}

/// The files of the pipeline: all, or every n-th.
Files files_of(const Files& files, AutoShard shard, const InputContext& context) {
  if (!is_by_file(shard)) return files;
  Files own;
  const auto pipelines = static_cast<std::size_t>(context.num_input_pipelines());
  for (auto file = static_cast<std::size_t>(context.input_pipeline_id()); file < files.size(); file += pipelines)
    own.push_back(files[file]);
  return own;
}

/// The batches of the files, one file after the other.
AnySource source_of(Files files, const Open& open) {
  return
      [files = std::move(files), open, next = std::size_t{0}, source = AnySource{}]() mutable -> std::shared_ptr<void> {
        for (;;) {
          if (!source && next == files.size()) return nullptr;
          if (!source) source = required_source(open(files[next++]), "open");
          if (std::shared_ptr<void> batch = source()) return batch;
          source = nullptr;
        }
      };
}

/// Logs one line on the first rank if some replicas get no file.
void warn_of_files(std::size_t files, AutoShard shard, const InputContext& context) {
  const auto replicas = static_cast<std::size_t>(context.num_input_pipelines());
  if (!is_by_file(shard) || files >= replicas || context.input_pipeline_id() != 0) return;
  log::warning(fmt::format("{} file{} for {} replicas: {}", files, files == 1 ? "" : "s", replicas,
                           files + 1 == replicas ? fmt::format("replica {} gets none", files)
                                                 : fmt::format("replicas {} to {} get none", files, replicas - 1)));
}

/// Batches of `input_fn`, for an iterator over `dataset`.
FeedPlan sharded(Strategy& strategy, Inputs input_fn, std::string dataset, const InputOptions& options,
                 AutoShard shard) {
  return {.start =
              [input_fn = std::move(input_fn), shard, context = input_context_of(strategy)] {
                AnySource source = required_source(input_fn(context), "input_fn");
                if (is_by_element(shard)) source = own_elements(std::move(source), context);
                return [source = std::move(source)](std::string&) { return source(); };
              },
          .describe = [dataset = std::move(dataset),
                       shard] { return dataset + (is_by_element(shard) ? ", sharded by element" : ""); },
          .end = options.end,
          .prefetch_batches = options.prefetch_batches};
}

FeedPlan of_files(Strategy& strategy, Files files, Open open, const InputOptions& options) {
  const bool by_file = is_by_file(options.auto_shard);
  std::string dataset = fmt::format("a dataset of {} file{}{}", files.size(), files.size() == 1 ? "" : "s",
                                    by_file ? ", sharded by file" : "");
  Inputs input_fn = [files = std::move(files), open = std::move(open),
                     shard = options.auto_shard](const InputContext& context) {
    if (files.empty()) throw InvalidArgument{"a dataset of 0 files; expected 1 or more"};
    return source_of(files_of(files, shard, context), open);
  };
  return sharded(strategy, std::move(input_fn), std::move(dataset), options,
                 by_file ? AutoShard::off : options.auto_shard);
}

}  // namespace

Feed::Feed(Strategy& strategy, const Description& type, Inputs input_fn, InputOptions options, Here here)
    : Feed{strategy, type, sharded(strategy, std::move(input_fn), "an input function", options, options.auto_shard),
           here} {}

Feed::Feed(Strategy& strategy, const Description& type, Files files, Open open, InputOptions options, Here here)
    : Feed{strategy, type, of_files(strategy, files, std::move(open), options), here} {
  warn_of_files(files.size(), options.auto_shard, input_context_of(strategy));
}

}  // namespace lockstep::detail
