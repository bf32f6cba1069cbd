package tidy

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// An invocation is one use of the command in a shell block.
type invocation struct {
	path  string
	line  int
	verbs []string // words before the first flag or argument; which of them are verbs only the command knows
	flags []string // as written, without values
}

// shells are the languages of blocks that hold commands. In a console block only lines with a prompt are commands.
var shells = []string{"sh", "bash", "shell", "console"}

// TestCommands looks up every verb and flag of the command in the documents, and every target of the Makefile.
func TestCommands(t *testing.T) {
	repo := loadRepo(t)
	var uses []invocation
	for _, f := range repo.fences() {
		got, made := invocations(f)
		uses = append(uses, got...)
		for _, target := range made {
			if !repo.hasTarget(target) {
				t.Errorf("%s:%d: make %s: the Makefile has no such target", f.path, f.line, target)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(repoRoot(t), "cmd", "latchkey")); err != nil {
		t.Skip("cmd/latchkey is not in this tree, so its verbs and flags cannot be looked up")
	}
	binary := filepath.Join(t.TempDir(), "latchkey")
	if out, err := goCommand(t, repoRoot(t), "build", "-o", binary, "./cmd/latchkey"); err != nil {
		t.Fatalf("cmd/latchkey does not build: %v\n%s", err, out)
	}
	ask := func(verbs ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, binary, append(verbs, "--help")...).CombinedOutput()
		return string(out), err
	}
	for _, u := range uses {
		for _, problem := range u.check(ask) {
			t.Errorf("%s:%d: %s", u.path, u.line, problem)
		}
	}
	t.Logf("%d uses of latchkey in documents", len(uses))
}

func (t *tree) hasTarget(name string) bool {
	target := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `:`)
	return slices.ContainsFunc(t.sources, func(s *source) bool { return s.path == "Makefile" && target.Match(s.text) })
}

// check asks the command for help and looks the flags up in it.
func (u invocation) check(help func(verbs ...string) (string, error)) []string {
	var what, text string
	for n := min(1, len(u.verbs)); ; n++ {
		what = strings.Join(append([]string{"latchkey"}, u.verbs[:n]...), " ")
		var err error
		text, err = help(slices.Clone(u.verbs[:n])...)
		if err != nil || !strings.Contains(text, what) {
			return []string{fmt.Sprintf("there is no `%s`", what)}
		}
		// What follows a verb are its arguments, unless it has verbs of its own.
		if n == 0 || n == len(u.verbs) || !strings.Contains(text, "\n  "+what+" [command]\n") {
			break
		}
	}
	var out []string
	for _, f := range u.flags {
		if !regexp.MustCompile(`(?m)(^|[\s,\[|(])` + regexp.QuoteMeta(f) + `($|[^-a-z0-9])`).MatchString(text) {
			out = append(out, fmt.Sprintf("`%s` has no flag %s", what, f))
		}
	}
	return out
}

// invocations finds the uses of latchkey in a shell block, and the targets that it makes.
func invocations(f fence) (uses []invocation, targets []string) {
	if !slices.Contains(shells, f.lang) {
		return nil, nil
	}
	lines := strings.Split(f.text, "\n")
	for i := 0; i < len(lines); i++ {
		line, at := lines[i], f.line+i
		if prompted, ok := strings.CutPrefix(line, "$ "); ok {
			line = prompted
		} else if f.lang == "console" {
			continue
		}
		for strings.HasSuffix(line, "\\") && i+1 < len(lines) {
			i++
			line = strings.TrimSuffix(line, "\\") + " " + lines[i]
		}
		for _, words := range simpleCommands(line) {
			if verbs, flags, ok := latchkeyCall(words); ok {
				uses = append(uses, invocation{f.path, at, verbs, flags})
			}
			if len(words) > 1 && words[0] == "make" {
				targets = append(targets, words[1])
			}
		}
	}
	return uses, targets
}

// simpleCommands splits a line at the operators of the shell and at a lone --, behind which a command may stand.
// Quoted text is one word; it is long enough for documents, and no shell.
func simpleCommands(line string) [][]string {
	var out [][]string
	var words []string
	var word strings.Builder
	var quote rune
	inWord := false
	endWord := func() {
		if inWord {
			words = append(words, word.String())
			word.Reset()
			inWord = false
		}
	}
	endCommand := func() {
		endWord()
		if len(words) > 0 {
			out = append(out, words)
			words = nil
		}
	}
	for _, r := range line {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			} else {
				word.WriteRune(r)
			}
		case r == '\'' || r == '"':
			quote, inWord = r, true
		case r == '#' && !inWord:
			endCommand()
			return out
		case strings.ContainsRune("|&;()`", r):
			endCommand()
		case r == ' ' || r == '\t':
			lone := inWord && word.String() == "--"
			endWord()
			if lone {
				endCommand()
			}
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	endCommand()
	return out
}

// latchkeyCall recognises a call of the command, in front of which variables may be set and a wrapper may stand.
func latchkeyCall(words []string) (verbs, flags []string, ok bool) {
	at := slices.IndexFunc(words, func(w string) bool {
		return w == "latchkey" || strings.HasSuffix(w, "/latchkey")
	})
	if at < 0 {
		return nil, nil, false
	}
	for _, w := range words[:at] {
		if !strings.Contains(w, "=") && !slices.Contains([]string{"go", "run", "sudo", "exec", "time", "nohup", "env", "!",
			"if", "while", "then", "do", "$"}, w) {
			return nil, nil, false // an argument of something else
		}
	}
	for _, w := range words[at+1:] {
		switch {
		case w == "--":
		case strings.HasPrefix(w, "-") && len(w) > 1:
			name, _, _ := strings.Cut(w, "=")
			flags = append(flags, name)
		case len(flags) == 0:
			verbs = append(verbs, w)
		}
	}
	return verbs, flags, true
}

func TestInvocations(t *testing.T) {
	const text = `$ latchkey serve --data ./d --fsync=always &
latchkey run --ttl 30s \
  --wait 10s backup -- latchkey ls --json | head # latchkey no --such
FOO=1 go run ./cmd/latchkey status; make test && make nothing
git add cmd/latchkey
echo "latchkey quoted --flag" 'and latchkey'
latchkey lock 'a key' --label "for -- you"
latchkey
`
	got, made := invocations(fence{path: "d.md", line: 10, lang: "sh", text: text})
	want := []invocation{
		{"d.md", 10, []string{"serve"}, []string{"--data", "--fsync"}},
		{"d.md", 11, []string{"run"}, []string{"--ttl", "--wait"}},
		{"d.md", 11, []string{"ls"}, []string{"--json"}},
		{"d.md", 13, []string{"status"}, nil},
		{"d.md", 16, []string{"lock", "a key"}, []string{"--label"}},
		{"d.md", 17, nil, nil},
	}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if !slices.Equal(made, []string{"test", "nothing"}) {
		t.Errorf("targets %q", made)
	}
	if got, _ := invocations(fence{lang: "console", text: "latchkey out\n$ latchkey in\n"}); len(got) != 1 {
		t.Errorf("a console block has output too, got %+v", got)
	}
	if got, _ := invocations(fence{lang: "text", text: "latchkey ls\n"}); got != nil {
		t.Errorf("only shell blocks hold commands, got %+v", got)
	}
}

// TestCommandsAreRejected shows that what the command does not have does not pass.
func TestCommandsAreRejected(t *testing.T) {
	help := func(verbs ...string) (string, error) {
		switch strings.Join(verbs, " ") {
		case "":
			return "Usage:\n  latchkey [command]\n\nFlags:\n  -h, --help\n", nil
		case "run":
			return "Usage:\n  latchkey run KEY -- COMMAND\n\nFlags:\n      --ttl duration   how long\n      --wait-all\n  -q, --quiet\n", nil
		case "map":
			return "Usage:\n  latchkey map [command]\n", nil
		case "map del":
			return "Usage:\n  latchkey map del MAP KEY\n\nFlags:\n      --all   remove all keys\n", nil
		case "map ls":
			return "Usage:\n  latchkey map [command]\n", nil
		case "old":
			return "Usage:\n  latchkey [command]\n", nil
		}
		return "", fmt.Errorf("unknown command")
	}
	for line, want := range map[string]string{
		"latchkey":                      "",
		"latchkey --help":               "",
		"latchkey run --ttl 3s k -- ls": "",
		"latchkey run -q k -- true":     "",
		"latchkey gone k":               "there is no `latchkey gone`",
		"latchkey old k":                "there is no `latchkey old`",
		"latchkey map":                  "",
		"latchkey map del m --all":      "",
		"latchkey map del m --some":     "`latchkey map del` has no flag --some",
		"latchkey map ls m":             "there is no `latchkey map ls`",
		"latchkey run --wait 3s k":      "`latchkey run` has no flag --wait",
		"latchkey run --tt 3s k":        "`latchkey run` has no flag --tt",
		"latchkey run -x k":             "`latchkey run` has no flag -x",
		"latchkey --ttl=3s":             "`latchkey` has no flag --ttl",
	} {
		uses, _ := invocations(fence{lang: "sh", text: line + "\n"})
		if len(uses) == 0 {
			t.Errorf("%s: not seen as a use", line)
			continue
		}
		if got := strings.Join(uses[0].check(help), "; "); got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}
