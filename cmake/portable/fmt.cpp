// fmt's functions as an archive has them, which Debian lacks: those of its headers, none of them left out
// (-fkeep-inline-functions).
#define FMT_HEADER_ONLY
#include <fmt/format.h>

template std::locale fmt::detail::locale_ref::get<std::locale>() const;
