! Models of TorchScript that the ranks of an MPI program train together, in Fortran:
!
!   use lockstep
!   use lockstep_torch
!   type(lockstep_model) :: model
!   call lockstep_model_load(model, all, 'net.pt', lockstep_model_options(learning_rate=1e-2_real64))
!   call lockstep_model_train(model, cells, fluxes, loss)
!   call lockstep_model_infer(model, cells, fluxes)
!   call lockstep_model_free(model)
!
! Arrays are column-major, so the model sees their dimensions reversed: x(features, rows) is its tensor [rows,
! features], and the last dimension counts rows. Arrays need not be contiguous: a section is packed and unpacked. What
! each procedure does is said in torch.h, with the words COLL and LOCAL. stat=, errmsg= and at= are as in lockstep.
module lockstep_torch
  use, intrinsic :: iso_c_binding, only: c_double, c_int, c_int64_t, c_loc, c_null_ptr, c_ptr, c_size_t, c_sizeof
  use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
  use lockstep, only: lockstep_group, lockstep_handle, lockstep_ok
  use lockstep_calls, only: address, c_text, finish, text_of
  implicit none
  private

  public :: lockstep_array, lockstep_model, lockstep_model_options
  public :: lockstep_model_load, lockstep_model_free, lockstep_model_train, lockstep_model_infer
  public :: lockstep_model_save, lockstep_model_checkpoint, lockstep_model_restore
  public :: lockstep_model_set_learning_rate, lockstep_model_shards, lockstep_model_steps, lockstep_model_digest

  ! A model that the ranks of a group train. A copy is the same model.
  type :: lockstep_model
    private
    type(c_ptr) :: handle = c_null_ptr, group = c_null_ptr
  end type

  ! How a model is trained: lockstep_model_options of torch.h, with its defaults. A namelist can read it.
  type :: lockstep_model_options
    character(len=64) :: optimizer = 'adamw', loss = 'mse'
    real(real64) :: learning_rate = 1e-3_real64, weight_decay = 0, momentum = 0, beta1 = 0.9_real64, &
      beta2 = 0.999_real64, epsilon = 1e-8_real64, clip_norm = 0
    integer :: shards = 0, threads = 1
    integer(int64) :: seed = 0
  end type

  ! An array of a list: [lockstep_array(x), lockstep_array(y)]. It refers to a target, where that is.
  type, bind(C) :: lockstep_array
    private
    integer(c_int64_t) :: descriptor(48) = 0
  end type

  interface lockstep_array
    module procedure array_real32, array_real64, array_int32, array_int64
  end interface

  ! COLL. One step. inputs and targets are an array each, or lists if there are several. loss=, if it is there, becomes
  ! the mean over the rows of all ranks before the step.
  interface lockstep_model_train
    module procedure train_lists
    module procedure train_real32_real32, train_real32_real64, train_real32_int32, train_real32_int64
    module procedure train_real64_real32, train_real64_real64, train_real64_int32, train_real64_int64
    module procedure train_int32_real32, train_int32_real64, train_int32_int32, train_int32_int64
    module procedure train_int64_real32, train_int64_real64, train_int64_int32, train_int64_int64
  end interface

  ! LOCAL. outputs become what the model computes of the inputs: an array each, or lists if there are several.
  interface lockstep_model_infer
    module procedure infer_lists
    module procedure infer_real32_real32, infer_real32_real64, infer_real32_int32, infer_real32_int64
    module procedure infer_real64_real32, infer_real64_real64, infer_real64_int32, infer_real64_int64
    module procedure infer_int32_real32, infer_int32_real64, infer_int32_int32, infer_int32_int64
    module procedure infer_int64_real32, infer_int64_real64, infer_int64_int32, infer_int64_int64
  end interface

  ! lockstep_model_options of torch.h.
  type, bind(C) :: c_options
    integer(c_size_t) :: size
    type(c_ptr) :: optimizer, loss
    real(c_double) :: learning_rate, weight_decay, momentum, beta1, beta2, epsilon, clip_norm
    integer(c_int) :: shards, threads
    integer(c_int64_t) :: seed
  end type

  interface
    integer(c_int) function c_load(group, file, options, model, at) bind(C, name='lockstep_model_load')
      import
      type(c_ptr), value :: group, file, options, at
      type(c_ptr), intent(out) :: model
    end function
    integer(c_int) function c_save(model, file, at) bind(C, name='lockstep_model_save')
      import
      type(c_ptr), value :: model, file, at
    end function
    integer(c_int) function c_checkpoint(model, folder, at) bind(C, name='lockstep_model_checkpoint')
      import
      type(c_ptr), value :: model, folder, at
    end function
    integer(c_int) function c_restore(model, from, steps, at) bind(C, name='lockstep_model_restore')
      import
      type(c_ptr), value :: model, from, at
      integer(c_int64_t), intent(inout), optional :: steps
    end function
    integer(c_int) function c_set_rate(model, rate, at) bind(C, name='lockstep_model_set_learning_rate')
      import
      type(c_ptr), value :: model, at
      real(c_double), value :: rate
    end function
    integer(c_int) function c_shards(model, first, last) bind(C, name='lockstep_model_shards')
      import
      type(c_ptr), value :: model
      integer(c_int), intent(inout) :: first, last
    end function
    pure integer(c_int64_t) function c_steps(model) bind(C, name='lockstep_model_steps')
      import
      type(c_ptr), value, intent(in) :: model
    end function
    integer(c_int) function c_digest(model, digest) bind(C, name='lockstep_model_digest')
      import
      type(c_ptr), value :: model
      integer(c_int64_t), intent(inout) :: digest
    end function
    integer(c_int) function c_free(model, at) bind(C, name='lockstep_model_free')
      import
      type(c_ptr), intent(inout) :: model
      type(c_ptr), value :: at
    end function

    ! Of arrays.cpp.
    subroutine describe(values, array) bind(C, name='lockstep_f_array')
      import
      type(*), intent(in) :: values(..)
      type(lockstep_array), intent(inout) :: array
    end subroutine
    integer(c_int) function c_train(group, model, inputs, input_count, targets, target_count, loss, at) &
      bind(C, name='lockstep_f_model_train')
      import
      type(c_ptr), value :: group, model, at
      type(lockstep_array), intent(in) :: inputs(*), targets(*)
      integer(c_int), value :: input_count, target_count
      real(c_double), intent(inout), optional :: loss
    end function
    integer(c_int) function c_infer(model, inputs, input_count, outputs, output_count, at) &
      bind(C, name='lockstep_f_model_infer')
      import
      type(c_ptr), value :: model, at
      type(lockstep_array), intent(in) :: inputs(*), outputs(*)
      integer(c_int), value :: input_count, output_count
    end function
  end interface

contains

  ! COLL over the group. Loads a script of torch.jit for every rank, of a file that only rank 0 reads.
  subroutine lockstep_model_load(model, group, file, options, stat, errmsg, at)
    type(lockstep_model), intent(out) :: model
    type(lockstep_group), intent(in) :: group
    character(len=*), intent(in) :: file
    type(lockstep_model_options), intent(in), optional :: options
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(len=*), intent(in), optional :: at
    type(c_text), target :: path, optimizer, loss, place
    type(c_options), target :: given
    type(c_ptr) :: how
    how = c_null_ptr
    if (present(options)) then
      optimizer = text_of(options%optimizer)
      loss = text_of(options%loss)
      given = c_options(c_sizeof(given), address(optimizer), address(loss), options%learning_rate, &
        options%weight_decay, options%momentum, options%beta1, options%beta2, options%epsilon, options%clip_norm, &
        int(options%shards, c_int), int(options%threads, c_int), options%seed)
      how = c_loc(given)
    end if
    path = text_of(file)
    place = text_of(at)
    model%group = lockstep_handle(group)
    call finish(c_load(model%group, address(path), how, model%handle, address(place)), stat, errmsg)
  end subroutine

  subroutine train_lists(model, inputs, targets, loss, stat, errmsg, at)
    type(lockstep_model), intent(in) :: model
    type(lockstep_array), intent(in) :: inputs(:), targets(:)
    real(real64), intent(inout), optional :: loss
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(len=*), intent(in), optional :: at
    type(c_text), target :: place
    place = text_of(at)
    call finish(c_train(model%group, model%handle, inputs, size(inputs, kind=c_int), targets, &
      size(targets, kind=c_int), loss, address(place)), stat, errmsg)
  end subroutine

  subroutine infer_lists(model, inputs, outputs, stat, errmsg, at)
    type(lockstep_model), intent(in) :: model
    type(lockstep_array), intent(in) :: inputs(:), outputs(:)
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(len=*), intent(in), optional :: at
    type(c_text), target :: place
    place = text_of(at)
    call finish(c_infer(model%handle, inputs, size(inputs, kind=c_int), outputs, size(outputs, kind=c_int), &
      address(place)), stat, errmsg)
  end subroutine

  ! COLL. Rank 0 writes the weights, if the name ends in ".safetensors", or a script.
  subroutine lockstep_model_save(model, file, stat, errmsg, at)
    type(lockstep_model), intent(in) :: model
    character(len=*), intent(in) :: file
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(len=*), intent(in), optional :: at
    type(c_text), target :: path, place
    path = text_of(file)
    place = text_of(at)
    call finish(c_save(model%handle, address(path), address(place)), stat, errmsg)
  end subroutine

  ! COLL. Writes all that the training needs to go on, as folder/step-N.
  subroutine lockstep_model_checkpoint(model, folder, stat, errmsg, at)
    type(lockstep_model), intent(in) :: model
    character(len=*), intent(in) :: folder
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(len=*), intent(in), optional :: at
    type(c_text), target :: path, place
    path = text_of(folder)
    place = text_of(at)
    call finish(c_checkpoint(model%handle, address(path), address(place)), stat, errmsg)
  end subroutine

  ! COLL. Goes on from the newest checkpoint in a folder, or from one; or takes weights alone. steps= becomes the number
  ! of steps made, and -1 if there is no checkpoint.
  subroutine lockstep_model_restore(model, from, steps, stat, errmsg, at)
    type(lockstep_model), intent(in) :: model
    character(len=*), intent(in) :: from
    integer(int64), intent(inout), optional :: steps
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(len=*), intent(in), optional :: at
    type(c_text), target :: path, place
    path = text_of(from)
    place = text_of(at)
    call finish(c_restore(model%handle, address(path), steps, address(place)), stat, errmsg)
  end subroutine

  ! COLL. That of the next steps.
  subroutine lockstep_model_set_learning_rate(model, rate, stat, errmsg, at)
    type(lockstep_model), intent(in) :: model
    real(real64), intent(in) :: rate
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(len=*), intent(in), optional :: at
    type(c_text), target :: place
    place = text_of(at)
    call finish(c_set_rate(model%handle, rate, address(place)), stat, errmsg)
  end subroutine

  ! LOCAL. This rank's shards: from first to last, of 1 to options%shards. In C, they count from 0.
  subroutine lockstep_model_shards(model, first, last, stat, errmsg)
    type(lockstep_model), intent(in) :: model
    integer, intent(inout) :: first, last
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    integer(c_int) :: code, from, to
    code = c_shards(model%handle, from, to)
    if (code == lockstep_ok) then
      first = int(from) + 1
      last = int(to)
    end if
    call finish(code, stat, errmsg)
  end subroutine

  ! LOCAL. The number of steps made, also before a restored checkpoint; -1 if it is no model.
  pure integer(int64) function lockstep_model_steps(model)
    type(lockstep_model), intent(in) :: model
    lockstep_model_steps = c_steps(model%handle)
  end function

  ! LOCAL. digest becomes one of all parameters, the same on every rank: the bits of C's.
  subroutine lockstep_model_digest(model, digest, stat, errmsg)
    type(lockstep_model), intent(in) :: model
    integer(int64), intent(inout) :: digest
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    call finish(c_digest(model%handle, digest), stat, errmsg)
  end subroutine

  ! COLL. Free a model before its group. Does nothing for one that was not loaded, or is free.
  subroutine lockstep_model_free(model, stat, errmsg, at)
    type(lockstep_model), intent(inout) :: model
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(len=*), intent(in), optional :: at
    type(c_text), target :: place
    place = text_of(at)
    call finish(c_free(model%handle, address(place)), stat, errmsg)
  end subroutine

#define INPUTS real(real32)
#define FROM real32
#include "of_inputs.inc"

#define INPUTS real(real64)
#define FROM real64
#include "of_inputs.inc"

#define INPUTS integer(int32)
#define FROM int32
#include "of_inputs.inc"

#define INPUTS integer(int64)
#define FROM int64
#include "of_inputs.inc"

end module
