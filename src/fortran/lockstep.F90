! Sums and agreements of the ranks of an MPI program, in Fortran:
!
!   use lockstep
!   type(lockstep_group) :: all
!   call lockstep_group_create(all, MPI_COMM_WORLD)
!   call lockstep_all_reduce(all, sums, exact=.true.)
!   call lockstep_group_free(all)
!
! Communicators are those of mpi_f08 or of mpi. Arrays have any rank, and need not be contiguous: a section is packed
! and unpacked. What each procedure does is said in lockstep.h, with the words COLL and LOCAL.
!
! stat= becomes a code, lockstep_ok if nothing has failed, and then errmsg= stays as it is; otherwise it becomes the
! sentence. Without stat=, a failure ends the job, with the sentence on stderr, once, and the code.
!
! at= names the place of a call, as "cg.f90:41" or in words. Ranks that give other places disagree. Either all ranks
! give one or none does.
module lockstep
  use, intrinsic :: iso_c_binding, only: c_double, c_f_pointer, c_funloc, c_funptr, c_int, c_loc, c_null_funptr, &
    c_null_ptr, c_ptr, c_size_t, c_sizeof
  use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
  use lockstep_calls, only: address, c_text, finish, text_at, text_of
  use mpi_f08, only: MPI_Comm
  implicit none
  private

  public :: lockstep_group, lockstep_on_lost
  public :: lockstep_group_create, lockstep_group_free, lockstep_handle, lockstep_rank, lockstep_size
  public :: lockstep_all_reduce, lockstep_exact_sum, lockstep_broadcast
  public :: lockstep_agree, lockstep_same_on_all, lockstep_check_replicas, lockstep_fail, lockstep_phase
  public :: lockstep_version

  ! Codes: stat=, and the exit code of a job that ends.
  integer, parameter, public :: lockstep_ok = 0, lockstep_failure = 1, lockstep_user_input = 2, lockstep_mismatch = 3, &
    lockstep_peer_failed = 4, lockstep_stall = 5, lockstep_replicas_differ = 6, lockstep_checkpoint = 7, &
    lockstep_stopped = 75

  abstract interface
    ! Told, on another thread, that the job is lost. May end the process, as by error stop; if it returns, the process
    ! ends. A procedure of a module, or an external one.
    subroutine lockstep_on_lost(code, sentence)
      integer, intent(in) :: code
      character(len=*), intent(in) :: sentence
    end subroutine
  end interface

  type :: told
    procedure(lockstep_on_lost), pointer, nopass :: call => null()
  end type

  ! Ranks that work together. A copy is the same group.
  type :: lockstep_group
    private
    type(c_ptr) :: handle = c_null_ptr
    type(told), pointer :: on_lost => null()
  end type

  ! lockstep_options of lockstep.h.
  type, bind(C) :: c_options
    integer(c_size_t) :: size = 0
    real(c_double) :: stall_timeout = 60
    type(c_funptr) :: on_lost = c_null_funptr
    type(c_ptr) :: context = c_null_ptr
  end type

  ! COLL over a communicator: an integer or type(MPI_Comm).
  interface lockstep_group_create
    module procedure create_of_integer, create_of_f08
  end interface

  ! COLL. values, or sums if it is there, becomes the sums of all ranks' values, element by element: exact, and rounded
  ! once, with exact=.true.
  interface lockstep_all_reduce
    module procedure all_reduce_real32, all_reduce_real64, all_reduce_int32, all_reduce_int64
  end interface

  ! COLL. total becomes the exact sum of all numbers of all ranks, of which each may bring another number.
  interface lockstep_exact_sum
    module procedure exact_sum_real32, exact_sum_real64, exact_sum_int32, exact_sum_int64
  end interface

  ! COLL. values become those of root, a rank of the group, from 0.
  interface lockstep_broadcast
    module procedure broadcast_real32, broadcast_real64, broadcast_int32, broadcast_int64
  end interface

  ! COLL. lockstep_mismatch, and the sentence shows the values, unless it is the same on all ranks: a number, a logical
  ! or a text, or an array of them.
  interface lockstep_same_on_all
    module procedure same_real32, same_real64, same_int32, same_int64, same_logical, same_text
  end interface

  ! COLL. lockstep_replicas_differ unless it is the same on all ranks. differing= becomes the lowest rank outside the
  ! majority, or -1.
  interface lockstep_check_replicas
    module procedure check_real32, check_real64, check_int32, check_int64
  end interface

  interface
    integer(c_int) function c_create(communicator, options, group, at) bind(C, name='lockstep_group_create_f')
      import
      integer(c_int), value :: communicator
      type(c_options), intent(in) :: options
      type(c_ptr), intent(out) :: group
      type(c_ptr), value :: at
    end function
    integer(c_int) function c_free(group, at) bind(C, name='lockstep_group_free')
      import
      type(c_ptr), intent(inout) :: group
      type(c_ptr), value :: at
    end function
    pure integer(c_int) function c_rank(group) bind(C, name='lockstep_rank')
      import
      type(c_ptr), value, intent(in) :: group
    end function
    pure integer(c_int) function c_size_of(group) bind(C, name='lockstep_size')
      import
      type(c_ptr), value, intent(in) :: group
    end function
    integer(c_int) function c_agree(group, label, at) bind(C, name='lockstep_agree')
      import
      type(c_ptr), value :: group, label, at
    end function
    integer(c_int) function c_fail(group, reason, at) bind(C, name='lockstep_fail')
      import
      type(c_ptr), value :: group, reason, at
    end function
    integer(c_int) function c_phase(group, name) bind(C, name='lockstep_phase')
      import
      type(c_ptr), value :: group, name
    end function
    type(c_ptr) function c_version() bind(C, name='lockstep_version')
      import
    end function

    ! Of sections.cpp.
    integer(c_int) function sum_in_place(group, values, exact, at) bind(C, name='lockstep_f_sum_in_place')
      import
      type(c_ptr), value :: group, at
      type(*), intent(inout) :: values(..)
      integer(c_int), value :: exact
    end function
    integer(c_int) function sum_apart(group, values, sums, exact, at) bind(C, name='lockstep_f_sum_apart')
      import
      type(c_ptr), value :: group, at
      type(*), intent(in) :: values(..)
      type(*), intent(inout) :: sums(..)
      integer(c_int), value :: exact
    end function
    integer(c_int) function sum_of_all(group, values, total, at) bind(C, name='lockstep_f_exact_sum')
      import
      type(c_ptr), value :: group, at
      type(*), intent(in) :: values(..)
      type(*), intent(inout) :: total(..)
    end function
    integer(c_int) function send_to_all(group, values, root, at) bind(C, name='lockstep_f_broadcast')
      import
      type(c_ptr), value :: group, at
      type(*), intent(inout) :: values(..)
      integer(c_int), value :: root
    end function
    integer(c_int) function compare(group, name, value, at) bind(C, name='lockstep_f_same_on_all')
      import
      type(c_ptr), value :: group, name, at
      type(*), intent(in) :: value(..)
    end function
    integer(c_int) function check(group, name, replica, differing, at) bind(C, name='lockstep_f_check_replicas')
      import
      type(c_ptr), value :: group, name, at
      type(*), intent(in) :: replica(..)
      integer(c_int), intent(out) :: differing
    end function
  end interface

contains

  subroutine tell(code, sentence, context) bind(C)
    integer(c_int), value :: code
    type(c_ptr), value :: sentence, context
    type(told), pointer :: on_lost
    call c_f_pointer(context, on_lost)
    call on_lost%call(int(code), text_at(sentence))
  end subroutine

  subroutine create_of_integer(group, communicator, stall_timeout, on_lost, stat, errmsg, at)
    type(lockstep_group), intent(out) :: group
    integer, intent(in) :: communicator
    real(real64), intent(in), optional :: stall_timeout
    procedure(lockstep_on_lost), optional :: on_lost
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(len=*), intent(in), optional :: at
    type(c_options) :: options
    type(c_text), target :: place
    integer(c_int) :: code
    options%size = c_sizeof(options)
    if (present(stall_timeout)) options%stall_timeout = stall_timeout
    if (present(on_lost)) then
      allocate (group%on_lost)
      group%on_lost%call => on_lost
      options%on_lost = c_funloc(tell)
      options%context = c_loc(group%on_lost)
    end if
    place = text_of(at)
    code = c_create(int(communicator, c_int), options, group%handle, address(place))
    if (code /= lockstep_ok .and. associated(group%on_lost)) deallocate (group%on_lost)
    call finish(code, stat, errmsg)
  end subroutine

  subroutine create_of_f08(group, communicator, stall_timeout, on_lost, stat, errmsg, at)
    type(lockstep_group), intent(out) :: group
    type(MPI_Comm), intent(in) :: communicator
    real(real64), intent(in), optional :: stall_timeout
    procedure(lockstep_on_lost), optional :: on_lost
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(len=*), intent(in), optional :: at
    call create_of_integer(group, communicator%MPI_VAL, stall_timeout, on_lost, stat, errmsg, at)
  end subroutine

  ! COLL. Does nothing for a group that was not made, or is free.
  subroutine lockstep_group_free(group, stat, errmsg, at)
    type(lockstep_group), intent(inout) :: group
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(len=*), intent(in), optional :: at
    type(c_text), target :: place
    integer(c_int) :: code
    place = text_of(at)
    code = c_free(group%handle, address(place))
    if (code == lockstep_ok .and. associated(group%on_lost)) deallocate (group%on_lost)
    call finish(code, stat, errmsg)
  end subroutine

  ! LOCAL. This rank's place in the group, from 0; -1 if it is none.
  pure integer function lockstep_rank(group)
    type(lockstep_group), intent(in) :: group
    lockstep_rank = int(c_rank(group%handle))
  end function

  ! LOCAL. The number of ranks; -1 if it is no group.
  pure integer function lockstep_size(group)
    type(lockstep_group), intent(in) :: group
    lockstep_size = int(c_size_of(group%handle))
  end function

  ! LOCAL. The group as functions in C take it, such as those of a library (lockstep.h).
  pure type(c_ptr) function lockstep_handle(group)
    type(lockstep_group), intent(in) :: group
    lockstep_handle = group%handle
  end function

  ! COLL. Returns when every rank is here, with the same label.
  subroutine lockstep_agree(group, label, stat, errmsg, at)
    type(lockstep_group), intent(in) :: group
    character(len=*), intent(in) :: label
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(len=*), intent(in), optional :: at
    type(c_text), target :: text, place
    text = text_of(label)
    place = text_of(at)
    call finish(c_agree(group%handle, address(text), address(place)), stat, errmsg)
  end subroutine

  ! COLL, called instead of another procedure by a rank that cannot go on. stat= becomes lockstep_failure.
  subroutine lockstep_fail(group, reason, stat, errmsg, at)
    type(lockstep_group), intent(in) :: group
    character(len=*), intent(in) :: reason
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(len=*), intent(in), optional :: at
    type(c_text), target :: text, place
    text = text_of(reason)
    place = text_of(at)
    call finish(c_fail(group%handle, address(text), address(place)), stat, errmsg)
  end subroutine

  ! LOCAL. Names what this rank does from here on, for sentences about a lost rank.
  subroutine lockstep_phase(group, name, stat, errmsg)
    type(lockstep_group), intent(in) :: group
    character(len=*), intent(in) :: name
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_text), target :: text
    text = text_of(name)
    call finish(c_phase(group%handle, address(text)), stat, errmsg)
  end subroutine

  ! LOCAL. "0.2.0".
  function lockstep_version() result(version)
    character(len=:), allocatable :: version
    version = text_at(c_version())
  end function

  integer(c_int) function as_int(flag)
    logical, intent(in), optional :: flag
    as_int = 0
    if (.not. present(flag)) return
    if (flag) as_int = 1
  end function

#define TYPE real(real32)
#define KIND real32
#include "of_kind.inc"

#define TYPE real(real64)
#define KIND real64
#include "of_kind.inc"

#define TYPE integer(int32)
#define KIND int32
#include "of_kind.inc"

#define TYPE integer(int64)
#define KIND int64
#include "of_kind.inc"

#define ONLY_COMPARED
#define TYPE logical
#define KIND logical
#include "of_kind.inc"

#define TYPE character(len=*)
#define KIND text
#include "of_kind.inc"

end module
