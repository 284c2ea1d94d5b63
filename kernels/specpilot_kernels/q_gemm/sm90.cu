// y = x W^T over cheaper copies of W, 1 to 32 rows of x, on Hopper: the 8-bit view of W12 records, INT8 and INT6, by the
// kernels of the exact product.
#include "../w12_gemm/launch.cuh"

namespace {
using namespace w12;
constexpr int kMostRows = 32;
}  // namespace

// Both: arguments of product_arguments and run; return a cudaError_t.
extern "C" int specpilot_w12_view_gemm_sm90(const void* records, const void* bases, const void* slots, const void* escapes,
                                            const void* x, void* y, void* partials, void* flags, uint64_t mark, int n, int k, int m, int plan,
                                            void* stream) {
  Arguments args = product_arguments(records, x, y, partials, flags, mark, n, k, m);
  args.bases = static_cast<const uint8_t*>(bases);
  args.slots = static_cast<const uint2*>(slots);
  args.escapes = static_cast<const uint32_t*>(escapes);
  return run<formats::View, kMostRows>(plan, args, static_cast<cudaStream_t>(stream));
}

// num_bits: 8 or 6. scales: n.
extern "C" int specpilot_q_gemm_sm90(int num_bits, const void* records, const void* scales, const void* x, void* y, void* partials,
                                     void* flags, uint64_t mark, int n, int k, int m, int plan, void* stream) {
  auto* s = static_cast<cudaStream_t>(stream);
  Arguments args = product_arguments(records, x, y, partials, flags, mark, n, k, m);
  args.scales = static_cast<const float*>(scales);
  if (num_bits == 8) return run<formats::Int8, kMostRows>(plan, args, s);
  return num_bits == 6 ? run<formats::Int6, kMostRows>(plan, args, s) : cudaErrorInvalidValue;
}
