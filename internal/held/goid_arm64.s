#include "textflag.h"

// func gword(offset uintptr) uint64
TEXT ·gword(SB), NOSPLIT, $0-16
	MOVD offset+0(FP), R0
	MOVD (g)(R0), R1
	MOVD R1, ret+8(FP)
	RET
