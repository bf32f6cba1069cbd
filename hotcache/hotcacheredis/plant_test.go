package hotcacheredis

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A plant is a defect in the scripts, and the test that must notice it.
type plant struct{ name, old, new, caught string }

func plants() []plant {
	return []plant{
		{"forgets who waits", "lease(load.token, load.min, '1')", "lease(load.token, load.min, '0')", "TestContract/leases/WakesByFill"},
		{"takes any item for its own", "if sub(text, 3, 18) ~= generation then\n    return nil\n  end\n  local keep", "local keep",
			"TestContract/floors/TooMany"},
		{"gives out any item", "string.sub(item, 1, 19) == known", "true", "TestLossBeginsAGeneration/floors_evicted"},
		{"takes any lease for its own", "not text or sub(text, 3, 18) ~= generation", "not text", "TestLossBeginsAGeneration/floors_evicted"},
		{"does not miss a half of the floors", "former > 0 and call('HLEN', FORMER) ~= former", "false",
			"TestLossBeginsAGeneration/former_floors_evicted"},
		{"does not look at the life of the server", "life ~= living()", "false", "TestOldDataBeginAGeneration"},
		{"does not miss the members", "members[#members] ~= ''", "false", "TestMembersForgotten"},
		{"is never in doubt", "  begin()\n  doubt()\n", "  begin()\n", "TestOldDataBeginAGeneration"},
		{"has no floor", "if below(VERSION, floor) then\n  return { 'o'", "if false then\n  return { 'o'", "TestContract/fills/BelowTheFloor"},
		{"looks at no item that is there", "there and below(VERSION, there.version)", "false", "TestContract/fills/BelowTheItem"},
		{"compares half a version", "if x ~= y then", "if false then", "TestContract/invalidations/RemovesWhatIsOlder"},
		{"is grown up at once", "now - born < ttl or", "", "TestContract/floors/Young"},
		{"forgets floors too early", "age >= 2 * ttl", "age >= ttl", "TestContract/floors/Remembered"},
		{"never forgets floors", "if age < ttl then", "if true then", "TestContract/floors/Remembered"},
		{"keeps a lease that was used", "call('DEL', LOAD)\nif below", "if below", "TestContract/leases/EndsWithTheFill"},
		{"removes nothing", "  call('UNLINK', ITEM)\nend\nlocal load", "end\nlocal load", "TestContract/invalidations/RemovesWhatIsOlder"},
		{"voids no lease", "load.why or VERSION == NONE or below(load.min, VERSION)", "load.why", "TestContract/invalidations/VoidsAnyLease"},
		{"has floors without end", ">= MOST", "< 0", "TestContract/floors/TooMany"},
		{"has nobody refresh", "tonumber(string.sub(item, 56, 71)) > now and", "", "TestContract/asks/Soft"},
		{"gives out whatever it looks at", "usual(item) and item", "item", "TestContractTogether/asks/Soft"},
		{"looks at others than it answers for", "out[i + 1] = usual", "out[#KEYS + 3 - i] = usual", "TestLookTogether"},
		{"forgets the mark", "if unnamed or VERSION == NONE then", "if VERSION == NONE then", "TestContract/floors/OneWithoutAVersion"},
		{"puts copies whatever is there", "and below(NUMBER, sub(old, 20, 35))", "and false", "TestContract/copies/OlderDoesNotReplace"},
		{"refuses what a full server must do", " flags=allow-oom", "", "TestFullServer"},
		{"numbers nothing", "number, nonce = number + 1, NONCE", "nonce = NONCE", "TestContract/invalidations/Numbers"},
	}
}

const envPlant = "LATCHKEY_TEST_PLANT"

// planted returns the scripts with the defect that the process was started for, or as they are.
func planted(s scripts) scripts {
	name := os.Getenv(envPlant)
	for _, p := range plants() {
		if p.name == name {
			for _, sc := range []*script{&s.ask, &s.look, &s.fill, &s.renew, &s.fail, &s.invalidate, &s.beat, &s.copied, &s.adopt} {
				*sc = newScript(strings.ReplaceAll(sc.text, p.old, p.new))
			}
		}
	}
	return s
}

// TestPlanted sees the tests fail: a defect in the scripts must be noticed by the test that is about it. All of them are
// tried in a soak, and one in four in every run.
func TestPlanted(t *testing.T) {
	if testing.Short() || os.Getenv(envPlant) != "" {
		t.Skip("each of the defects is a process")
	}
	s := newScripts("")
	texts := s.ask.text + s.look.text + s.fill.text + s.renew.text + s.fail.text + s.invalidate.text + s.beat.text + s.copied.text + s.adopt.text
	for i, p := range plants() {
		if os.Getenv("LATCHKEY_SOAK") == "" && i%4 != 0 {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(texts, p.old) {
				t.Fatalf("the scripts do not have %q any more", p.old)
			}
			parts := strings.Split(p.caught, "/")
			cmd := exec.Command(os.Args[0], "-test.v", "-test.timeout=120s", "-test.run=^"+strings.Join(parts, "$/^")+"$")
			cmd.Env = append(os.Environ(), envPlant+"="+p.name)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: "+p.caught+" ") {
				t.Errorf("%s did not notice: %v\n%.2000s", p.caught, err, out)
			}
		})
	}
}
