package trial

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Plant builds the tests of the package in the working directory with a defect in
// file, a path from there: the text old, which must be in it exactly once, becomes
// new. The overlay has the go command read the source with the defect, for tests
// that build something themselves.
func Plant(t *testing.T, file, old, new string) (binary, overlay string) {
	t.Helper()
	dir := t.TempDir()
	overlay = plant(t, dir, file, old, new)
	binary = filepath.Join(dir, "planted.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-buildvcs=false", "-overlay="+overlay, "-o", binary, ".")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the planted defect does not build: %v\n%s", err, text)
	}
	return binary, overlay
}

// plant writes the source with the defect, and the overlay that puts it in place.
func plant(t *testing.T, dir, file, old, new string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.FromSlash(file))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), old); n != 1 {
		t.Fatalf("%s has %d times what the defect replaces, want once; adapt the defect:\n%s", file, n, old)
	}
	planted, overlay := filepath.Join(dir, filepath.Base(file)), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {path: planted}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{planted: strings.Replace(string(text), old, new, 1), overlay: string(list)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return overlay
}
