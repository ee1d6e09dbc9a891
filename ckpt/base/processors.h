// Functions whose loops are worth the vectors of newer processors.
#pragma once

/// Before a function: it is compiled for several generations of processors, with what it inlines,
/// and the program's loader takes the one that fits. ThreadSanitizer is not yet ready when the
/// loader asks which.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define FERRY_FOR_EACH_PROCESSOR [[gnu::target_clones("default", "avx2", "arch=x86-64-v4")]]
#else
#define FERRY_FOR_EACH_PROCESSOR
#endif
