//go:build unix

package outbox_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/trial"
)

// The tests see what they are there for: each defect makes one of them fail.
func TestPlantedDefects(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the package once for each defect")
	}
	defects := []struct{ name, file, old, new, test string }{
		{"the row is not committed", "topic.go", "row, err := t.write(ctx, tx, key, v, t.o.Grace)",
			"inner, _ := tx.Begin(ctx)\n\trow, err := t.write(ctx, inner, key, v, t.o.Grace)\n\t_ = inner.Rollback(ctx)", "WriterKilled"},
		{"nothing is rolled back", "topic.go", "_ = tx.Rollback(ctx)", "_, _ = tx, ctx", "RolledBack"},
		{"an unknown outcome is told as none", "errors.go", `SeverityUnlocalized != "ERROR"`, `SeverityUnlocalized == ""`, "CommitUnknown"},
		// What follows fails by waiting for what does not come.
		{"rows that were taken are gone", "round.go", "interval '1 microsecond'\n\t\tfrom taken", "interval '1 second'\n\t\tfrom taken", "RelayKilled"},
		{"what failed is deleted", "round.go", "case d.err == nil:", "case true:", "CacheIsOut"},
		{"poisoned rows are tried with the others", "round.go", `r.take(ctx, db, "attempts = 0")`, `r.take(ctx, db, "id < 4")`, "Poisoned"},
		{"nobody is woken", "table.go", "err == nil && grace == 0", "err == nil && grace < 0", "Woken"},
	}
	if os.Getenv("LATCHKEY_SOAK") == "" {
		defects = defects[:3]
	}
	for _, d := range defects {
		t.Run(strings.ReplaceAll(d.name, " ", "_"), func(t *testing.T) {
			binary, _ := trial.Plant(t, d.file, d.old, d.new)
			cmd := exec.CommandContext(t.Context(), binary, "-test.run=^TestOutbox$/^"+d.test+"$", "-test.timeout=3m")
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("the tests pass with it:\n%s", out)
			}
		})
	}
}
