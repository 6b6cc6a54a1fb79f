#!/bin/sh
# declared.sh bsrsparse.h: the public functions that the header declares, sorted.
sed '/^#endif .* BSRSPARSE_H /q' "$1" | sed -n 's/^BSR_API [^(]*\(bsr_[a-z0-9_]*\)(.*/\1/p' | sort
