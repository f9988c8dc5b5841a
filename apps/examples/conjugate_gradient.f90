! Solves Poisson's equation on a square by conjugate gradients, whose iterates have the same bits on any number of
! ranks: mpirun -n 3 build/tests/fortran/example-conjugate-gradient
program conjugate_gradient
  use, intrinsic :: iso_fortran_env, only: int64, real64
  use mpi_f08
  use lockstep
  implicit none
  integer, parameter :: n = 96
  real(real64), parameter :: tolerance = 1e-8_real64
  real(real64), allocatable :: x(:, :), r(:, :), p(:, :), q(:, :)
  real(real64) :: squares, before, step, total
  type(lockstep_group) :: all
  integer :: rank, ranks, first, last, i, j, iteration = 0

  call MPI_Init()
  call lockstep_group_create(all, MPI_COMM_WORLD)
  call lockstep_same_on_all(all, 'tolerance', tolerance)
  rank = lockstep_rank(all)
  ranks = lockstep_size(all)
  if (ranks > n) call lockstep_fail(all, 'there are more ranks than columns')
  first = 1 + n*rank/ranks
  last = n*(rank + 1)/ranks

  ! The columns first to last are this rank's. p has its neighbours' next ones, and zeros around the square.
  allocate (x(n, first:last), r(n, first:last), q(n, first:last), p(0:n + 1, first - 1:last + 1))
  x = 0
  p = 0
  do j = first, last
    do i = 1, n
      r(i, j) = mod(7*i + 3*j, 11) - 5
    end do
  end do
  p(1:n, first:last) = r
  squares = dot(r, r)
  call lockstep_phase(all, 'iterating')
  do while (sqrt(squares) > tolerance)
    call exchange_columns()
    do j = first, last
      do i = 1, n
        q(i, j) = 4*p(i, j) - p(i - 1, j) - p(i + 1, j) - p(i, j - 1) - p(i, j + 1)
      end do
    end do
    step = squares/dot(p(1:n, first:last), q)
    x = x + step*p(1:n, first:last)
    r = r - step*q
    before = squares
    squares = dot(r, r)
    p(1:n, first:last) = r + squares/before*p(1:n, first:last)
    iteration = iteration + 1
    if (rank == 0 .and. mod(iteration, 50) == 0) &
      print '(a, i0, a, es9.3, a, z16.16)', 'iteration ', iteration, ': residual ', sqrt(squares), ', squares ', &
      transfer(squares, 0_int64)
  end do
  call lockstep_exact_sum(all, x, total)
  if (rank == 0) print '(i0, a, f0.6, a, z16.16)', iteration, ' iterations, sum of x ', total, ', ', &
    transfer(total, 0_int64)
  call lockstep_group_free(all)
  call MPI_Finalize()

contains

  ! The products are rounded one by one, in the same way on any rank, and their sum once.
  real(real64) function dot(a, b)
    real(real64), intent(in) :: a(:, :), b(:, :)
    call lockstep_exact_sum(all, a*b, dot)
  end function

  subroutine exchange_columns()
    integer :: left, right
    left = merge(rank - 1, MPI_PROC_NULL, first > 1)
    right = merge(rank + 1, MPI_PROC_NULL, last < n)
    call MPI_Sendrecv(p(1, first), n, MPI_DOUBLE_PRECISION, left, 0, p(1, last + 1), n, MPI_DOUBLE_PRECISION, right, 0, &
      MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    call MPI_Sendrecv(p(1, last), n, MPI_DOUBLE_PRECISION, right, 0, p(1, first - 1), n, MPI_DOUBLE_PRECISION, left, 0, &
      MPI_COMM_WORLD, MPI_STATUS_IGNORE)
  end subroutine
end program
