// Checkpoints: the values of a strategy's variables, and its optimizers' state, as a file that knows nothing of ranks.
#pragma once

#include <filesystem>

#include <lockstep/control/tag.hpp>
#include <lockstep/strategy/strategy.hpp>

namespace lockstep {

// A checkpoint is a file in the safetensors format: the length of a header (8 bytes, little-endian), the header (JSON:
// under the name of each tensor its type, its shape and where its bytes are), and the elements, little-endian and
// row-major. It has one entry for each variable, under the variable's own name, and one for each piece of optimizer
// state that there is, under the name that VariableStore::optimizer_state gives it. The same values make the same bytes
// on any number of ranks, and what some ranks saved, others restore, more or fewer of them, or a program without any.
//
// Both functions want cross-replica context, or the default one, and every variable sealed: ContextError otherwise,
// before any communication. MismatchError where ranks name other paths. What fails on the chief is a CheckpointError
// there, with one line that names file, entry and what was expected, and a PeerError with the same words on the others.

/// COLL, blocking. Writes the variables of `strategy` to `path`: a mirrored one as it is, a sync-on-read one as a read
/// gives it, which all ranks are needed for. Only the chief touches the file, and the others wait for it. The file
/// appears whole, in the place of what was there, or not at all. InvalidArgument for a sync-on-read variable that
/// cannot be read; CheckpointError where two variables have one name.
void save_checkpoint(Strategy& strategy, const std::filesystem::path& path, Here here = Here::current());

/// COLL, blocking. Gives the variables of `strategy` the values in `path`, which the chief alone reads: to a mirrored
/// variable on every rank, to a sync-on-read one as its assignment in cross-replica context does. The file must have an
/// entry of the right type and shape for each variable and each piece of optimizer state, and no other; where it has
/// not, nothing is changed. The state of an optimizer that has not made a step is there after Optimizer::prepare.
void restore_checkpoint(Strategy& strategy, const std::filesystem::path& path, Here here = Here::current());

}  // namespace lockstep
