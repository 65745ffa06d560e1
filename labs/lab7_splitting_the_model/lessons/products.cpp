// Seconds of C += A B, matrices of n × n floats, for each "rows,depth" on the command line after n (a multiple of 32).
// Prints a CSV. 0: each number of C by itself, a row times a column. Above: blocks of rows × 32 numbers of C that stay in
// registers while `depth` of the n products are added to each. -1: as many multiply-adds, all of them in registers.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

using Matrix = std::vector<float>;
constexpr int width = 32;

static void row_times_column(int n, const Matrix& a, const Matrix& b, Matrix& c) {
    for (int i = 0; i < n; ++i)
        for (int j = 0; j < n; ++j) {
            float sum = 0;
            for (int p = 0; p < n; ++p) sum += a[i * n + p] * b[p * n + j];
            c[i * n + j] += sum;
        }
}

template <int rows>
static void blocked(int n, int depth, const Matrix& a, const Matrix& b, Matrix& c) {
    for (int first_p = 0; first_p < n; first_p += depth)
        for (int j = 0; j < n; j += width)
            for (int i = 0; i < n; i += rows) {
                float sums[rows][width] = {};
                for (int p = first_p; p < std::min(first_p + depth, n); ++p)
                    for (int row = 0; row < rows; ++row) {
                        const float factor = a[(i + row) * n + p];
                        for (int k = 0; k < width; ++k) sums[row][k] += factor * b[p * n + j + k];
                    }
                for (int row = 0; row < rows; ++row)
                    for (int k = 0; k < width; ++k) c[(i + row) * n + j + k] += sums[row][k];
            }
}

#if defined(__AVX512F__)
constexpr int lanes = 16;
#elif defined(__AVX__)
constexpr int lanes = 8;
#else
constexpr int lanes = 4;
#endif
typedef float Register __attribute__((vector_size(4 * lanes)));
static volatile float half = 0.5f, sink;  // the compiler can't know what is read from here, nor leave out what is stored

static void registers_alone(int n) {
    Register sums[10];  // enough of them that no multiply-add waits for the one before it
    for (Register& sum : sums) sum = half - Register{};
    const Register factor = half - Register{}, term = factor;
    for (long long left = 1LL * n * n * n / (10 * lanes); left > 0; --left)
        for (Register& sum : sums) sum = sum * factor + term;
    for (const Register& sum : sums) sink = sum[0];
}

static void multiply(int n, int rows, int depth, const Matrix& a, const Matrix& b, Matrix& c) {
    switch (rows) {
        case -1: return registers_alone(n);
        case 0: return row_times_column(n, a, b, c);
        case 1: return blocked<1>(n, depth, a, b, c);
        case 2: return blocked<2>(n, depth, a, b, c);
        case 4: return blocked<4>(n, depth, a, b, c);
        default: return blocked<8>(n, depth, a, b, c);
    }
}

int main(int count, char** arguments) {
    const int n = std::atoi(arguments[1]);
    const Matrix a(n * n, 1), b(n * n, 1);
    Matrix c(n * n);
    std::printf("rows,depth,seconds\n");
    for (int argument = 2; argument < count; ++argument) {
        int rows = 0, depth = n;
        std::sscanf(arguments[argument], "%d,%d", &rows, &depth);
        double best = 1e9;
        const int turns = rows > 0 ? 3 : rows < 0 ? 10 : 1;
        for (int turn = 0; turn < turns; ++turn) {
            std::fill(c.begin(), c.end(), 0.f);
            const auto start = std::chrono::steady_clock::now();
            multiply(n, rows, depth, a, b, c);
            best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
        }
        for (const float number : c)
            if (rows >= 0 && number != n) return 1;
        std::printf("%d,%d,%.6g\n", rows, depth, best);
    }
}
