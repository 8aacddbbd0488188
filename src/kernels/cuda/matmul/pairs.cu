// Two neighbours by one load where the address is a multiple of both, else by two.
template <typename T>
__device__ __forceinline__ void load_pair_any(const T* p, float& a, float& b) {
  if (u64(p) % (2 * sizeof(T)) == 0) {
    load_pair(p, a, b);
  } else {
    a = load_value(p[0]), b = load_value(p[1]);
  }
}
