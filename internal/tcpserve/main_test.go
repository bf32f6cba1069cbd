package tcpserve

import (
	"testing"

	"go.uber.org/goleak"
)

// Nothing that a test started is left when all have ended.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
