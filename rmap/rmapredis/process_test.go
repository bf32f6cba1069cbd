package rmapredis_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/internal/proctest"
)

func TestMain(m *testing.M) {
	proctest.Play(map[string]proctest.Part{})
	goleak.VerifyTestMain(m)
}
