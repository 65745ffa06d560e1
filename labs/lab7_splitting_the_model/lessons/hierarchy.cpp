// For each size in bytes on the command line: nanoseconds of a read that has to wait for the one before it, and
// gigabytes a second of reads that need not wait. Prints a CSV.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

constexpr double at_least = 0.01;  // seconds of a measurement; of three the shortest counts
using Clock = std::chrono::steady_clock;

struct alignas(64) Line {  // as much as a cache fetches at once
    Line* next;
};

static volatile std::uint64_t sink;  // what is stored here has to be computed

template <class Work>
double shortest(Work work) {  // seconds of one piece of work, which says how many it has done
    double best = 1e9;
    for (int turn = 0; turn < 3; ++turn) {
        double seconds = 0, done = 0;
        const auto start = Clock::now();
        do {
            done += work();
            seconds = std::chrono::duration<double>(Clock::now() - start).count();
        } while (seconds < at_least);
        if (seconds / done < best) best = seconds / done;
    }
    return best;
}

int main(int count, char** sizes) {
    std::mt19937_64 random(1);
    std::printf("bytes,nanoseconds,gigabytes\n");
    for (int argument = 1; argument < count; ++argument) {
        const std::size_t bytes = std::strtoull(sizes[argument], nullptr, 10), lines = bytes / sizeof(Line);
        std::vector<Line> memory(lines);
        std::vector<std::size_t> turns(lines);
        for (std::size_t k = 0; k < lines; ++k) turns[k] = k;
        for (std::size_t k = lines - 1; k > 0; --k) std::swap(turns[k], turns[random() % (k + 1)]);
        for (std::size_t k = 0; k < lines; ++k) memory[turns[k]].next = &memory[turns[(k + 1) % lines]];

        Line* here = &memory[0];
        auto chase = [&] {
            for (int step = 0; step < 10000; ++step) here = here->next;
            return 10000;
        };
        for (std::size_t done = 0; done < 2 * lines; done += chase());  // fills the caches
        const double wait = shortest(chase);

        std::vector<std::uint64_t> numbers(bytes / 8, 1);
        auto read = [&] {
            std::uint64_t sum = 0;
            for (const auto number : numbers) sum += number;
            sink = sum;
            return 1;
        };
        read();
        const double pass = shortest(read);
        sink = reinterpret_cast<std::uint64_t>(here);
        std::printf("%zu,%.4g,%.4g\n", bytes, 1e9 * wait, 1e-9 * bytes / pass);
    }
}
