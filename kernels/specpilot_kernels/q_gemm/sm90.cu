// y = x W^T over cheaper copies of W, 1 to 32 rows of x, on Hopper: the 8-bit view of W12 records, INT8 and INT6.
#include "../include/record_gemm.cuh"

namespace {
using record_gemm::Arguments;

// 128 rows of W a block, three blocks a multiprocessor, six stages each: the fastest of four tilings (NOTES.md).
template <class Format, class Output>
cudaError_t choose(const Arguments& args, const Output& output, const void* x, int k, void* stream) {
  auto* s = static_cast<cudaStream_t>(stream);
  if (args.m < 1 || args.m > 32 || args.n < 1 || k < 8 || k % 8) return cudaErrorInvalidValue;
  if (args.m <= 8) return record_gemm::launch<Format, 8, 1, 6, 3>(args, output, x, k, s);
  if (args.m <= 16) return record_gemm::launch<Format, 16, 1, 6, 3>(args, output, x, k, s);
  return record_gemm::launch<Format, 32, 1, 6, 3>(args, output, x, k, s);
}
}  // namespace

// splits: parts of K, 1 to 8, at most its 64-column tiles. Both return a cudaError_t.
extern "C" int specpilot_w12_view_gemm_sm90(const void* records, const void* bases, const void* slots, const void* escapes,
                                            const void* x, void* y, int n, int k, int m, int splits, void* stream) {
  const Arguments args = record_gemm::w12_arguments(records, bases, slots, escapes, n, k, m, splits);
  record_gemm::Plain output;
  output.y = static_cast<__nv_bfloat16*>(y);
  return choose<formats::View>(args, output, x, k, stream);
}

// num_bits: 8 or 6.
extern "C" int specpilot_q_gemm_sm90(int num_bits, const void* records, const void* scales, const void* x, void* y, int n,
                                     int k, int m, int splits, void* stream) {
  const Arguments args = record_gemm::arguments(records, n, k, m, splits);
  record_gemm::Scaled output;
  output.y = static_cast<__nv_bfloat16*>(y), output.scales = static_cast<const float*>(scales);
  if (num_bits == 8) return choose<formats::Int8>(args, output, x, k, stream);
  return num_bits == 6 ? choose<formats::Int6>(args, output, x, k, stream) : cudaErrorInvalidValue;
}
