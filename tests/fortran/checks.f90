! Checks: each ends the job with its line if it fails.
module checks
  use, intrinsic :: iso_fortran_env, only: error_unit, output_unit
  use mpi_f08, only: MPI_Abort, MPI_COMM_WORLD
  implicit none
  integer :: test_rank = -1, test_ranks = -1
contains
  subroutine check(holds, what)
    logical, intent(in) :: holds
    character(len=*), intent(in) :: what
    if (holds) return
    write (error_unit, '(a, i0, 2a)') 'rank ', test_rank, ': expected ', what
    call MPI_Abort(MPI_COMM_WORLD, 99)
  end subroutine

  ! Whether a call failed with that code and a sentence with that text.
  subroutine check_refused(stat, errmsg, code, text)
    integer, intent(in) :: stat, code
    character(len=*), intent(in) :: errmsg, text
    call check(stat == code, 'another code than for '//trim(errmsg))
    call check(index(errmsg, text) > 0, text//' in '//trim(errmsg))
  end subroutine

  ! Of a lost rank.
  subroutine be_told(code, sentence)
    integer, intent(in) :: code
    character(len=*), intent(in) :: sentence
    print '(a, i0, 2a)', 'told ', code, ' ', sentence
    flush (output_unit)
  end subroutine
end module
