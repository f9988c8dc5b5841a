// What needy.cpp needs.
int gone() {
  return 0;
}
