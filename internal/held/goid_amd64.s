#include "textflag.h"

// func gword(offset uintptr) uint64
TEXT ·gword(SB), NOSPLIT, $0-16
	MOVQ (TLS), AX
	MOVQ offset+0(FP), CX
	MOVQ (AX)(CX*1), DX
	MOVQ DX, ret+8(FP)
	RET
