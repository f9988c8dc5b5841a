! Groups of a Fortran program: `program RANKS` tests them on so many ranks; `program MODE` ends the job.
program fortran_program
  use mpi_f08
  use lockstep
  use checks
  use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
  implicit none
  type(lockstep_group) :: all
  character(len=16) :: argument
  integer :: expected, status

  call get_command_argument(1, argument)
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, test_rank)
  call MPI_Comm_size(MPI_COMM_WORLD, test_ranks)
  read (argument, *, iostat=status) expected
  if (status /= 0) call end_job(trim(argument))
  call check(test_ranks == expected, 'the number of ranks')

  call lockstep_group_create(all, MPI_COMM_WORLD, at='program.f90')
  call check(lockstep_rank(all) == test_rank .and. lockstep_size(all) == test_ranks, 'the ranks of MPI')
  call check(len(lockstep_version()) >= 5, 'a version')
  call test_kinds()
  call test_ranks_of_arrays()
  call test_sections()
  call test_agreements()
  call test_failures()
  call test_handles()
  call lockstep_group_free(all)
  call lockstep_group_free(all)
  call MPI_Finalize()
  if (test_rank == 0) print '(a)', 'all checks passed'

contains

  ! Inputs differ on each rank, and sums are exact but where it says otherwise.
  subroutine test_kinds()
    real(real32) :: single, large
    real(real64) :: double(2), sums(2), total
    integer(int32) :: narrow(3)
    integer(int64) :: wide, wides
    integer :: rank
    single = 2.0_real32**test_rank
    call lockstep_all_reduce(all, single)
    call check(single == 2.0_real32**test_ranks - 1, 'a sum of real32')
    double = [real(real64) :: 2.0_real64**test_rank, 10*test_rank]
    call lockstep_all_reduce(all, double, sums)
    call check(sums(1) == 2.0_real64**test_ranks - 1 .and. sums(2) == 5*test_ranks*(test_ranks - 1), 'sums of real64')
    call check(double(1) == 2.0_real64**test_rank, 'values as before')
    narrow = test_rank + [1, 2, 3]
    call lockstep_all_reduce(all, narrow)
    call check(narrow(3) == 3*test_ranks + test_ranks*(test_ranks - 1)/2, 'a sum of int32')
    wide = 2_int64**(40 + test_rank)
    call lockstep_all_reduce(all, wide, wides, exact=.true.)
    call check(wides == 2_int64**40*(2_int64**test_ranks - 1), 'a sum of int64')
    ! What the fixed order loses, an exact sum keeps.
    large = merge(1e8_real32, merge(-1e8_real32, 1.0_real32, test_rank == 2), test_rank == 0)
    single = large
    call lockstep_all_reduce(all, single, exact=.true.)
    if (test_ranks == 3) call check(single == 1, 'an exact sum')
    if (test_ranks == 4) call check(single == 2, 'an exact sum')
    single = large
    call lockstep_all_reduce(all, single)
    if (test_ranks >= 3) call check(single == 0, 'a sum in the fixed order')
    total = -1
    call lockstep_exact_sum(all, [(real(rank + 1, real64), rank=0, test_rank)], total)
    call check(nint(total) == test_ranks*(test_ranks + 1)*(test_ranks + 2)/6, 'the sum of all numbers')
    call lockstep_broadcast(all, narrow, 0)
    wide = test_rank
    call lockstep_broadcast(all, wide, test_ranks - 1)
    call check(wide == test_ranks - 1, 'the value of the last rank')
  end subroutine

  subroutine test_ranks_of_arrays()
    real(real64) :: one(3), two(2, 3), three(2, 2, 2), four(2, 1, 2, 2)
    real(real32), allocatable :: seven(:, :, :, :, :, :, :), none(:)
    one = test_rank + 1
    two = test_rank + 2
    three = test_rank + 3
    four = test_rank + 4
    allocate (seven(1, 2, 1, 2, 1, 2, 1), none(0))
    seven = test_rank + 7
    call lockstep_all_reduce(all, one)
    call lockstep_all_reduce(all, two)
    call lockstep_all_reduce(all, three)
    call lockstep_all_reduce(all, four)
    call lockstep_all_reduce(all, seven)
    call lockstep_all_reduce(all, none)
    call check(maxval(one) == of_ranks(1) .and. minval(one) == of_ranks(1), 'rank 1')
    call check(maxval(two) == of_ranks(2) .and. minval(two) == of_ranks(2), 'rank 2')
    call check(maxval(three) == of_ranks(3) .and. minval(three) == of_ranks(3), 'rank 3')
    call check(maxval(four) == of_ranks(4) .and. minval(four) == of_ranks(4), 'rank 4')
    call check(maxval(seven) == of_ranks(7) .and. minval(seven) == of_ranks(7), 'rank 7')
  end subroutine

  ! The sum of more + rank over the ranks.
  integer function of_ranks(more)
    integer, intent(in) :: more
    of_ranks = more*test_ranks + test_ranks*(test_ranks - 1)/2
  end function

  ! Sections with strides, and backwards. What is between them stays.
  subroutine test_sections()
    real(real64) :: field(6, 5), sums(3), total
    integer(int64) :: line(9)
    real(real32), target :: grid(4, 4, 4)
    real(real32), pointer :: plane(:, :)
    integer :: i, j
    do j = 1, 5
      do i = 1, 6
        field(i, j) = 100*i + j + 1000*test_rank
      end do
    end do
    call lockstep_all_reduce(all, field(2:6:2, 5:1:-2))
    do j = 1, 5
      do i = 1, 6
        if (mod(i, 2) == 0 .and. mod(j, 2) == 1) then
          call check(nint(field(i, j)) == (100*i + j)*test_ranks + 500*test_ranks*(test_ranks - 1), 'a sum in a section')
        else
          call check(nint(field(i, j)) == 100*i + j + 1000*test_rank, 'what is not in the section')
        end if
      end do
    end do
    line = [(int(i, int64), i=1, 9)] + test_rank
    sums = -1
    call lockstep_broadcast(all, line(9:1:-3), test_ranks - 1)
    call check(line(9) == 9 + test_ranks - 1 .and. line(3) == 3 + test_ranks - 1, 'a broadcast of a section')
    call check(line(1) == 1 + test_rank .and. line(8) == 8 + test_rank, 'what is not in the section')
    call lockstep_all_reduce(all, real(line(1:7:3), real64), sums)
    call check(nint(sums(2)) == of_ranks(4) .and. nint(sums(3)) == of_ranks(7), 'sums of an expression')
    grid = test_rank
    grid(3, :, 2) = 10 + test_rank
    plane => grid(3, :, 1:3)
    call lockstep_all_reduce(all, plane)
    call check(nint(plane(4, 2)) == of_ranks(10) .and. nint(plane(1, 3)) == of_ranks(0), 'sums by a pointer')
    call check(nint(grid(2, 1, 1)) == test_rank .and. nint(grid(3, 1, 4)) == test_rank, 'what the pointer leaves out')
    ! Its columns are contiguous, and two of them at a time.
    grid = reshape([(real(i + 100*test_rank, real32), i=1, size(grid))], shape(grid))
    call lockstep_all_reduce(all, grid(:, 2:3, 4:1:-2))
    do j = 1, 4
      do i = 1, 4
        if (mod(j, 2) == 0) then
          call check(nint(grid(i, 2, j)) == (i + 16*j - 12)*test_ranks + 50*test_ranks*(test_ranks - 1), &
            'a sum in columns')
        else
          call check(nint(grid(i, 2, j)) == i + 16*j - 12 + 100*test_rank, 'a column that is not in the section')
        end if
        call check(nint(grid(i, 4, j)) == i + 16*j - 4 + 100*test_rank, 'a column that is not in the section')
      end do
    end do
    total = 0
    call lockstep_exact_sum(all, field(1, :), total)
    call check(nint(total) == 515*test_ranks + 2500*test_ranks*(test_ranks - 1), 'the sum of a row')
    call lockstep_check_replicas(all, 'every third', line(3:9:3))
  end subroutine

  subroutine test_agreements()
    character(len=256) :: errmsg
    integer :: stat, differing
    real(real64) :: replica(4, 4)
    call lockstep_agree(all, 'the mesh', at='program.f90:agree')
    call lockstep_same_on_all(all, 'tolerance', 1e-6_real64)
    call lockstep_same_on_all(all, 'scheme', 'upwind')
    call lockstep_same_on_all(all, 'periodic', .true.)
    call lockstep_same_on_all(all, 'cells', [3, 4])
    call lockstep_phase(all, 'checking')
    replica = 1
    stat = -1
    errmsg = 'as before'
    call lockstep_check_replicas(all, 'field', replica, differing, stat, errmsg)
    call check(stat == lockstep_ok .and. differing == -1 .and. errmsg == 'as before', 'equal replicas')
    if (test_ranks < 3) return
    if (test_rank == 1) replica(2, 2) = 2
    call lockstep_check_replicas(all, 'column', replica(2, :), differing, stat, errmsg)
    call check_refused(stat, errmsg, lockstep_replicas_differ, 'replica 1 (')
    call check(differing == 1, 'the rank that differs')
    call lockstep_check_replicas(all, 'other column', replica(3, :))
  end subroutine

  subroutine test_failures()
    character(len=256) :: errmsg
    integer :: stat
    real(real64) :: values(6), sums(2, 2)
    real(real32) :: singles(6)
    real(real64), allocatable :: none(:, :)
    logical :: is_last
    is_last = test_rank == test_ranks - 1
    values = 1
    singles = 1
    call lockstep_all_reduce(all, values(1:4), sums, stat=stat, errmsg=errmsg)
    call check_refused(stat, errmsg, lockstep_failure, 'different shapes')
    call of_assumed_size(values)
    call lockstep_broadcast(all, values, test_ranks, stat, errmsg)
    call check_refused(stat, errmsg, lockstep_failure, 'no rank of the group')
    if (.not. is_last) allocate (none(2, 3), source=1.0_real64)
    call lockstep_all_reduce(all, none, stat=stat, errmsg=errmsg, at='program.f90:none')
    call check_refused(stat, errmsg, merge(lockstep_failure, lockstep_peer_failed, is_last), &
      'lockstep_all_reduce (program.f90:none): the array is not allocated')
    if (test_ranks == 1) return
    if (is_last) then
      call lockstep_all_reduce(all, singles, stat=stat, errmsg=errmsg)
    else
      call lockstep_all_reduce(all, values, stat=stat, errmsg=errmsg)
    end if
    call check_refused(stat, errmsg, lockstep_mismatch, 'f32[6]')
    call lockstep_all_reduce(all, values(1:merge(3, 6, is_last)), stat=stat, errmsg=errmsg)
    call check_refused(stat, errmsg, lockstep_mismatch, 'f64[3]')
    call lockstep_agree(all, 'here', stat, errmsg, at=merge('the last ', 'the first', is_last))
    call check_refused(stat, errmsg, lockstep_mismatch, '(the last)')
    call lockstep_same_on_all(all, 'scheme', merge('upwind  ', 'centered', is_last), stat, errmsg)
    call check_refused(stat, errmsg, lockstep_mismatch, 'centered')
    call lockstep_all_reduce(all, values, exact=is_last, stat=stat, errmsg=errmsg)
    call check_refused(stat, errmsg, lockstep_mismatch, 'exact sum')
    if (is_last) then
      call lockstep_fail(all, 'there is no mesh', stat, errmsg)
      call check_refused(stat, errmsg, lockstep_failure, 'there is no mesh')
    else
      call lockstep_agree(all, 'the mesh', stat, errmsg)
      call check_refused(stat, errmsg, lockstep_peer_failed, 'failed: there is no mesh')
    end if
    call check(all_one(values), 'values as before')
  end subroutine

  logical function all_one(values)
    real(real64), intent(in) :: values(:)
    all_one = minval(values) == 1 .and. maxval(values) == 1
  end function

  subroutine of_assumed_size(values)
    real(real64), intent(inout) :: values(*)
    character(len=256) :: errmsg
    integer :: stat
    call lockstep_all_reduce(all, values(1:2), values(3:4))
    call check(nint(values(3)) == test_ranks, 'sums of an array of assumed size')
    values(3:4) = 1
    call lockstep_agree(all, 'assumed size', stat, errmsg)
    call check(stat == lockstep_ok, 'ranks in step')
  end subroutine

  ! Groups of a communicator that is an integer, as in mpi; and groups that are none.
  subroutine test_handles()
    type(lockstep_group) :: other, none
    type(MPI_Comm) :: turned
    character(len=256) :: errmsg
    integer :: stat
    integer(int32) :: value
    call MPI_Comm_split(MPI_COMM_WORLD, 0, -test_rank, turned)
    call lockstep_group_create(other, turned%MPI_VAL, stall_timeout=30.0_real64, stat=stat)
    call MPI_Comm_free(turned)
    call check(lockstep_rank(other) == test_ranks - 1 - test_rank, 'the order of the communicator')
    value = test_rank
    call lockstep_broadcast(other, value, 0)
    call check(value == test_ranks - 1, 'the value of the first of the other group')
    call lockstep_group_free(other, stat, errmsg)
    call check(stat == lockstep_ok, 'the end of the other group')
    call lockstep_all_reduce(none, value, stat=stat, errmsg=errmsg)
    call check_refused(stat, errmsg, lockstep_failure, 'the group is NULL')
    call check(lockstep_rank(none) == -1, 'no rank')
    call lockstep_group_create(none, MPI_COMM_NULL, stat=stat, errmsg=errmsg)
    call check_refused(stat, errmsg, lockstep_failure, 'MPI_COMM_NULL')
  end subroutine

  ! Without stat=: ranks that disagree, and a rank that is killed, of which the others are told.
  subroutine end_job(mode)
    character(len=*), intent(in) :: mode
    integer(int64) :: value
    interface
      function raise(signal) bind(C)
        use, intrinsic :: iso_c_binding, only: c_int
        integer(c_int), value :: signal
        integer(c_int) :: raise
      end function
    end interface
    if (mode == 'lost') then
      call lockstep_group_create(all, MPI_COMM_WORLD, on_lost=be_told)
      call lockstep_phase(all, 'marching')
      if (test_rank == 1) print *, raise(9)
    else
      call lockstep_group_create(all, MPI_COMM_WORLD)
    end if
    value = 1
    if (test_rank == 1) call lockstep_all_reduce(all, value, exact=.true.)
    call lockstep_agree(all, 'the end', at='program.f90:end')
    call check(.false., 'the end of the job')
  end subroutine
end program
