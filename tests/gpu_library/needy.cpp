// A library that needs another one.
int gone();

int needy() {
  return gone();
}
