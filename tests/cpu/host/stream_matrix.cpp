// Runs the kernel of a large operand times a small matrix, block after block and thread after thread. Reads the
// parameters, the elements of A, B, C and D, and these; writes D.
using namespace gett;
template <class T> T* read_tensor(int count) {
  T* const x = (T*)aligned_alloc(256, (count * sizeof(T) + 255) / 256 * 256);
  if (fread((void*)x, sizeof(T), count, stdin) != count) exit(3);
  return x;
}
int main() {
  typedef StreamMatrix<Traits, Index> Kernel;
  Params p;
  int sizes[4];
  if (fread(&p, sizeof p, 1, stdin) != 1 || fread(sizes, sizeof sizes, 1, stdin) != 1) return 2;
  p.a = read_tensor<Traits::ElementA>(sizes[0]);
  p.b = read_tensor<Traits::ElementB>(sizes[1]);
  p.c = read_tensor<Traits::ElementC>(sizes[2]);
  p.d = read_tensor<Traits::ElementD>(sizes[3]);
  p.alpha = convert<Traits::Acc>(ALPHA);
  p.beta = convert<Traits::Acc>(BETA);
  static Kernel::FactorB b[Kernel::kK * Kernel::kN];
  for (int block = 0; block < p.tiles; ++block) {
    const Kernel::Place at(p, block);
    for (int thread = 0; thread < Kernel::kThreads; ++thread) Kernel::load_b(p, at, b, thread);
    for (int thread = 0; thread < Kernel::kThreads; ++thread) Kernel::make(p, at, b, thread);
  }
  fwrite(p.d, sizeof(Traits::ElementD), sizes[3], stdout);
  free((void*)p.a);
  free((void*)p.b);
  free((void*)p.c);
  free((void*)p.d);
}
